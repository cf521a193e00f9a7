"""A form as data, and what somebody has filled in: values, mistakes, and what they saw before."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hopline_rpc.errors import HoplineError

from hopline_console.forms import seen
from hopline_console.forms.fields import Field, Mistake, Value

ONCE: Final = "once"
SEEN: Final = "seen"
_STEPS: Final = re.compile(r"[.\[\]]+")


@dataclass(frozen=True)
class Form:
    """What is asked for. `carries` are further values that go along unseen, by name."""

    action: str
    title: str
    submit: str
    fields: tuple[Field, ...] = ()
    intro: str = ""
    carries: Mapping[str, str] = field(default_factory=dict)
    # What cannot be taken back is shown as such.
    danger: bool = False
    # Shown closed, to be opened by whoever wants it.
    folded: bool = False
    # `get`: it only looks, and stands in the address.
    method: str = "post"

    # Whether what the reader saw goes along.
    sees: bool = False

    @property
    def is_large(self) -> bool:
        """Whether a file, or as much as one, goes along."""
        return any(each.kind == "file" for each in self.fields) or "file" in self.carries

    def empty(self, **values: Value) -> Filled:
        """Return the form as it is first shown, with these values in it."""
        typed = {each.name: each.written(values[each.name]) for each in self.fields if each.name in values}
        return Filled(self, typed, dict(values), seen=seen.digest(self.fields, values))

    def read(self, posted: Mapping[str, Any]) -> Filled:
        """Read what was posted; every mistake is noted at its field."""
        filled = Filled(self, {}, {}, once=_once(posted.get(ONCE)), seen=_text(posted, SEEN))
        for each in self.fields:
            if each.kind == "file":
                continue
            typed = filled.typed[each.name] = _text(posted, each.name)
            try:
                filled.values[each.name] = each.read(typed, there=each.name in posted)
            except Mistake as mistake:
                filled.mistakes[each.name] = str(mistake)
        return filled


@dataclass
class Filled:
    """A form with what is in it."""

    form: Form
    # As it stands in the fields.
    typed: dict[str, str]
    values: dict[str, Any]
    mistakes: dict[str, str] = field(default_factory=dict)
    # What is wrong with the whole of it.
    problem: str = ""
    # Why the mesh refused it, by the contract's name.
    reason: str = "invalid_argument"
    # The same for as long as the form is: what is sent twice happens once.
    once: str = field(default_factory=lambda: str(uuid.uuid4()))
    seen: str = ""

    @property
    def good(self) -> bool:
        """Whether nothing is wrong with it so far."""
        return not self.mistakes and not self.problem

    def changed(self) -> list[str]:
        """Return the fields that differ from what was shown before, in order: a change sends these alone."""
        before = seen.read(self.seen)
        now = seen.read(seen.digest(self.form.fields, self.values))
        return [each.name for each in self.form.fields if now.get(each.name) != before.get(each.name)]

    def hold_against(self, current: Mapping[str, Value]) -> None:
        """Note what somebody else has changed meanwhile of the fields that are changed here too."""
        before = seen.read(self.seen)
        stands = seen.digest(self.form.fields, current)
        now = seen.read(stands)
        for each in self.form.fields:
            name = each.name
            if name in self.changed() and name in before and now.get(name) != before[name]:
                shown = each.written(current[name])[:200] or "empty"
                text = (
                    f"somebody else has changed it meanwhile; it is now: {shown}. Send again to replace that"
                )
                self.mistakes[name] = text
        if self.mistakes:
            self.seen = stands

    def refuse(self, error: HoplineError) -> None:
        """Note what the mesh refused, at the fields that it names."""
        self.reason = error.reason
        rest = []
        for path, text in error.violations:
            name = self._field_of(path)
            if name:
                self.mistakes.setdefault(name, text)
            else:
                rest.append(f"{path}: {text}" if path else text)
        if rest or not error.violations:
            self.problem = "; ".join(rest) if rest else error.message

    def _field_of(self, path: str) -> str:
        """Return which field a path of the contract means; empty for none."""
        steps = [step for step in _STEPS.split(path) if step]
        for step in reversed(steps):
            for each in self.form.fields:
                if step == each.name or step in each.paths:
                    return each.name
        return ""


def _text(posted: Mapping[str, Any], name: str) -> str:
    found = posted.get(name, "")
    return found if isinstance(found, str) else ""


def _once(given: Any) -> str:
    try:
        return str(uuid.UUID(str(given)))
    except ValueError:
        return str(uuid.uuid4())
