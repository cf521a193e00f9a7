"""The file of `hopline crew apply`: what is in it, and whatever is wrong in it, each with file and line."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import pytest
import yaml
from hopline.registry.v1 import agent_pb2, crew_pb2
from hopline_files.crew_file import CrewFile, read_crew
from hopline_rpc.errors import HoplineError, invalid
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]
HEAD = "crew: c\nmembers:\n"


def read(folder: Path, text: str) -> CrewFile:
    file = folder / "crew.yaml"
    file.write_text(text, encoding="utf-8")
    return read_crew(file)


def complaints(folder: Path, text: str) -> list[str]:
    """Return what is said of a file, without its folder."""
    try:
        read(folder, text)
    except HoplineError as error:
        return _lines(error, folder)
    return []


def _lines(error: HoplineError, folder: Path) -> list[str]:
    files = {each["file"] for each in error.details["problems"]}
    assert (error.reason, files) == ("invalid_argument", {str(folder / "crew.yaml")})
    return error.message.replace(f"{folder}/", "").split("\n")


def test_every_field_of_a_member_is_read(tmp_path: Path) -> None:
    (lead, other) = read(
        tmp_path,
        """
crew: research
members:
  - key: lead
    name: Planner
    lead: true
    description: Plans.
    models: [opus, "gpt-5*"]
    soul: |
      calm
    instructions: Plan it.
    thinking_level: off
    reply_mode: all
    group_only: false
  - {key: 007, name: 42}
""",
    ).members
    assert lead.wanted == crew_pb2.CrewMember(
        key="lead",
        name="Planner",
        lead=True,
        description="Plans.",
        models=crew_pb2.ModelPreferences(patterns=["opus", "gpt-5*"]),
        soul="calm\n",
        instructions="Plan it.",
        thinking_level=agent_pb2.THINKING_LEVEL_OFF,
        reply_mode=agent_pb2.REPLY_MODE_ALL,
        group_only=False,
    )
    assert other.wanted == crew_pb2.CrewMember(key="007", name="42")


def test_what_is_left_out_is_not_set_and_what_is_empty_is(tmp_path: Path) -> None:
    (bare, empty) = read(tmp_path, f'{HEAD}  - {{key: a}}\n  - {{key: b, soul: "", models: []}}\n').members
    assert [field.name for field, _ in bare.wanted.ListFields()] == ["key"]
    assert empty.wanted.HasField("soul")
    assert empty.wanted.HasField("models")
    assert not empty.wanted.HasField("instructions")


def test_one_text_may_stand_for_several_members(tmp_path: Path) -> None:
    text = (
        f"{HEAD}  - {{key: a, instructions: &report Report back.}}\n  - {{key: b, instructions: *report}}\n"
    )
    assert [each.wanted.instructions for each in read(tmp_path, text).members] == ["Report back."] * 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1: the file names no crew"),
        ("members: [{key: a}]\n", "1: the file names no crew"),
        ("crew: c\n", "1: the file has no members"),
        ("crew: c\nmembers:\n", "2: members must be a list of at least one"),
        ("crew: c\nmembers: []\n", "2: members must be a list of at least one"),
        ("crew: c\nmembers: {key: a}\n", "2: members must be a list of at least one"),
        ("crew: ''\nmembers: [{key: a}]\n", "1: crew: its name has 1 to 100 characters"),
        (
            f"crew: {'x' * 101}\nmembers: [{{key: a}}]\n",
            "1: crew: its name has 1 to 100 characters",
        ),
        ("crew: [a]\nmembers: [{key: a}]\n", "1: crew must be one plain value, not a list"),
        (f"team: x\n{HEAD}  - key: a\n", "1: 'team' is not known here; there are: crew, members"),
        (f"{HEAD}  - planner\n", "3: a member must be a mapping"),
        (f"{HEAD}  - {{key: a, models: opus}}\n", "3: models must be a list"),
        (
            f"{HEAD}  - key: a\n    role: x\n",
            "4: a member has no field 'role'; there are: description",
        ),
        (f"{HEAD}  - name: a\n", "3: the member has no key"),
        (f"{HEAD}  - key:\n", "3: key: must be at least 1 characters"),
        (f"{HEAD}  - key: {'k' * 201}\n", "3: key: must be at most 200 characters"),
        (
            f"{HEAD}  - key: a\n  - key: b\n  - key: a\n",
            "5: the key 'a' stands twice, first in line 3",
        ),
        (
            f"{HEAD}  - {{key: a, lead: true}}\n  - key: b\n    lead: true\n",
            "5: a crew has one lead; the first stands in line 3",
        ),
        (f"{HEAD}  - key: a\n    lead: maybe\n", "4: lead must be true or false, not 'maybe'"),
        (
            f"{HEAD}  - key: a\n    reply_mode: loud\n",
            "4: reply_mode must be one of implicit, auto, all, not 'loud'",
        ),
        (
            f"{HEAD}  - key: a\n    thinking_level: deep\n",
            "4: thinking_level must be one of off, low, medium, high, not 'deep'",
        ),
        (f"{HEAD}  - key: a\n    soul:\n", "4: soul has no value"),
        (f"{HEAD}  - key: a\n    soul: 1\n", "4: soul must be text, not a number"),
        (
            f"{HEAD}  - key: a\n    soul: {'x' * 65537}\n",
            "4: soul: must be at most 65536 characters",
        ),
        (f"{HEAD}  - key: a\n    name: ''\n", "4: name: must be at least 1 characters"),
        (f"{HEAD}  - key: a\n    description: {'x' * 2001}\n", "4: description: must be at most"),
        (
            f"{HEAD}  - key: a\n    models: [{'m' * 201}]\n",
            "4: models.patterns[0]: must be at most",
        ),
        (f"{HEAD}  - key: a\n    key: b\n", "4: 'key' stands in a member twice, first in line 3"),
        (
            HEAD + "  - key: m\n" * 21,
            "23: a crew has at most 20 members; here begins the next, of 21",
        ),
        ("crew: c\nmembers: [\n", "3: "),
        ("crew: c\n--- \ncrew: d\n", "2: expected a single document"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    found = complaints(tmp_path, text)
    assert any(each.startswith(f"crew.yaml:{said}") for each in found), found


def test_all_that_is_wrong_is_said_at_once_in_order(tmp_path: Path) -> None:
    text = f"{HEAD}  - {{key: a, lead: true, soul: 1}}\n  - {{key: a, lead: true}}\n"
    text += "  - {name: x, colour: red}\n"
    lines = [each.split(":")[1] for each in complaints(tmp_path, text)]
    assert lines == ["3", "4", "4", "5", "5"]


def test_a_crew_that_no_call_could_carry_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hopline_files.crew_file._MAX_BYTES", 1000)
    line = f"  - {{key: a, soul: {'x' * 400}}}\n"
    assert read(tmp_path, HEAD + line + line.replace("key: a", "key: b")).members
    more = HEAD + "".join(line.replace("key: a", f"key: {each}") for each in "abc")
    assert complaints(tmp_path, more)[0].startswith("crew.yaml:3: together the members take 12")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(HoplineError, match=r"crew\.yaml:1: the file cannot be read"):
        read_crew(tmp_path / "crew.yaml")


def test_one_key_written_in_two_ways_is_one_key(tmp_path: Path) -> None:
    composed, decomposed = (unicodedata.normalize(form, "Prüfer") for form in ("NFC", "NFD"))
    assert composed != decomposed
    assert read(tmp_path, f"{HEAD}  - key: {decomposed}\n").members[0].wanted.key == composed
    assert "stands twice" in complaints(tmp_path, f"{HEAD}  - key: {composed}\n  - key: {decomposed}\n")[0]


def test_what_the_registry_refuses_is_said_with_its_line(tmp_path: Path) -> None:
    crew = read(tmp_path, f"{HEAD}  - key: a\n  - key: b\n    name: x\n    models: [x]\n")
    for path, line in (("name", 5), ("models", 6), ("lead", 4)):
        told = crew.with_places(invalid(f"members[1].{path}", "is not good"))
        assert told.message == f"{tmp_path / 'crew.yaml'}:{line}: {path}: is not good"
    other = HoplineError("limit_reached", "no room")
    assert crew.with_places(other) is other
    odd = invalid("crew", "is odd")
    assert crew.with_places(odd) is odd


def test_the_example_is_a_crew_of_seven_that_reports(tmp_path: Path) -> None:
    crew = read_crew(ROOT / "deploy" / "examples" / "crew" / "crew.yaml")
    leads = [each.wanted for each in crew.members if each.wanted.lead]
    others = [each.wanted for each in crew.members if not each.wanted.lead]
    assert (len(leads), len(others)) == (1, 6)
    assert "reply_to_human" in leads[0].instructions
    for each in others:
        assert "report_to_caller" in each.instructions
        assert each.group_only
    assert all(each.soul and each.description and each.models.patterns for each in (*leads, *others))


def test_the_file_that_the_page_shows_is_one(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "crews.md").read_text(encoding="utf-8")
    (shown,) = [each for each in re.findall(r"^```yaml\n(.*?)^```$", page, re.M | re.S) if "crew:" in each]
    crew = read(tmp_path, shown)
    assert [(each.wanted.key, each.wanted.lead) for each in crew.members] == [
        ("planner", True),
        ("librarian", False),
    ]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(("crew", "members", "key", "name", "lead", "models", "x")), inner
            )
        ),
        max_leaves=12,
    )
)
def test_any_yaml_is_read_or_refused_with_a_line(
    tmp_path_factory: pytest.TempPathFactory, value: object
) -> None:
    folder = tmp_path_factory.mktemp("crew")
    for each in complaints(folder, yaml.safe_dump(value, allow_unicode=True)):
        assert each.split(":")[1].isdigit()
