"""What a mesh says when it is asked: whether messages get through, and what waits for a person."""

from __future__ import annotations

import asyncio
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from hopline_rpc.clock import from_timestamp
from hopline_rpc.errors import HoplineError

from hopline_cli.doctor.findings import Finding, good, note, problem
from hopline_cli.tls import client_context

if TYPE_CHECKING:
    from hopline_cli.mesh import Mesh

# Of more agents than these nobody reads a page.
_MOST_AGENTS: Final = 500
_AT_ONCE: Final = 16
_AHEAD_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 8.0


def readiness(url: str) -> tuple[int, str, str]:
    """Ask `/readyz` there; returns status, text and the `Date` of the answer."""
    try:
        # No proxy reaches this machine's own loopback; its ports speak TLS where the mesh does.
        handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=client_context()))
        opener = urllib.request.build_opener(*handlers)
        with opener.open(f"{url.rstrip('/')}/readyz", timeout=_ANSWER_SECONDS) as answer:
            return answer.status, answer.read(4096).decode(), answer.headers.get("Date", "")
    except urllib.error.HTTPError as error:
        return error.code, error.read(4096).decode(errors="replace"), error.headers.get("Date", "")
    except (OSError, ValueError) as error:
        return 0, str(error), ""


def of_readiness(status: int, said: str, where: str) -> Iterator[Finding]:
    """Say whether messages get through."""
    if status == 200:
        yield good("delivery", f"{where} says that a message would get through")
        return
    if not status:
        yield problem("delivery", f"nothing answers at {where}: {said}", "see what the process has logged")
        return
    for line in said.splitlines():
        if line.strip() and line != "not ready":
            todo = "start what is missing, or make room; the log of that service says more"
            yield problem("delivery", line.removeprefix("not ready: "), todo)


def of_clock(date: str) -> Iterator[Finding]:
    """Compare the mesh's clock with this machine's."""
    try:
        ahead = parsedate_to_datetime(date).timestamp() - time.time()
    except (TypeError, ValueError):
        return
    if abs(ahead) > _AHEAD_SECONDS:
        yield problem("clock", f"the mesh's clock is {ahead:+.0f} s from this machine's", _SET_CLOCK)


_SET_CLOCK: Final = "set both by NTP; leases and daily limits go by it"


async def of_record(mesh: Mesh) -> AsyncIterator[Finding]:
    """Say what the record shows: a clock that was ahead, what was given up, what is exhausted."""
    async for finding in _times(mesh):
        yield finding
    from hopline.relay.v1 import dead_letter_pb2, delegation_pb2, escalation_pb2

    letters = (
        await mesh.letters.ListDeadLetters(dead_letter_pb2.ListDeadLettersRequest(page_size=100))
    ).dead_letters
    if letters:
        text = f"{_many(len(letters), 'dead letter')}: messages that were given up"
        yield problem("dead letters", text, "hopline dead list says why; hopline dead retry ID tries again")
    roots = await mesh.turns.ListExhaustedRoots(delegation_pb2.ListExhaustedRootsRequest(page_size=100))
    if roots.roots:
        text = (
            f"{_many(len(roots.roots), 'root')} started all the turns they may: nothing more starts in them"
        )
        todo = "hopline root list; hopline root extend ID where it is wanted"
        yield problem("exhausted roots", text, todo)
    request = escalation_pb2.ListEscalationsRequest(page_size=100)
    asked = (await mesh.escalations.ListEscalations(request)).escalations
    if asked:
        text = f"{_many(len(asked), 'question')} of agents wait for their owners"
        yield note("questions", text, "hopline escalations; hopline answer ID TEXT")
    if not (letters or roots.roots):
        yield good("record", "no dead letters, no exhausted roots")


async def _times(mesh: Mesh) -> AsyncIterator[Finding]:
    from hopline.relay.v1 import audit_pb2

    found = await mesh.events.ListEvents(audit_pb2.ListEventsRequest(page_size=1, descending=True))
    ahead = from_timestamp(found.events[0].at) - time.time() if found.events else 0.0
    if ahead > _AHEAD_SECONDS:
        text = f"the newest event is {ahead:.0f} s ahead of this machine's clock: one was ahead, or is behind"
        yield problem("clock", text, _SET_CLOCK)
    else:
        yield good("clock", "the record is not ahead of the clock")


async def of_agents(mesh: Mesh) -> AsyncIterator[Finding]:
    """Say which agents have work and nobody to do it, could not be woken, or run unprotected."""
    from hopline.registry.v1 import agent_pb2
    from hopline.relay.v1 import session_pb2

    agents: list[Any] = []
    token = ""
    while len(agents) < _MOST_AGENTS:
        page = await mesh.agents.ListAgents(agent_pb2.ListAgentsRequest(page_size=200, page_token=token))
        agents += page.agents
        token = page.next_page_token
        if not token:
            break
    presence: dict[str, str] = {}
    for start in range(0, len(agents), 200):
        ids = [agent.id for agent in agents[start : start + 200]]
        found = await mesh.sessions.GetPresence(session_pb2.GetPresenceRequest(agents=ids))
        presence |= dict(found.presence)
    contexts = await _contexts(mesh, [agent.id for agent in agents])
    failed = await _not_woken(mesh)
    lonely = 0
    for agent in agents:
        context = contexts.get(agent.id)
        if context is None:
            continue
        there = bool(context.isolation)
        if context.inbox and not there:
            lonely += 1
            yield _without_worker(agent.slug or agent.name, context.inbox, failed.get(agent.id, ""))
        elif context.isolation == "none":
            text = f"the worker of {agent.name} runs its command as the user who holds its credential"
            todo = "attach with --user NAME, or require it: hopline policy set require_isolation=true"
            yield note("isolation", text, todo)
    if not lonely:
        yield good("workers", f"of {_many(len(agents), 'agent')} none has work and no worker")
    if token:
        yield note("workers", f"only the first {len(agents)} agents were looked at")


def _without_worker(name: str, waiting: int, failure: str) -> Finding:
    if failure:
        text = f"{name} has {_many(waiting, 'unread message')}, and could not be woken: {failure}"
        return problem("wakes", text, f"start it by hand: hopline attach --agent {name} -- COMMAND")
    text = f"{name} has {_many(waiting, 'unread message')} and no worker"
    return problem(
        "workers", text, f"hopline attach --agent {name} -- COMMAND (none, if it reads its inbox itself)"
    )


async def _contexts(mesh: Mesh, ids: list[str]) -> dict[str, Any]:
    from hopline.relay.v1 import session_pb2

    gate = asyncio.Semaphore(_AT_ONCE)

    async def ask(agent_id: str) -> tuple[str, Any]:
        async with gate:
            try:
                return agent_id, await mesh.sessions.GetContext(session_pb2.GetContextRequest(agent=agent_id))
            except HoplineError:
                return agent_id, None  # it has gone meanwhile

    return dict(await asyncio.gather(*map(ask, ids)))


async def _not_woken(mesh: Mesh) -> Mapping[str, str]:
    """Return why agents could not be woken, by agent, of the latest such events."""
    from hopline.relay.v1 import audit_pb2

    request = audit_pb2.ListEventsRequest(action="wake.failed", page_size=200, descending=True)
    found = (await mesh.events.ListEvents(request)).events
    return {event.agent_id: str(event.details["reason"]) for event in reversed(found)}


def _many(count: int, what: str) -> str:
    return f"{count}{'+' if count == 100 else ''} {what}{'' if count == 1 else 's'}"
