"""Forms that prompt an agent: what was typed is sent once, and stays where it could not be sent."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from hopline.relay.v1 import message_pb2, session_pb2
from hopline_rpc.errors import HoplineError

from hopline_console.forms.fields import plain
from hopline_console.page import STATUS, Page

# What a form cannot mend: the page of the error says so.
_ELSEWHERE = frozenset({"not_found", "unauthenticated", "permission_denied"})


@dataclass(frozen=True)
class Prompt:
    """What stands in a form, and why it was not sent."""

    text: str = ""
    problem: str = ""
    status: int = 200
    # The same for as long as it may have been sent: what is sent again is said once.
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))


async def send(page: Page, agent: str, session_id: str) -> message_pb2.TurnView | Prompt:
    """Send what was typed; returns the turn, or the form as it is to be shown again."""
    text = plain(await page.field("text"))
    request_id = _given(await page.field("request_id"))
    request = session_pb2.PromptRequest(
        agent=agent, text=text, session_id=session_id, wait_seconds=0, request_id=request_id
    )
    try:
        if not text.strip():
            raise HoplineError("invalid_argument", "say something first")
        return (await page.mesh.sessions.Prompt(request)).turn
    except HoplineError as error:
        if error.reason in _ELSEWHERE:
            raise
        status = STATUS.get(error.reason, 409)
        if error.reason == "request_id_conflict":
            said = "what you sent before with this form has gone through; send again to say this as well"
            return Prompt(text, said, status)
        return Prompt(text, error.message, status, request_id)


def _given(request_id: str) -> str:
    try:
        return str(uuid.UUID(request_id))
    except ValueError:
        return str(uuid.uuid4())
