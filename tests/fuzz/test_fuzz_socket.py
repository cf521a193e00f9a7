"""A session's socket in a sandbox: what the command says there harms neither the daemon nor the mesh."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import verdicts
from tests.fuzz.budget import inputs
from tests.fuzz.envelopes import calls, headers
from tests.fuzz.ground import PATIENCE, Ground, unlike
from tests.fuzz.jsons import damaged, written
from tests.fuzz.test_fuzz_http import BODY, HEADERS, METHODS, TARGETS
from tests.fuzz.wire import answers, judged, said
from tests.support.mesh_process import HOPLINE, Process

# The command of a turn: it says where its socket is, and stays.
COMMAND = 'printf %s "$HOPLINE_SOCKET" > "$0.new" && mv "$0.new" "$0" && exec sleep 3600'


@dataclass(repr=False)
class Box:
    """A running turn's socket, and the daemon behind it."""

    socket: Path
    daemon: Process
    mesh: Ground

    def unharmed(self) -> None:
        """Check that the daemon and the mesh run and have complained of nothing."""
        assert self.daemon.is_running, self.daemon.said
        assert '"level": "error"' not in self.daemon.said, self.daemon.said
        assert "Traceback" not in self.daemon.said, self.daemon.said
        self.mesh.unharmed()


@pytest.fixture(scope="module")
def box(mesh: Ground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A turn that runs until the tests are done with it."""
    told = tmp_path_factory.mktemp("box") / "socket"
    where = ("--agent", "boxed", "--data", str(mesh.mesh.data), "--workspace", mesh.workspace)
    daemon = mesh.mesh.processes.start(
        "attach", HOPLINE, "attach", *where, "--", "/bin/sh", "-c", COMMAND, str(told)
    )
    asyncio.run(mesh.ask("boxed"))
    ends = time.monotonic() + 2 * PATIENCE
    while not told.exists():
        assert daemon.is_running, daemon.said
        assert time.monotonic() < ends, daemon.said
        time.sleep(0.05)
    yield Box(Path(told.read_text()), daemon, mesh)
    daemon.terminate()
    daemon.wait()


def posted(body: bytes, more: dict[str, str]) -> bytes:
    """Write a request as the pipe does, or with other headers."""
    lines = {"Host": "localhost", "Content-Type": "application/json", "Accept": "application/json", **more}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST /mcp HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body


@inputs(30)
@given(data=st.data())
def test_any_message_on_the_socket_gets_a_clean_answer(box: Box, data: st.DataObject) -> None:
    known = box.mesh.known
    bodies = calls(known, most=0).filter(lambda call: "wait_seconds" not in str(call)).map(written)
    body = data.draw(calls(known).map(written) | damaged(bodies))
    more = {name: value.strip() for name, value in data.draw(headers(known)).items()}
    more.pop("Content-Encoding", None)  # of the pipe's own making, never of a client's
    for found in answers(box.socket, posted(body, more), 1):
        judged(found, unlike(body) + str(more))
    box.unharmed()


@inputs(30)
@given(data=st.data())
def test_any_bytes_on_the_socket_end_in_bounded_time(box: Box, data: st.DataObject) -> None:
    lines = [
        b"Host: localhost",
        *data.draw(st.lists(HEADERS, max_size=4)),
        b"",
        data.draw(st.just(BODY) | st.just(b"")),
    ]
    made = data.draw(METHODS) + b" " + data.draw(TARGETS) + b" HTTP/1.1\r\n" + b"\r\n".join(lines)
    raw = data.draw(st.just(made) | damaged(st.just(posted(BODY, {}))) | st.binary(max_size=200))
    answer = unlike(said(box.socket, raw))
    # What is no HTTP at all is answered by the library, which gives its name.
    verdicts.no_inside(re.sub(r"Server: .*", "", answer), unlike(raw))
    box.unharmed()


def test_the_socket_serves_after_all_that(box: Box) -> None:
    [found] = answers(box.socket, posted(BODY, {}), 1)
    assert found.status == 200
    assert b'"isError":false' in found.body


def test_bytes_that_are_no_http_are_no_defect_of_the_daemon(box: Box) -> None:
    head = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 18446744073709551616\r\n\r\n"
    assert [found.status for found in answers(box.socket, head, 1)] == [400]
    said(box.socket, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)  # and hang up
    box.unharmed()
