"""Questions to owners as tests ask and answer them."""

from __future__ import annotations

from hopline.relay.v1 import escalation_pb2 as esc
from hopline_relay.turns import ClaimedTurn

from tests.support.relay_mesh import Caller, RelayMesh, Worker, until

PENDING, ANSWERED = esc.ESCALATION_STATUS_PENDING, esc.ESCALATION_STATUS_ANSWERED
EXPIRED, WITHDRAWN = esc.ESCALATION_STATUS_EXPIRED, esc.ESCALATION_STATUS_WITHDRAWN
DAY = 86_400.0


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
