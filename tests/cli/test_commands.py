"""The commands against a real mesh: what they print, how they refuse, how they exit."""

from __future__ import annotations

import json
import stat
import uuid
from pathlib import Path

import pytest
from hopline_cli.commands import audit
from hopline_cli.commands.manage import seconds_until
from hopline_cli.output import Output

from tests.cli.conftest import Run


def name(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def agent(hopline: Run) -> str:
    return str(hopline("agent", "create", name("agent")).json["slug"])


# --- agents --------------------------------------------------------------------------------------


def test_an_agent_is_created_with_a_token_that_is_shown_once(hopline: Run) -> None:
    wanted = name("planner")
    made = hopline("agent", "create", wanted).json
    assert made["name"] == wanted
    assert made["slug"] == wanted
    assert made["id"].startswith("agt_")
    assert made["token"].startswith("hpl_a_")
    assert made["state"] == "active"
    shown = hopline("agent", "show", wanted).json
    assert shown["id"] == made["id"]
    assert "token" not in shown


def test_without_json_the_token_is_in_one_line_or_in_a_private_file(plain: Run, tmp_path: Path) -> None:
    said = plain("agent", "create", name("a"))
    assert "token (shown once): hpl_a_" in said.out
    file = tmp_path / "agent.token"
    file.write_text("old")
    file.chmod(0o644)
    said = plain("agent", "create", name("a"), "--token-file", str(file))
    assert "hpl_a_" not in said.out
    assert file.read_text().startswith("hpl_a_")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_token_file_that_cannot_be_written_does_not_lose_the_token(plain: Run, tmp_path: Path) -> None:
    said = plain("agent", "create", name("a"), "--token-file", str(tmp_path / "missing" / "file"))
    assert said.status == 0
    assert "hpl_a_" in said.out
    assert "could not be written" in said.out


def test_every_option_of_an_agent_is_kept_and_can_be_changed(hopline: Run, tmp_path: Path) -> None:
    other = hopline("agent", "create", name("other")).json["id"]
    soul = tmp_path / "soul.md"
    soul.write_text("You are kind.\n")
    options = [
        "--kind", "receive-only", "--description", "d", "--soul", f"@{soul}", "--instructions", "i",
        "--model", "m", "--thinking-level", "high", "--reply-mode", "implicit", "--reach", other,
        "--group-only", "--tools", "ask,check", "--label", "team=red", "--label", "x=", "--key", name("k"),
    ]  # fmt: skip
    made = hopline("agent", "create", name("full"), *options).json
    assert made["kind"] == "receive_only"
    assert made["soul"] == "You are kind.\n"
    assert made["thinking_level"] == "high"
    assert made["reply_mode"] == "implicit"
    assert made["reach"] == [other]
    assert made["is_group_only_callable"] is True
    assert made["tools"] == ["ask", "check"]
    assert made["labels"] == {"team": "red", "x": ""}
    changed = hopline(
        "agent", "set", made["slug"], "--kind", "standard", "--reach", "", "--no-group-only", "--name", "N"
    ).json
    assert (changed["kind"], changed["reach"], changed["is_group_only_callable"]) == ("standard", [], False)
    assert changed["name"] == "N"
    assert changed["soul"] == "You are kind.\n"


def test_an_agent_is_paused_resumed_and_deleted(hopline: Run, agent: str) -> None:
    assert hopline("agent", "pause", agent).json["state"] == "paused"
    assert hopline("agent", "resume", agent).json["state"] == "active"
    assert hopline("agent", "delete", agent).json == {"agent": agent, "deleted": True}
    assert hopline("agent", "show", agent).error["code"] == "not_found"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--kind", "robot"], "'robot' is not one of standard, receive-only"),
        (["--thinking-level", "deep"], "off, low, medium, high"),
        (["--wake", "cron"], "'cron' is not one of none, exec, webhook"),
        (["--wake", "webhook"], "an http(s) address"),
        (["--wake", "exec", "--wake-url", "http://x"], "goes with --wake webhook"),
        (["--wake-secret-file", "x"], "goes with --wake webhook"),
        (["--label", "x"], "'x' is not KEY=VALUE"),
        (["--soul", "@/no/such/file"], "/no/such/file cannot be read"),
        (["--nonsense"], "No such option: --nonsense"),
    ],
)
def test_a_wrong_option_is_usage(plain: Run, options: list[str], words: str) -> None:
    said = plain("agent", "create", "x", *options)
    assert said.status == 2
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert words in said.err
    assert "see `hopline agent create --help`" in said.err


def test_changing_nothing_is_usage(plain: Run, agent: str) -> None:
    said = plain("agent", "set", agent)
    assert said.status == 2
    assert "give at least one option" in said.err


# --- people, roles, tokens, policies --------------------------------------------------------------


def test_a_person_gets_a_role_on_an_agent_and_loses_it_again(hopline: Run, agent: str) -> None:
    person = name("bob")
    made = hopline("user", "create", person).json
    assert made["token"].startswith("hpl_u_")
    granted = hopline("role", "grant", person, "operator", "--agent", agent).json
    assert granted["user_id"] == made["id"]
    assert granted["role"] == "operator"
    roles = hopline("role", "list", "--limit", "0").json["roles"]
    assert granted in roles
    assert hopline("role", "revoke", person, "operator", "--agent", agent).status == 0
    assert granted not in hopline("role", "list", "--limit", "0").json["roles"]


def test_a_role_that_is_none_is_usage(plain: Run) -> None:
    said = plain("role", "grant", "bob", "boss")
    assert said.status == 2
    assert "viewer, operator or admin" in said.err


def test_a_token_is_made_listed_and_revoked(hopline: Run, agent: str) -> None:
    made = hopline("token", "create", "--agent", agent, "--expires", "1h", "--name", "laptop").json
    assert made["token"].startswith("hpl_a_")
    assert made["expires_at"] > made["created_at"]
    listed = {each["id"]: each for each in hopline("token", "list", "--agent", agent).json["tokens"]}
    assert listed[made["id"]]["name"] == "laptop"
    assert "token" not in listed[made["id"]]
    assert hopline("token", "revoke", made["id"]).json == {"id": made["id"], "revoked": True}


@pytest.mark.parametrize("subject", [[], ["--agent", "a", "--user", "b"]])
def test_a_token_is_for_exactly_one(plain: Run, subject: list[str]) -> None:
    said = plain("token", "create", *subject)
    assert said.status == 2
    assert "one of --agent A, --user U, --service NAME" in said.err


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", 0),
        ("90", 90),
        ("90s", 90),
        ("15m", 900),
        ("2h", 7200),
        ("30d", 2592000),
        ("1970-01-01T00:20:00Z", 200),
    ],
)
def test_an_expiry_is_a_duration_or_a_time(text: str, seconds: int) -> None:
    assert seconds_until(text, 1000.0) == seconds


@pytest.mark.parametrize(
    "text", ["soon", "-5", "0", "5w", "1970-01-01T00:00:00Z", "2027-01-31T00:00:00", "1e9"]
)
def test_an_expiry_that_is_none_or_has_passed_is_usage(plain: Run, text: str) -> None:
    said = plain("token", "create", "--agent", "x", f"--expires={text}")
    assert said.status == 2
    assert "--expires" in said.err


def test_single_limits_are_set_and_presets_replace_all(hopline: Run) -> None:
    workspace = ("--workspace", hopline("workspace", "create", name("ws")).json["name"])
    changed = hopline("policy", "set", "max_depth=2", "pair_budget=5/60s", "batch_inbox=yes", *workspace).json
    assert (changed["max_depth"], changed["pair_budget"], changed["batch_inbox"]) == (2, "5/60s", True)
    assert changed["messages_per_thread"] == 20
    assert hopline("policy", "preset", "strict", *workspace).json["max_depth"] == 2
    assert hopline("policy", "show", *workspace).json["batch_inbox"] is False


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("max_depth", "is not KEY=VALUE"),
        ("depth=1", "'depth' is no policy key: max_depth, "),
        ("preset=x", "'preset' is no policy key"),
        ("max_depth=two", "max_depth is a whole number, not 'two'"),
        ("max_depth=-1", "max_depth is a whole number"),
        ("max_depth=4294967296", "max_depth is a whole number"),
        ("max_depth=²", "max_depth is a whole number"),
        ("batch_inbox=2", "batch_inbox is true or false, not '2'"),
    ],
)
def test_a_limit_that_is_none_is_usage(plain: Run, setting: str, words: str) -> None:
    said = plain("policy", "set", setting)
    assert said.status == 2
    assert words in said.err


def test_a_limit_out_of_its_range_is_refused_by_the_mesh(hopline: Run) -> None:
    error = hopline("policy", "set", "max_depth=33").error
    assert error["code"] == "invalid_argument"
    assert "max_depth" in error["message"]


def test_workspaces_are_worlds_of_their_own(hopline: Run, agent: str) -> None:
    made = hopline("workspace", "create", name("ws")).json
    assert set(made) >= {"id", "name"}
    assert hopline("agent", "list", "--workspace", made["name"]).json == {"agents": [], "next_cursor": None}
    assert hopline("agent", "show", agent, "--workspace", made["name"]).error["code"] == "not_found"


# --- lists ---------------------------------------------------------------------------------------


def test_a_list_pages_by_itself_and_says_where_it_goes_on(hopline: Run) -> None:
    workspace = ("--workspace", hopline("workspace", "create", name("ws")).json["name"])
    people = sorted(hopline("user", "create", f"u{n}", *workspace).json["id"] for n in range(3))
    first = hopline("user", "list", "--limit", "2", *workspace).json
    rest = hopline("user", "list", "--limit", "0", "--cursor", first["next_cursor"], *workspace).json
    listed = [each["id"] for each in first["users"] + rest["users"]]
    assert rest["next_cursor"] is None
    assert len(first["users"]) == 2
    assert set(people) < set(listed)
    assert len(listed) == len(set(listed)) == 4  # and the user `admin`


def test_a_negative_limit_is_refused(hopline: Run) -> None:
    assert "--limit" in hopline("user", "list", "--limit", "-1").error["message"]


def test_into_a_pipe_a_list_is_columns_with_tabs(plain: Run, agent: str) -> None:
    lines = plain("agent", "list", "--limit", "0").out.splitlines()
    assert lines[0].split("\t")[:4] == ["SLUG", "NAME", "STATE", "PRESENCE"]
    [mine] = [line.split("\t") for line in lines if line.startswith(f"{agent}\t")]
    assert mine[:4] == [agent, agent, "active", "offline"]


# --- messages ------------------------------------------------------------------------------------


def test_a_message_is_sent_seen_unread_and_read_in_its_thread(hopline: Run, plain: Run, agent: str) -> None:
    sent = hopline("send", agent, "hello 😀", "--subject", "greeting", "--payload", '{"n": [1, null]}').json
    assert sent["deliveries"][0]["agent"] == agent
    assert sent["deliveries"][0]["status"] == "queued"
    assert sent["depth"] == 0
    [unread] = hopline("inbox", "--agent", agent).json["messages"]
    [again] = hopline("inbox", "--agent", agent).json["messages"]
    assert unread["deliveries"] == again["deliveries"]
    [message] = hopline("thread", sent["thread_id"]).json["messages"]
    assert message["id"] == message["message_id"] == sent["message_id"]
    assert (message["body"], message["subject"]) == ("hello 😀", "greeting")
    assert message["payload"] == {"n": [1, None]}
    assert message["from"]["name"] == "admin"
    [thread] = hopline("threads", "--agent", agent).json["threads"]
    assert thread["id"] == sent["thread_id"]
    assert thread["message_count"] == 1
    shown = plain("thread", sent["thread_id"]).out
    assert "→ " in shown
    assert "hello 😀" in shown


def test_a_text_can_come_from_a_file(hopline: Run, agent: str, tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("from a file\n")
    sent = hopline("send", agent, f"@{file}").json
    assert hopline("thread", sent["thread_id"]).json["messages"][0]["body"] == "from a file\n"


def test_the_same_request_id_sends_once(hopline: Run, agent: str) -> None:
    request = ("--request-id", str(uuid.uuid4()))
    first = hopline("send", agent, "once", *request).json
    assert hopline("send", agent, "once", *request).json["message_id"] == first["message_id"]
    assert hopline("send", agent, "other", *request).error["code"] == "request_id_conflict"


def test_a_payload_that_is_no_json_is_usage(plain: Run, agent: str) -> None:
    said = plain("send", agent, "x", "--payload", "{a")
    assert said.status == 2
    assert "--payload" in said.err


def test_nobody_answers_at_once_and_a_wait_may_end_before_the_work(hopline: Run, agent: str) -> None:
    asked = hopline("ask", agent, "are you there?", "--wait", "0").json
    assert asked["status"] in {"queued", "running"}
    assert "reply" not in asked
    assert asked["turn_id"].startswith("trn_")
    assert hopline("cancel", asked["turn_id"]).json["status"] == "canceled"
    chatted = hopline("chat", agent, "and now?", "--wait", "0").json
    assert hopline("cancel", chatted["session_id"]).json == {"status": "canceled", "canceled": 1}
    titles = {each["channel"] for each in hopline("sessions", "--agent", agent).json["sessions"]}
    assert titles == {"relay", "human"}
    transcript = hopline("sessions", chatted["session_id"]).json["entries"]
    assert transcript[0]["text"] == "and now?"


def test_sessions_say_whose_children_they_are(hopline: Run, plain: Run, agent: str) -> None:
    chatted = hopline("chat", agent, "go", "--wait", "0").json
    listed = hopline("sessions", "--agent", agent).json["sessions"]
    assert [(each["child"], each["live_children"]) for each in listed] == [(None, 0)] * len(listed)
    assert hopline("sessions", "--children").json["sessions"] == []
    assert hopline("sessions", "--of", chatted["session_id"]).json["sessions"] == []
    said = plain("session", chatted["session_id"], "--close")
    assert said.status == 1
    assert "start_subagent" in said.err
    hopline("cancel", chatted["session_id"])


def test_what_was_cancelled_fails_whoever_waits_for_it(hopline: Run, plain: Run, agent: str) -> None:
    hopline("agent", "pause", agent)
    said = plain("ask", agent, "hello", "--wait", "1")
    assert said.status == 1
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1


def test_an_agent_that_does_not_exist_is_one_line_that_says_so(hopline: Run, plain: Run) -> None:
    assert hopline("send", "nobody-of-that-name", "x").error["code"] == "not_found"
    said = plain("send", "nobody-of-that-name", "x")
    assert said.status == 1
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "nobody-of-that-name" in said.err


def test_usage_shows_every_limit_and_what_is_used(hopline: Run, agent: str) -> None:
    hopline("send", agent, "count me")
    used = hopline("usage", "--agent", agent).json
    assert used["received_today"] == 1
    assert used["inbox"] == 1
    assert used["limits"]["received_per_day"] == "500"
    assert used["resets_at"].endswith("T00:00:00.000Z")
    everyone = hopline("usage", "--limit", "0").json["agents"]
    assert {each["agent"]: each["received_today"] for each in everyone}[agent] == 1


def test_the_audit_log_has_what_was_sent_and_what_was_refused(hopline: Run, plain: Run, agent: str) -> None:
    hopline("send", agent, "on the record")
    events = hopline("audit", "--agent", agent, "--action", "message.").json["events"]
    assert [each["action"] for each in events] == ["message.sent"]
    assert events[0]["actor"]["name"] == "admin"
    assert "on the record" not in json.dumps(events)
    newest = hopline("audit", "--limit", "2").json
    assert newest["events"][0]["seq"] < newest["events"][1]["seq"]
    assert newest["next_cursor"]
    assert "message.sent" in plain("audit", "--agent", agent).out


def test_the_words_of_others_in_the_audit_log_begin_no_line_of_their_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    forged = "no\n2026-01-01T00:00:00.000Z  token.created  admin"
    actor = {"kind": "plugin", "id": "plg_1", "display": "Shop"}
    event = {"at": "2026-12-01T04:39:47.000Z", "action": "hook.vetoed", "actor": actor}
    audit._show(Output(), {**event, "details": {"reason": forged, "hook": "inter_agent_message"}})
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 1
    assert "reason=" + json.dumps(forged) in shown[0]


def test_the_audit_log_is_proven_and_its_head_is_kept(
    hopline: Run, plain: Run, agent: str, tmp_path: Path
) -> None:
    keep = tmp_path / "head"
    first = hopline("audit", "verify", "--keep", str(keep)).json
    assert keep.read_text().strip() == first["head"]
    hopline("send", agent, "once more")
    again = hopline("audit", "verify", "--head", first["head"], "--after-head").json
    seq, kept = int(again["head"].partition(":")[0]), int(first["head"].partition(":")[0])
    assert again["checked"] == seq - kept
    assert again["checked"] + again["unsealed"] > 0
    assert f"has passed the kept head {kept}" in plain("audit", "verify", "--keep", str(keep)).out
    assert keep.read_text().strip() == again["head"]


def test_a_kept_head_that_the_log_has_not_passed_is_said_on_one_line(hopline: Run, agent: str) -> None:
    hopline("send", agent, "hello")
    seq, _, chained = hopline("audit", "verify").json["head"].partition(":")
    wrong = f"{seq}:{chained[::-1]}"
    error = hopline("audit", "verify", "--head", wrong).error
    assert (error["code"], error["details"]["kind"]) == ("failed_precondition", "kept")
    usage = hopline("audit", "verify", "--head", "12")
    assert usage.status == 2
    assert "N:HASH" in usage.err
    nothing_kept = hopline("audit", "verify", "--after-head")
    assert nothing_kept.status == 2
    assert "--keep FILE" in nothing_kept.err


def test_a_head_that_cannot_be_kept_is_told_with_why(hopline: Run, agent: str, tmp_path: Path) -> None:
    hopline("send", agent, "hello")
    refused = hopline("audit", "verify", "--keep", str(tmp_path / "nowhere" / "head"))
    assert refused.status == 2
    assert "cannot be written: No such file or directory" in refused.err
    assert "the head to keep is " in refused.err
    endless = hopline("audit", "verify", "--keep", "/dev/zero")
    assert (endless.status, "N:HASH" in endless.err) == (2, True)


# --- how commands end ----------------------------------------------------------------------------


def test_without_a_mesh_a_command_says_how_to_start_one(run: Run, tmp_path: Path) -> None:
    said = run("agent", "list", "--data", str(tmp_path))
    assert said.status == 1
    assert said.err.count("\n") == 1
    assert f"hopline up --data {tmp_path}" in said.err


def test_a_mesh_that_is_gone_without_a_word_is_said_not_to_answer(
    run: Run, tmp_path: Path, unused_tcp_port: int
) -> None:
    address = f"127.0.0.1:{unused_tcp_port}"
    endpoints = {"gateway": f"http://{address}", "registry": address, "relay": address, "quota": address}
    (tmp_path / "endpoints.json").write_text(json.dumps(endpoints))
    (tmp_path / "admin.token").write_text("hpl_u_x")
    error = run("agent", "list", "--data", str(tmp_path), "--json").error
    assert error["code"] == "unavailable"
    assert "start it with `hopline up`" in error["message"]


def test_a_credential_that_is_none_is_said_to_be_refused(run: Run, mesh_data: Path, tmp_path: Path) -> None:
    (tmp_path / "endpoints.json").write_text((mesh_data / "endpoints.json").read_text())
    (tmp_path / "admin.token").write_text("hpl_u_" + "x" * 43)
    error = run("agent", "list", "--data", str(tmp_path), "--json").error
    assert error["code"] == "unauthenticated"
    assert "hopline token create" in error["message"]


def test_a_token_by_environment_acts_as_its_holder(
    hopline: Run, run: Run, mesh_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = hopline("user", "create", name("carol")).json
    file = tmp_path / "carol.token"
    file.write_text(person["token"])
    gateway = json.loads((mesh_data / "endpoints.json").read_text())["gateway"]
    monkeypatch.setenv("HOPLINE_URL", gateway)
    monkeypatch.setenv("HOPLINE_TOKEN_FILE", str(file))
    assert run("agent", "create", "x", "--json").error["code"] == "permission_denied"
    assert run("agent", "list", "--json").json["agents"] == []


def test_the_environment_names_the_data_directory(
    run: Run, mesh_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOPLINE_URL", raising=False)
    monkeypatch.setenv("HOPLINE_DATA", str(mesh_data))
    assert run("workspace", "list", "--json").status == 0


@pytest.mark.parametrize(
    "words", [["nonsense"], ["agent", "nonsense"], ["agent", "create"], ["thread"], ["inbox"], ["ask", "a"]]
)
def test_wrong_usage_is_one_line_and_status_2(run: Run, words: list[str]) -> None:
    said = run(*words)
    assert (said.status, said.out) == (2, "")
    assert said.err.count("\n") == 1
    said = run(*words, "--json")
    assert said.status == 2
    assert json.loads(said.err)["error"]["code"] == "invalid_argument"


def test_help_is_no_error(run: Run) -> None:
    assert run("--help").status == 0
    assert "attach" in run("--help").out
    assert run("agent", "create", "--help").status == 0


def test_a_group_alone_shows_what_it_has(run: Run) -> None:
    said = run("agent")
    assert said.status == 2
    assert "create" in said.out
    assert said.err == ""
