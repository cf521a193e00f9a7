"""`/webhooks`: addresses under which who holds a secret may give an agent a turn."""

from __future__ import annotations

from typing import Final

from hopline.relay.v1 import webhook_pb2 as pb
from hopline_rpc.clock import from_timestamp
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.blocks import Ask, Block, Cell, Code, Link, Links, Moment, Press, Secret, Several, Table
from hopline_console.context import ConsoleContext
from hopline_console.forms import Field, Filled, Form
from hopline_console.nav import Item
from hopline_console.page import PAGE_SIZE as PAGE
from hopline_console.visit import Visit, routed

NAV: Final = (Item("Set up", "Webhooks", "/webhooks"),)

_FORM: Final = Form(
    "/webhooks",
    "A further webhook",
    "Add",
    tuple(
        each.within(pb.AddWebhookRequest.DESCRIPTOR)
        for each in (
            Field("agent", "Agent", hint="Id, slug or name."),
            Field(
                "name",
                "Name",
                hint="Lower-case letters, digits, - and _; it stands in the address.",
                required=True,
            ),
        )
    ),
    "It works in your name. Its secret is shown once.",
    folded=True,
)
_ROTATE: Final = "It gets another secret, shown once; the one it has stays good for 24 hours."
_AT_ONCE: Final = "It gets another secret, shown once; the one it has ends now."
_REMOVE: Final = "Nothing can be delivered there any more; what has not begun is withdrawn."


def routes(context: ConsoleContext) -> list[Route]:
    """Return the pages of webhooks."""
    return [
        *routed(context, "/webhooks", get=show, post=add),
        *routed(context, "/webhooks/rotate", post=rotate),
        *routed(context, "/webhooks/remove", post=remove),
    ]


async def show(visit: Visit) -> Response:
    """List webhooks."""
    return await _page(visit, _FORM.empty(agent=visit.asked("agent")))


async def _page(visit: Visit, filled: Filled) -> Response:
    request = pb.ListWebhooksRequest(
        agent=visit.asked("agent"), page_size=PAGE, page_token=visit.asked("page")
    )
    page = await visit.mesh.webhooks.ListWebhooks(request)
    rows = [_row(each) for each in page.webhooks]
    columns = ("Name", "Agent", "Path", "In the name of", "Secret since", "Change")
    table = Table("Webhooks", columns, rows, "No webhooks.", more=page.next_page_token)
    lead = "Paths stand below the gateway's address."
    return await visit.page("Webhooks", [table, Ask(filled)], lead=lead, filled=filled)


def _row(it: pb.Webhook) -> list[Cell]:
    about = f"{it.name} of {it.agent.name}"
    names = {"agent": it.agent.id, "name": it.name}
    since = it.rotated_at if it.HasField("rotated_at") else it.created_at
    secret: list[Cell] = [Moment(from_timestamp(since))]
    if it.HasField("old_until"):
        secret += ["(the one before until", Moment(from_timestamp(it.old_until)), ")"]
    acts: list[Cell] = [
        Press("/webhooks/rotate", "New secret", about, names, _ROTATE),
        Press("/webhooks/rotate", "New secret at once", about, {**names, "at_once": "1"}, _AT_ONCE),
        Press("/webhooks/remove", "Remove", about, names, _REMOVE),
    ]
    agent = Link(it.agent.name, f"/agents/{it.agent.id}")
    return [it.name, agent, Code(it.path), it.author.name, Several(secret), Several(acts)]


async def _secret(visit: Visit, webhook: pb.Webhook, secret: str, title: str) -> Response:
    text = f"It signs what is delivered to {webhook.path}. It is shown this one time: copy it now."
    blocks: list[Block] = [
        Secret(title, "Secret", secret, text),
        Links("Go on", [Link("Back to the webhooks", "/webhooks")]),
    ]
    return await visit.page("A webhook's secret", blocks)


async def add(visit: Visit) -> Response:
    """Add a webhook and show its secret."""
    filled = _FORM.read(await visit.posted())

    async def act() -> Response:
        made = await visit.mesh.webhooks.AddWebhook(pb.AddWebhookRequest(**filled.values))
        return await _secret(visit, made.webhook, made.secret, f"{made.webhook.name} is added")

    return await visit.answer(filled, act, lambda: _page(visit, filled), once=True)


async def rotate(visit: Visit) -> Response:
    """Give a webhook another secret and show it."""
    posted = await visit.posted()
    request = pb.RotateWebhookRequest(
        agent=str(posted.get("agent", "")), name=str(posted.get("name", "")), at_once="at_once" in posted
    )
    with visit.once(posted):
        made = await visit.mesh.webhooks.RotateWebhook(request)
    return await _secret(visit, made.webhook, made.secret, f"{made.webhook.name} has another secret")


async def remove(visit: Visit) -> Response:
    """Remove a webhook."""
    posted = await visit.posted()
    request = pb.RemoveWebhookRequest(agent=str(posted.get("agent", "")), name=str(posted.get("name", "")))
    await visit.mesh.webhooks.RemoveWebhook(request)
    return visit.done("/webhooks", "The webhook is removed.")
