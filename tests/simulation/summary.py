"""What many seeds came to, in one line and as a file."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.simulation.running import Outcome

_RESTARTS = ("kill", "restart")


@dataclass
class Summary:
    """Adds up outcomes."""

    seeds: range
    steps_each: int
    jobs: int
    commit: str = field(default_factory=lambda: _commit())
    played: int = 0  # seeds that were played to their end, or until something was wrong
    steps: int = 0
    messages: int = 0
    actions: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    wrong: list[Outcome] = field(default_factory=list)
    interrupted: bool = False
    _began: float = field(default_factory=time.monotonic)

    def add(self, outcome: Outcome) -> None:
        """Take an outcome in."""
        self.played += not outcome.cut_short
        self.steps += outcome.steps
        self.messages += outcome.messages
        self.actions.update(outcome.actions)
        self.events.update(outcome.did)
        self.refused.update(outcome.refused)
        self.most |= outcome.most
        if outcome.violation:
            self.wrong.append(outcome)

    @property
    def seconds(self) -> float:
        """How long it has taken."""
        return time.monotonic() - self._began

    @property
    def restarts(self) -> int:
        """How often a mesh was killed or stopped, and opened again."""
        return sum(self.actions[each] for each in _RESTARTS)

    def progress(self) -> str:
        """Return how far it is."""
        done, seconds = self.played, self.seconds
        text = (
            f"{done}/{len(self.seeds)} seeds, {self.steps} steps, {self.steps / max(seconds, 0.001):.0f} a"
            f" second, {len(self.wrong)} violations, {_spoken(seconds)}"
        )
        return f"{text}, about {_spoken(seconds / done * (len(self.seeds) - done))} to go" if done else text

    def again(self, outcome: Outcome) -> str:
        """Return the command that plays a seed again."""
        return f"make simulate SEED={outcome.seed} STEPS={self.steps_each}"

    def lines(self) -> list[str]:
        """Return what there is to say at the end; the last line says it all in short."""
        lines = [
            "events:  " + _counts(self.events),
            "most:    " + _counts(self.most),
            "refused: " + _counts(self.refused),
        ]
        for outcome in self.wrong:
            first = outcome.violation.splitlines()[0][:200]
            lines.append(f"violation in seed {outcome.seed}, step {outcome.steps}: {first}")
            lines.append(f"    again: {self.again(outcome)}")
        early = "interrupted after " if self.interrupted else ""
        start, stop = self.seeds.start, self.seeds.stop - 1
        short = [
            f"{early}{self.played} seeds (of {start} to {stop})",
            f"{self.steps} steps",
            f"{len(self.wrong)} violations",
            f"{self.messages} messages",
            f"actions: {_counts(self.actions)}",
            f"{self.restarts} restarts",
            f"{_spoken(self.seconds)} on {self.jobs} processes",
            f"commit {self.commit}",
        ]
        return [*lines, "; ".join(short)]

    def write(self, file: Path) -> None:
        """Write it as JSON."""
        written: dict[str, Any] = {
            "seeds": {"first": self.seeds.start, "asked": len(self.seeds), "played": self.played},
            "steps": self.steps,
            "steps_each": self.steps_each,
            "messages": self.messages,
            "violations": [
                {"seed": each.seed, "step": each.steps, "what": each.violation, "again": self.again(each)}
                for each in self.wrong
            ],
            "restarts": self.restarts,
            "actions": dict(sorted(self.actions.items())),
            "events": dict(sorted(self.events.items())),
            "most": dict(sorted(self.most.items())),
            "refused": dict(self.refused.most_common()),
            "seconds": round(self.seconds, 1),
            "jobs": self.jobs,
            "commit": self.commit,
            "interrupted": self.interrupted,
        }
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(".draft")
        draft.write_text(json.dumps(written, indent=2) + "\n")
        draft.replace(file)


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"


def _spoken(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _commit() -> str:
    """Return the commit that is played, and whether files were changed since; empty where there is no git."""
    try:
        words = ("rev-parse", "--short", "HEAD"), ("status", "--porcelain", "--untracked-files=no")
        commit, changed = (
            subprocess.run(["git", *each], capture_output=True, text=True, check=True).stdout.strip()
            for each in words
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit} with changes" if changed else commit
