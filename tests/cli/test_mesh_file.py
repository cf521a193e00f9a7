"""The file of `hopline up --config`: whatever is wrong in it is said, all at once, with file and line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hopline.registry.v1 import agent_pb2 as pb
from hopline_cli.running.config import UpConfig, read_config
from hopline_cli.running.mesh_agents import Known, check
from hopline_rpc.errors import HoplineError
from hypothesis import given
from hypothesis import strategies as st

FIELDS = [
    "name",
    "owner",
    "description",
    "kind",
    "runtime",
    "wake",
    "model",
    "soul",
    "instructions",
    "thinking_level",
    "reply_mode",
    "reach",
    "tools",
    "labels",
    "group_only",
    "connections",
]


def read(folder: Path, text: str) -> UpConfig:
    file = folder / "mesh.yaml"
    file.write_text(text, encoding="utf-8")
    return read_config(file)


def complaints(folder: Path, text: str, known: Known | None = None) -> list[str]:
    """Return what is said of a file, without its folder."""
    try:
        check(read(folder, text), known or Known())
    except HoplineError as error:
        return _lines(error, folder)
    return []


def _lines(error: HoplineError, folder: Path) -> list[str]:
    said = error.message.replace(f"{folder}/", "").split("\n")
    listed = [each["message"] for each in error.details["problems"]]
    assert (error.reason, listed) == ("invalid_argument", [line.split(": ", 1)[1] for line in said])
    return said


def test_every_field_of_an_agent_is_read(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        """
agents:
  concierge:
    name: The Concierge
    owner: admin
    description: Speaks to guests.
    kind: receive-only
    runtime: cloud
    wake: exec
    model: sonnet
    soul: Kind.
    instructions: |
      Greet.
      Help.
    thinking_level: off
    reply_mode: all
    reach: [weather-agent]
    tools: [ask, weather__ask]
    labels: {floor: 1, team: desk}
    group_only: true
    connections:
      weather: {agent: weather-agent, description: For the sky.}
      w2: {agent: Weather}
  weather-agent: {name: Weather}
""",
    )
    check(config, Known())
    concierge, weather = config.agents
    expected = pb.Agent(
        slug="concierge",
        name="The Concierge",
        owner_id="admin",
        description="Speaks to guests.",
        kind=pb.AGENT_KIND_RECEIVE_ONLY,
        runtime=pb.AGENT_RUNTIME_CLOUD,
        wake=pb.Wake(kind=pb.WAKE_KIND_EXEC),
        model_id="sonnet",
        soul="Kind.",
        instructions="Greet.\nHelp.\n",
        thinking_level=pb.THINKING_LEVEL_OFF,
        reply_mode=pb.REPLY_MODE_ALL,
        reach=["weather-agent"],
        tools=["ask", "weather__ask"],
        labels={"floor": "1", "team": "desk"},
        is_group_only_callable=True,
    )
    expected.connections.add(name="weather", agent="weather-agent", description="For the sky.")
    expected.connections.add(name="w2", agent="Weather")
    assert concierge.wanted == expected
    assert weather.wanted == pb.Agent(slug="weather-agent", name="Weather")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("agents: [a]", "mesh.yaml:1: agents must be a mapping"),
        ("agents: {a: [b]}", "mesh.yaml:1: the agent a must be a mapping"),
        ("agents:\n  a: {}\n  b: {}\n  a: {}", "mesh.yaml:4: 'a' stands in agents twice, first in line 2"),
        ("agents:\n  a:\n    name: x\n    name: y", "mesh.yaml:4: 'name' stands in the agent a twice"),
        (
            "agents:\n  a: {connections: {w: {agent: b}, w: {agent: b}}}\n  b:",
            "'w' stands in connections twice",
        ),
        ("agents: {}\nagents: {}", "mesh.yaml:2: 'agents' stands in the file twice"),
        (
            "agents:\n  a:\n    color: red",
            "mesh.yaml:3: an agent has no field 'color'; there are: connections,",
        ),
        ("agents:\n  Weather Agent: {}", "mesh.yaml:2: 'Weather Agent' is no slug: .* e.g. weather-agent"),
        ("agents: {a: {name: 3}}", r"name must be text, not a number: put it in quotes \('3'\)"),
        ("agents: {a: {name: [x]}}", "name must be one plain value, not a list"),
        ("agents: {a: {name: }}", "name has no value"),
        ("agents: {a: {group_only: maybe}}", "group_only must be true or false, not 'maybe'"),
        ("agents: {a: {reach: b}, b: {}}", r"reach must be a list, e.g. \[a, b\], not 'b'"),
        ("agents: {a: {runtime: moon}}", "runtime must be one of local, cloud, not 'moon'"),
        ("agents: {a: {wake: tomorrow}}", "wake must be none, exec or {webhook: URL, secret_file: FILE}"),
        ("agents: {a: {wake: {webhook: http://x}}}", "wake by a webhook needs an address and a secret"),
        ("agents: {a: {wake: {webhook: http://x, secret: y}}}", "wake has no field 'secret'"),
        (
            "agents: {a: {wake: {webhook: http://x, secret_file: no/such}}}",
            "secret_file: no/such cannot be read",
        ),
        ('agents: {a: {wake: {webhook: http://x, secret_file: "a\\0b"}}}', "secret_file: .* cannot be read"),
        ("agents: {a: {wake: {webhook: http://x, secret_file: .}}}", "secret_file: . cannot be read"),
        ("agents: {a: {labels: [x]}}", "labels must be a mapping"),
        ("agents:\n  a:\n    owner: ghost", "mesh.yaml:3: there is no user 'ghost'; make it with"),
        (
            "agents:\n  a:\n    connections:\n      w: {agent: nobody}\n  b: {}",
            "mesh.yaml:4: the connection w of a names no agent that there is: 'nobody'; .* name one of: a, b",
        ),
        ("agents:\n  a:\n    reach: [b,\n      nobody]\n  b: {}", "mesh.yaml:4: reach of a names no agent"),
        (
            "agents:\n  a:\n    connections: {w: {agent: a}}",
            "mesh.yaml:3: the connection w of a leads to the agent itself",
        ),
        ("agents:\n  a: {name: Ann, connections: {w: {agent: Ann}}}", "leads to the agent itself"),
        (
            "agents: {a: {name: x}, b: {name: x}, c: {connections: {w: {agent: x}}}}",
            "names several agents, a, b",
        ),
        (
            "agents: {a: {connections: {W: {agent: b}}}, b: {}}",
            "'W' is no name for a connection: a letter a-z",
        ),
        ("agents: {a: {connections: {w: b}}, b: {}}", "a connection is a mapping: write w: {agent: b}"),
        ("agents: {a: {connections: {w: {description: d}}}}", "the connection w needs an agent"),
        ("agents: {a: {connections: {w: {agent: b, url: u}}}, b: }", "a connection has no field 'url'"),
        ("agents: {a: {connections: {w: {agent: }}}}", "agent of the connection w has no value"),
        ("agents:\n  a:\n\n    name: %s" % ("x" * 201), "mesh.yaml:4: name: .*200"),
        ('agents: {a: {name: "\\0"}}', "name: must not contain the NUL"),
        ('agents: {a: {name: "\\ud800"}}', "name is not valid Unicode"),
        ("x: &x {name: y}\nagents: {a: {<<: *x}}", "<< is not known here"),
        ("agents: {? [a] : {}}", "a key of agents must be plain text"),
        (
            "settings: {public_url: mesh.example.org}",
            "mesh.yaml:1: public_url must be a URL such as https://",
        ),
        ("settings:\n  a: 1\n  a: 2", "mesh.yaml:3: 'a' stands in settings twice"),
        ("a: 1\n---\nb: 2", "mesh.yaml:2: expected a single document in the stream, but found another"),
        ("agents: " + "[" * 2000, "mesh.yaml:1: is nested too deeply"),
        ("a: \x07", "mesh.yaml:1: the character .* is not allowed"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    found = complaints(tmp_path, text)
    assert any(re.match(r"mesh\.yaml:\d+: ", line) and re.search(said, line) for line in found), found


def test_all_that_is_wrong_is_said_at_once_in_order_of_lines(tmp_path: Path) -> None:
    text = """
settings: {public_url: nowhere}
agents:
  a:
    owner: ghost
    color: red
    connections:
      me: {agent: a}
      w: {agent: nobody}
  a: {}
"""
    found = [line.split(":")[1] for line in complaints(tmp_path, text)]
    assert found == ["2", "5", "6", "8", "9", "10"]


def test_who_is_there_already_may_be_named(tmp_path: Path) -> None:
    there = Known((pb.Agent(id="agt_1", slug="weather", name="Sky"),), {"admin": "u1", "alice": "u2"}, 25)
    for ref in ("weather", "Sky", "agt_1"):
        assert (
            complaints(
                tmp_path, f"agents: {{a: {{owner: alice, connections: {{w: {{agent: {ref}}}}}}}}}", there
            )
            == []
        )


def test_agents_that_the_policy_has_no_room_for_are_not_begun(tmp_path: Path) -> None:
    there = Known((pb.Agent(id="agt_1", slug="a", name="A"),), {"admin": "u1"}, 2)
    assert complaints(tmp_path, "agents: {a: , b: }", there) == []
    (said,) = complaints(tmp_path, "agents:\n  a:\n  b:\n  c:", there)
    assert said.startswith("mesh.yaml:3: 2 agents are to be made beside 1, and the policy allows 2")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for name, content in (("none.yaml", None), ("latin.yaml", b"\xe9: 1")):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(HoplineError, match=rf"{name}:1: the file cannot be read"):
            check(read_config(tmp_path / name), Known())


# -- whatever a file holds ------------------------------------------------------------------------

_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.dates(),
    st.sampled_from(FIELDS),
)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_SCALARS, inner, max_size=3)
)
_SLUGS = st.sampled_from(["a", "b", "c", "A b", ""]) | st.text(max_size=5)
_CONNECTION = st.fixed_dictionaries({}, optional={"agent": _SLUGS | _VALUES, "description": _VALUES})
_AGENT = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(FIELDS, _VALUES),
        "connections": st.dictionaries(
            st.sampled_from(["w", "W", "x__y"]), _CONNECTION | _VALUES, max_size=3
        ),
        "runtime": st.sampled_from(["local", "cloud", "off"]),
    },
)
_FILE = st.fixed_dictionaries(
    {"agents": st.dictionaries(_SLUGS, _AGENT | _VALUES, max_size=3) | _VALUES},
    optional={"settings": _VALUES, "listen": _VALUES, "more": _VALUES},
)


@given(_FILE)
def test_no_file_of_any_shape_makes_more_than_complaints_with_a_line(
    tmp_path_factory: pytest.TempPathFactory, content: object
) -> None:
    folder = tmp_path_factory.getbasetemp()
    try:
        text = yaml.safe_dump(content, allow_unicode=True)
        text.encode()
    except UnicodeEncodeError:
        return
    lines = text.count("\n") + 2
    for said in complaints(folder, text):
        found = re.match(r"mesh\.yaml:(\d+): \S", said)
        assert found, said
        assert int(found[1]) <= lines


@given(st.text(st.sampled_from("agents:{}[]\n -&*a<>|'\"#?!%@\\0ud8\t\x00\u2028\ufeff\x85")) | st.text())
def test_no_text_of_any_kind_makes_more_than_complaints_with_a_line(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    for said in complaints(tmp_path_factory.getbasetemp(), text):
        assert re.match(r"mesh\.yaml:\d+: \S", said)
