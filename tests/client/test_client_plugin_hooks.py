"""A plugin's hooks, written with the client library: what they are asked, what becomes of what they say."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest
from hopline.hooks.v1 import extension_pb2
from hopline.hooks.v1 import hook_pb2 as pb
from hopline.hooks.v1.hook_pb2_grpc import HookServiceStub
from hopline_client.plugin import Hooked, Plugin, Rewrite, Veto
from hopline_rpc.validation import check

from tests.client.test_client_plugin import GOOD, shop

CONTEXT = pb.HookContext(workspace_id="ws_1", plugin_id="plg_1", event_id="evt_1", generation=2, depth=3)
AGENT = pb.HookAgent(id="agt_1", slug="ada", name="Ada", session_id="ses_1", turn_id="trn_1")
ABOUT: dict[str, Any] = {"context": CONTEXT, "agent": AGENT, "text": "one"}
REQUESTS: dict[str, tuple[str, Any]] = {
    "todo_added": ("TodoAdded", pb.TodoAddedRequest(context=CONTEXT, agent=AGENT, text="one")),
    "notify_scheduled": (
        "NotifyScheduled",
        pb.NotifyScheduledRequest(context=CONTEXT, agent=AGENT, text="one"),
    ),
    "notify_delivered": (
        "NotifyDelivered",
        pb.NotifyDeliveredRequest(context=CONTEXT, agent=AGENT, text="one"),
    ),
}


def message(**fields: Any) -> pb.InterAgentMessageRequest:
    return pb.InterAgentMessageRequest(
        **{
            "context": CONTEXT,
            "from": AGENT,
            "to": pb.HookAgent(id="agt_2"),
            "kind": "ask",
            "text": "one",
            **fields,
        }
    )


async def asked(plugin: Plugin, method: str, request: Any) -> Any:
    """Run a plugin, and ask it."""
    task = asyncio.create_task(plugin.run())
    async with asyncio.timeout(20):
        await plugin.listening.wait()
    async with grpc.aio.insecure_channel(plugin.address) as channel:
        try:
            return await getattr(HookServiceStub(channel), method)(request, metadata=GOOD)
        finally:
            plugin.stop()
            await task


async def test_a_hook_is_told_all_that_the_mesh_says_of_a_message() -> None:
    plugin, seen = shop(), list[Hooked]()
    plugin.hook("inter_agent_message")(seen.append)
    handed = extension_pb2.HandedSession(session_id="ses_1", depth=3)
    where = pb.HookContext()
    where.CopyFrom(CONTEXT)
    where.session.CopyFrom(handed)
    request = message(context=where, payload_json='{"n": 1}', subject="s", is_subagent_report=True)
    assert await asked(plugin, "InterAgentMessage", request) == pb.InterAgentMessageResponse()
    (found,) = seen
    assert (found.kind, found.event_id, found.text, found.message_kind) == (
        "inter_agent_message",
        "evt_1",
        "one",
        "ask",
    )
    assert (found.agent.id, found.agent.key, found.agent.turn_id) == ("agt_1", None, "trn_1")
    assert found.recipient is not None
    assert (found.recipient.id, found.subject, found.payload) == ("agt_2", "s", {"n": 1})
    assert (found.generation, found.depth, found.is_subagent_report) == (2, 3, True)
    assert (found.chat.session_id, found.chat.turn_id) == ("ses_1", "trn_1")


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (None, pb.InterAgentMessageResponse()),
        ("two", pb.InterAgentMessageResponse(rewrite=pb.HookRewrite(text="two"))),
        ("", pb.InterAgentMessageResponse(rewrite=pb.HookRewrite())),
        (
            Rewrite("two", subject="", payload_json="1"),
            pb.InterAgentMessageResponse(rewrite=pb.HookRewrite(text="two", subject="", payload_json="1")),
        ),
        (Veto("no"), pb.InterAgentMessageResponse(veto=pb.HookVeto(reason="no"))),
    ],
)
async def test_what_a_hook_says_of_a_message_is_the_verdict(said: Any, answer: Any) -> None:
    plugin = shop()

    @plugin.hook("inter_agent_message")
    async def says(hooked: Hooked) -> Any:
        return said

    assert await asked(plugin, "InterAgentMessage", message()) == answer


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("said", [None, "two", Veto("no")])
async def test_what_a_hook_says_of_what_has_a_text_alone_is_the_verdict(kind: Any, said: Any) -> None:
    plugin = shop()
    plugin.hook(kind)(lambda hooked: said)
    method, request = REQUESTS[kind]
    answer = await asked(plugin, method, request)
    assert answer.WhichOneof("verdict") == {None: None, "two": "text", Veto("no"): "veto"}[said]


@pytest.mark.parametrize(("said", "text"), [(None, None), ("more", "more"), (Veto("no"), None)])
async def test_a_hook_on_system_prompts_says_the_whole_of_it_or_nothing(said: Any, text: str | None) -> None:
    plugin = shop()
    plugin.hook("system_prompt")(lambda hooked: said)
    answer = await asked(
        plugin, "SystemPrompt", pb.SystemPromptRequest(context=CONTEXT, agent=AGENT, text="one")
    )
    assert (answer.text if answer.HasField("text") else None) == text


async def test_what_a_hook_raises_is_its_failure_and_says_nothing_of_the_inside() -> None:
    plugin = shop()

    @plugin.hook("inter_agent_message")
    def breaks(hooked: Hooked) -> None:
        raise ValueError("hunter2")

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asked(plugin, "InterAgentMessage", message())
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "hunter2" not in (caught.value.details() or "")


async def test_a_hook_that_there_is_not_is_not_implemented() -> None:
    plugin = shop()
    plugin.hook("todo_added")(lambda hooked: None)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asked(plugin, "InterAgentMessage", message())
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_the_manifest_names_the_hooks_and_where_they_are_asked() -> None:
    plugin = shop(endpoint="127.0.0.1:7500")
    plugin.hook("inter_agent_message", order=3, fail_mode="fail_closed")(lambda hooked: None)
    plugin.hook("system_prompt")(lambda hooked: None)
    manifest = plugin.manifest()
    check(manifest)
    assert [(each.kind, each.order, each.fail_mode) for each in manifest.hooks] == [
        ("inter_agent_message", 3, "fail_closed"),
        ("system_prompt", 0, "fail_open"),
    ]
    assert manifest.endpoint == "127.0.0.1:7500"
    with pytest.raises(ValueError, match="two hooks"):
        plugin.hook("system_prompt")
    with pytest.raises(ValueError, match="there is no hook"):
        plugin.hook("on_fire")  # type: ignore[arg-type]
