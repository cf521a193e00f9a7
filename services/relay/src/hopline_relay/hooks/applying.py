"""What hooks have made of a message, put into it before it is admitted: whom it goes to, in which words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hopline_rpc.errors import HoplineError
from hopline_rpc.ids import IdMaker

from hopline_relay import answers
from hopline_relay.domain.values import VETOED, Fault
from hopline_relay.drafts import Kept, Ready
from hopline_relay.hooks.items import Shaped, Words
from hopline_relay.store.outgoing import Copy, Outgoing

WITHHELD = "withheld"


def apply(ready: Ready, ids: IdMaker, now: float) -> None:
    """Take out the recipients that hooks keep it from, and give the others their words.

    Raises `unavailable` where it goes to others by now than hooks were asked about.
    """
    shaped, outgoing = ready.draft.shaped, ready.outgoing
    if shaped is None:
        return
    for copy in outgoing.copies:
        if copy.kind == "agent" and copy.id not in shaped:
            raise HoplineError("unavailable", "whom this goes to has changed under this call; try again")
    outgoing.hook_notes = [(key, note) for key, each in shaped.items() for note in each.notes]
    live = [copy for copy in outgoing.copies if copy.kind != "agent" or shaped[copy.id].goes_on]
    for copy in outgoing.copies:
        if copy not in live:
            copy.state, copy.turn_id, copy.session_id, copy.wish = VETOED, "", "", None
            copy.place, copy.shaped = False, shaped[copy.id]
    if not live:
        ready.kept = _kept(ready, ids, now)
        return
    give_words(outgoing, live, shaped)
    del ready.item.recipients[:]
    for copy in live:
        ready.item.recipients.add(agent_id=copy.id, turn_id=copy.turn_id)
    outgoing.owed = outgoing.owed and outgoing.copies[0] in live


def give_words(outgoing: Outgoing, live: Sequence[Copy], shaped: Mapping[str, Shaped]) -> None:
    """Let a message say what most simply holds for all that get it; the others have words of their own."""
    said = Words(outgoing.body, outgoing.subject, outgoing.payload)
    words = [shaped[copy.id].words if copy.kind == "agent" else said for copy in live]
    common = said if said in words else words[0]
    if any(each.subject != common.subject for each in words):
        common = replace(common, subject="")  # a thread that this opens would show it to all of them
    outgoing.body, outgoing.subject, outgoing.payload = common.text, common.subject, common.payload
    for copy, own in zip(live, words, strict=True):
        copy.shaped = Shaped(own) if own != common else None


def _kept(ready: Ready, ids: IdMaker, now: float) -> Kept:
    """Return what is left of a message that nobody gets; an answer ends its debt."""
    debt, asked, outgoing = ready.debt, ready.asked, ready.outgoing
    if debt is None or ready.discharge is None or not ready.discharge.owed:
        ready.discharge = None  # it may be answered otherwise
        return Kept()
    fault = withheld(next((each.canceled for each in (ready.draft.shaped or {}).values()), ""))
    ends = ready.discharge.ends
    ready.discharge = replace(
        ready.discharge,
        reply_id="",
        withheld=fault,
        ends=replace(ends, delivery="done") if ends is not None else None,
    )
    if ready.awaited is not None:
        return Kept(fault)
    notice = answers.notice(
        debt,
        asked,
        name=outgoing.sender.name,
        fault=fault,
        ids=ids,
        queue_seconds=outgoing.queue_seconds,
        now=now,
    )
    return Kept(fault, notice)


def withheld(reason: str) -> Fault:
    """Return why a debt ends whose answer a hook has kept back."""
    return Fault(WITHHELD, f"a hook has kept the answer back{f': {reason}' if reason else ''}")
