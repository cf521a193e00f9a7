"""What callers were told, and what then stands in the record."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import psycopg
from hopline_client import Mesh
from hopline_relay.store.checking import contradictions
from hopline_rpc.errors import HoplineError
from hopline_store import open_engine

# What a call may be answered with while parts are away.
_AWAY = frozenset({"unavailable", "deadline_exceeded", "overloaded", "unauthenticated", "internal"})


@dataclass
class Ledger:
    """The calls of one run, by the text that each sent, which no other one has."""

    # What was accepted, with the id of the message that the caller was given.
    accepted: dict[str, str] = field(default_factory=dict)
    # What an ask was answered with.
    answered: dict[str, str] = field(default_factory=dict)
    # What nobody can tell: the call failed, and may have been heard all the same.
    unknown: set[str] = field(default_factory=set)
    told: Counter[str] = field(default_factory=Counter)

    async def send(self, client: Mesh, to: str, text: str) -> None:
        """Send, and note what was said."""
        try:
            self.accepted[text] = (await client.send(to, text)).message_id
            self.told["sent"] += 1
        except HoplineError as error:
            self._failed(text, error)

    async def ask(self, client: Mesh, to: str, text: str) -> None:
        """Ask, wait for the end of it, and note what was said."""
        try:
            answer = await client.ask(to, text, wait_seconds=5)
            self.accepted[text] = answer.message_id
            answer = await client.wait(answer, 90)
        except HoplineError as error:
            self._failed(text, error)
            return
        self.told[f"ask {answer.status}"] += 1
        if answer.status == "completed":
            self.answered[text] = answer.reply or ""
        elif answer.status not in ("failed", "canceled"):
            raise AssertionError(f"{text!r} never ended: {answer.status}")

    def _failed(self, text: str, error: HoplineError) -> None:
        self.told[error.reason] += 1
        if error.reason not in _AWAY:
            raise AssertionError(f"{text!r} was answered with {error.reason}: {error.message}")
        self.unknown.add(text)

    def look(self, url: str) -> list[str]:
        """Return what is wrong in the record, by what callers were told."""
        engine = open_engine(url, "relay")
        try:
            with engine.connect() as conn:
                found = contradictions(conn)
        finally:
            engine.dispose()
        with psycopg.connect(url, options="-c search_path=hopline_relay") as conn:
            rows = conn.execute(
                "SELECT body, id FROM messages WHERE kind IN ('message', 'ask') AND from_kind = 'agent'"
            ).fetchall()
            answers = conn.execute(
                "SELECT m.body, r.body FROM debts d JOIN messages m ON m.id = d.message_id"
                " JOIN messages r ON r.id = d.reply_message_id WHERE d.state = 'answered'"
            ).fetchall()
        return found + self._lost(rows) + self._wrong(answers)

    def _lost(self, rows: list[tuple[Any, ...]]) -> list[str]:
        ids: dict[str, list[str]] = {}
        for body, identifier in rows:
            ids.setdefault(body, []).append(identifier)
        found = [f"{text!r} was accepted and is gone" for text in self.accepted if text not in ids]
        found += [f"{text!r} stands {len(each)} times" for text, each in ids.items() if len(each) > 1]
        found += [
            f"{text!r} was accepted as {given} and stands as {ids[text][0]}"
            for text, given in self.accepted.items()
            if text in ids and given != ids[text][0]
        ]
        strange = ids.keys() - self.accepted.keys() - self.unknown
        return found + [f"{text!r} was written and nobody knows of it" for text in strange]

    def _wrong(self, answers: list[tuple[Any, ...]]) -> list[str]:
        written: dict[str, list[str]] = {}
        for asked, said in answers:
            written.setdefault(asked, []).append(said)
        found = [f"{text!r} has {len(each)} answers" for text, each in written.items() if len(each) > 1]
        return found + [
            f"{text!r} was answered with {said!r}, and {written.get(text)} stands"
            for text, said in self.answered.items()
            if written.get(text) != [said]
        ]
