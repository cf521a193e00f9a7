"""Why an open turn does not go on: in data, in one sentence, and with the command that ends it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hopline.relay.v1 import floor_pb2 as pb
from hopline_directory import Directory
from hopline_directory.records import AgentRecord
from hopline_rpc.clock import to_timestamp

from hopline_relay.domain.values import LEASE_SECONDS, PULL_LEASE_SECONDS
from hopline_relay.store.floor import Open
from hopline_relay.store.sql import Record

# A lease is renewed three times within its time: after so long without, its worker is in trouble.
_SILENT_SECONDS: Final = LEASE_SECONDS / 2


@dataclass(frozen=True, slots=True)
class Room:
    """What is free: of the agent's workers, and of the workspace's run slots."""

    # `busy` or `idle` where a worker is attached, else `sleeping`, `inbox_only` or `offline`.
    presence: str
    places: int
    running: int
    runs_used: int
    runs_limit: int


class Whys:
    """Says why."""

    def __init__(self, directory: Directory, places: Callable[[str, str], int]) -> None:
        self._directory = directory
        self._places = places

    def running(self, row: Record, found: Open, now: float) -> pb.Wait | None:
        """Return what a running turn waits for; None while it works."""
        asked = found.escalations.get(row.batch_id or row.id)
        if asked is not None:
            return _owner(asked)
        waits = found.waits.get(row.id)
        if waits is not None:
            return pb.Wait(
                reason=pb.WAIT_REASON_ANSWER,
                text="it waits for an answer that it has asked for",
                turn_id=waits.turn_id,
                since=to_timestamp(waits.created_at),
            )
        return self._silent(row, now)

    def _silent(self, row: Record, now: float) -> pb.Wait | None:
        if row.lease_until is None or row.run_session_id:
            return None  # a pulled turn is its agent's until it answers, or its lease is over
        heard = row.lease_until - LEASE_SECONDS
        gone = not self._places(row.workspace_id, row.agent_id)
        if now - heard < _SILENT_SECONDS and not gone:
            return None
        if row.lease_until - now > PULL_LEASE_SECONDS / 2:
            return None
        left = max(0, round(row.lease_until - now))
        what = "its worker is gone" if gone else "its worker has not been heard from"
        name = self._name(row)
        return pb.Wait(
            reason=pb.WAIT_REASON_WORKER_SILENT,
            text=f"{what} (last heard of {max(0, round(now - heard))} s ago); in {left} s the turn is run"
            " anew, if a worker is attached by then",
            remedy=f"hopline attach --agent {name} -- COMMAND" if gone else f"hopline cancel {row.id}",
            since=to_timestamp(heard),
        )

    def queued(self, row: Record, found: Open, room: Room) -> pb.Wait:
        """Return why a queued turn does not run yet."""
        agent = self._directory.agent(row.workspace_id, row.agent_id)
        since = to_timestamp(row.created_at)
        if agent is not None and agent.state != "active":
            return pb.Wait(
                reason=pb.WAIT_REASON_PAUSED,
                text=f"{agent.name} is paused: what it is sent waits",
                remedy=f"hopline agent resume {agent.slug}",
                since=since,
            )
        behind = found.busy.get(row.session_id, "")
        if behind and behind != row.id:
            return pb.Wait(
                reason=pb.WAIT_REASON_SESSION,
                text="another turn of its session runs; they come one after the other",
                turn_id=behind,
                session_id=row.session_id,
                since=since,
            )
        wait = _attached(room) if room.places else self._away(agent, room)
        wait.since.CopyFrom(since)
        return wait

    def _away(self, agent: AgentRecord | None, room: Room) -> pb.Wait:
        name = agent.name if agent is not None else "the agent"
        slug = agent.slug if agent is not None else "AGENT"
        if room.presence == "sleeping":
            return pb.Wait(
                reason=pb.WAIT_REASON_WAKING,
                text=f"{name} sleeps and is being woken; what wakes it has not attached a worker yet",
                remedy=f"hopline agent show {slug}",
            )
        if room.presence == "inbox_only":
            return pb.Wait(
                reason=pb.WAIT_REASON_INBOX,
                text=f"{name} takes its messages itself (read_inbox) and has not taken this one yet",
            )
        return pb.Wait(
            reason=pb.WAIT_REASON_NO_WORKER,
            text=f"no worker of {name} is attached",
            remedy=f"hopline attach --agent {slug} -- COMMAND",
        )

    def _name(self, row: Record) -> str:
        agent = self._directory.agent(row.workspace_id, row.agent_id)
        return agent.slug if agent is not None else row.agent_id


def held(row: Record) -> pb.Wait:
    """Return what an answer that is held waits for."""
    return pb.Wait(
        reason=pb.WAIT_REASON_HELD,
        text="its answer is held until its subagents have reported and its todos are done",
        remedy=f"hopline release {row.session_id}" if row.body else "hopline held",
        session_id=row.session_id,
        since=to_timestamp(row.created_at),
    )


def _owner(row: Record) -> pb.Wait:
    return pb.Wait(
        reason=pb.WAIT_REASON_OWNER,
        text="it has asked its owner a question and waits for the answer",
        remedy=f"hopline answer {row.id} TEXT",
        escalation_id=row.id,
        since=to_timestamp(row.created_at),
    )


def _attached(room: Room) -> pb.Wait:
    if room.running >= room.places:
        return pb.Wait(
            reason=pb.WAIT_REASON_WORKER_FULL,
            text=f"its worker runs {room.running} turns already and takes no more at once",
            remedy="hopline top",
        )
    if room.runs_used >= room.runs_limit:
        return pb.Wait(
            reason=pb.WAIT_REASON_RUN_QUEUE,
            text=f"all {room.runs_limit} run slots of the workspace are taken; it runs when one is free",
            remedy=f"hopline policy set concurrent_runs={room.runs_limit + max(1, room.runs_limit // 2)}",
        )
    return pb.Wait(reason=pb.WAIT_REASON_UNSPECIFIED, text="it is about to run")
