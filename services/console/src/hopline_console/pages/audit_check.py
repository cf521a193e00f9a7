"""`/audit/check`: proof that the log is what was sealed, a stretch at a time, told in words."""

from __future__ import annotations

import re
from typing import Final

from hopline.relay.v1 import audit_pb2 as pb
from hopline_rpc.errors import HoplineError
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.blocks import Ask, Block, Code, Facts, Link, Links, Note
from hopline_console.context import ConsoleContext
from hopline_console.forms import Field, Filled, Form
from hopline_console.visit import Visit, routed
from hopline_console.words import ADMIN, count

# So long a page may take; what is longer goes on from where it came to.
_SECONDS: Final = 10.0
_HEAD: Final = re.compile(r"([0-9]{1,18}):([0-9a-f]{64})")
_FORM: Final = Form(
    "/audit/check",
    "Check the chain",
    "Check",
    (
        Field(
            "head",
            "A head that you kept",
            hint="N:HASH, as an earlier check told it. With it, the check also proves that the seals were"
            " not made anew. Empty: without.",
            longest=100,
        ),
    ),
    "Every event is hashed anew and held against its seal.",
)


def routes(context: ConsoleContext) -> list[Route]:
    """Return the page of the check."""
    return [*routed(context, "/audit/check", get=show, post=check)]


async def show(visit: Visit) -> Response:
    """Ask whether to check."""
    visit.require(visit.role, ADMIN)
    return await _page(visit, _FORM.empty())


async def _page(visit: Visit, filled: Filled, *blocks: Block) -> Response:
    back = Links("This log", [Link("Back to the log", "/audit")])
    return await visit.page("Is the log what was written?", [back, *blocks, Ask(filled)], filled=filled)


async def check(visit: Visit) -> Response:
    """Check for a while, and say how far it holds."""
    posted = await visit.posted()
    filled = _FORM.read(posted)
    request = pb.VerifyEventsRequest()
    head = _HEAD.fullmatch(str(filled.values.get("head", "")))
    if head is not None:
        request.kept.seq, request.kept.hash = int(head[1]), head[2]
    elif filled.values.get("head"):
        filled.mistakes["head"] = "must be the number of an event and its hash, N:HASH"
    at = _HEAD.fullmatch(str(posted.get("at", "")))
    before = str(posted.get("before", ""))
    checked = int(before) if before.isascii() and before.isdigit() and len(before) < 19 else 0
    if at is not None:
        request.kept.seq, request.kept.hash, request.after_kept = int(at[1]), at[2], True

    async def act() -> Response:
        found = await _walk(visit, request)
        if found.done and not found.HasField("fault") and at is not None and head is not None:
            # What was kept was not held against the log on the way: each stretch knows its own beginning.
            kept = pb.VerifyEventsRequest(after_kept=True)
            kept.kept.seq, kept.kept.hash = int(head[1]), head[2]
            anew = await _walk(visit, kept)
            found = anew if anew.HasField("fault") else found
        typed = str(filled.values["head"])
        return await _page(visit, _FORM.empty(head=typed), *told(found, checked, typed))

    return await visit.answer(filled, act, lambda: _page(visit, filled))


async def _walk(visit: Visit, request: pb.VerifyEventsRequest) -> pb.VerifyEventsResponse:
    """Follow the check until it is done or its time is over; returns its last word."""
    ends = visit.clock.monotonic() + _SECONDS
    found: pb.VerifyEventsResponse | None = None
    async for found in visit.mesh.events.VerifyEvents(request):
        if found.done or visit.clock.monotonic() >= ends:
            return found
    raise HoplineError("unavailable", "the relay went away before the log was read to its end; try again")


def told(found: pb.VerifyEventsResponse, before: int, kept: str) -> list[Block]:
    """Say in words how far the log holds: `before` events were checked earlier, `kept` is held against it."""
    checked = before + found.checked
    head = f"{found.head.seq}:{found.head.hash}"
    if found.HasField("fault"):
        text = f"{found.fault.message[0].upper()}{found.fault.message[1:]}."
        return [Note(text, "bad", "The log is not what was sealed")]
    if not found.done:
        carries = {"at": head, "before": str(checked), "head": kept}
        more = Form("/audit/check", "There is more", "Go on from there", carries=carries)
        said = f"{count(checked, 'event')} are as they were sealed, up to event {found.head.seq}."
        return [Note(said, "busy", "So far it holds"), Ask(more.empty())]
    words = [f"{count(checked, 'event')} {'is as it was' if checked == 1 else 'are as they were'} sealed."]
    if found.unsealed:
        words.append(f"{count(found.unsealed, 'newer event')} will be sealed within a minute.")
    if found.HasField("cut"):
        words.append(f"Events up to {found.cut.seq} were deleted by retention, as the log says.")
    blocks: list[Block] = [Note(" ".join(words), "good", "The log is what was written")]
    if found.head.seq:
        text = "Kept where nobody who writes to the mesh's disk can write, it proves more at the next check."
        blocks += [Facts("", [("The head to keep", Code(head))]), Note(text)]
    return blocks
