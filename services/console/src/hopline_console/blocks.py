"""What a page is made of, as data: tables, facts, meters, forms. One template shows them all (`blocks.html`).

Whatever stands in them is text to the template, whoever wrote it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from hopline_console.forms import Filled

Tone = Literal["good", "busy", "waiting", "warn", "bad", "quiet"]


@dataclass(frozen=True)
class Link:
    """A way to another page."""

    kind: ClassVar = "link"
    text: str
    href: str


@dataclass(frozen=True)
class Moment:
    """A time, shown in UTC; unix seconds. None: `none` in its place."""

    kind: ClassVar = "moment"
    at: float | None
    none: str = "—"


@dataclass(frozen=True)
class State:
    """A word for how something stands. The colour says no more than the word does."""

    kind: ClassVar = "state"
    word: str
    tone: Tone = "quiet"


@dataclass(frozen=True)
class Badge:
    """A small label beside a name."""

    kind: ClassVar = "badge"
    text: str
    sort: str = ""


@dataclass(frozen=True)
class Code:
    """An id, an address, an expression: to be copied as it is."""

    kind: ClassVar = "code"
    text: str


@dataclass(frozen=True)
class Word:
    """A word of the contract, short and in one piece."""

    kind: ClassVar = "word"
    text: str


@dataclass(frozen=True)
class Long:
    """A text of many lines."""

    kind: ClassVar = "long"
    text: str


@dataclass(frozen=True)
class Press:
    """A button that does one thing at once: a form without fields."""

    kind: ClassVar = "press"
    action: str
    label: str
    # What it is pressed for, for those who hear the buttons of a table without its rows.
    about: str = ""
    carries: Mapping[str, str] = field(default_factory=dict)
    # What it does that cannot be taken back: it is then pressed behind these words.
    warning: str = ""
    # The same for as long as the page is shown: what is sent twice happens once.
    once: str = field(default_factory=lambda: str(uuid.uuid4()))


@dataclass(frozen=True)
class Bar:
    """How much of a limit is used, in few words and as a bar."""

    kind: ClassVar = "bar"
    label: str
    used: float
    limit: float

    @property
    def said(self) -> str:
        """The figures."""
        return f"{self.used:,.0f} of {self.limit:,.0f}"


@dataclass(frozen=True)
class Several:
    """Cells one behind the other."""

    kind: ClassVar = "several"
    parts: Sequence[Cell]


Cell = str | Link | Moment | State | Badge | Code | Word | Long | Press | Bar | Several


@dataclass(frozen=True)
class Table:
    """Rows under headings. The first cell of each row names it."""

    kind: ClassVar = "table"
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    # In place of rows, where there are none.
    empty: str = "Nothing here yet."
    # The token of the next page, and the name under which it stands in the address.
    more: str = ""
    pager: str = "page"


@dataclass(frozen=True)
class Facts:
    """Names and what they stand at."""

    kind: ClassVar = "facts"
    title: str
    pairs: Sequence[tuple[str, Cell]]


@dataclass(frozen=True)
class Gauge:
    """How much of a limit is used, in words and as a bar."""

    label: str
    used: float
    limit: float
    # What happens when it is full, or when it is free again: `until`.
    note: str = ""
    until: float | None = None

    @property
    def said(self) -> str:
        """The figures."""
        return f"{self.used:,.0f} of {self.limit:,.0f}"

    @property
    def word(self) -> str:
        """What the colour of the bar says."""
        if self.used >= self.limit:
            return "full"
        return "nearly full" if self.used >= self.limit * _NEARLY else ""


@dataclass(frozen=True)
class Gauges:
    """Bars under one heading."""

    kind: ClassVar = "gauges"
    title: str
    gauges: Sequence[Gauge]


@dataclass(frozen=True)
class Note:
    """A sentence that is to be read."""

    kind: ClassVar = "note"
    text: str
    tone: Tone = "quiet"
    title: str = ""


@dataclass(frozen=True)
class Secret:
    """What is shown this one time."""

    kind: ClassVar = "secret"
    title: str
    label: str
    secret: str
    text: str


@dataclass(frozen=True)
class Links:
    """What else can be done from here."""

    kind: ClassVar = "links"
    label: str
    links: Sequence[Link]


@dataclass(frozen=True)
class Ask:
    """A form to be filled in."""

    kind: ClassVar = "form"
    filled: Filled


Block = Table | Facts | Gauges | Note | Secret | Links | Ask
_NEARLY = 0.8


def yes_no(value: Any) -> str:
    """Return a flag as people say it."""
    return "yes" if value else "no"
