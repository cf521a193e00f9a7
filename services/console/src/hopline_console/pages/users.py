"""`/users`: people, and what roles they hold on the workspace and on single agents."""

from __future__ import annotations

from typing import Final

from hopline.registry.v1 import identity_pb2 as pb
from hopline_rpc.clock import from_timestamp
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.blocks import Ask, Block, Cell, Code, Link, Links, Moment, Press, Secret, Table, yes_no
from hopline_console.context import ConsoleContext
from hopline_console.forms import Choice, Field, Filled, Form
from hopline_console.nav import Item
from hopline_console.page import PAGE_SIZE as PAGE
from hopline_console.visit import Visit, routed
from hopline_console.words import ADMIN, OPERATOR, VIEWER, role_word

NAV: Final = (Item("Set up", "People and roles", "/users"),)

_ROLES: Final = (
    Choice(str(VIEWER), "viewer: sees"),
    Choice(str(OPERATOR), "operator: sees and starts work"),
    Choice(str(ADMIN), "admin: manages"),
)
_PERSON: Final = Field("user", "Person", hint="Id or name.", required=True, longest=100)
_FIND: Final = Form(
    "/users",
    "Find a person",
    "Find",
    (Field("who", "Name", hint="Or a part of it.", longest=100),),
    method="get",
)
_NEW: Final = Form(
    "/users",
    "A new person",
    "Create",
    (Field("name", "Name", required=True, longest=100),),
    "They get a token to sign in with, which is shown once, and no role yet.",
    folded=True,
)
_GRANT: Final = Form(
    "/users/roles",
    "Give a role",
    "Give the role",
    (
        _PERSON,
        Field("role", "Role", "choice", choices=_ROLES),
        Field("agent", "On the agent", hint="Id, slug or name; empty: on the whole workspace.", longest=200),
    ),
    "It takes the place of the role that they hold there.",
    folded=True,
)
_TELL: Final = Form(
    "/users/webhook",
    "Where a person is told of what their agents ask",
    "Set",
    (
        _PERSON,
        Field("url", "Address", hint="https://…; empty: they are told nowhere.", longest=2000),
        Field(
            "secret",
            "Secret",
            "secret",
            "16 to 256 bytes that sign what is sent; shown to nobody.",
            longest=256,
            autocomplete="new-password",
        ),
    ),
    "Address and secret are shown to nobody afterwards.",
    folded=True,
)


def routes(context: ConsoleContext) -> list[Route]:
    """Return the pages of people."""
    return [
        *routed(context, "/users", get=show, post=create),
        *routed(context, "/users/roles", post=grant),
        *routed(context, "/users/roles/revoke", post=revoke),
        *routed(context, "/users/webhook", post=tell),
    ]


async def show(visit: Visit) -> Response:
    """List people and roles."""
    return await _page(visit)


async def _page(visit: Visit, filled: Filled | None = None) -> Response:
    find = _FIND.read(visit.query)
    found = await _people(visit, find)
    blocks: list[Block] = [Ask(find), _table(found), await _roles(visit, _only(find, found))]
    if visit.role >= ADMIN:
        blocks += _asks(filled, _NEW.empty(), _GRANT.empty(role=str(VIEWER)), _TELL.empty())
    else:
        # Whoever is admin of an agent may give roles on it.
        blocks += _asks(filled, _GRANT.empty(role=str(VIEWER)))
    return await visit.page("People and roles", blocks, filled=filled)


def _asks(filled: Filled | None, *forms: Filled) -> list[Block]:
    """Return forms to fill in; the one that somebody has filled in stands in the place of its own."""
    return [
        Ask(filled if filled is not None and filled.form.action == each.form.action else each)
        for each in forms
    ]


async def _people(visit: Visit, find: Filled) -> pb.ListUsersResponse:
    part = str(find.values.get("who", ""))
    request = pb.ListUsersRequest(name_part=part, page_size=PAGE, page_token=visit.asked("page"))
    return await visit.mesh.identities.ListUsers(request)


def _only(find: Filled, page: pb.ListUsersResponse) -> str:
    """Return the id of the one person that was found: roles are theirs then."""
    return page.users[0].id if find.values.get("who") and len(page.users) == 1 else ""


def _table(page: pb.ListUsersResponse) -> Table:
    rows: list[list[Cell]] = [
        [each.name, Code(each.id), yes_no(each.has_webhook), Moment(from_timestamp(each.created_at))]
        for each in page.users
    ]
    columns = ("Name", "Id", "Told by a webhook", "Since")
    return Table("People", columns, rows, "Nobody.", more=page.next_page_token)


async def _roles(visit: Visit, user: str) -> Table:
    request = pb.ListRolesRequest(user=user, page_size=PAGE, page_token=visit.asked("roles"))
    page = await visit.mesh.identities.ListRoles(request)
    rows: list[list[Cell]] = []
    for each in page.grants:
        where: Cell = (
            Link(each.agent_slug, f"/agents/{each.agent_id}") if each.agent_id else "the whole workspace"
        )
        about = f"{role_word(each.role)} of {each.user_name} on {each.agent_slug or 'the workspace'}"
        press = Press(
            "/users/roles/revoke",
            "Take away",
            about,
            {"user": each.user_id, "agent": each.agent_id, "role": str(int(each.role))},
            "It holds at once; what they have open on it ends.",
        )
        may = visit.role >= ADMIN or (each.agent_id != "" and await visit.role_on(each.agent_id) >= ADMIN)
        rows.append([each.user_name, role_word(each.role), where, press if may else "—"])
    columns = ("Person", "Role", "On", "Take away")
    return Table("Roles", columns, rows, "No roles.", more=page.next_page_token, pager="roles")


async def create(visit: Visit) -> Response:
    """Make a person and show their token."""
    filled = _NEW.read(await visit.posted())

    async def act() -> Response:
        request = pb.CreateUserRequest(name=filled.values["name"], request_id=filled.once)
        made = await visit.mesh.identities.CreateUser(request)
        if not made.token:
            return visit.done("/users", f"{made.user.name} is there already; their token was shown then.")
        text = "They sign in with it. It is shown this one time, and stored nowhere: hand it over now."
        shown = Secret(f"{made.user.name} is created", "Token", made.token, text)
        return await visit.page(
            "A person's token", [shown, Links("Go on", [Link("Back to the people", "/users")])]
        )

    return await visit.answer(filled, act, lambda: _page(visit, filled))


async def grant(visit: Visit) -> Response:
    """Give a role."""
    filled = _GRANT.read(await visit.posted())

    async def act() -> Response:
        values = filled.values
        request = pb.GrantRoleRequest(
            user=values["user"],
            agent=values["agent"],
            role=int(values["role"]),  # type: ignore[arg-type]
        )
        made = (await visit.mesh.identities.GrantRole(request)).grant
        where = made.agent_slug or "the workspace"
        return visit.done("/users", f"{made.user_name} is {role_word(made.role)} of {where}.")

    return await visit.answer(filled, act, lambda: _page(visit, filled))


async def revoke(visit: Visit) -> Response:
    """Take the role away that the person saw, and no other."""
    posted = await visit.posted()
    role = str(posted.get("role", ""))
    request = pb.RevokeRoleRequest(
        user=str(posted.get("user", "")),
        agent=str(posted.get("agent", "")),
        role=int(role) if role in {"1", "2", "3"} else 0,  # type: ignore[arg-type]
    )
    await visit.mesh.identities.RevokeRole(request)
    return visit.done("/users", "The role is taken away.")


async def tell(visit: Visit) -> Response:
    """Set or remove a person's webhook."""
    filled = _TELL.read(await visit.posted())

    async def act() -> Response:
        made = (await visit.mesh.identities.SetUserWebhook(pb.SetUserWebhookRequest(**filled.values))).user
        said = "is told of what their agents ask" if made.has_webhook else "has no webhook"
        return visit.done("/users", f"{made.name} {said}.")

    return await visit.answer(filled, act, lambda: _page(visit, filled))
