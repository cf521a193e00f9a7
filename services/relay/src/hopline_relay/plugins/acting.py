"""Who acts where a plugin does something in a session that it was handed: the session's agent, by its rules.

What is refused is refused alike at every method: the permission first, then the session, which answers like
one that does not exist unless it was handed over, then what has to wait until the plugin reacts less.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any, Final

from hopline_directory import AgentRecord, Directory, PluginRecord
from hopline_rpc import telemetry
from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import Principal

from hopline_relay.callers import no_session
from hopline_relay.domain.handing import By, Standing
from hopline_relay.journal import Journal
from hopline_relay.plugins.grants import Grants, at, no_access
from hopline_relay.refusals import Refusals
from hopline_relay.store.bulk import by_id
from hopline_relay.store.schema import sessions
from hopline_relay.store.sql import Record

# Of request ids of plugins, which must not meet those of the agents in whose name they act.
_REQUESTS: Final = uuid.UUID("5b0f5b5e-3f4e-4c0e-9a53-6d1a5f2c7e90")


@dataclass(frozen=True, slots=True)
class Act:
    """Something that a plugin does in a session. `standing`: at what it counts, one further on."""

    principal: Principal
    plugin: PluginRecord
    agent: AgentRecord
    session: Record
    standing: Standing
    # Why session access is withheld, if it is.
    withheld: HoplineError | None

    @property
    def as_agent(self) -> Principal:
        """The session's agent as who does it."""
        return Principal(kind="agent", id=self.agent.id, workspace_id=self.agent.workspace_id)

    @property
    def by(self) -> By:
        """Who does it in the agent's name, at what it counts."""
        return By(self.plugin.id, self.standing)

    @property
    def counted(self) -> dict[str, Any]:
        """What a draft has to hold so that it counts as the plugin's."""
        return at(self.principal, self.standing)

    def request_id(self, given: str) -> str:
        """Return the request id under which the agent does it; empty for none."""
        if not given:
            return ""
        return str(uuid.uuid5(_REQUESTS, f"{self.plugin.id}/{self.session.id}/{given.lower()}"))

    @property
    def traceparent(self) -> str:
        """The trace it belongs to."""
        return telemetry.current_traceparent()


class Acting:
    """Lets plugins act."""

    def __init__(self, journal: Journal, directory: Directory, grants: Grants, refusals: Refusals) -> None:
        self._journal = journal
        self._directory = directory
        self._grants = grants
        self._refusals = refusals

    async def begin(self, principal: Principal, session_id: str, permission: str) -> Act:
        """Return what a plugin is about to do, or refuse it."""
        plugin = self._directory.plugin_for(principal, permission)
        if plugin.is_model_provider:
            raise no_access()
        self._refusals.check(principal)
        self._grants.require(principal, session_id)
        key = (principal.workspace_id, session_id)
        found = await self._journal.read(lambda connection: by_id(connection, sessions, {key}))
        session = found.get(key)
        agent = (
            self._directory.agent(principal.workspace_id, session.agent_id) if session is not None else None
        )
        if session is None or agent is None or agent.deleted:
            raise no_session(session_id)
        return Act(
            principal,
            plugin,
            agent,
            session,
            self._grants.standing(principal),
            self._grants.is_withheld(principal),
        )

    async def allowed(self, principal: Principal, session_id: str, permission: str) -> Act:
        """The same for what has no outcome to tell it by: past the fuse of generations it is refused."""
        act = await self.begin(principal, session_id, permission)
        if act.withheld is not None:
            raise act.withheld
        return act


def own_words(error: HoplineError, act: Act, given: str) -> HoplineError:
    """Name the request id in a refusal as the plugin has given it."""
    used = act.request_id(given)
    if used and error.details.get("request_id") == used:
        error.details["request_id"] = given
    return error
