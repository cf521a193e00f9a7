"""What plugins start: it counts at the worst of where its sender stands and what the plugin was handed."""

from __future__ import annotations

import pytest
from hopline_quota.domain.values import Decision, Handed, Kind

from tests.quota.builders import LIMITS, Desk, admitted, refused


async def acts(desk: Desk, depth: int, *roots: str, sender: str = "plugin", cause: str = "") -> Decision:
    item = desk.item(sender, "b", handed=Handed(depth, roots), cause=cause)
    return (await desk.admit(item))[0]


@pytest.mark.parametrize(("running", "handed", "depth"), [(0, 0, 1), (0, 2, 3), (2, 0, 3), (3, 2, 4)])
async def test_it_runs_one_deeper_than_the_deeper_of_the_two(
    desk: Desk, running: int, handed: int, depth: int
) -> None:
    await desk.run("t", "a", depth=running)
    assert admitted(await acts(desk, handed, sender="a")).depth == depth


async def test_a_plugin_of_its_own_runs_one_deeper_than_it_was_handed(desk: Desk) -> None:
    decision = admitted(await acts(desk, 3, "r"))
    assert (decision.depth, decision.root_id, decision.opened_root) == (4, "r", False)
    refused(await acts(desk, LIMITS.max_depth, "r"), "depth_exceeded")


async def test_handed_nothing_it_opens_a_root_of_its_own(desk: Desk) -> None:
    decision = admitted(await acts(desk, 0))
    assert (decision.depth, decision.opened_root) == (1, True)


async def test_of_its_roots_and_the_senders_own_the_most_used_is_charged(desk: Desk) -> None:
    await desk.admit(desk.item("x", "y", kind=Kind.PERSON, new_root="little"))
    for _ in range(3):
        await desk.admit(desk.item("x", "y", kind=Kind.PERSON, new_root="much"))
    await desk.run("t", "a", depth=0, root="little")
    assert admitted(await acts(desk, 0, "much", sender="a", cause="t")).root_id == "much"
    assert admitted(await acts(desk, 0, sender="a", cause="t")).root_id == "little"


async def test_a_root_that_has_no_turns_left_ends_what_a_plugin_does(desk: Desk) -> None:
    limits = LIMITS._replace(root_turns=2)
    for _ in range(2):
        item = desk.item("plugin", "b", limits=limits, handed=Handed(0, ("r",)))
        admitted((await desk.admit(item))[0])
    item = desk.item("plugin", "b", limits=limits, handed=Handed(0, ("r",)))
    refused((await desk.admit(item))[0], "root_exhausted")
