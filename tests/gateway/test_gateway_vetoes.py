"""What a hook of the workspace has kept back is data for the model that said it, and says why."""

from __future__ import annotations

from hopline.relay.v1 import delegation_pb2, timer_pb2, todo_pb2
from hopline.relay.v1 import message_pb2 as pb

from tests.gateway.builders import Rig
from tests.gateway.test_gateway_tools import call

WEATHER = pb.Party(id="agt_w", name="weather", kind="agent")
KEPT = pb.Delivery(agent=WEATHER, state=pb.DELIVERY_STATE_VETOED, is_canceled=True, cancel_reason="no gossip")


async def test_a_vetoed_message_has_no_id_and_names_the_reason(rig: Rig, mode: str) -> None:
    rig.relay.script["Send"] = lambda _: pb.SendResponse(deliveries=[KEPT])
    result = await call(rig, mode, "send_message", {"agent": "weather", "text": "psst"})
    found = result.structured_content
    assert (found["message_id"], found["thread_id"]) == (None, None)
    (delivery,) = found["deliveries"]
    assert (delivery["status"], delivery["is_delivered"]) == ("vetoed", False)
    assert (delivery["is_canceled"], delivery["cancel_reason"]) == (True, "no gossip")
    assert "no gossip" in str(result.content)


async def test_a_reply_of_which_nothing_was_left_is_not_canceled(rig: Rig, mode: str) -> None:
    dropped = pb.Delivery(agent=WEATHER, state=pb.DELIVERY_STATE_VETOED)
    rig.relay.script["Reply"] = lambda _: pb.ReplyResponse(thread_id="thr_1", deliveries=[dropped])
    result = await call(rig, mode, "reply", {"message_id": "msg_1", "text": "psst"})
    found = result.structured_content
    assert (found["message_id"], found["thread_id"]) == (None, "thr_1")
    assert (found["deliveries"][0]["is_canceled"], found["deliveries"][0]["cancel_reason"]) == (False, None)


async def test_of_a_fan_out_the_result_says_whom_it_did_not_reach(rig: Rig, mode: str) -> None:
    other = pb.Delivery(agent=pb.Party(id="agt_2", name="two"), state=pb.DELIVERY_STATE_QUEUED)
    rig.relay.script["Send"] = lambda _: pb.SendResponse(
        message_id="msg_1", thread_id="thr_1", depth=1, deliveries=[KEPT, other]
    )
    result = await call(rig, mode, "send_message", {"agent": ["weather", "two"], "text": "psst"})
    assert result.structured_content["message_id"] == "msg_1"
    assert "cancel_reason" not in result.structured_content["deliveries"][1]
    assert "kept it from weather: no gossip" in str(result.content)


async def test_a_vetoed_ask_is_canceled_and_says_why(rig: Rig, mode: str) -> None:
    view = pb.TurnView(
        status=pb.TURN_STATUS_CANCELED,
        error=pb.TurnError(code="canceled", message="no gossip"),
        agent=WEATHER,
    )
    rig.relay.script["Ask"] = lambda _: pb.AskResponse(turn=view)
    found = (await call(rig, mode, "ask", {"agent": "weather", "text": "psst"})).structured_content
    assert (found["status"], found["error"]) == ("canceled", {"code": "canceled", "message": "no gossip"})
    assert "turn_id" not in found


async def test_what_is_kept_from_a_colleague_has_no_conversation(rig: Rig, mode: str) -> None:
    rig.relay.script["MessageAgent"] = lambda _: delegation_pb2.MessageAgentResponse(
        is_canceled=True, cancel_reason="no gossip"
    )
    found = (await call(rig, mode, "message_agent", {"agent": "weather", "text": "psst"})).structured_content
    assert found == {"is_canceled": True, "cancel_reason": "no gossip"}


async def test_todos_and_timers_that_were_kept_back_are_named_with_the_reason(rig: Rig, mode: str) -> None:
    token = rig.registry.agent("lead")
    rig.registry.agent("sub", is_subagent=True, parent_agent_id="agt_lead")
    await rig.clock.advance(0.3)
    rig.relay.script["AddTodos"] = lambda _: todo_pb2.AddTodosResponse(
        todos=[todo_pb2.Todo(id="tdo_1", text="one", state=todo_pb2.TODO_STATE_OPEN)],
        outcomes=[
            todo_pb2.TodoOutcome(todo_id="tdo_1"),
            todo_pb2.TodoOutcome(is_canceled=True, cancel_reason="not that"),
        ],
    )
    found = (await call(rig, mode, "todo_write", {"texts": ["one", "two"]}, token=token)).structured_content
    assert [each["id"] for each in found["todos"]] == ["tdo_1"]
    assert found["kept_back"] == [{"text": "two", "is_canceled": True, "cancel_reason": "not that"}]
    rig.relay.script["SetTimer"] = lambda _: timer_pb2.SetTimerResponse(
        is_canceled=True, cancel_reason="not now"
    )
    arguments = {"delay_seconds": 60, "message": "look"}
    found = (await call(rig, mode, "notify_session_in", arguments, token=token)).structured_content
    assert found == {"timers": [], "is_canceled": True, "cancel_reason": "not now"}
