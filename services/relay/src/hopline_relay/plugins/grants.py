"""Which sessions plugins were handed, and at what their acts count because of it (`domain/handing.py`).

Decided in memory, so that a hook on a message costs nothing; written with the next commit that there is, so
that a plugin at work does not lose its session, nor a loop its generation, with the process. Whoever calls a
plugin and wants it to be able to act hands the session over first::

    shown = grants.hand(plugin, Handed(session_id, depth=turn.depth, root_id=..., generation=...))

`generation` is that of what the plugin is told of (the turn, the message): what it does counts one more. The
call may go on without access where `shown` is None (no permission for it) or `shown.is_withheld`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

from hopline_directory import Directory
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import Principal

from hopline_relay.callers import no_session
from hopline_relay.domain.handing import Handed, Ledger, Standing, counts_for, entries
from hopline_relay.journal import Journal
from hopline_relay.store import handed as handed_rows

# Of what it takes to act in a session at all.
SESSION: Final = "session"
SESSION_PERMISSIONS: Final = frozenset({SESSION, "todo.read", "todo.write", "notify.write"})
_PRUNE_SECONDS: Final = 60.0

Key = tuple[str, str]
"""(workspace id, plugin id)"""


class Holder(Protocol):
    """A plugin, as far as it matters here; the directory's record is one."""

    @property
    def id(self) -> str:
        """Its id."""
        ...

    @property
    def workspace_id(self) -> str:
        """Its workspace."""
        ...

    @property
    def permissions(self) -> frozenset[str]:
        """What its manifest declares."""
        ...

    @property
    def is_model_provider(self) -> bool:
        """Whether it provides models: then it acts in no session."""
        ...


@dataclass(frozen=True, slots=True)
class Shown:
    """What a plugin may be told of a session that it was handed."""

    handed: Handed
    is_withheld: bool


def no_access() -> HoplineError:
    """Return the refusal of a plugin that has no session access whatever its manifest says."""
    return HoplineError("permission_denied", "a plugin that provides models has no session access")


def at(principal: Principal, standing: Standing) -> dict[str, Any]:
    """Return what a draft has to hold so that it counts as a plugin's, at what it was handed."""
    return {"plugin": principal, "handed": standing, "hook_generation": standing.generation + 1}


def may_act(plugin: Holder) -> bool:
    """Tell whether a plugin has any use for a session."""
    return not plugin.is_model_provider and bool(SESSION_PERMISSIONS & plugin.permissions)


class Grants:
    """What every plugin was handed."""

    def __init__(self, journal: Journal, directory: Directory, clock: Clock) -> None:
        self._journal = journal
        self._directory = directory
        self._clock = clock
        self._ledgers: dict[Key, Ledger] = {}
        # Until when entries count by the record.
        self._written: dict[handed_rows.Entry, float] = {}
        self._pruned_at = 0.0

    async def recover(self) -> None:
        """Take over what an earlier process has handed over."""
        now = self._clock.now()
        for entry, until in await self._journal.read(lambda connection: handed_rows.live(connection, now)):
            self._ledger(entry[:2]).put(entry[2], entry[3], until)
            self._written[entry] = until
        self._prune()

    async def catch_up(self) -> None:
        """Take over what other relays have handed over, where there is anybody to hand anything to."""
        if not self._journal.shared or not any(
            self._directory.plugins(each.id) for each in self._directory.workspaces()
        ):
            return
        await self.recover()

    # --- handing over -----------------------------------------------------------------------------

    def hand(self, plugin: Holder, handed: Handed) -> Shown | None:
        """Let a plugin act in a session from now on; None for one that never may."""
        if not may_act(plugin):
            return None
        key = (plugin.workspace_id, plugin.id)
        policy = self._directory.policy(plugin.workspace_id)
        seconds = self._seconds(plugin.workspace_id)
        until = self._clock.now() + seconds
        self._ledger(key).hand(handed, until)
        self._keep(key, handed, until, seconds)
        # As its acts will be judged: by the highest that it was handed, not by this alone.
        highest = Standing(self._ledger(key).generation(self._clock.now()))
        return Shown(handed, highest.is_withheld(policy.hook_generations))

    def forget(self, workspace_id: str, plugin_id: str) -> None:
        """Take everything back: the plugin is no more."""
        self._ledgers.pop((workspace_id, plugin_id), None)

    # --- asking -----------------------------------------------------------------------------------

    def standing(self, principal: Principal) -> Standing:
        """Return at what the acts of a plugin count."""
        ledger = self._ledgers.get((principal.workspace_id, principal.id))
        if ledger is None:
            return Standing()
        return ledger.standing(self._clock.now(), self._seconds(principal.workspace_id))

    def is_withheld(self, principal: Principal) -> HoplineError | None:
        """Return why session access is withheld from a plugin, if it is."""
        limit = self._directory.policy(principal.workspace_id).hook_generations
        standing = self.standing(principal)
        if not standing.is_withheld(limit):
            return None
        text = (
            f"session access is withheld: this would be reaction number {standing.generation + 1} of plugins "
            f"to one original event, and the limit is {limit}; stop reacting, it comes back by itself"
        )
        return HoplineError("permission_denied", text, details={"rail": "hook_generations", "limit": limit})

    def counted(self, principal: Principal) -> dict[str, Any]:
        """Return what a draft has to hold so that it counts as a plugin's own; nothing for others.

        Refuses a plugin without the permission `session`, and one whose session access is withheld.
        """
        if principal.kind != "plugin":
            return {}
        plugin = self._directory.plugin_for(principal, SESSION)
        if plugin.is_model_provider:
            raise no_access()
        if (why := self.is_withheld(principal)) is not None:
            raise why
        return at(principal, self.standing(principal))

    def require(self, principal: Principal, session_id: str) -> None:
        """Refuse a session that was not handed to the plugin, as one that does not exist."""
        ledger = self._ledgers.get((principal.workspace_id, principal.id))
        if ledger is not None:
            seconds = self._seconds(principal.workspace_id)
            if ledger.has(session_id, self._clock.now(), seconds):
                return
        raise no_session(session_id)

    def _seconds(self, workspace_id: str) -> float:
        return counts_for(self._directory.policy(workspace_id).causality_window_seconds)

    # --- keeping ----------------------------------------------------------------------------------

    def _ledger(self, key: Key) -> Ledger:
        return self._ledgers.setdefault(key, Ledger())

    def _keep(self, key: Key, handed: Handed, until: float, seconds: float) -> None:
        """Have the record follow, not with every message: it may be behind by a tenth of the window."""
        fresh = {
            entry: until
            for kind, value in entries(handed)
            if until - self._written.get(entry := (*key, kind, value), 0.0) > seconds / 10
        }
        if fresh:
            self._written |= fresh
            self._journal.along(lambda book: handed_rows.put(book.connection, fresh))
            self._prune()

    def _prune(self) -> None:
        """Forget what counts no more, now and then."""
        now = self._clock.now()
        if abs(now - self._pruned_at) < _PRUNE_SECONDS:
            return
        self._pruned_at = now
        for key, ledger in list(self._ledgers.items()):
            # A workspace that is gone has no policy, and its plugins no access.
            known = self._directory.workspace(key[0]) is not None
            ledger.prune(now, self._seconds(key[0]) if known else 0.0)
            if ledger.is_empty:
                del self._ledgers[key]
        self._written = {entry: until for entry, until in self._written.items() if until > now}
        self._journal.along(lambda book: handed_rows.prune(book.connection, now))
