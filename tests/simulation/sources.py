"""Schedules and webhooks: what starts turns in the person's name while everything else goes on."""

from __future__ import annotations

from typing import Any

from hopline.relay.v1 import schedule_pb2, webhook_pb2
from hopline.relay.v1.schedule_pb2_grpc import ScheduleServiceStub
from hopline.relay.v1.webhook_pb2_grpc import WebhookServiceStub
from hopline_rpc import signatures

from tests.simulation.actions import Actions
from tests.simulation.quotas import require
from tests.simulation.world import Member

_MOST = 6
_KEPT = 12


class Sources:
    """Sets schedules and delivers to webhooks."""

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        self._world = actions.world
        self._rng = actions.rng
        self._schedules: list[str] = []
        # By agent: its webhook's secret.
        self._secrets: dict[str, str] = {}
        # What was signed, and the turn that it has become.
        self._signed: list[tuple[str, str, str]] = []
        self._turns: dict[str, str] = {}

    # -- schedules ---------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Have the person set a schedule, or pause, resume or remove one."""
        if not self._schedules or (len(self._schedules) < _MOST and self._rng.random() < 0.5):
            return self._add()
        identifier = self._rng.choice(self._schedules)
        stub = ScheduleServiceStub(self._actions.person._channel("relay"))
        work: Any
        drawn = self._rng.randrange(3)
        if drawn == 0:
            work = stub.PauseSchedule(schedule_pb2.PauseScheduleRequest(schedule_id=identifier))
        elif drawn == 1:
            work = stub.ResumeSchedule(schedule_pb2.ResumeScheduleRequest(schedule_id=identifier))
        else:
            self._schedules.remove(identifier)
            work = stub.RemoveSchedule(schedule_pb2.RemoveScheduleRequest(schedule_id=identifier))
        what = ("pauses", "resumes", "removes")[drawn]
        return self._actions.call("the person", f"{what}-schedule {identifier[-6:]}", work)

    def _add(self) -> None:
        agent = self._actions.one()
        request = schedule_pb2.AddScheduleRequest(
            agent=agent.id,
            cron=self._rng.choice(("* * * * *", "*/5 * * * *", "0 * * * *")),
            text=self._actions._text(),
        )
        stub: Any = ScheduleServiceStub(self._actions.person._channel("relay"))
        self._actions.call(
            "the person",
            f"sets-schedule {agent.name}",
            stub.AddSchedule(request),
            lambda a: self._schedules.append(a.schedule.id),
        )

    async def end(self) -> None:
        """Remove every schedule: they would go on for ever."""
        stub: Any = ScheduleServiceStub(self._actions.person._channel("relay"))
        found = await stub.ListSchedules(schedule_pb2.ListSchedulesRequest(page_size=200))
        for each in found.schedules:
            await stub.RemoveSchedule(schedule_pb2.RemoveScheduleRequest(schedule_id=each.id))

    # -- webhooks ----------------------------------------------------------------------------------

    def deliver(self) -> None:
        """Have somebody outside deliver something: anew, what was sent before, or signed with no secret."""
        agent = self._actions.one()
        secret = self._secrets.get(agent.id)
        if secret is None:
            return self._add_webhook(agent)
        if self._signed and self._rng.random() < 0.3:
            slug, body, header = self._rng.choice(self._signed)
            return self._send(slug, body, header, "again")
        if self._rng.random() < 0.2:
            secret = "whs_wrong"
        body, at = self._actions._text(), int(self._world.time.now())
        header = signatures.sign(secret, body.encode(), at)
        if secret != "whs_wrong":
            self._signed.append((agent.name, body, header))
            del self._signed[:-_KEPT]
        return self._send(agent.name, body, header, "wrong" if secret == "whs_wrong" else "anew")

    def _add_webhook(self, agent: Member) -> None:
        def then(answer: Any) -> None:
            self._secrets[agent.id] = answer.secret

        stub: Any = WebhookServiceStub(self._actions.person._channel("relay"))
        request = webhook_pb2.AddWebhookRequest(agent=agent.id, name="in")
        self._actions.call("the person", f"adds-webhook {agent.name}", stub.AddWebhook(request), then)

    def _send(self, slug: str, body: str, header: str, how: str) -> None:
        def then(answer: Any) -> None:
            require(how != "wrong", f"{body!r} was taken with a wrong signature")
            signed_at = int(header.removeprefix("t=").partition(",")[0])
            if self._world.time.latest() - signed_at > 86_400:
                # Requests are remembered for a day by the wall clock, which may have been ahead.
                self._turns.pop(header, None)
            turn = self._turns.setdefault(header, answer.turn.turn_id)
            require(turn == answer.turn.turn_id, f"{header} started {turn} and {answer.turn.turn_id}")

        stub: Any = WebhookServiceStub(self._world.service._channel("relay"))
        request = webhook_pb2.DeliverWebhookRequest(
            slug=slug, name="in", signature=header, body=body, wait_seconds=self._rng.choice((0, 0, 20))
        )
        self._actions.call("outside", f"delivers-{how} {slug}", stub.DeliverWebhook(request), then)
