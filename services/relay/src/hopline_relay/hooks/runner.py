"""How hooks are run: the built-in ones, then those of plugins, in order, each with what the last one left.

A hook gets 2 s. What it does wrong (late, gone, an answer that breaks the contract) is a failure: `fail_open`
goes on without it, `fail_closed` cancels the item. One that keeps failing is left alone for a while
(`breaker.py`), which the audit log and its owner are told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from hopline.hooks.v1.hook_pb2 import HookContext
from hopline.registry.v1.visibility_pb2 import Change as RegistryChange
from hopline_directory import Directory, PluginHookRecord, PluginRecord
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError

from hopline_relay.hooks import contract
from hopline_relay.hooks.breaker import Breaker, Change
from hopline_relay.hooks.builtin import built_in
from hopline_relay.hooks.items import (
    BUILT_IN,
    FAIL_CLOSED,
    KINDS,
    SYSTEM_PROMPT,
    Item,
    Note,
    Shaped,
    Verdict,
    Words,
)

log = logging.getLogger("hopline.relay.hooks")

T = TypeVar("T")

HOOK_SECONDS: Final = 2.0

Call = Callable[[PluginRecord, str, Any, float], Awaitable[Any]]
"""Calls a method of a plugin's HookService, for so many seconds at most; raises whatever goes wrong."""
Hand = Callable[[PluginRecord, Item], HookContext]
"""Notes that a plugin is handed an item, and says where that stands."""


class HookFailedError(Exception):
    """A hook has failed; the words are for the audit log, and may be shown to whoever the item is of."""


class LeftAloneError(HookFailedError):
    """A hook is not called for a while, because it kept failing: that was said before."""


class Point(NamedTuple):
    """A hook, and the plugin that it is of."""

    plugin: PluginRecord
    hook: PluginHookRecord


class State(NamedTuple):
    """A hook, and how it does."""

    point: Point
    breaker: Breaker


class Hooks:
    """The hooks of every workspace. `active` is False while there is none at all: nobody need ask further."""

    def __init__(
        self,
        directory: Directory,
        plugins: Callable[[str], Iterable[PluginRecord]],
        hand: Hand,
        clock: Clock,
    ) -> None:
        self._directory = directory
        self.plugins = plugins
        # Set by whoever can call plugins.
        self.call: Call = _nobody
        self._hand = hand
        self._clock = clock
        # Told of hooks that are left alone, and of those that work again.
        self.on_changed: Callable[[PluginRecord, str, Change, str], None] = _untold
        self._breakers: dict[tuple[str, str], Breaker] = {}
        # Since when hooks are being asked, by call.
        self._asked_at: dict[object, tuple[str, str, float]] = {}
        # What there is, by workspace.
        self._kinds: dict[str, frozenset[str]] = {}
        self.active = False

    def changed(self, changes: Sequence[RegistryChange]) -> None:
        """Follow the registry's changes."""
        for change in changes:
            kind = change.WhichOneof("entity")
            if kind in {"plugin", "plugin_removed"}:
                self.forget(change.plugin.id if kind == "plugin" else change.plugin_removed)
            if kind in {"plugin", "plugin_removed", "policy"}:
                self.look([change.workspace_id])

    def look(self, workspace_ids: Iterable[str]) -> None:
        """Look again which hooks workspaces have."""
        for workspace_id in workspace_ids:
            kinds = {each.hook.kind for each in self._all(workspace_id)}
            try:
                policy = self._directory.policy(workspace_id)
            except HoplineError:
                pass  # it is looked at again once its policy is known
            else:
                kinds |= {kind for kind in KINDS if any(built_in(policy, kind))}
            if kinds:
                self._kinds[workspace_id] = frozenset(kinds)
            else:
                self._kinds.pop(workspace_id, None)
        self.active = bool(self._kinds)

    def forget(self, plugin_id: str) -> None:
        """Forget how the hooks of a plugin did: it has changed, or is no more."""
        for key in [key for key in self._breakers if key[0] == plugin_id]:
            del self._breakers[key]

    def left_alone(self, plugin_id: str, kind: str) -> str:
        """Return why a hook is not called for a while; empty where it is."""
        breaker = self._breakers.get((plugin_id, kind))
        return breaker.problem if breaker is not None and breaker.is_open else ""

    def asked_for(self, plugin_id: str, kind: str) -> float:
        """Return for how many seconds a hook has been asked, the longest of its calls; 0 when it is not."""
        since = [at for plugin, asked, at in self._asked_at.values() if (plugin, asked) == (plugin_id, kind)]
        return self._clock.monotonic() - min(since) if since else 0.0

    def states(self, workspace_id: str) -> list[State]:
        """Return every hook of plugins in the order in which they are asked, and how each does."""
        return [
            State(point, self._breakers.get((point.plugin.id, kind)) or Breaker())
            for kind in KINDS
            for point in self.points(workspace_id, kind)
        ]

    def concerns(self, workspace_id: str, kind: str) -> bool:
        """Tell whether there is a hook of this kind."""
        return kind in self._kinds.get(workspace_id, ())

    def points(self, workspace_id: str, kind: str) -> Sequence[Point]:
        """Return the hooks of plugins of a kind, in order."""
        found = [each for each in self._all(workspace_id) if each.hook.kind == kind]
        return sorted(found, key=lambda each: (each.hook.order, each.plugin.key))

    async def run(self, item: Item) -> Shaped:
        """Ask every hook about an item; those behind one that ends it are not asked."""
        words, notes = item.words, list[Note]()
        for own in built_in(self._directory.policy(item.workspace_id), item.kind):
            ended, words = _take(own.decide(item, words), words, notes, own.name, BUILT_IN, "hopline")
            if ended is not None:
                return ended
        for point in self.points(item.workspace_id, item.kind):
            plugin = point.plugin
            try:
                verdict = await self._ask(point, item, words)
            except HookFailedError as error:
                # There is nothing to cancel of a system prompt: no hook keeps a turn from starting.
                closed = point.hook.fail_mode == FAIL_CLOSED and item.kind != SYSTEM_PROMPT
                if closed or not isinstance(error, LeftAloneError):
                    notes.append(Note(item.kind, plugin.id, plugin.name, "failed", str(error)))
                if closed:
                    why = f"the hook of the plugin {plugin.name} that has to see it did not answer; try later"
                    return Shaped(words, why, tuple(notes))
                continue
            ended, words = _take(verdict, words, notes, item.kind, plugin.id, plugin.name)
            if ended is not None:
                return ended
        return Shaped(words, notes=tuple(notes))

    # --- one hook ---------------------------------------------------------------------------------

    async def _ask(self, point: Point, item: Item, words: Words) -> Verdict:
        breaker = self._breakers.setdefault((point.plugin.id, item.kind), Breaker())
        if not breaker.begin(self._clock.monotonic()):
            raise LeftAloneError("it failed before and is left alone for a while")
        call = object()
        self._asked_at[call] = (point.plugin.id, item.kind, self._clock.monotonic())
        try:
            verdict = await within(self._clock, HOOK_SECONDS, self._asked(point.plugin, item, words))
        except asyncio.CancelledError:
            breaker.let_go()
            raise
        except Exception as error:
            why = _late() if isinstance(error, TimeoutError) else _words_of(error)
            self._tell(point, breaker.failed(self._clock.monotonic(), why), why)
            raise HookFailedError(why) from None
        finally:
            del self._asked_at[call]
        self._tell(point, breaker.worked(), "")
        return verdict

    async def _asked(self, plugin: PluginRecord, item: Item, words: Words) -> Verdict:
        context = self._hand(plugin, item)
        request = item.request(plugin, context, words)
        response = await self.call(plugin, contract.METHODS[item.kind], request, HOOK_SECONDS)
        return contract.read(item, words, response)

    def _tell(self, point: Point, change: Change, why: str) -> None:
        if change:
            log.warning("the hook %s of plugin %s is %s: %s", point.hook.kind, point.plugin.id, change, why)
            self.on_changed(point.plugin, point.hook.kind, change, why)

    def _all(self, workspace_id: str) -> list[Point]:
        return [
            Point(plugin, hook)
            for plugin in self.plugins(workspace_id)
            if plugin.endpoint
            for hook in plugin.hooks
        ]


async def within(clock: Clock, seconds: float, asked: Coroutine[Any, Any, T]) -> T:
    """Await an answer for so long, else `TimeoutError`; one that comes later is nobody's any more."""
    task: asyncio.Task[T] = asyncio.ensure_future(asked)
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    alarm = clock.call_later(seconds, lambda: None if over.done() else over.set_result(None))
    waiting: set[asyncio.Future[Any]] = {task, over}
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not task.done() or task.cancelled():
            raise TimeoutError
        return task.result()
    finally:
        alarm.cancel()
        if not task.done():
            task.cancel()
            task.add_done_callback(lambda late: None if late.cancelled() else late.exception())


def _late() -> str:
    return f"it did not answer within {HOOK_SECONDS:g} s"


async def _nobody(plugin: PluginRecord, method: str, request: Any, seconds: float) -> Any:
    raise HookFailedError("nobody calls plugins here")


def _untold(plugin: PluginRecord, kind: str, change: Change, why: str) -> None:
    pass


def _take(
    verdict: Verdict, words: Words, notes: list[Note], kind: str, plugin_id: str, plugin_name: str
) -> tuple[Shaped | None, Words]:
    """Take over what a hook says; returns the end of the item, if that is it, and its words."""
    if verdict.veto:
        notes.append(Note(kind, plugin_id, plugin_name, "vetoed", verdict.veto))
        return Shaped(words, verdict.veto, tuple(notes)), words
    if verdict.words is None or verdict.words == words:
        return None, words
    if not verdict.words.text.strip():
        notes.append(Note(kind, plugin_id, plugin_name, "dropped"))
        return Shaped(Words(""), notes=tuple(notes)), words
    notes.append(Note(kind, plugin_id, plugin_name, "rewrote"))
    return None, verdict.words


def _words_of(error: Exception) -> str:
    """Return what may be said of a failure: only what this side has put into words itself."""
    if isinstance(error, HookFailedError | contract.NonsenseError):
        return str(error)
    words = getattr(error, "words", "") or getattr(error, "message", "")
    if words:
        return str(words)[:500]
    log.warning("a hook failed in an unexpected way", exc_info=error)
    return "it failed"
