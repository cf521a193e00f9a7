"""What must hold in the relay's tables, read by queries of this page's own."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from tests.simulation.quotas import QuotaModel, require

_ATTEMPTS = 3
# What passes between an agent and its owner is nobody's quota.
_UNCHARGED = ("question", "owner_answer")
_IDS = re.compile(r"(?:trn|msg|ses)_[0-9a-z]{26}")


class Records:
    """Looks at what has been written since the last look, and at everything that is alive."""

    def __init__(self, quotas: QuotaModel, may_reach: Callable[[str, str], bool]) -> None:
        self._quotas = quotas
        self._ended: dict[str, tuple[Any, ...]] = {}
        self._may_reach = may_reach
        self._seen = 0
        self._threads: Counter[str] = Counter()
        self._kept: set[tuple[str, str]] = set()
        self._closed: dict[str, tuple[Any, ...]] = {}
        # Turns that owed an answer to one that had not ended, at the last look.
        self._asked_by_live: set[str] = set()
        # The most that the policies in force since the last look allow a thread.
        self.thread_cap = 0
        self.messages: dict[str, sqlite3.Row] = {}
        self._record: sqlite3.Connection | None = None

    def reopen(self) -> None:
        """Read the files anew after the mesh was opened again."""
        self.close()

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

    def look(self) -> None:
        """Check everything; raises Violation."""
        self._look_at_messages()
        live = self.query("SELECT * FROM turns WHERE due_at IS NOT NULL")
        self._look_at_turns(live)
        self._look_at_batches(live)
        self._look_at_debts({row["id"] for row in live})
        self._look_at_slots(live)
        self._look_at_credits()
        self._look_at_questions()

    def evidence(self, text: str) -> list[str]:
        """Return what the audit log has of the turns, messages and sessions that a text names."""
        lines = []
        for identifier in sorted(set(_IDS.findall(text))):
            rows = self.query(
                "SELECT * FROM audit_events WHERE ? IN (turn_id, message_id, session_id) ORDER BY seq",
                identifier,
            )
            lines += [
                f"      {row['at']:.2f} {row['action']} {row['turn_id']} {row['message_id']}"
                f" {row['session_id']} {row['details']}"
                for row in rows[-20:]
            ]
        return lines

    # -- messages ----------------------------------------------------------------------------------

    def _look_at_messages(self) -> None:
        rows = self.query("SELECT * FROM messages WHERE ordinal > ? ORDER BY ordinal", self._seen)
        if not rows:
            return
        self._seen = rows[-1]["ordinal"]
        for row in rows:
            thread = row["thread_id"]
            require(
                row["seq"] == self._threads[thread] + 1,
                f"{row['id']} is number {row['seq']} after {self._threads[thread]} in {thread}",
            )
            self._threads[thread] = row["seq"]
            self.messages[row["id"]] = row
            self._check_cap(row)
            if row["from_kind"] != "mesh" and row["kind"] not in _UNCHARGED:
                self._check_charge(row)
        for thread in {row["thread_id"] for row in rows}:
            ((count, reserved),) = self.query(
                "SELECT message_count, reserved FROM threads WHERE id = ?", thread
            )
            require(count == self._threads[thread], f"{thread} counts {count} messages")
            require(reserved >= 0, f"{thread} keeps {reserved} places")

    def _check_cap(self, row: sqlite3.Row) -> None:
        """What discharges a debt passes; a fan-out keeps a place for the first reply of each recipient."""
        copies = self.query("SELECT recipient_id FROM deliveries WHERE message_id = ?", row["id"])
        if len(copies) > 1:
            self._kept.update((row["id"], copy["recipient_id"]) for copy in copies)
        kept = (row["in_reply_to"], row["from_id"])
        if kept in self._kept:
            self._kept.remove(kept)
            return
        if row["from_kind"] == "mesh" or row["kind"] in _UNCHARGED or row["seq"] <= self.thread_cap:
            return
        pays = self.query("SELECT 1 FROM debts WHERE reply_message_id = ?", row["id"])
        require(pays, f"{row['id']} is number {row['seq']} in a thread that takes {self.thread_cap}")

    def _check_charge(self, row: sqlite3.Row) -> None:
        charge = self._quotas.charges.get(self._key_of(row))
        require(charge is not None, f"{row['id']} was written and never admitted")
        if charge is None or charge.state == "lost":
            return  # the counters were rebuilt since, from this very row
        require(charge.state != "refunded", f"{row['id']} was written and its charge given back")
        found = (row["depth"], row["root_id"], row["day"], row["from_id"])
        admitted = (charge.depth, charge.root, charge.day, charge.item.sender_id)
        require(found == admitted, f"{row['id']} is {found}, admitted as {admitted}")
        copies = self.query("SELECT recipient_id FROM deliveries WHERE message_id = ?", row["id"])
        if row["seq"] == 1 and row["from_kind"] == "agent":
            for copy in copies:
                if copy["recipient_id"] == row["from_id"]:
                    continue  # a copy of itself, or another session of its own
                beyond = not self._may_reach(row["from_id"], copy["recipient_id"])
                require(not beyond, f"{row['id']} went to {copy['recipient_id']}, beyond its sender's reach")
        require(
            sorted(copy["recipient_id"] for copy in copies)
            == sorted(r.agent_id for r in charge.item.recipients),
            f"{row['id']} goes to others than it was admitted for",
        )

    def _key_of(self, row: sqlite3.Row) -> str:
        key = f"{row['workspace_id']}/{row['from_id']}/"
        if f"{key}{row['id']}" in self._quotas.charges:
            return f"{key}{row['id']}"
        found = self.query("SELECT request_id FROM requests WHERE message_id = ?", row["id"])
        if found:
            return f"{key}{found[0]['request_id']}"
        # The request may be forgotten by now: then its charge is known by the turns that it was for.
        copies = self.query("SELECT turn_id FROM deliveries WHERE message_id = ?", row["id"])
        turns = {copy["turn_id"] for copy in copies} - {""}
        for known, charge in self._quotas.charges.items():
            if any(recipient.turn_id in turns for recipient in charge.item.recipients):
                return known
        return f"{key}{row['id']}"

    # -- turns -------------------------------------------------------------------------------------

    def _look_at_turns(self, live: list[sqlite3.Row]) -> None:
        places: dict[str, set[str]] = {}
        # With those whose lease has just ended: what was taken together goes one after the other.
        going: dict[str, set[str]] = {}
        for row in live:
            require(row["attempt"] <= _ATTEMPTS, f"{row['id']} is at attempt {row['attempt']}")
            if row["cause"] == "tool":
                found = (row["state"], row["attempt"], row["slot"])
                require(found == ("running", 1, 1), f"{row['id']} is the call of a tool and {found}")
                continue  # it runs beside the turns of its session
            if row["state"] == "running":
                session, group = row["run_session_id"] or row["session_id"], row["batch_id"] or row["id"]
                going.setdefault(session, set()).add(group)
                if not self._let_go(row):
                    places.setdefault(session, set()).add(group)
        for session, groups in places.items():
            require(len(groups) == 1, f"{session} runs {sorted(groups)} at once")
        holding = {
            row["id"]: row["running_turn_id"]
            for row in self.query("SELECT id, running_turn_id FROM sessions WHERE running_turn_id <> ''")
        }
        for session, turn in holding.items():
            runs = places.get(session, going.get(session))
            require(runs == {turn}, f"{session} is held by {turn}, which does not run there")
        for session, groups in places.items():
            require(session in holding, f"{session} runs {sorted(groups)} and counts as free")

    def _let_go(self, row: sqlite3.Row) -> bool:
        """Tell whether a message was pulled from within a worker's turn that has ended: the sweep ends it."""
        if not row["batch_id"] or row["batch_id"] == row["id"]:
            return False
        found = self.query("SELECT state, run_session_id FROM turns WHERE id = ?", row["batch_id"])
        return bool(found) and not found[0]["run_session_id"] and found[0]["state"] != "running"

    def _look_at_batches(self, live: list[sqlite3.Row]) -> None:
        """What rides along runs exactly as long as the turn that a worker holds."""
        running = {row["id"]: row for row in live if row["state"] == "running"}
        for row in running.values():
            if row["run_session_id"] or row["batch_id"] in ("", row["id"]):
                continue
            lead = running.get(row["batch_id"])
            require(lead is not None, f"{row['id']} rides along with {row['batch_id']}, which does not run")
            require(not row["slot"], f"{row['id']} rides along and holds a slot of its own")
            require(
                lead is None or lead["session_id"] == row["session_id"],
                f"{row['id']} rides along with a turn of another session",
            )

    def _look_at_slots(self, live: list[sqlite3.Row]) -> None:
        """What the quota service counts is what the record holds, once all has been told."""
        runs = {row["id"]: row["attempt"] for row in live if row["state"] == "running"}
        counted = {run.id: run.attempt for run in self._quotas.running.values()}
        require(runs == counted, f"running by the record and not counted, or counted: {_odd(runs, counted)}")
        queued = {row["id"] for row in live if row["state"] == "queued"}
        # What is admitted and not written yet, or not given back yet, is under way.
        lost = set(self._quotas.queued) - queued - self._quotas.under_way()
        require(not lost, f"counted as queued for ever: {sorted(lost)}")
        waiting = {row["waiter_turn_id"] for row in self.query("SELECT waiter_turn_id FROM waits")}
        for run in self._quotas.running.values():
            require(
                not (run.slot and run.waiting) or run.id in waiting,
                f"{run.id} counts as waiting for ever: its slot is given",
            )

    # -- debts -------------------------------------------------------------------------------------

    def _look_at_debts(self, live: set[str]) -> None:
        asked = self.query(
            "SELECT d.turn_id, t.state FROM debts d JOIN turns t ON t.id = d.creditor_turn_id"
            " WHERE d.state = 'open'"
        )
        # What is asked later may be put down to a turn that is over: it was never seen while that one ran.
        left = [
            row["turn_id"]
            for row in asked
            if row["state"] == "canceled" and row["turn_id"] in self._asked_by_live
        ]
        require(not left, f"asked for by a turn that was cancelled: {left}")
        self._asked_by_live = {row["turn_id"] for row in asked if row["state"] in ("queued", "running")}
        dead = self.query(
            "SELECT d.message_id FROM deliveries d JOIN turns t ON t.id = d.turn_id"
            " WHERE d.state = 'dead' AND t.ended_at IS NULL"
        )
        require(not dead, f"dead and going on: {[row['message_id'] for row in dead]}")
        # What a lead owes a person it owes on while its answer is held.
        held = {row["turn_id"] for row in self.query("SELECT turn_id FROM holds")}
        for row in self.query("SELECT * FROM debts"):
            turn, outcome = row["turn_id"], (row["state"], row["reply_message_id"], row["error_code"])
            if row["state"] == "open":
                require(turn in live or turn in held, f"{turn} owes an answer and has ended")
                continue
            before = self._closed.setdefault(turn, outcome)
            require(before == outcome, f"the debt of {turn} ended twice: {before}, {outcome}")
            if row["state"] == "answered":
                require(row["reply_message_id"] in self.messages, f"the answer of {turn} is not there")
            else:
                require(row["error_code"], f"the debt of {turn} ended without a reason")

    def _look_at_credits(self) -> None:
        """The account of each workspace is the sum of what its turns cost."""
        ((charged,),) = self.query(
            "SELECT coalesce(sum(price), 0) FROM turns WHERE state = 'queued' OR attempt > 0"
        )
        ((account,),) = self.query("SELECT coalesce(sum(charged), 0) FROM credit_accounts")
        require(charged == account, f"turns cost {charged} and the account says {account}")

    # -- questions to owners -----------------------------------------------------------------------

    def _look_at_questions(self) -> None:
        """Each ends once, and its agent is told once: where somebody answered, or in time."""
        answers = Counter(
            row["in_reply_to"] for row in self.messages.values() if row["kind"] == "owner_answer"
        )
        for row in self.query("SELECT * FROM escalations"):
            identifier, state, told = row["id"], row["state"], answers.pop(row["message_id"], 0)
            if state == "pending":
                require(told == 0, f"{identifier} is pending and has {told} answers")
                continue
            outcome = (state, row["answer"], row["ended_by_id"])
            before = self._ended.setdefault(identifier, outcome)
            require(before == outcome, f"{identifier} ended twice: {before}, {outcome}")
            most = 1 if state != "withdrawn" else told
            require(told <= 1 and told == most, f"{identifier} is {state} and has {told} answers")
        require(not answers, f"answers to no question: {dict(answers)}")

    # -- the end -----------------------------------------------------------------------------------

    def look_at_the_end(self) -> None:
        """Check that nothing is left once all time has passed."""
        self.look()
        left = [row["id"] for row in self.query("SELECT id FROM turns WHERE state IN ('queued', 'running')")]
        require(not left, f"turns that never ended: {left}")
        require(not self.query("SELECT 1 FROM debts WHERE state = 'open'"), "a debt never ended")
        require(not self.query("SELECT 1 FROM waits"), "a wait never ended")
        left = [row["session_id"] for row in self.query("SELECT * FROM children WHERE state = 'live'")]
        require(not left, f"children that never ended: {left}")
        require(not self.query("SELECT 1 FROM children WHERE state = 'closing'"), "a close never ended")
        left = [row["id"] for row in self.query("SELECT id FROM escalations WHERE state = 'pending'")]
        require(not left, f"questions that never ended: {left}")
        require(not self._quotas.running, f"slots that never came back: {sorted(self._quotas.running)}")
        require(not self._quotas.queued, f"queued for ever: {sorted(self._quotas.queued)}")
        self._look_at_bound_sessions()
        self._look_at_firings()
        self._look_at_sums()
        self._look_at_the_chain()
        self._look_at_workspaces()

    def _look_at_bound_sessions(self) -> None:
        """What came in through an agent's own endpoint is that of whoever opened its session."""
        strangers = self.query(
            "SELECT turns.id, turns.caused_by_id, sessions.id AS session_id, sessions.opened_by_id "
            "FROM sessions JOIN turns ON turns.session_id = sessions.id "
            "WHERE sessions.channel = 'mcp' AND sessions.number = 0 "
            "AND turns.cause IN ('ask', 'prompt') AND turns.caused_by_id <> sessions.opened_by_id"
        )
        require(not strangers, f"prompted in somebody else's session: {[dict(row) for row in strangers]}")

    def _look_at_firings(self) -> None:
        """Every message of a schedule is one of its times, taken once; it runs at depth 0."""
        taken = Counter(
            row["message_id"]
            for row in self.query("SELECT message_id FROM audit_events WHERE action = 'schedule.fired'")
        )
        said = Counter(row["id"] for row in self.messages.values() if row["from_kind"] == "schedule")
        require(taken == said, f"times and messages of schedules: {taken - said}, {said - taken}")
        deep = self.query(
            "SELECT id FROM turns WHERE caused_by_kind IN ('schedule', 'webhook') AND depth <> 0"
        )
        require(not deep, f"turns of schedules and webhooks below depth 0: {[row['id'] for row in deep]}")

    def _look_at_the_chain(self) -> None:
        """Every event is sealed, once, as it stands."""
        links: dict[str, bytes] = {}
        for seal in self.query("SELECT * FROM audit_seals ORDER BY workspace_id, first_seq"):
            workspace, first, last = seal["workspace_id"], seal["first_seq"], seal["last_seq"]
            link = links.get(workspace) or sha256(f"hopline audit log\n{workspace}".encode()).digest()
            rows = self.query(
                "SELECT * FROM audit_events WHERE workspace_id = ? AND seq BETWEEN ? AND ? ORDER BY seq",
                *(workspace, first, last),
            )
            chained = []
            for row in rows:
                text = json.dumps(list(row)[1:], ensure_ascii=False, separators=(",", ":"))
                link = sha256(link + text.encode()).digest()
                chained.append(link)
            require(b"".join(chained) == seal["links"], f"events {first} to {last} are not what was sealed")
            links[workspace] = link
        for head in self.query("SELECT * FROM heads"):
            sealed = self.query(
                "SELECT max(last_seq) AS n FROM audit_seals WHERE workspace_id = ?", head["workspace_id"]
            )
            require(
                sealed[0]["n"] == head["audit_seq"], f"{head['audit_seq']} events, {sealed[0]['n']} sealed"
            )

    def _look_at_workspaces(self) -> None:
        """The stranger's workspace has nothing in it, whatever was tried from there and from here."""
        for table in ("messages", "deliveries", "turns", "sessions", "threads", "debts"):
            found = self.query(f"SELECT DISTINCT workspace_id FROM {table}")
            require(len(found) <= 1, f"{table} holds rows of {len(found)} workspaces")

    def look_at_uninstalled(self, agents: set[str]) -> None:
        """Of agents that went with their plugin no session is left."""
        left = [
            row["id"] for row in self.query("SELECT id, agent_id FROM sessions") if row["agent_id"] in agents
        ]
        require(not left, f"sessions of agents whose plugin is gone: {left}")

    def _look_at_sums(self) -> None:
        """What is counted is what was written, message by message."""
        sent: Counter[tuple[str, str]] = Counter()
        received: Counter[tuple[str, str]] = Counter()
        for row in self.messages.values():
            if row["from_kind"] == "agent" and row["kind"] not in _UNCHARGED:
                sent[row["from_id"], row["day"]] += 1
        for row in self.query(
            "SELECT d.recipient_id, m.day FROM messages m JOIN deliveries d USING (workspace_id)"
            " WHERE d.message_id = m.id AND m.from_kind <> 'mesh' AND d.recipient_kind = 'agent'"
            " AND m.kind <> 'owner_answer'"
        ):
            received[row["recipient_id"], row["day"]] += 1
        ((charged,),) = self.query(
            "SELECT coalesce(sum(price), 0) FROM turns WHERE state = 'queued' OR attempt > 0"
        )
        require(charged == self._quotas.charged, f"turns cost {charged}, charged {self._quotas.charged}")
        require(not self._quotas.prices, f"prices of turns that are gone: {sorted(self._quotas.prices)}")
        _same(sent, self._quotas.sent, "sent")
        _same(received, self._quotas.received, "received")


def _same(rows: Counter[Any], counted: Counter[Any], what: str) -> None:
    agents = {key for key, count in counted.items() if count and key[0].startswith("agt_")}
    for key in sorted(rows.keys() | agents):
        require(rows[key] == counted[key], f"{key} {what} {rows[key]} and is charged for {counted[key]}")


def _odd(one: dict[str, int], other: dict[str, int]) -> list[tuple[str, int | None, int | None]]:
    keys = sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))
    return [(key, one.get(key), other.get(key)) for key in keys]
