"""Server tools: others list and call them, and each kind of failure is told from the others."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from hopline.registry.v1.agent_pb2 import Agent, ServerTool, UpdateAgentRequest
from hopline.registry.v1.identity_pb2 import ROLE_OPERATOR, ROLE_VIEWER
from hopline.relay.v1 import session_pb2

from tests.support.relay_mesh import RelayMesh, refusal, until
from tests.support.tool_worker import (
    CITY,
    call_tool,
    calling,
    definition,
    state,
    tools_of,
    turns_of,
    worker_of,
)


async def test_a_tool_runs_in_a_worker_without_a_turn_of_its_model(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await worker_of(bob, definition("look", CITY))
    under_way = calling(ada, "bob", arguments={"city": "Oslo"})
    call = await worker.call()
    assert (call.name, json.loads(call.arguments_json)) == ("look", {"city": "Oslo"})
    assert (call.depth, getattr(call, "from")) == (1, "ada (for admin)")
    await worker.answer(call, {"degrees": 4})
    answer = await under_way
    assert (state(answer.turn), json.loads(answer.result_json)) == ("completed", {"degrees": 4})
    assert (answer.turn.turn_id, answer.turn.depth, answer.turn.reply) == (call.turn_id, 1, "")
    assert answer.turn.agent.name == "bob"


async def test_a_call_is_a_turn_of_kind_tool_in_a_session_of_its_own_kind(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await worker_of(bob, "look")
    for _ in range(2):
        under_way = calling(ada, bob, arguments={"at": 1})
        await worker.answer(await worker.call(), [1])
        answer = await under_way
    newest, oldest = await turns_of(mesh, bob)
    assert (newest.cause, state(newest), newest.depth, newest.attempt) == ("tool", "completed", 1, 1)
    assert newest.session_id == oldest.session_id == answer.turn.session_id
    found = await mesh.admin.sessions.GetSession(session_pb2.GetSessionRequest(session_id=newest.session_id))
    assert (found.session.title, found.session.state) == ("Tools for ada", "idle")
    read = await ada.sessions.ReadSession(session_pb2.ReadSessionRequest(session_id=newest.session_id))
    assert [each.text for each in read.entries[:2]] == ['look({"at": 1})', "[1]"]


async def test_a_call_stands_in_the_audit_log_with_its_tool(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await worker_of(bob, "look")
    under_way = calling(ada, bob)
    await worker.answer(await worker.call())
    turn_id = (await under_way).turn.turn_id
    events = [event for event in await mesh.events() if event.turn_id == turn_id]
    assert [event.action for event in events] == ["message.sent", "turn.started", "turn.ended"]
    assert events[0].details["tool"] == "look"
    assert (events[0].actor_name, events[1].actor_id) == ("ada", bob.id)


@pytest.mark.parametrize(
    "value",
    [None, True, 0, 12345678901234567890, 0.1, "", "fox 🦊", [], {}, {"a": [1, {"b": None}]}],
    ids=str,
)
async def test_any_json_value_comes_back_as_it_was(mesh: RelayMesh, value: Any) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await worker_of(bob, "look")
    under_way = calling(ada, bob, arguments={"same": value})
    call = await worker.call()
    assert json.loads(call.arguments_json) == {"same": value}
    await worker.answer(call, value)
    assert json.loads((await under_way).result_json) == value


async def test_a_tool_that_fails_is_data_with_its_words(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await worker_of(bob, "look")
    under_way = calling(ada, bob)
    await worker.answer(await worker.call(), failure="the roof is closed")
    answer = await under_way
    assert (state(answer.turn), answer.result_json) == ("failed", "")
    assert (answer.turn.error.code, answer.turn.error.message) == ("tool_failed", "the roof is closed")
    assert state((await turns_of(mesh, bob))[0]) == "failed"


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ("{", "is not JSON"),
        ('"' + "x" * (256 * 1024 - 1) + '"', "over 256 KiB"),
        ("NaN", "is no JSON value"),
        ("", "is not JSON"),
    ],
    ids=["cut off", "too long", "not a number", "nothing"],
)
async def test_a_result_that_nobody_can_be_given_fails_the_call(
    mesh: RelayMesh, result: str, words: str
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await worker_of(bob, "look")
    under_way = calling(ada, bob)
    await worker.answer(await worker.call(), result_json=result)
    answer = await under_way
    assert answer.turn.error.code == "tool_failed"
    assert words in answer.turn.error.message


async def test_a_result_of_exactly_256_kib_comes_through(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await worker_of(bob, "look")
    under_way = calling(ada, bob)
    await worker.answer(await worker.call(), "x" * (256 * 1024 - 2))
    assert len((await under_way).result_json) == 256 * 1024


async def test_arguments_that_do_not_fit_are_refused_by_their_name_and_cost_nothing(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await worker_of(bob, definition("look", CITY))
    for arguments, named in (({}, "'city' is a required property"), ({"city": 5}, "arguments.city: 5")):
        error = await refusal(call_tool(ada, bob, arguments=arguments))
        assert (error.reason, named in error.message) == ("invalid_argument", True), error
    assert (await mesh.usage(ada)).sent_today == 0
    assert await turns_of(mesh, bob) == []


@pytest.mark.parametrize("text", ["[]", "5", "{", '{"a": NaN}', '{"a": "\\ud800"}', "[" * 100 + "]" * 100])
async def test_arguments_that_are_no_object_are_refused(mesh: RelayMesh, text: str) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await worker_of(bob, "look")
    error = await refusal(call_tool(ada, bob, arguments_json=text))
    assert (error.reason, error.message.partition(":")[0]) == ("invalid_argument", "arguments_json")


async def test_arguments_that_the_worker_will_not_take_are_refused_too(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await worker_of(bob, "look")
    under_way = calling(ada, bob)
    await worker.answer(await worker.call(), refusal="city: must be one of ours")
    error = await refusal(under_way)
    assert (error.reason, error.message) == ("invalid_argument", "arguments: city: must be one of ours")


async def test_a_tool_that_is_not_there_is_told_with_those_that_are(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await worker_of(bob, "look", "listen")
    error = await refusal(call_tool(ada, bob, "loook"))
    assert error.reason == "invalid_argument"
    assert error.message == "name: bob has no tool 'loook'; it has listen, look"


async def test_an_agent_without_tools_says_so(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await worker_of(bob)
    error = await refusal(call_tool(ada, bob))
    assert (error.reason, error.message) == ("failed_precondition", "bob offers no tools")


async def test_an_agent_that_is_away_is_told_from_one_without_the_tool(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    error = await refusal(call_tool(ada, bob))
    assert (error.reason, error.retryable, "bob is away" in error.message) == ("unavailable", True, True)
    worker = await worker_of(bob, "look")
    worker.stream.cancel()
    await until(lambda: mesh.relay.dispatcher.presence(mesh.workspace_id, bob.id) is None)
    assert (await refusal(call_tool(ada, bob))).reason == "unavailable"


async def test_tools_of_workers_and_of_the_definition_are_listed_together(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    named = [ServerTool(name="look", description="old"), ServerTool(name="walk", description="slowly")]
    change = UpdateAgentRequest(agent_ref="bob", agent=Agent(server_tools=named))
    change.update_mask.paths.append("server_tools")
    await mesh.admin.agents.UpdateAgent(change)
    output = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}
    await worker_of(bob, definition("look", CITY, "Looks out.", output), "ask-me")
    found = (await tools_of(ada, "bob")).tools
    assert [(each.name, each.description, each.available) for each in found] == [
        ("ask-me", "", True),
        ("look", "Looks out.", True),
        ("walk", "slowly", False),
    ]
    assert json.loads(found[1].input_schema_json) == CITY
    assert found[1].output_schema_json == json.dumps(output, separators=(",", ":"))
    assert json.loads(found[0].input_schema_json) == {"type": "object"}
    error = await refusal(call_tool(ada, bob, "walk"))
    assert (error.reason, "no worker that offers 'walk'" in error.message) == ("unavailable", True)


async def test_a_list_of_tools_is_paged(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await worker_of(bob, *(f"tool_{number:03}" for number in range(100)))
    names: list[str] = []
    token = ""
    while True:
        page = await tools_of(ada, bob, page_size=30, page_token=token)
        names += [each.name for each in page.tools]
        if not (token := page.next_page_token):
            break
    assert names == [f"tool_{number:03}" for number in range(100)]


async def test_who_may_not_start_anything_there_finds_no_agent_at_all(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await worker_of(bob, "look")
    eve, vic = await mesh.person("eve"), await mesh.person("vic")
    await mesh.grant("vic", ROLE_VIEWER, "bob")
    stranger = await mesh.foreign_agent("zoe")
    for caller in (eve, vic, stranger):
        never = await refusal(call_tool(caller, "nobody"))
        for ask in (call_tool(caller, "bob"), tools_of(caller, "bob")):
            error = await refusal(ask)
            assert error.reason == "not_found"
            assert error.message.replace("bob", "nobody") == never.message
    assert (await tools_of(ada, "bob")).tools[0].name == "look"


async def test_a_person_with_operator_calls_at_depth_0(mesh: RelayMesh) -> None:
    await mesh.agent("ada")
    bob = await mesh.agent("bob")
    worker = await worker_of(bob, "look")
    eve = await mesh.person("eve")
    await mesh.grant("eve", ROLE_OPERATOR, "bob")
    under_way = calling(eve, "bob")
    call = await worker.call()
    assert (call.depth, getattr(call, "from")) == (0, "eve")
    await worker.answer(call)
    assert state((await under_way).turn) == "completed"


async def test_a_receive_only_agent_calls_no_tools(mesh: RelayMesh) -> None:
    mute = await mesh.agent("mute", kind=2)
    bob = await mesh.agent("bob")
    await worker_of(bob, "look")
    assert (await refusal(call_tool(mute, bob))).reason == "receive_only"
    assert (await refusal(tools_of(mute, bob))).reason == "receive_only"


async def test_an_agent_does_not_call_itself(mesh: RelayMesh) -> None:
    bob = await mesh.agent("bob")
    await worker_of(bob, "look")
    assert (await refusal(call_tool(bob, bob))).reason == "invalid_argument"


async def test_the_same_request_runs_once_and_gives_its_first_outcome(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await worker_of(bob, "look")
    key = str(uuid.uuid4())
    together = [calling(ada, bob, request_id=key, arguments={"n": 1}) for _ in range(5)]
    await worker.answer(await worker.call(), 7)
    for under_way in together:
        assert (await under_way).result_json == "7"
    again = await call_tool(ada, bob, request_id=key, arguments={"n": 1})
    assert (again.result_json, again.turn.turn_id) == ("7", together[0].result().turn.turn_id)
    assert (await refusal(call_tool(ada, bob, request_id=key, arguments={"n": 2}))).reason == (
        "request_id_conflict"
    )
    assert (await mesh.usage(ada)).sent_today == 1
    assert len(await turns_of(mesh, bob)) == 1


async def test_check_finds_the_result_of_a_call_again(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await worker_of(bob, "look")
    under_way = calling(ada, bob)
    await worker.answer(await worker.call(), {"n": 1})
    view = await ada.check((await under_way).turn.turn_id)
    assert (state(view), view.reply) == ("completed", '{"n": 1}')


async def test_the_agents_reply_mode_does_not_hold_a_result_back(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob", reply_mode=1)
    worker = await worker_of(bob, "look")
    under_way = calling(ada, bob)
    await worker.answer(await worker.call(), 5)
    assert (await under_way).result_json == "5"


async def test_nobody_answers_a_call_by_a_reply(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await worker_of(bob, "look")
    under_way = calling(ada, bob)
    call = await worker.call()
    turn = (await turns_of(mesh, bob))[0]
    error = await refusal(bob.reply(turn.message_id, "not JSON"))
    assert (error.reason, "what the tool returns" in error.message) == ("failed_precondition", True)
    await worker.answer(call, 1)
    assert (await under_way).result_json == "1"
