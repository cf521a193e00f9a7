"""Who hears of a run slot that has become free: whoever was refused one, and no wake-up is lost."""

from __future__ import annotations

from hopline_relay.signals import Signals


def _told(signals: Signals) -> list[tuple[str, str]]:
    told: list[tuple[str, str]] = []
    signals.on_claimable(told.extend)
    return told


def test_those_who_were_refused_are_told_once_and_others_are_not() -> None:
    signals = Signals()
    told = _told(signals)
    for agent in (("ws_1", "agt_a"), ("ws_2", "agt_b")):
        signals.no_slot(agent, signals.freed(agent[0]))
    signals.slot_free(["ws_1"])
    signals.slot_free(["ws_1"])
    assert told == [("ws_1", "agt_a")]


def test_a_slot_that_came_free_while_one_was_being_refused_is_not_missed() -> None:
    signals = Signals()
    told = _told(signals)
    before = signals.freed("ws_1")
    signals.slot_free(["ws_1"])
    signals.no_slot(("ws_1", "agt_a"), before)
    assert told == [("ws_1", "agt_a")]
