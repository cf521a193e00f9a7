"""Agents ask their owners: who gets the question, how the call waits, and how the answer comes back."""

from __future__ import annotations

import asyncio

from hopline.relay.v1 import escalation_pb2 as esc
from hopline_relay.turns import ClaimedTurn

from tests.support.relay_mesh import Caller, RelayMesh, Worker, until

PENDING, ANSWERED = esc.ESCALATION_STATUS_PENDING, esc.ESCALATION_STATUS_ANSWERED
REQUEST = "6f9619ff-8b86-d011-b42d-00c04fc964ff"


async def ask_owner(
    agent: Caller, question: str = "Deploy now?", wait: int = 0, **more: object
) -> esc.Escalation:
    request = esc.AskOwnerRequest(question=question, wait_seconds=wait, **more)  # type: ignore[arg-type]
    response: esc.AskOwnerResponse = await agent.escalations.AskOwner(request)
    return response.escalation


async def ask_within(
    worker: Worker, turn: ClaimedTurn, question: str = "Deploy now?", wait: int = 0
) -> esc.Escalation:
    request = esc.AskOwnerRequest(question=question, wait_seconds=wait)
    handlers = worker.mesh.relay.handlers
    return (await handlers.ask_owner(await worker.principal(), request, turn_id=turn.turn_id)).escalation


async def look(agent: Caller, escalation_id: str, wait: int = 0) -> esc.Escalation:
    request = esc.CheckEscalationRequest(escalation_id=escalation_id, wait_seconds=wait)
    response: esc.CheckEscalationResponse = await agent.escalations.CheckEscalation(request)
    return response.escalation


async def answer(person: Caller, escalation_id: str, text: str = "yes") -> esc.Escalation:
    request = esc.AnswerEscalationRequest(escalation_id=escalation_id, text=text)
    response: esc.AnswerEscalationResponse = await person.escalations.AnswerEscalation(request)
    return response.escalation


async def withdraw(person: Caller, escalation_id: str, reason: str = "") -> esc.Escalation:
    request = esc.WithdrawEscalationRequest(escalation_id=escalation_id, reason=reason)
    response: esc.WithdrawEscalationResponse = await person.escalations.WithdrawEscalation(request)
    return response.escalation


async def listed(person: Caller, **more: object) -> list[esc.Escalation]:
    request = esc.ListEscalationsRequest(**more)  # type: ignore[arg-type]
    response: esc.ListEscalationsResponse = await person.escalations.ListEscalations(request)
    return list(response.escalations)


async def waits(mesh: RelayMesh, agent: Caller, escalation_id: str = "") -> str:
    """Wait until a call of the agent waits for its owner; returns the question's id."""

    def waiting() -> str:
        for (_, identifier), waiters in mesh.relay.waits._waiters.items():
            if identifier.startswith("esc_") and waiters[0].principal_id == agent.id:
                return identifier
        return ""

    return await until(waiting, "the wait")


async def test_an_answer_comes_back_to_the_call_that_waits(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    asking = asyncio.create_task(ask_owner(ada, wait=50))
    identifier = await waits(mesh, ada)
    [pending] = await listed(mesh.admin)
    assert (pending.id, pending.question, pending.agent.name) == (identifier, "Deploy now?", "ada")
    assert (pending.owner.name, pending.status) == ("admin", PENDING)
    assert (await answer(mesh.admin, identifier, "yes, go")).status == ANSWERED
    asked = await asking
    assert (asked.id, asked.status, asked.answer) == (identifier, ANSWERED, "yes, go")
    assert asked.ended_by.name == "admin"
    # Nobody is woken by an answer that was handed over, and nothing is pending any more.
    assert not (await ada.take()).messages
    assert await listed(mesh.admin) == []
    assert [each.status for each in await listed(mesh.admin, all=True)] == [ANSWERED]
