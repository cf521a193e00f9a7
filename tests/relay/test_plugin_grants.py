"""What plugins were handed: in which sessions they act, and at what it counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hopline_relay.domain import handing
from hopline_relay.domain.handing import Handed, Ledger, Standing
from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import Principal
from hypothesis import given
from hypothesis import strategies as st

from tests.support.relay_mesh import RelayMesh

pytestmark = pytest.mark.both_stores


@dataclass(frozen=True)
class Plugin:
    """What is known of a plugin."""

    workspace_id: str
    id: str = "plg_1"
    permissions: frozenset[str] = frozenset({"session"})
    is_model_provider: bool = False

    @property
    def principal(self) -> Principal:
        return Principal("plugin", self.id, self.workspace_id)


HANDED = st.builds(
    Handed,
    session_id=st.sampled_from(["ses_1", "ses_2", ""]),
    depth=st.integers(0, 9),
    root_id=st.sampled_from(["rot_1", "rot_2", "rot_3", ""]),
    generation=st.integers(0, 9),
)


@given(steps=st.lists(st.tuples(HANDED, st.integers(0, 50), st.integers(1, 100)), max_size=30))
def test_the_standing_is_the_highest_of_what_was_handed_within_the_window(
    steps: list[tuple[Handed, int, int]],
) -> None:
    ledger, now = Ledger(), 0.0
    counted: list[tuple[Handed, float]] = []
    for handed, later, seconds in steps:
        now += later
        ledger.hand(handed, now + seconds)
        counted.append((handed, now + seconds))
        live = [each for each, until in counted if until > now]
        standing = ledger.standing(now, 1e9)
        assert standing.generation == max((each.generation for each in live), default=0)
        assert standing.depth == max((each.depth for each in live), default=0)
        assert set(standing.roots) == {each.root_id for each in live} - {""}
        for session in ("ses_1", "ses_2"):
            assert ledger.has(session, now, 1e9) == any(each.session_id == session for each in live)


def test_sessions_fall_out_before_what_holds_a_loop_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handing, "MAX_SESSIONS", 3)
    monkeypatch.setattr(handing, "MAX_ROOTS", 2)
    ledger = Ledger()
    ledger.hand(Handed("ses_0", 4, "rot_0", 7), 10.0)
    for number in range(1, 6):
        ledger.hand(Handed(f"ses_{number}", 0, f"rot_{number}", 0), 10.0)
    assert [ledger.has(f"ses_{number}", 1.0, 1e9) for number in range(6)] == [False] * 3 + [True] * 3
    assert ledger.standing(1.0, 1e9) == Standing(7, 4, ("rot_5", "rot_4"))


@pytest.mark.parametrize(
    ("generation", "withheld"), [(0, False), (2, False), (3, False), (4, True), (9, True)]
)
def test_four_reactions_are_let_through_and_the_fifth_is_not(generation: int, withheld: bool) -> None:
    assert Standing(generation).is_withheld(4) is withheld


async def test_a_session_that_was_not_handed_answers_like_one_that_never_existed(mesh: RelayMesh) -> None:
    plugin, other = Plugin(mesh.workspace_id), Plugin(mesh.workspace_id, id="plg_2")
    mesh.relay.grants.hand(plugin, Handed("ses_1", 0, "rot_1", 0))
    mesh.relay.grants.require(plugin.principal, "ses_1")
    told = []
    for who, session_id in ((other, "ses_1"), (plugin, "ses_2"), (Plugin("ws_other"), "ses_1")):
        with pytest.raises(HoplineError) as caught:
            mesh.relay.grants.require(who.principal, session_id)
        told.append((caught.value.reason, caught.value.message.replace(session_id, "ID")))
    assert set(told) == {("not_found", "there is no session 'ID'")}


async def test_what_was_handed_lasts_for_the_causality_window(mesh: RelayMesh) -> None:
    await mesh.policy(causality_window_seconds=120)
    plugin, grants = Plugin(mesh.workspace_id), mesh.relay.grants
    grants.hand(plugin, Handed("ses_1", 2, "rot_1", 1))
    await mesh.skip(119)
    grants.require(plugin.principal, "ses_1")
    assert grants.standing(plugin.principal) == Standing(1, 2, ("rot_1",))
    await mesh.skip(1)
    with pytest.raises(HoplineError):
        grants.require(plugin.principal, "ses_1")
    assert grants.standing(plugin.principal) == Standing()


@pytest.mark.parametrize(
    "fields",
    [{"permissions": frozenset({"agents.read", "agents.write", "models.read"})}, {"is_model_provider": True}],
    ids=["without a permission", "a model provider"],
)
async def test_who_may_do_nothing_in_a_session_is_handed_none(
    mesh: RelayMesh, fields: dict[str, object]
) -> None:
    plugin = Plugin(mesh.workspace_id, **fields)  # type: ignore[arg-type] # as the parameters say
    assert mesh.relay.grants.hand(plugin, Handed("ses_1", 0, "", 0)) is None
    with pytest.raises(HoplineError):
        mesh.relay.grants.require(plugin.principal, "ses_1")


async def test_what_was_handed_outlives_the_process(mesh: RelayMesh) -> None:
    plugin = Plugin(mesh.workspace_id)
    mesh.relay.grants.hand(plugin, Handed("ses_1", 2, "rot_1", 3))
    await mesh.clock.advance(0.2)
    await mesh.reopen()
    mesh.relay.grants.require(plugin.principal, "ses_1")
    assert mesh.relay.grants.standing(plugin.principal) == Standing(3, 2, ("rot_1",))


async def test_a_session_is_shown_as_withheld_as_long_as_nothing_can_be_done_in_it(mesh: RelayMesh) -> None:
    plugin, grants = Plugin(mesh.workspace_id), mesh.relay.grants
    grants.hand(plugin, Handed("ses_1", 0, "rot_1", 4))
    fresh = grants.hand(plugin, Handed("ses_2", 0, "rot_2", 0))
    assert grants.is_withheld(plugin.principal) is not None
    assert fresh is not None
    assert fresh.is_withheld


async def test_past_the_limit_access_is_withheld_and_comes_back_by_itself(mesh: RelayMesh) -> None:
    plugin, grants = Plugin(mesh.workspace_id), mesh.relay.grants
    shown = grants.hand(plugin, Handed("ses_1", 0, "rot_1", 3))
    assert shown is not None
    assert not shown.is_withheld
    assert grants.is_withheld(plugin.principal) is None
    shown = grants.hand(plugin, Handed("ses_2", 0, "rot_1", 4))
    assert shown is not None
    assert shown.is_withheld
    why = grants.is_withheld(plugin.principal)
    assert why is not None
    assert why.reason == "permission_denied"
    assert "withheld" in why.message
    await mesh.skip(600)
    assert grants.is_withheld(plugin.principal) is None


async def test_the_record_follows_handing_over_but_not_with_every_message(mesh: RelayMesh) -> None:
    plugin, grants = Plugin(mesh.workspace_id), mesh.relay.grants
    written: list[object] = []
    along = mesh.relay.journal.along

    def spy(op: Any, within: Any = None) -> None:
        written.append(op)
        along(op, within)

    mesh.relay.journal.along = spy  # type: ignore[method-assign]
    for _ in range(50):
        grants.hand(plugin, Handed("ses_1", 0, "rot_1", 0))
    first = len(written)
    assert first <= 2
    await mesh.skip(61)
    grants.hand(plugin, Handed("ses_1", 0, "rot_1", 0))
    assert len(written) > first


async def test_a_clock_that_was_ahead_and_a_window_that_is_shorter_now_keep_nothing_for_longer(
    mesh: RelayMesh,
) -> None:
    plugin, grants = Plugin(mesh.workspace_id), mesh.relay.grants
    mesh.clock.set_wall(86_400)
    grants.hand(plugin, Handed("ses_1", 3, "rot_1", 4))
    mesh.clock.set_wall(-86_400)
    assert grants.standing(plugin.principal) == Standing(4, 3, ("rot_1",))
    await mesh.skip(600)
    assert grants.standing(plugin.principal) == Standing()
    grants.hand(plugin, Handed("ses_1", 3, "rot_1", 4))
    await mesh.policy(causality_window_seconds=120)
    grants.require(plugin.principal, "ses_1")
    await mesh.skip(120)
    with pytest.raises(HoplineError):
        grants.require(plugin.principal, "ses_1")
