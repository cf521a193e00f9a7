"""`hopline crew` and `hopline model`: what they print, and that an apply does what its dry run printed."""

from __future__ import annotations

import re
import stat
import uuid
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import Ran, Run

EXAMPLE = Path(__file__).parents[2] / "deploy" / "examples" / "crew" / "crew.yaml"


@pytest.fixture
def name(hopline: Run) -> Any:
    """A name for a crew of one's own, which is gone afterwards."""
    made = f"crew-{uuid.uuid4().hex[:8]}"
    yield made
    hopline("crew", "delete", made)


def write(folder: Path, crew: str, *members: dict[str, Any]) -> str:
    file = folder / "crew.yaml"
    file.write_text(yaml.safe_dump({"crew": crew, "members": list(members)}, sort_keys=False))
    return str(file)


def plan_of(ran: Ran) -> list[str]:
    """Return the lines of a plan, without what is said after it."""
    assert ran.status == 0, ran.err
    return [line for line in ran.out.splitlines() if line.startswith((" ", "+", "-", "~", "=", "!"))]


def actions(found: Any) -> dict[str, str]:
    return {each["key"]: each["action"] for each in found["members"]}


def test_the_example_crew_of_seven_is_made_once_and_edited_as_its_dry_run_printed(
    hopline: Run, plain: Run, tmp_path: Path, name: str
) -> None:
    described = yaml.safe_load(EXAMPLE.read_text())
    described["crew"] = name
    file = tmp_path / "crew.yaml"
    file.write_text(yaml.safe_dump(described, allow_unicode=True, sort_keys=False))
    before = {each["id"] for each in hopline("agent", "list", "--limit", "0").json["agents"]}
    made = hopline("crew", "apply", str(file)).json
    assert set(actions(made).values()) == {"create"}
    assert made["counts"]["create"] == 7
    after = {each["id"] for each in hopline("agent", "list", "--limit", "0").json["agents"]}
    assert after - before == {each["id"] for each in made["members"]}
    again = hopline("crew", "apply", str(file)).json
    assert set(actions(again).values()) == {"unchanged"}
    assert plain("crew", "apply", str(file)).out.endswith("there is nothing to change\n")

    described["members"][0]["soul"] += "You hum while you work.\n"
    described["members"][1]["description"] = "Finds sources."
    described["members"][6]["key"] = "editor"
    file.write_text(yaml.safe_dump(described, allow_unicode=True, sort_keys=False))
    told = plain("crew", "apply", str(file), "--dry-run")
    assert "editor" not in {each["key"] for each in hopline("crew", "show", name).json["agents"]}
    (plan_id,) = re.findall(r"--plan ([0-9a-f]{32}) in place of --dry-run\n", told.out)
    did = plain("crew", "apply", str(file), "--plan", plan_id)
    assert plan_of(did) == plan_of(told)
    assert [line[0] for line in plan_of(told) if line[0] != " "] == list("~~====+-")
    assert (
        did.out.splitlines()[0]
        == told.out.splitlines()[0]
        == (f"crew {name}: 1 to create, 2 to update, 1 to delete, 4 unchanged")
    )
    assert set(actions(hopline("crew", "apply", str(file)).json).values()) == {"unchanged"}


def test_a_plan_shows_short_values_and_the_length_of_long_ones(
    hopline: Run, plain: Run, tmp_path: Path, name: str
) -> None:
    one, two = {"key": "a", "name": f"{name} a"}, {"key": "b", "name": f"{name} b"}
    hopline("crew", "apply", write(tmp_path, name, one | {"lead": True}, two | {"soul": "s" * 70}))
    edited = two | {"soul": "t" * 71, "description": "Reads.", "group_only": True}
    file = write(tmp_path, name, edited)
    lines = plan_of(plain("crew", "apply", file, "--dry-run"))
    assert lines == [
        f"~ update    b  {name}-b",
        '      description: "" -> "Reads."',
        '      group_only: "false" -> "true"',
        f'      parent: "{name}-a" -> ""',
        "      soul: 70 -> 71 characters",
        "      group_only without a lead: no other agent reaches it",
        f"- delete    a  {name}-a",
    ]
    hopline("crew", "apply", file)
    file = write(tmp_path, name, edited | {"soul": "u" * 71}, {"key": "c", "models": ["none of them"]})
    assert plan_of(plain("crew", "apply", file, "--dry-run"))[1:] == [
        "      soul: 71 -> 71 characters, another text",
        "      group_only without a lead: no other agent reaches it",
        "+ create    c  c",
        '      name: "c"',
        "      no model of the catalogue matches its models: it runs the default",
    ]


def test_only_missing_leaves_what_an_owner_edited(hopline: Run, tmp_path: Path, name: str) -> None:
    file = write(tmp_path, name, {"key": "a", "lead": True, "soul": "calm"}, {"key": "b"})
    made = {each["key"]: each["slug"] for each in hopline("crew", "apply", file).json["members"]}
    hopline("agent", "set", made["a"], "--soul", "wild")
    hopline("agent", "delete", made["b"])
    found = hopline("crew", "apply", file, "--only-missing").json
    assert actions(found) == {"a": "kept", "b": "create"}
    assert hopline("agent", "show", made["a"]).json["soul"] == "wild"
    assert actions(hopline("crew", "apply", file).json) == {"a": "update", "b": "unchanged"}


def test_each_member_gets_a_token_file_of_its_own_once(
    hopline: Run, run: Run, tmp_path: Path, name: str, mesh_data: Path
) -> None:
    folder = tmp_path / "tokens"
    file = write(tmp_path, name, {"key": "a"}, {"key": "b"})
    assert "token_file" not in hopline("crew", "apply", file, "--dry-run", "--tokens-dir", str(folder)).json
    assert not folder.exists()
    made = hopline("crew", "apply", file, "--tokens-dir", str(folder)).json
    files = [Path(each["token_file"]) for each in made["members"]]
    assert [stat.S_IMODE(each.stat().st_mode) for each in files] == [0o600, 0o600]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    tokens = [each.read_text().strip() for each in files]
    assert all(token.startswith("hpl_a_") for token in tokens)
    files[0].unlink()
    hopline("crew", "apply", file, "--tokens-dir", str(folder))
    again = [each.read_text().strip() for each in files]
    assert (again[0] != tokens[0], again[1]) == (True, tokens[1])
    hopline("agent", "delete", made["members"][1]["slug"])
    hopline("crew", "apply", file, "--tokens-dir", str(folder))
    assert files[1].read_text().strip() not in (tokens[1], again[0]), "that of the agent made again"
    files[1].write_text("no token")
    hopline("crew", "apply", file, "--tokens-dir", str(folder))
    assert files[1].read_text().startswith("hpl_a_")
    hopline("crew", "apply", write(tmp_path, name, {"key": "a"}), "--tokens-dir", str(folder))
    assert [each.exists() for each in files] == [True, False]
    blocked = hopline("crew", "apply", file, "--tokens-dir", str(files[0] / "x"))
    assert (blocked.status, blocked.error["code"]) == (1, "failed_precondition")
    assert "cannot be made" in blocked.error["message"]


def test_crews_are_listed_shown_and_deleted(hopline: Run, plain: Run, tmp_path: Path, name: str) -> None:
    made = hopline("crew", "apply", write(tmp_path, name, {"key": "a", "lead": True}, {"key": "b"})).json
    lead = made["members"][0]
    (listed,) = [
        each for each in hopline("crew", "list", "--limit", "0").json["crews"] if each["name"] == name
    ]
    assert (listed["members"], listed["owner"]["name"]) == (2, "admin")
    assert listed["lead"] == {"id": lead["id"], "slug": lead["slug"]}
    shown = hopline("crew", "show", name).json
    assert [(each["key"], each["crew"]) for each in shown["agents"]] == [("a", name), ("b", name)]
    assert lead["slug"] in plain("crew", "show", name).out
    gone = hopline("crew", "delete", name).json
    assert [each["key"] for each in gone["members"]] == ["a", "b"]
    missing = hopline("crew", "show", name)
    assert (missing.status, missing.error["code"]) == (1, "not_found")


def test_what_is_wrong_ends_the_command_with_file_and_line(hopline: Run, run: Run, tmp_path: Path) -> None:
    file = write(tmp_path, "c", {"key": "a", "soul": 1}, {"key": "b", "colour": "red"})
    refused = hopline("crew", "apply", file)
    assert refused.error["code"] == "invalid_argument"
    assert [(each["line"]) for each in refused.error["details"]["problems"]] == [4, 6]
    refused = hopline("crew", "apply", write(tmp_path, "c", {"key": "a"}, {"key": "b", "name": "\u202eb"}))
    assert refused.error["message"].startswith(f"{tmp_path / 'crew.yaml'}:5: name: must not contain")
    assert run("crew", "apply").status == 2


def test_a_catalogue_is_kept_and_decides_what_members_run(
    hopline: Run, plain: Run, tmp_path: Path, name: str
) -> None:
    mark = uuid.uuid4().hex[:8]
    made = hopline(
        "model", "add", f"opus-{mark}", "--name", "Opus", "--input", "15", "--output", "75.50"
    ).json
    assert [made[each] for each in ("input_usd_per_1m", "output_usd_per_1m", "cached_usd_per_1m")] == [
        "15",
        "75.5",
        None,
    ]
    hopline("model", "add", f"haiku-{mark}", "--default")
    try:
        wanted = [{"key": "a", "models": ["nope", f"opus*{mark}"]}, {"key": "b", "models": ["nope"]}]
        found = hopline("crew", "apply", write(tmp_path, name, *wanted)).json["members"]
        changes = {change["field"]: change["after"] for change in found[0]["changes"]}
        assert (changes["model"], found[0]["note"]) == (f"opus-{mark}", None)
        assert "it runs the default" in found[1]["note"]
        shown = [hopline("agent", "show", each["slug"]).json for each in found]
        assert [each["model_id"] for each in shown] == [made["id"], ""]
        assert [each["model"] for each in shown] == [f"opus-{mark}", f"haiku-{mark}"]
        changed = hopline("model", "set", made["id"], "--input", "none", "--cached", "1.5").json
        assert (changed["input_usd_per_1m"], changed["cached_usd_per_1m"]) == (None, "1.5")
        assert hopline("model", "default", f"opus-{mark}").json["is_default"] is True
        listed = {each["model_identifier"]: each for each in hopline("model", "list").json["models"]}
        assert listed[f"haiku-{mark}"]["is_default"] is False
        assert f"opus-{mark}" in plain("model", "list").out
        assert hopline("model", "default", "--none").json == {"default": None}
        assert hopline("model", "default").status == 2
        assert hopline("model", "set", made["id"]).status == 2
        refused = hopline("model", "remove", f"opus-{mark}")
        assert refused.error["code"] == "failed_precondition"
        assert hopline("model", "add", "x", "--input", "cheap").error["code"] == "invalid_argument"
    finally:
        for each in (f"opus-{mark}", f"haiku-{mark}"):
            hopline("model", "remove", each, "--force")
    assert hopline("model", "remove", f"opus-{mark}").error["code"] == "not_found"
