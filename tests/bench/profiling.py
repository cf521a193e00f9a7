"""Where the mesh spends its time under one load: `python -m tests.bench.profiling ROW [SECONDS]`.

py-spy, installed under build/, samples the running mesh; what is printed is each function's share of the
samples, with what it calls (inclusive) and without (self), the event loop and the writers' threads alike.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, Final

from tests.bench.measures import sends, tools
from tests.bench.measures.asks import crowd
from tests.bench.measures.peers import uv
from tests.bench.processes import FOLDER, BenchError, Child
from tests.bench.rig import Rig

Load = Callable[[Rig], Child]
_TOOLS: Final = FOLDER / "tools"
_RATE: Final = 200
_SHOWN: Final = 45
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


def record(load: Load, request: Mapping[str, Any], seconds: float) -> tuple[dict[str, Any], list[str]]:
    """Play one round under py-spy; return its result and the sampled stacks, as `a;b;c COUNT`."""
    stacks = FOLDER / "stacks.txt"
    uv("venv", "--quiet", "--allow-existing", "--python", "3.11", str(_TOOLS))
    uv("pip", "install", "--quiet", "--python", str(_TOOLS / "bin" / "python"), "py-spy")
    with ExitStack() as stack:
        rig = Rig(stack)
        child = stack.enter_context(load(rig))
        child.ask({**request, "seconds": 1.0})
        spy = [
            str(_TOOLS / "bin" / "py-spy"),
            "record",
            "--format",
            "raw",
            "--output",
            str(stacks),
            "--threads",
        ]
        spy += ["--rate", str(_RATE), "--duration", str(int(seconds)), "--pid", str(rig.mesh.pid)]
        process = subprocess.Popen(spy, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        found = child.ask({**request, "seconds": seconds + 1})
        if process.wait(60) != 0:
            raise BenchError("py-spy failed; it may need the right to trace processes")
    return found, stacks.read_text(encoding="utf-8").splitlines()


def count(stacks: Iterable[str]) -> tuple[int, Counter[str], Counter[str], Counter[str]]:
    """Return the number of samples, those of each thread, each function's own, and those with its callees."""
    total, threads, own, inclusive = 0, Counter[str](), Counter[str](), Counter[str]()
    for line in stacks:
        stack, _, samples = line.rpartition(" ")
        frames = [_function(frame) for frame in stack.split(";")]
        number = int(samples)
        total += number
        threads[frames[0]] += number
        own[frames[-1]] += number
        for frame in set(frames[1:]):
            inclusive[frame] += number
    return total, threads, own, inclusive


def _function(frame: str) -> str:
    """Return `function (file)`, without the line."""
    return frame.rpartition(":")[0] + ")" if ":" in frame and frame.endswith(")") else frame


def main() -> int:
    """Profile one row; return the exit status."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in LOADS:
        print(f"which row? one of {', '.join(LOADS)}", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    found, stacks = record(*LOADS[name], float(sys.argv[2]) if len(sys.argv) > 2 else 10.0)
    total, *counters = count(stacks)
    print(f"{name}: {found['rate']:.0f}/s while sampled, {total} samples")
    for title, counter in zip(("thread", "self", "inclusive"), counters, strict=True):
        print(f"\n{title}")
        for function, samples in counter.most_common(_SHOWN):
            print(f"{samples / total:7.1%}  {function}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
