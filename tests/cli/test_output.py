"""What people and scripts get to see."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hopline_cli.app import run_app
from hopline_cli.commands.trace import trees
from hopline_cli.output import Output, moment, report
from hopline_rpc.errors import HoplineError
from hopline_rpc.spans import Row, SpanStore
from hopline_rpc.visible import visible
from hypothesis import given
from hypothesis import strategies as st

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("größe 😀\n\tnext", "größe 😀\n\tnext"),
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("a\rb\x9b1m", "a\\x0db\\x9b1m"),
        ("abc\u202ecba", "abc\\u202ecba"),
        ("\ud800", "\\ud800"),
        ("a\u061cb\u200bc\ufeffd\xad", "a\\u061cb\\u200bc\\ufeffd\\xad"),
        ("see\U000e0041\U000e0042", "see\\U000e0041\\U000e0042"),
        ("👩\u200d💻 नी\u200cल", "👩\u200d💻 नी\u200cल"),
    ],
)
def test_foreign_text_cannot_move_the_cursor_or_hide(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text())
def test_nothing_but_printable_text_and_line_ends_is_shown(text: str) -> None:
    shown = visible(text).replace("\n", "").replace("\t", "")
    assert not {unicodedata.category(each) for each in shown} & {"Cc", "Cs", "Zl", "Zp"}


def test_times_are_shown_to_the_second() -> None:
    assert moment("2026-11-30T14:00:56.624Z") == "2026-11-30 14:00:56"
    assert moment("2026-11-30") == "2026-11-30"


def test_a_cell_of_a_pipe_stays_in_its_column(capfd: pytest.CaptureFixture[str]) -> None:
    Output().rows("messages", [{"b": "one\ttwo\nthree"}], [("BODY", "b"), ("GONE", "x.y")])
    assert capfd.readouterr().out == "BODY\tGONE\none two three\t\n"


def test_an_empty_list_is_a_list(capfd: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).rows("agents", [], [("ID", "id")])
    assert json.loads(capfd.readouterr().out) == {"agents": [], "next_cursor": None}


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make standard output count as a terminal of 80 columns."""
    monkeypatch.setattr(Output, "is_terminal", property(lambda _: True))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.mark.usefixtures("terminal")
def test_in_a_terminal_ids_and_states_are_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    item = {"id": "agt_" + "0" * 26, "state": "active", "description": "many words " * 30}
    Output().rows(
        "agents", [item], [("ID", "id"), ("STATE", "state"), ("DESCRIPTION", "description")], "CURSOR"
    )
    shown = capsys.readouterr().out
    assert item["id"] in shown
    assert "active" in shown
    assert "--cursor CURSOR" in shown


@pytest.mark.usefixtures("terminal")
def test_in_a_terminal_an_empty_list_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    Output().rows("threads", [], [("ID", "id")])
    assert "no threads" in capsys.readouterr().out


def test_a_refusal_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    error = HoplineError("quota_exceeded", "the quota\nis \x1bused up", retry_after=5.0)
    report(error, as_json=False)
    assert capfd.readouterr().err == "error: the quota is \\x1bused up\n"
    report(error, as_json=True)
    shown = json.loads(capfd.readouterr().err)["error"]
    assert (shown["code"], shown["retryable"]) == ("quota_exceeded", True)
    assert shown["details"] == {"retry_after_seconds": 5.0}


# --- traces --------------------------------------------------------------------------------------


def row(span: str, parent: str, name: str, start: int = 0, **attributes: Any) -> Row:
    return Row(
        TRACE,
        span,
        parent,
        name,
        "server",
        "relay",
        start,
        start + 1_500_000,
        "unset",
        json.dumps(attributes),
        "[]",
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    written = SpanStore(tmp_path / "spans.db")
    written.write(
        [
            row("a", "", "tools/call ask", 1_000_000),
            row("b", "a", "hopline.relay.v1.MessageService/Ask", 2_000_000),
            row("c", "b", "invoke_agent reviewer", 4_000_000, **{
                "hopline.turn.id": "trn_1", "hopline.depth": 1, "gen_ai.agent.name": "reviewer",
                "error.type": "turn_failed",
            }),
            row("d", "gone", "from \x1b elsewhere", 9_000_000),
        ]
    )  # fmt: skip
    written.close()
    return tmp_path


@pytest.mark.parametrize("key", ["trn_1", TRACE, f"00-{TRACE}-b7ad6b7169203331-01"])
def test_a_trace_is_drawn_as_a_tree(store: Path, capfd: pytest.CaptureFixture[str], key: str) -> None:
    assert run_app(["trace", key, "--data", str(store)]) == 0
    assert capfd.readouterr().out.splitlines() == [
        f"trace {TRACE}",
        "├── tools/call ask  relay  +0 ms, 1.5 ms",
        "│   └── relay.v1.MessageService/Ask  relay  +1 ms, 1.5 ms",
        "│       └── invoke_agent reviewer  depth 1  trn_1  turn_failed  relay  +3 ms, 1.5 ms",
        "└── from \\x1b elsewhere  relay  +8 ms, 1.5 ms",
    ]


def test_a_trace_as_json_has_every_span(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_app(["trace", "trn_1", "--data", str(store), "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["trace_ids"] == [TRACE]
    assert [span["span_id"] for span in found["spans"]] == ["a", "b", "c", "d"]


def test_a_trace_that_is_not_there_says_where_traces_are(
    store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_app(["trace", "trn_2", "--data", str(store)]) == 1
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert f"no trace of trn_2 in {store / 'spans.db'}" in error


def test_a_chain_deeper_than_pythons_stack_is_put_together() -> None:
    spans = [
        {"trace_id": TRACE, "span_id": f"s{n}", "parent_id": f"s{n - 1}", "start_ns": n} for n in range(3000)
    ]
    [(_, [span])] = list(trees(spans))
    for _ in range(2999):
        [span] = span["children"]
    assert span["span_id"] == "s2999"


def test_spans_that_name_each_other_as_parents_are_no_endless_tree() -> None:
    spans = [
        {"trace_id": TRACE, "span_id": "a", "parent_id": "b", "start_ns": 0},
        {"trace_id": TRACE, "span_id": "b", "parent_id": "a", "start_ns": 1},
        {"trace_id": TRACE, "span_id": "c", "parent_id": "c", "start_ns": 2},
    ]
    assert [[span["span_id"] for span in tops] for _, tops in trees(spans)] == [["c"]]
