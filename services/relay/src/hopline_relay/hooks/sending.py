"""Messages that go through hooks: beside the batches of the others, so that nobody waits for their hooks.

Each is prepared once to see whom it goes to, then hooks are asked, then it joins the batches like any other.
What one speaker says keeps its order, however long its hooks take.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from hopline_rpc.calls import detach
from hopline_rpc.errors import HoplineError

from hopline_relay.drafts import Draft, Ready, Sent
from hopline_relay.hooks.items import Origin, Words
from hopline_relay.hooks.messages import Addressee, MessageHooks, Said

_BOUND: Final = 1024

Speaker = tuple[str, str]


class HookedSends:
    """Takes drafts through hooks."""

    def __init__(
        self,
        hooks: MessageHooks,
        look_ahead: Callable[[Draft], Awaitable[Ready | Sent]],
        enqueue: Callable[[Draft], asyncio.Future[Sent]],
    ) -> None:
        self._hooks = hooks
        self._look_ahead = look_ahead
        self._enqueue = enqueue
        # The last of what each speaker has on its way: it is queued when it is done.
        self._last: dict[Speaker, asyncio.Future[None]] = {}
        self._running: set[asyncio.Task[Sent]] = set()

    def enqueue(self, item: Draft) -> asyncio.Future[Sent]:
        """Have hooks asked about a draft, then queue it; returns the future of what is on disk then."""
        draft = item
        if len(self._running) >= _BOUND:
            raise HoplineError("overloaded", "hooks have too much to look at", retry_after=1.0)
        speaker = (draft.principal.workspace_id, draft.speaker.id)
        before, queued = self._last.get(speaker), asyncio.get_running_loop().create_future()
        if draft.plugin is None:
            self._last[speaker] = queued
        else:
            before = None  # what is said from within a hook would wait for what this hook is asked about
        task = detach(self._through(draft, before, queued), name="hooked send")
        self._running.add(task)

        def over(done: asyncio.Task[Sent]) -> None:
            self._running.discard(task)
            if not queued.done():
                queued.set_result(None)
            if self._last.get(speaker) is queued:
                del self._last[speaker]

        task.add_done_callback(over)
        return task

    async def drained(self) -> None:
        """Wait until nothing is on its way."""
        while self._running:
            await asyncio.wait(set(self._running))

    async def _through(
        self, draft: Draft, before: asyncio.Future[None] | None, queued: asyncio.Future[None]
    ) -> Sent:
        found = await self._look_ahead(draft)
        if isinstance(found, Sent):
            return found
        addressees = [
            Addressee(copy.id, copy.session_id) for copy in found.outgoing.copies if copy.kind == "agent"
        ]
        draft.shaped = await self._hooks.shape(_said(found), *addressees)
        if before is not None:
            await asyncio.wait({before})
        work = self._enqueue(draft)
        queued.set_result(None)
        return await work


def _said(ready: Ready) -> Said:
    outgoing, handed = ready.outgoing, ready.draft.handed
    depth, root_id = outgoing.from_depth, outgoing.root_id
    if handed is not None:
        # It counts at what its plugin was handed, whatever turn the session runs meanwhile.
        depth, root_id = max(depth, handed.depth), root_id or next(iter(handed.roots), "")
    return Said(
        origin=Origin(
            workspace_id=outgoing.workspace_id,
            session_id=outgoing.session_id,
            agent_id=outgoing.sender.id,
            depth=depth,
            root_id=root_id,
            generation=outgoing.hook_generation,
            traceparent=outgoing.traceparent,
        ),
        kind=outgoing.kind,
        sender_id=outgoing.sender.id,
        turn_id=outgoing.turn_id,
        words=Words(outgoing.body, outgoing.subject, outgoing.payload),
        thread_id="" if outgoing.opens_thread else outgoing.thread_id,
        in_reply_to=outgoing.in_reply_to,
        reply_expected=outgoing.owed,
        asked_kind=ready.asked.kind if ready.asked is not None else "",
    )
