"""What the memory store keeps for a workspace: turns, agents, roots, days, pairs."""

from __future__ import annotations

from collections import deque
from heapq import nlargest
from typing import Final

from hopline_quota.domain import cause
from hopline_quota.domain.cause import Standing
from hopline_quota.domain.values import Handed, RootCount
from hopline_quota.store.credit import Credit

# What ends of turns are kept for until an item has told the workspace's window: the most a policy allows.
_LONGEST_WINDOW: Final = 86_400.0
_ROOT_KEPT_SECONDS: Final = 86_400.0
_ROOTS_KEPT: Final = 10_000
_PAIRS_SHOWN: Final = 20


class Turn:
    """A turn that is queued or runs."""

    __slots__ = ("agent_id", "attempt", "depth", "id", "root_id", "takes_slot", "waiting")

    def __init__(self, turn_id: str, agent_id: str, depth: int, root_id: str) -> None:
        self.id = turn_id
        self.agent_id = agent_id
        self.depth = depth
        self.root_id = root_id
        self.attempt = 0
        self.takes_slot = False
        self.waiting = False

    @property
    def uses_slot(self) -> bool:
        """Whether a slot is taken for it just now."""
        return self.takes_slot and not self.waiting


class Root:
    """What one root has started. `turns_alive` counts those that keep it from being forgotten."""

    __slots__ = ("extra", "turns", "turns_alive")

    def __init__(self) -> None:
        self.turns = 0
        self.extra = 0
        self.turns_alive = 0


class Agent:
    """The turns of one agent.

    Of ended turns only the latest end of each depth and of each root is kept: more could not change a
    decision, and an agent that ends thousands of turns a minute stays small.
    """

    __slots__ = ("deepest", "ended_depths", "ended_roots", "queued", "roots", "running")

    def __init__(self) -> None:
        self.queued = 0
        self.running: dict[str, Turn] = {}
        self.deepest: Turn | None = None
        # How many running turns each root has here.
        self.roots: dict[str, int] = {}
        # Depth -> when a turn at it last ended, and which; root -> when a turn of it last ended.
        self.ended_depths: dict[int, tuple[float, str]] = {}
        self.ended_roots: dict[str, float] = {}

    def start(self, turn: Turn) -> None:
        """Count a turn as running."""
        self.running[turn.id] = turn
        if self.deepest is None or turn.depth > self.deepest.depth:
            self.deepest = turn
        if turn.root_id:
            self.roots[turn.root_id] = self.roots.get(turn.root_id, 0) + 1

    def stop(self, turn: Turn) -> None:
        """Count a turn as running no more."""
        del self.running[turn.id]
        if turn is self.deepest:
            self.deepest = max(self.running.values(), key=lambda other: other.depth, default=None)
        if turn.root_id:
            left = self.roots[turn.root_id] - 1
            if left:
                self.roots[turn.root_id] = left
            else:
                del self.roots[turn.root_id]

    def idle(self) -> bool:
        """Tell whether nothing is known of it that a decision could need."""
        return not (self.queued or self.running or self.ended_depths or self.ended_roots)


class Day:
    """What was sent and received on one UTC day. `sent_by_all` leaves people out."""

    __slots__ = ("received", "sent", "sent_by_all")

    def __init__(self) -> None:
        self.sent_by_all = 0
        self.sent: dict[str, int] = {}
        self.received: dict[str, int] = {}


class Workspace:
    """Everything of one workspace. Times are the store's monotonic seconds."""

    __slots__ = (
        "agents",
        "credit",
        "days",
        "idle_roots",
        "kept_causes",
        "kept_pairs",
        "pairs",
        "queued",
        "roots",
        "running",
        "slots_used",
        "told",
    )

    def __init__(self) -> None:
        self.agents: dict[str, Agent] = {}
        self.queued: dict[str, Turn] = {}
        self.running: dict[str, Turn] = {}
        self.slots_used = 0
        self.roots: dict[str, Root] = {}
        # Roots that no turn keeps alive -> since when, oldest first.
        self.idle_roots: dict[str, float] = {}
        self.days: dict[int, Day] = {}
        self.pairs: dict[tuple[str, str], deque[float]] = {}
        self.credit = Credit()
        # How long ends and stamps are kept: the longest window that an item has come with.
        self.told = False
        self.kept_causes = self.kept_pairs = _LONGEST_WINDOW

    def tell_windows(self, causes: float, pairs: float) -> None:
        """Learn the windows in force."""
        if not self.told:
            self.told, self.kept_causes, self.kept_pairs = True, causes, pairs
            return
        if causes > self.kept_causes:
            self.kept_causes = causes
        if pairs > self.kept_pairs:
            self.kept_pairs = pairs

    def agent(self, agent_id: str) -> Agent:
        """Return what is kept of an agent, from now on if need be."""
        found = self.agents.get(agent_id)
        if found is None:
            found = self.agents[agent_id] = Agent()
        return found

    def day(self, day: int) -> Day:
        """Return a day's counters; days before yesterday go."""
        found = self.days.get(day)
        if found is None:
            found = self.days[day] = Day()
            for old in [known for known in self.days if known < day - 1]:
                del self.days[old]
        return found

    def fullest(self, day: int) -> dict[str, int]:
        """Return the highest count of each kind, by the policy key of its limit."""
        today = self.days.get(day)
        return {
            "sent_per_day": max(today.sent.values(), default=0) if today is not None else 0,
            "received_per_day": max(today.received.values(), default=0) if today is not None else 0,
            "inbox_backlog": max((agent.queued for agent in self.agents.values()), default=0),
            "root_turns": max((root.turns for root in self.roots.values()), default=0),
            "concurrent_runs": self.slots_used,
        }

    # Turns: queued and running

    def enqueue(self, turn: Turn) -> None:
        """Put a turn into its agent's queue."""
        self.queued[turn.id] = turn
        self.agent(turn.agent_id).queued += 1
        self._hold_root(turn.root_id)

    def dequeue(self, turn_id: str, now: float) -> Turn | None:
        """Take a turn out of its agent's queue; None when it is not there."""
        turn = self.queued.pop(turn_id, None)
        if turn is not None:
            self.agent(turn.agent_id).queued -= 1
            self._let_root_go(turn.root_id, now)
        return turn

    def start(self, turn: Turn) -> None:
        """Make a turn running."""
        self.running[turn.id] = turn
        self.slots_used += turn.uses_slot
        self.agent(turn.agent_id).start(turn)
        self._hold_root(turn.root_id)

    def stop(self, turn: Turn, now: float) -> None:
        """Make a turn running no more."""
        del self.running[turn.id]
        self.slots_used -= turn.uses_slot
        self.agent(turn.agent_id).stop(turn)
        self._let_root_go(turn.root_id, now)

    def set_waiting(self, turn: Turn, waiting: bool) -> None:
        """Give a turn's slot back, or retake it."""
        self.slots_used -= turn.uses_slot
        turn.waiting = waiting
        self.slots_used += turn.uses_slot

    def remember(self, turn: Turn, ended_at: float) -> None:
        """Let a turn that has run count for what its agent starts in the window after it."""
        agent = self.agent(turn.agent_id)
        known = agent.ended_depths.get(turn.depth)
        if known is None or known[0] <= ended_at:
            agent.ended_depths[turn.depth] = (ended_at, turn.id)
        if not turn.root_id:
            return
        last = agent.ended_roots.get(turn.root_id)
        if last is None:
            self._hold_root(turn.root_id)
        if last is None or last <= ended_at:
            agent.ended_roots[turn.root_id] = ended_at

    # Roots

    def root(self, root_id: str, now: float) -> Root:
        """Return a root's counts, from now on if need be; nothing keeps them alive yet."""
        found = self.roots.get(root_id)
        if found is None:
            found = self.roots[root_id] = Root()
            self._rest_root(root_id, now)
        return found

    def recall_root(self, root_id: str, count: RootCount, now: float) -> None:
        """Take over what the record says of a root: one that rested long may have been forgotten."""
        root = self.root(root_id, now)
        root.turns, root.extra = max(root.turns, count.turns), max(root.extra, count.extra)

    def uncharge_root(self, root_id: str, turns: int) -> None:
        """Give turns back; a root that never started any is forgotten at once."""
        root = self.roots.get(root_id)
        if root is None:
            return
        root.turns = max(0, root.turns - turns)
        if not root.turns and not root.extra and not root.turns_alive:
            del self.roots[root_id]
            self.idle_roots.pop(root_id, None)

    def used_by(self, root_id: str) -> int:
        """Return how many turns a root has started."""
        root = self.roots.get(root_id)
        return root.turns if root is not None else 0

    def _hold_root(self, root_id: str) -> None:
        if not root_id:
            return
        root = self.roots.get(root_id)
        if root is None:
            root = self.roots[root_id] = Root()
        root.turns_alive += 1
        if root.turns_alive == 1:
            self.idle_roots.pop(root_id, None)

    def _let_root_go(self, root_id: str, now: float) -> None:
        if not root_id:
            return
        root = self.roots[root_id]
        root.turns_alive -= 1
        if not root.turns_alive:
            self._rest_root(root_id, now)

    def _rest_root(self, root_id: str, now: float) -> None:
        self.idle_roots[root_id] = now
        if len(self.idle_roots) > _ROOTS_KEPT:
            oldest = next(iter(self.idle_roots))
            del self.idle_roots[oldest], self.roots[oldest]

    # Where a sender stands

    def standing(self, sender_id: str, cause_turn_id: str, window: float, now: float) -> Standing:
        """Return the depth and root that what this agent starts goes back to."""
        agent = self.agents.get(sender_id)
        if agent is None:
            return cause.NOWHERE
        deepest = agent.deepest
        if deepest is None:
            return self._ended_standing(agent, window, now)
        named = agent.running.get(cause_turn_id) if cause_turn_id else None
        if named is not None and named.root_id:
            return Standing(deepest.depth, named.id, named.root_id)
        return Standing(deepest.depth, deepest.id, self._most_used(agent.roots))

    def handed_standing(self, own: Standing, handed: Handed) -> Standing:
        """Return what a plugin's act goes back to: the worst of its sender's place and what it was handed."""
        roots = [root_id for root_id in (own.root_id, *handed.root_ids) if root_id]
        return Standing(max(own.depth, handed.depth), own.turn_id, self._most_used(roots) if roots else "")

    def _ended_standing(self, agent: Agent, window: float, now: float) -> Standing:
        counting = [
            (depth, turn_id)
            for depth, (ended_at, turn_id) in agent.ended_depths.items()
            if ended_at + window > now
        ]
        if not counting:
            return cause.NOWHERE
        depth, turn_id = max(counting)
        roots = [root_id for root_id, ended_at in agent.ended_roots.items() if ended_at + window > now]
        return Standing(depth, turn_id, self._most_used(roots))

    def _most_used(self, roots: list[str] | dict[str, int]) -> str:
        if len(roots) == 1:
            return next(iter(roots))
        return cause.most_used((self.used_by(root_id), root_id) for root_id in roots)

    # Pairs of agents

    def pair_frees_at(self, pair: tuple[str, str], budget: int, window: float, now: float) -> float | None:
        """Return when two agents may start one more between them; None when they may now."""
        stamps = self.pairs.get(pair)
        if stamps is None or len(stamps) < budget:
            return None
        # They are in order: there is room once the oldest of the last `budget` has left the window.
        frees_at = stamps[-budget] + window
        return frees_at if frees_at > now else None

    def pairs_of(
        self, agent_id: str, budget: int, window: float, now: float
    ) -> list[tuple[str, int, float | None]]:
        """Return the agents with which starts count, how many, and when there is room; the most used 20."""
        found = []
        for pair, stamps in self.pairs.items():
            if agent_id not in pair:
                continue
            used = len([at for at in stamps if at + window > now])
            if used:
                other = pair[1] if pair[0] == agent_id else pair[0]
                found.append((other, used, self.pair_frees_at(pair, budget, window, now)))
        return nlargest(_PAIRS_SHOWN, found, key=lambda entry: entry[1])

    def stamp_pair(self, pair: tuple[str, str], now: float) -> None:
        """Count a start between two agents; those out of every window go."""
        stamps = self.pairs.get(pair)
        if stamps is None:
            stamps = self.pairs[pair] = deque()
        while stamps and stamps[0] + self.kept_pairs <= now:
            stamps.popleft()
        stamps.append(now)

    def unstamp_pair(self, pair: tuple[str, str], at: float) -> None:
        """Take a start back; one that has left its window is gone already."""
        stamps = self.pairs.get(pair)
        if stamps is not None and at in stamps:
            stamps.remove(at)
            if not stamps:
                del self.pairs[pair]

    # Forgetting

    def sweep(self, now: float) -> None:
        """Drop what is out of every window, so that silent agents and pairs cost nothing."""
        for pair, stamps in list(self.pairs.items()):
            if stamps[-1] + self.kept_pairs <= now:
                del self.pairs[pair]
        for agent_id, agent in list(self.agents.items()):
            self._forget_ended(agent, now)
            if agent.idle():
                del self.agents[agent_id]
        for root_id, since in list(self.idle_roots.items()):
            if since + _ROOT_KEPT_SECONDS > now:
                break
            del self.idle_roots[root_id], self.roots[root_id]

    def _forget_ended(self, agent: Agent, now: float) -> None:
        horizon = now - self.kept_causes
        for depth in [d for d, (ended_at, _) in agent.ended_depths.items() if ended_at <= horizon]:
            del agent.ended_depths[depth]
        for root_id in [r for r, ended_at in agent.ended_roots.items() if ended_at <= horizon]:
            del agent.ended_roots[root_id]
            self._let_root_go(root_id, now)
