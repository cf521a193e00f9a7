"""Where the mesh spends its time under one load: `python -m tests.bench.profiling ROW [SECONDS]`.

First the processor time of each thread, a call, beside that of its floor: on a busy machine the only
figures that can be trusted. Then py-spy, installed under build/, samples the threads: of the event loop and
of each writer, the share of the samples in Python code that each function has, with what it calls
(inclusive) and without (self). What gRPC and the loop do in C, and waiting, look alike and are left out.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, Final

import psutil

from tests.bench.measures import sends, tools
from tests.bench.measures.asks import crowd
from tests.bench.measures.peers import uv
from tests.bench.processes import FOLDER, BenchError, Child
from tests.bench.rig import Rig

Load = Callable[[Rig], Child]
_TOOLS: Final = FOLDER / "tools"
_RATE: Final = 200
_SHOWN: Final = 60
_THREADS: Final = 4
# Where a thread is when it waits, or is in C code of the event loop and of gRPC.
_IDLE: Final = ("Runner.run ", "Writer._work ", "_worker ", "Condition.wait ")
LOADS: Final[Mapping[str, tuple[Load, Mapping[str, Any]]]] = {
    "send_unary_embedded": (
        lambda rig: sends.unary_load(rig.mesh, rig.tokens),
        {"call": "send", "outstanding": 64},
    ),
    "send_tunnel_embedded": (sends.tunnel_load, {"call": "send", "outstanding": 64}),
    "ask_one_stream": (
        lambda rig: crowd(rig, "load-asks", own_streams=False),
        {"call": "ask", "outstanding": 64},
    ),
    "ask_c1": (lambda rig: crowd(rig, "load-asks", own_streams=False), {"call": "ask", "outstanding": 1}),
    "mcp_send_legacy": (tools.load, {"era": "legacy", "outstanding": 32}),
    "mcp_send_modern": (tools.load, {"era": "modern", "outstanding": 32}),
}


def processor_time(pid: int) -> dict[int, float]:
    """Return the seconds of processor time that each thread has used."""
    return {thread.id: thread.user_time + thread.system_time for thread in psutil.Process(pid).threads()}


def cost(child: Child, pid: int, request: Mapping[str, Any], seconds: float) -> tuple[float, list[float]]:
    """Play one round; return calls a second, and the busiest threads' processor time a call, in µs."""
    before = processor_time(pid)
    found = child.ask({**request, "seconds": seconds})
    calls = found["rate"] * seconds
    spent = (used - before.get(thread, 0.0) for thread, used in processor_time(pid).items())
    return found["rate"], [each / calls * 1e6 for each in sorted(spent, reverse=True)[:_THREADS]]


def sample(child: Child, pid: int, request: Mapping[str, Any], seconds: float) -> list[str]:
    """Play one round under py-spy; return the sampled stacks, each as `a;b;c COUNT`."""
    python, stacks = _TOOLS / "bin" / "python", FOLDER / "stacks.txt"
    uv("venv", "--quiet", "--allow-existing", "--python", "3.11", str(_TOOLS))
    uv("pip", "install", "--quiet", "--python", str(python), "py-spy")
    spy = [str(python.parent / "py-spy"), "record", "--threads", "--format", "raw", "--output", str(stacks)]
    spy += ["--rate", str(_RATE), "--duration", str(int(seconds)), "--pid", str(pid)]
    process = subprocess.Popen(spy, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    child.ask({**request, "seconds": seconds + 1})
    if process.wait(60) != 0:
        raise BenchError("py-spy failed; it may need the right to trace processes")
    return stacks.read_text(encoding="utf-8").splitlines()


def count(stacks: Iterable[str], thread: str) -> tuple[Counter[str], Counter[str]]:
    """Return, for threads of a name, the samples of each function with its callees, and without."""
    inclusive, own = Counter[str](), Counter[str]()
    for line in stacks:
        stack, _, samples = line.rpartition(" ")
        name, *frames = [_function(frame) for frame in stack.split(";")]
        if thread not in name or not frames or frames[-1].startswith(_IDLE):
            continue
        own[frames[-1]] += int(samples)
        for frame in set(frames):
            inclusive[frame] += int(samples)
    return inclusive, own


def _function(frame: str) -> str:
    """Return `function (file)`, without the line."""
    return frame.rpartition(":")[0] + ")" if ":" in frame and frame.endswith(")") else frame


def show(stacks: Iterable[str], thread: str) -> None:
    """Print the two lists of one thread."""
    for title, counter in zip(("inclusive", "self"), count(stacks, thread), strict=True):
        total = max(counter.values(), default=1) if title == "inclusive" else max(counter.total(), 1)
        print(f"\n{thread}, {title}")
        for function, samples in counter.most_common(_SHOWN):
            print(f"{samples / total:7.1%}  {function}")


def floor(rig: Rig, stack: ExitStack, request: Mapping[str, Any]) -> tuple[Child, Mapping[str, Any], int]:
    """Start what a load is compared with; returns the load on it, what to ask of that, and its process."""
    if "era" in request:
        server = stack.enter_context(tools.floor_server())
        return stack.enter_context(tools.floor_load(server)), request, server.pid
    return rig.echo, {"call": "echo", "outstanding": request["outstanding"]}, rig.echo_server.pid


def main() -> int:
    """Profile one row; return the exit status."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in LOADS:
        print(f"which row? one of {', '.join(LOADS)}", file=sys.stderr)
        return 2
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 10.0
    FOLDER.mkdir(parents=True, exist_ok=True)
    load, request = LOADS[name]
    with ExitStack() as stack:
        rig = Rig(stack)
        echo, child = floor(rig, stack, request), stack.enter_context(load(rig))
        for each, what, pid, title in (
            (*echo, "the floor"),
            (child, request, rig.mesh.pid, name),
        ):
            each.ask({**what, "seconds": 1.0})
            rate, threads = cost(each, pid, what, seconds / 2)
            print(f"{title}: {rate:.0f}/s; µs a call by thread: {', '.join(f'{t:.0f}' for t in threads)}")
        stacks = sample(child, rig.mesh.pid, request, seconds)
    for thread in ("MainThread", "relay writer"):
        show(stacks, thread)
    return 0


if __name__ == "__main__":
    sys.exit(main())
