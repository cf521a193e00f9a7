"""`/tokens`: credentials, made and ended. A secret stands in the answer to the form that made it alone."""

from __future__ import annotations

from typing import Any, Final

from hopline.common.v1.options_pb2 import PrincipalKind
from hopline.registry.v1 import identity_pb2 as pb
from hopline_rpc.clock import from_timestamp
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.blocks import (
    Ask,
    Block,
    Cell,
    Code,
    Link,
    Links,
    Moment,
    Press,
    Secret,
    Several,
    State,
    Table,
)
from hopline_console.context import ConsoleContext
from hopline_console.forms import Choice, Field, Filled, Form
from hopline_console.nav import Item
from hopline_console.page import PAGE_SIZE as PAGE
from hopline_console.visit import Visit, routed
from hopline_console.words import word

NAV: Final = (Item("Set up", "Tokens", "/tokens"),)

_DAY: Final = 86400
_ENDS: Final = (
    Choice("0", "never"),
    Choice(str(3600), "in an hour"),
    Choice(str(_DAY), "in a day"),
    Choice(str(7 * _DAY), "in a week"),
    Choice(str(30 * _DAY), "in 30 days"),
    Choice(str(90 * _DAY), "in 90 days"),
    Choice(str(365 * _DAY), "in a year"),
)
_HOLDERS: Final = (Choice("agent", "an agent"), Choice("user", "a person"), Choice("plugin", "a plugin"))
_FIELDS: Final = (
    Field("kind", "For", "choice", choices=_HOLDERS),
    Field(
        "holder",
        "Whose",
        hint="Id, slug or name of the agent; id or name of the person; id or key of the plugin.",
        required=True,
        longest=200,
        paths=("agent", "user", "plugin"),
    ),
    Field("name", "Name", hint="To know it by.", longest=100),
    Field("expires_in_seconds", "Ends", "choice", choices=_ENDS),
)
# The name of the tokens that the services of an embedded mesh work with.
_EMBEDDED: Final = "embedded"
_WARNING: Final = "It ends at once, with every connection, stream and wait that it opened."


def routes(context: ConsoleContext) -> list[Route]:
    """Return the pages of tokens."""
    return [
        *routed(context, "/tokens", get=show, post=create),
        *routed(context, "/tokens/{token}/revoke", post=revoke),
    ]


async def show(visit: Visit) -> Response:
    """List the tokens that the person may manage, and ask for a further one."""
    return await _page(
        visit,
        _FORM.empty(kind="agent", holder=visit.asked("agent"), name="", expires_in_seconds=str(90 * _DAY)),
    )


_FORM: Final = Form(
    "/tokens",
    "A further token",
    "Create",
    _FIELDS,
    "The token is shown once, when it is made. Several are good at once, so that one can take the"
    " place of another without a pause.",
)


async def _page(visit: Visit, filled: Filled) -> Response:
    agent = visit.asked("agent")
    request = pb.ListTokensRequest(agent=agent, page_size=PAGE, page_token=visit.asked("page"))
    page = await visit.mesh.identities.ListTokens(request)
    table = Table(
        "Tokens of one agent" if agent else "Tokens that you may manage",
        ("Name", "Whose", "State", "Made", "Ends", "Revoke"),
        [_row(each, visit.clock.now()) for each in page.tokens],
        "No tokens.",
        more=page.next_page_token,
    )
    only: list[Block] = [Links("Tokens", [Link("All tokens", "/tokens")])] if agent else []
    return await visit.page("Tokens", [*only, table, Ask(filled)], filled=filled)


def _row(token: pb.Token, now: float) -> list[Cell]:
    state = _state(token, now)
    kind = word(PrincipalKind.DESCRIPTOR, token.kind)
    whose = token.subject_name or "gone"
    holder: Cell = (
        Link(whose, f"/agents/{token.subject_id}") if kind == "agent" and token.subject_name else whose
    )
    name = token.name or "without a name"
    ends: Cell = Moment(from_timestamp(token.expires_at) if token.HasField("expires_at") else None, "never")
    press: Cell = "—"
    if kind == "service" and token.name == _EMBEDDED:
        press = "made anew with each start of the mesh"
    elif state.word == "good":
        press = Press(f"/tokens/{token.id}/revoke", "Revoke", f"{name} of {whose}", warning=_WARNING)
    made = Moment(from_timestamp(token.created_at))
    return [Several([name, Code(token.id)]), Several([f"{kind} ", holder]), state, made, ends, press]


def _state(token: pb.Token, now: float) -> State:
    if token.HasField("revoked_at"):
        return State("revoked", "quiet")
    if token.HasField("expires_at") and from_timestamp(token.expires_at) <= now:
        return State("over", "quiet")
    return State("good", "good")


async def create(visit: Visit) -> Response:
    """Make a token and show it."""
    filled = _FORM.read(await visit.posted())

    async def act() -> Response:
        values = filled.values
        holder: dict[str, Any] = {values["kind"]: values["holder"]}
        request = pb.CreateTokenRequest(
            name=values["name"], expires_in_seconds=int(values["expires_in_seconds"]), **holder
        )
        made = await visit.mesh.identities.CreateToken(request)
        text = f"For {made.info.subject_name}. It is shown this one time, and stored nowhere: copy it now."
        shown = Secret("The token is made", "Token", made.token, text)
        return await visit.page(
            "A new token", [shown, Links("Go on", [Link("Back to the tokens", "/tokens")])]
        )

    return await visit.answer(filled, act, lambda: _page(visit, filled), once=True)


async def revoke(visit: Visit) -> Response:
    """End a token."""
    await visit.posted()
    await visit.mesh.identities.RevokeToken(pb.RevokeTokenRequest(token_id=visit.path("token")))
    return visit.done("/tokens", "The token is revoked.")
