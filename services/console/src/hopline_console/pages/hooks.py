"""`/hooks`: what plugins are asked about, in which order, and which are left alone as they kept failing."""

from __future__ import annotations

from typing import Final

from hopline.registry.v1 import workspace_pb2
from hopline.relay.v1 import hook_state_pb2 as pb
from hopline_rpc.clock import from_timestamp
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.blocks import Block, Cell, Code, Facts, Link, Links, Moment, Several, State, Table
from hopline_console.context import ConsoleContext
from hopline_console.nav import Item
from hopline_console.visit import Visit, routed

NAV: Final = (Item("Set up", "Hooks", "/hooks"),)

_COLUMNS = ("Kind", "Order", "Plugin", "When it fails", "State", "What was wrong")


def routes(context: ConsoleContext) -> list[Route]:
    """Return the page of hooks."""
    return [*routed(context, "/hooks", get=show)]


async def show(visit: Visit) -> Response:
    """List the hooks in the order in which they are asked."""
    hooks = (await visit.mesh.hooks.GetHooks(pb.GetHooksRequest())).hooks
    policy = (await visit.mesh.workspaces.GetPolicy(workspace_pb2.GetPolicyRequest())).policy
    own: list[tuple[str, Cell]] = [
        ("Take credentials out of what agents say", _switched(on=policy.redact_credentials)),
        ("Have reports without evidence say so", _switched(on=policy.evidence_required)),
    ]
    table = Table("Hooks of plugins", _COLUMNS, [_row(each) for each in hooks], "No plugin has a hook.")
    links = Links("More", [Link("Plugins", "/plugins"), Link("Policy", "/policy")])
    blocks: list[Block] = [links, table, Facts("Built in, switched by the policy; these come first", own)]
    lead = (
        "Those of one kind are asked in this order, each with what the one before left."
        " A plugin's page makes it a new secret."
    )
    return await visit.page("Hooks", blocks, lead=lead)


def _switched(*, on: bool) -> State:
    return State("on", "good") if on else State("off", "quiet")


def _row(hook: pb.HookState) -> list[Cell]:
    closed = hook.fail_mode == "fail_closed"
    fails = "the item is dropped (fail_closed)" if closed else "it goes on without it (fail_open)"
    state: Cell = State("in use", "good")
    if hook.is_suspended:
        state = Several([State("suspended", "bad"), "tried again", Moment(from_timestamp(hook.retry_at))])
    elif hook.failures:
        state = State(f"failed {hook.failures} in a row", "waiting")
    plugin = Link(hook.plugin_name, f"/plugins/{hook.plugin_id}")
    return [Code(hook.kind), str(hook.order), plugin, fails, state, hook.problem or "—"]
