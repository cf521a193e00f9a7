"""Automatic final answers on their way through hooks: turns end once those were asked.

The turn runs on meanwhile: its worker still has its place, and its end is written once what goes out with it
is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hopline_relay.ends import Key, Plan
from hopline_relay.hooks.items import Origin, Shaped, Words
from hopline_relay.hooks.messages import Addressee, MessageHooks, Said
from hopline_relay.store.outgoing import Outgoing


@dataclass(frozen=True, slots=True)
class Unshaped:
    """Answers that hooks are to be asked about first: each with the turn that owes it."""

    said: tuple[tuple[str, Said, Addressee], ...]

    async def ask(self, hooks: MessageHooks) -> dict[str, Shaped]:
        """Return what hooks make of the answers, by the turn that owes."""
        return {turn_id: (await hooks.shape(said, to))[to.agent_id] for turn_id, said, to in self.said}


def apart_from(plans: Sequence[Plan], hooks: MessageHooks) -> tuple[dict[Key, Unshaped], list[Plan]]:
    """Part the ends whose answers hooks are still to be asked about, by turn, from those that go on.

    What rides along with a turn waits with it.
    """
    wanted: dict[Key, list[Plan]] = {}
    for plan in plans:
        if _wants(plan, hooks):
            wanted.setdefault(_leader(plan), []).append(plan)
    if not wanted:
        return {}, list(plans)
    unshaped = {key: Unshaped(tuple(_said(plan) for plan in group)) for key, group in wanted.items()}
    return unshaped, [plan for plan in plans if _leader(plan) not in wanted]


def _leader(plan: Plan) -> Key:
    return plan.row.workspace_id, plan.with_id or plan.row.id


def _wants(plan: Plan, hooks: MessageHooks) -> bool:
    """Tell whether a plan's answer goes to an agent, and hooks have not been asked about it."""
    debt, outgoing = plan.debt, plan.outgoing
    if debt is None or outgoing is None or plan.state != "answered" or debt.creditor_kind != "agent":
        return False
    asked = plan.ending.shaped is not None and debt.turn_id in plan.ending.shaped
    return not asked and hooks.concern(debt.workspace_id, outgoing.kind)


def _said(plan: Plan) -> tuple[str, Said, Addressee]:
    outgoing, row = plan.outgoing, plan.row
    if not isinstance(outgoing, Outgoing):
        raise TypeError("a plan that is answered has a message")
    said = Said(
        origin=Origin(
            workspace_id=row.workspace_id,
            session_id=row.run_session_id or row.session_id,
            agent_id=row.agent_id,
            depth=row.depth,
            root_id=row.root_id,
            generation=row.hook_generation,
            traceparent=outgoing.traceparent,
        ),
        kind=outgoing.kind,
        sender_id=row.agent_id,
        turn_id=row.id,
        words=Words(outgoing.body, outgoing.subject, outgoing.payload),
        thread_id=outgoing.thread_id,
        in_reply_to=outgoing.in_reply_to,
        asked_kind=plan.asked.kind,
    )
    copy = outgoing.copies[0]
    return row.id, said, Addressee(copy.id, copy.session_id)
