"""`hopline workspace|user|role|token|policy`: who is there, and what they may do."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hopline_cli.output import Output
from hopline_cli.secret import save_token
from hopline_cli.times import UNITS
from hopline_cli.verbs import Cursor, Limit, TokenFile, command, text_or_file

if TYPE_CHECKING:
    from hopline_cli.mesh import Mesh

workspace = typer.Typer(help="Workspaces: tenants that nothing crosses.", no_args_is_help=True)
user = typer.Typer(help="People.", no_args_is_help=True)
role = typer.Typer(help="Roles of people on the workspace or on one agent.", no_args_is_help=True)
token = typer.Typer(help="Credentials of agents, people, plugins and services.", no_args_is_help=True)
policy = typer.Typer(help="The limits of the workspace.", no_args_is_help=True)

RoleName = Annotated[str, typer.Argument(metavar="ROLE", help="viewer, operator or admin.")]
OnAgent = Annotated[str, typer.Option("--agent", metavar="A", help="On this agent only.", show_default=False)]


@command(workspace, "create")
async def create_workspace(mesh: Mesh, out: Output, name: str) -> None:
    """Create a workspace, with a user `admin` in it. Needs the installation's own token."""
    from hopline.registry.v1 import workspace_pb2 as pb

    from hopline_cli import shapes

    made = await mesh.workspaces.CreateWorkspace(pb.CreateWorkspaceRequest(name=name))
    found = shapes.workspace(made.workspace)
    out.result(found, f"workspace {found['name']} ({found['id']}) created; use it with --workspace {name}")


@command(workspace, "list")
async def list_workspaces(mesh: Mesh, out: Output, limit: Limit = 50, cursor: Cursor = "") -> None:
    """List the workspaces."""
    from hopline.registry.v1 import workspace_pb2 as pb

    from hopline_cli import shapes
    from hopline_cli.mesh import pages

    async def read(size: int, at: str) -> tuple[list[Any], str]:
        page = await mesh.workspaces.ListWorkspaces(pb.ListWorkspacesRequest(page_size=size, page_token=at))
        return [shapes.workspace(each) for each in page.workspaces], page.next_page_token

    items, rest = await pages(read, limit, cursor)
    out.rows("workspaces", items, [("ID", "id"), ("NAME", "name"), ("CREATED", "created_at")], rest)


@command(user, "create")
async def create_user(
    mesh: Mesh,
    out: Output,
    name: str,
    token_file: TokenFile = None,
    login: Annotated[
        str,
        typer.Option(metavar="WHO", help="Whom the identity provider knows them as.", show_default=False),
    ] = "",
) -> None:
    """Create a person; prints their id and, once, their token."""
    from hopline.registry.v1 import identity_pb2 as pb

    from hopline_cli import shapes

    made = await mesh.identities.CreateUser(pb.CreateUserRequest(name=name, login=login))
    found = {**shapes.user(made.user), "token": made.token}
    kept = save_token(token_file, made.token)
    out.result(found, f"user {name} ({found['id']}) created", kept)


@command(user, "set")
async def set_user(
    mesh: Mesh,
    out: Output,
    name: Annotated[str, typer.Argument(metavar="USER")],
    webhook: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Tell them here of what their agents ask; none: nowhere.",
            show_default=False,
        ),
    ] = None,
    webhook_secret_file: Annotated[
        Path | None,
        typer.Option(metavar="F", help="Holds the secret that signs what is sent.", show_default=False),
    ] = None,
    login: Annotated[
        str | None,
        typer.Option(
            metavar="WHO",
            help="Whom the identity provider knows them as; none: nobody, which ends their sign-ins by it.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Set where a person is told of what their agents ask, shown to nobody, or as whom they sign in."""
    from hopline.registry.v1 import identity_pb2 as pb

    from hopline_cli import shapes

    if webhook is None and login is None:
        raise typer.BadParameter("say what to set: --webhook or --login")
    changed, said = pb.User(), []
    if webhook is not None:
        changed = (await mesh.identities.SetUserWebhook(_webhook(name, webhook, webhook_secret_file))).user
        said.append("is told of what their agents ask" if changed.has_webhook else "has no webhook")
    if login is not None:
        who = "" if login == "none" else login
        changed = (await mesh.identities.SetUserLogin(pb.SetUserLoginRequest(user=name, login=who))).user
        said.append(f"signs in as {changed.login}" if changed.login else "signs in by token only")
    out.result(shapes.user(changed), f"{changed.name} {' and '.join(said)}")


def _webhook(user: str, webhook: str, secret_file: Path | None) -> Any:
    from hopline.registry.v1 import identity_pb2 as pb

    if not webhook:
        raise typer.BadParameter("is empty: give an address, or none to remove it", param_hint="--webhook")
    url = "" if webhook == "none" else webhook
    if url and secret_file is None:
        raise typer.BadParameter(
            "is needed with --webhook URL: a file with 16 to 256 bytes of text, one line",
            param_hint="--webhook-secret-file",
        )
    secret = text_or_file(f"@{secret_file}", "--webhook-secret-file") if url else ""
    return pb.SetUserWebhookRequest(user=user, url=url, secret=(secret or "").strip())


@command(user, "list")
async def list_users(mesh: Mesh, out: Output, limit: Limit = 50, cursor: Cursor = "") -> None:
    """List the people of the workspace."""
    from hopline.registry.v1 import identity_pb2 as pb

    from hopline_cli import shapes
    from hopline_cli.mesh import pages

    async def read(size: int, at: str) -> tuple[list[Any], str]:
        page = await mesh.identities.ListUsers(pb.ListUsersRequest(page_size=size, page_token=at))
        return [shapes.user(each) for each in page.users], page.next_page_token

    items, rest = await pages(read, limit, cursor)
    out.rows("users", items, [("ID", "id"), ("NAME", "name"), ("CREATED", "created_at")], rest)


def _role(name: str) -> Any:
    from hopline.registry.v1 import identity_pb2 as pb

    known = {value.name.removeprefix("ROLE_").lower(): value.number for value in pb.Role.DESCRIPTOR.values}
    del known["unspecified"]
    if name.lower() not in known:
        raise typer.BadParameter(f"{name!r} is no role: viewer, operator or admin", param_hint="ROLE")
    return known[name.lower()]


@command(role, "grant")
async def grant_role(mesh: Mesh, out: Output, user: str, role: RoleName, agent: OnAgent = "") -> None:
    """Give a person a role on the workspace, or with --agent on one agent."""
    from hopline.registry.v1 import identity_pb2 as pb

    from hopline_cli import shapes

    request = pb.GrantRoleRequest(user=user, agent=agent, role=_role(role))
    made = await mesh.identities.GrantRole(request)
    out.result(shapes.grant(made.grant), f"{user} is {role.lower()} of {agent or 'the workspace'}")


@command(role, "revoke")
async def revoke_role(
    mesh: Mesh,
    out: Output,
    user: str,
    role: Annotated[str, typer.Argument(metavar="[ROLE]", help="Only if it is this one.")] = "",
    agent: OnAgent = "",
) -> None:
    """Take a person's role on the workspace, or with --agent on one agent, away."""
    from hopline.registry.v1 import identity_pb2 as pb

    request = pb.RevokeRoleRequest(user=user, agent=agent, role=_role(role) if role else pb.ROLE_UNSPECIFIED)
    await mesh.identities.RevokeRole(request)
    revoked = {"user": user, "agent": agent or None, "role": role.lower() or None, "revoked": True}
    out.result(revoked, f"{user} holds no role on {agent or 'the workspace'} any more")


@command(role, "list")
async def list_roles(mesh: Mesh, out: Output, limit: Limit = 50, cursor: Cursor = "") -> None:
    """List the roles granted in the workspace."""
    from hopline.registry.v1 import identity_pb2 as pb

    from hopline_cli import shapes
    from hopline_cli.mesh import pages

    async def read(size: int, at: str) -> tuple[list[Any], str]:
        page = await mesh.identities.ListRoles(pb.ListRolesRequest(page_size=size, page_token=at))
        return [shapes.grant(each) for each in page.grants], page.next_page_token

    items, rest = await pages(read, limit, cursor)
    out.rows("roles", items, [("USER", "user_id"), ("ROLE", "role"), ("AGENT", "agent_id")], rest)


@command(token, "create")
async def create_token(
    mesh: Mesh,
    out: Output,
    agent: Annotated[str, typer.Option(metavar="A", help="For this agent.", show_default=False)] = "",
    user: Annotated[str, typer.Option(metavar="U", help="For this person.", show_default=False)] = "",
    service: Annotated[
        str, typer.Option(metavar="NAME", help="For a service of the mesh.", show_default=False)
    ] = "",
    plugin: Annotated[str, typer.Option(metavar="P", help="For this plugin.", show_default=False)] = "",
    expires: Annotated[
        str,
        typer.Option(metavar="WHEN", help="90s, 15m, 12h, 30d or a time such as 2027-01-31T00:00:00Z."),
    ] = "",
    name: Annotated[str, typer.Option(help="A name to know it by.", show_default=False)] = "",
    token_file: TokenFile = None,
) -> None:
    """Make a further token; it is printed once and stored hashed."""
    from hopline.registry.v1 import identity_pb2 as pb

    from hopline_cli import shapes

    request = pb.CreateTokenRequest(name=name, expires_in_seconds=seconds_until(expires, time.time()))
    subjects = {"agent": agent, "user": user, "service": service, "plugin": plugin}
    given = [(kind, value) for kind, value in subjects.items() if value]
    if len(given) != 1:
        raise typer.BadParameter("say whose it is: one of --agent A, --user U, --service NAME, --plugin P")
    setattr(request, *given[0])
    made = await mesh.identities.CreateToken(request)
    found = {**shapes.token(made.info), "token": made.token}
    out.result(found, f"token {found['id']} created for {given[0][1]}", save_token(token_file, made.token))


def seconds_until(text: str, now: float) -> int:
    """Return how long until `--expires`: a duration or a moment; 0 for none, that is never."""
    from hopline_rpc.clock import parse_rfc3339

    if not text:
        return 0
    duration = re.fullmatch(r"(\d{1,9})([smhd]?)", text)
    try:
        left = int(duration[1]) * UNITS[duration[2]] if duration else int(parse_rfc3339(text) - now)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is neither a duration (90s, 15m, 12h, 30d) nor a time (2027-01-31T00:00:00Z)",
            param_hint="--expires",
        ) from None
    if left < 1:
        raise typer.BadParameter(f"{text!r} has passed", param_hint="--expires")
    return left


@command(token, "list")
async def list_tokens(
    mesh: Mesh, out: Output, agent: OnAgent = "", limit: Limit = 50, cursor: Cursor = ""
) -> None:
    """List the tokens you may manage, without their secrets."""
    from hopline.registry.v1 import identity_pb2 as pb

    from hopline_cli import shapes
    from hopline_cli.mesh import pages

    async def read(size: int, at: str) -> tuple[list[Any], str]:
        page = await mesh.identities.ListTokens(
            pb.ListTokensRequest(agent=agent, page_size=size, page_token=at)
        )
        return [shapes.token(each) for each in page.tokens], page.next_page_token

    items, rest = await pages(read, limit, cursor)
    columns = [("ID", "id"), ("KIND", "kind"), ("OF", "subject_id"), ("NAME", "name")]
    columns += [("EXPIRES", "expires_at"), ("REVOKED", "revoked_at")]
    out.rows("tokens", items, columns, rest)


@command(token, "revoke")
async def revoke_token(
    mesh: Mesh, out: Output, token_id: Annotated[str, typer.Argument(metavar="ID")]
) -> None:
    """End a token, with everything that it opened."""
    from hopline.registry.v1 import identity_pb2 as pb

    await mesh.identities.RevokeToken(pb.RevokeTokenRequest(token_id=token_id))
    out.result({"id": token_id, "revoked": True}, f"token {token_id} revoked")


@command(policy, "show")
async def show_policy(mesh: Mesh, out: Output) -> None:
    """Show the limits in force."""
    from hopline.registry.v1 import workspace_pb2 as pb

    from hopline_cli import shapes

    found = await mesh.workspaces.GetPolicy(pb.GetPolicyRequest())
    out.fields(shapes.policy(found.policy))


@command(policy, "preset")
async def apply_preset(mesh: Mesh, out: Output, name: str) -> None:
    """Replace all limits by a preset: default, strict, free, solo or entrepreneur."""
    from hopline.registry.v1 import workspace_pb2 as pb

    from hopline_cli import shapes

    found = await mesh.workspaces.ApplyPreset(pb.ApplyPresetRequest(preset=name))
    out.fields(shapes.policy(found.policy))


@command(policy, "set")
async def set_policy(
    mesh: Mesh, out: Output, settings: Annotated[list[str], typer.Argument(metavar="KEY=VALUE…")]
) -> None:
    """Change single limits, for example `max_depth=2 pair_budget=10/60s`."""
    from google.protobuf.field_mask_pb2 import FieldMask
    from hopline.registry.v1 import workspace_pb2 as pb

    from hopline_cli import shapes

    changed = pb.Policy()
    for setting in settings:
        _set_limit(changed, setting)
    names = [setting.partition("=")[0] for setting in settings]
    request = pb.UpdatePolicyRequest(policy=changed, update_mask=FieldMask(paths=names))
    found = await mesh.workspaces.UpdatePolicy(request)
    out.fields(shapes.policy(found.policy))


_TRUTH = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


def _set_limit(changed: Any, setting: str) -> None:
    """Set one `KEY=VALUE` on a policy message; the contract's own field says of which type it is."""
    key, given, value = setting.partition("=")
    fields = {each.name: each for each in changed.DESCRIPTOR.fields if each.name != "preset"}
    if not given:
        raise typer.BadParameter(f"{setting!r} is not KEY=VALUE", param_hint="KEY=VALUE")
    if key not in fields:
        raise typer.BadParameter(f"{key!r} is no policy key: {', '.join(fields)}", param_hint="KEY=VALUE")
    field = fields[key]
    if field.type == field.TYPE_STRING:
        setattr(changed, key, value)
    elif field.type == field.TYPE_BOOL:
        if value.lower() not in _TRUTH:
            raise typer.BadParameter(f"{key} is true or false, not {value!r}", param_hint="KEY=VALUE")
        setattr(changed, key, _TRUTH[value.lower()])
    elif not value.isascii() or not value.isdigit() or int(value) >= 2**32:
        raise typer.BadParameter(f"{key} is a whole number, not {value!r}", param_hint="KEY=VALUE")
    else:
        setattr(changed, key, int(value))
