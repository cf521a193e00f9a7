"""What must hold of a crew in the relay's tables, read by queries of this page's own."""

from __future__ import annotations

import re
import sqlite3
from typing import Any

from tests.simulation.quotas import QuotaModel, require

# What the policy allows unless told otherwise.
HOOK_GENERATIONS = 4
_LIVE = "('queued', 'running')"


_IDS = re.compile(r"(?:trn|msg|ses)_[0-9a-z]{26}")


class Checks:
    """Looks at debts, drafts, slots and generations."""

    def __init__(self, quotas: QuotaModel) -> None:
        self._quotas = quotas
        self._record: sqlite3.Connection | None = None

    def close(self) -> None:
        """Let go of the file."""
        if self._record is not None:
            self._record.close()
            self._record = None

    def query(self, text: str, *values: Any) -> list[sqlite3.Row]:
        """Read the relay's tables."""
        if self._record is None:
            self._record = sqlite3.connect(f"file:{self._quotas.database}?mode=ro", uri=True)
            self._record.row_factory = sqlite3.Row
        return self._record.execute(text, values).fetchall()

    def evidence(self, text: str) -> list[str]:
        """Return what the audit log has of the turns, messages and sessions that a text names."""
        found = []
        for identifier in sorted(set(_IDS.findall(text))):
            rows = self.query(
                "SELECT * FROM audit_events WHERE ? IN (turn_id, message_id, session_id) ORDER BY seq",
                identifier,
            )
            found += [
                f"      {row['at']:.2f} {row['action']} {row['turn_id']} {row['message_id']}"
                f" {row['session_id']} {row['details']}"
                for row in rows[-20:]
            ]
        return found

    def look(self) -> None:
        """Check what holds at any moment; raises Violation."""
        self._every_debt_has_its_debtor()
        self._every_slot_is_held_by_a_turn()
        self._nothing_is_owed_twice()
        self._no_loop_of_hooks_goes_on()

    def at_rest(self) -> bool:
        """Tell whether nothing is queued, runs or is held."""
        return not self.query(f"SELECT 1 FROM turns WHERE state IN {_LIVE} LIMIT 1") and not self._held()

    def _held(self) -> list[sqlite3.Row]:
        return self.query("SELECT turn_id, state FROM holds")

    def look_at_rest(self) -> None:
        """Check what holds once nobody does anything any more, and time has passed."""
        self.look()
        live = self.query(f"SELECT id, agent_id, state, cause FROM turns WHERE state IN {_LIVE}")
        require(not live, f"turns that never end: {[tuple(row) for row in live]}")
        held = [tuple(row) for row in self._held()]
        require(not held, f"answers that are held without a reason: {held}")
        debts = self.query("SELECT turn_id, debtor_id FROM debts WHERE state = 'open'")
        require(not debts, f"debts that are open: {[tuple(row) for row in debts]}")

    def _every_debt_has_its_debtor(self) -> None:
        alone = self.query(
            "SELECT debts.turn_id, turns.state FROM debts JOIN turns ON turns.id = debts.turn_id "
            f"WHERE debts.state = 'open' AND turns.state NOT IN {_LIVE} "
            "AND debts.turn_id NOT IN (SELECT turn_id FROM holds)"
        )
        require(not alone, f"debts without a live debtor: {[tuple(row) for row in alone]}")

    def _every_slot_is_held_by_a_turn(self) -> None:
        odd = self.query("SELECT id, state FROM turns WHERE slot AND state <> 'running'")
        require(not odd, f"slots of turns that do not run: {[tuple(row) for row in odd]}")

    def _nothing_is_owed_twice(self) -> None:
        """An answer pays one debt."""
        twice = self.query(
            "SELECT reply_message_id FROM debts WHERE reply_message_id <> '' "
            "GROUP BY reply_message_id HAVING count(*) > 1"
        )
        require(not twice, f"answers that paid twice: {[row[0] for row in twice]}")

    def _no_loop_of_hooks_goes_on(self) -> None:
        deep = self.query("SELECT id FROM messages WHERE hook_generation > ?", HOOK_GENERATIONS)
        require(not deep, f"reactions to reactions beyond what is allowed: {[row[0] for row in deep]}")
