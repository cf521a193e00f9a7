"""`hopline mcp`: whatever comes in on standard input, lines of JSON-RPC go out and the pipe lives on."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import verdicts
from tests.fuzz.budget import inputs
from tests.fuzz.envelopes import calls
from tests.fuzz.ground import PATIENCE, Ground, unlike
from tests.fuzz.jsons import STRANGE, damaged, written
from tests.support.mesh_process import HOPLINE, clean_environment

LAST = (
    b'{"jsonrpc":"2.0","id":"the last","method":"tools/call","params":{"name":"list_agents","arguments":{}}}'
)


def piped(mesh: Ground, said: bytes) -> list[Any]:
    """Say this and hang up; returns the messages that came out, judged."""
    where = {"HOPLINE_URL": mesh.mesh.endpoints["gateway"], "HOPLINE_TOKEN_FILE": str(mesh.agent.token_file)}
    ran = subprocess.run(
        [HOPLINE, "mcp"],
        input=said,
        capture_output=True,
        env=clean_environment(mesh.mesh.processes.folder, where),
        timeout=PATIENCE,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == b""
    asked = unlike(said)
    found = []
    for line in ran.stdout.splitlines():
        verdicts.no_inside(line.decode(), asked)
        message = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        found.append(message)
    mesh.unharmed()
    return found


def lines(mesh: Ground) -> st.SearchStrategy[bytes]:
    """Draw lines, most of them hardly requests; none ends the line early."""
    whole = calls(mesh.known).map(written)
    bodies = calls(mesh.known, most=0).filter(lambda call: "wait_seconds" not in str(call)).map(written)
    return st.one_of(whole, damaged(bodies), st.binary(max_size=60), STRANGE.map(written))


@inputs(4)
@given(data=st.data())
def test_after_any_lines_the_next_good_one_is_answered(mesh: Ground, data: st.DataObject) -> None:
    said = data.draw(st.lists(lines(mesh), min_size=10, max_size=40))
    found = piped(mesh, b"\n".join([*said, LAST, b""]))
    assert [each["result"]["isError"] for each in found if each.get("id") == "the last"] == [False]


@inputs(3)
@given(cut=st.integers(1, len(LAST)))
def test_an_end_in_the_middle_of_a_line_ends_the_pipe(mesh: Ground, cut: int) -> None:
    found = piped(mesh, LAST + b"\n" + LAST[:-cut])
    assert len(found) == (1 if cut == len(LAST) else 2)


def test_a_line_of_many_megabytes_is_refused_and_the_next_one_served(mesh: Ground) -> None:
    found = piped(mesh, b'{"a":"' + b"x" * 9_000_000 + b'"}\n' + b"\xff" * 5_000_000 + b"\n" + LAST + b"\n")
    assert [each.get("id") for each in found] == [None, None, "the last"]
