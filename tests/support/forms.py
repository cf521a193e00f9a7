"""The forms of a page as a browser would send them: found by where they go, and filled in."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from tests.support.pages import Answer, Visitor

Fields = dict[str, str]


class _Forms(HTMLParser):
    """Reads the forms of a page: each with its action and what stands in its fields."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, Fields]] = []
        self._area = ""
        self._select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.found.append((given.get("action", ""), {}))
        if not self.found:
            return
        fields, name = self.found[-1][1], given.get("name", "")
        if tag == "input" and name:
            if given.get("type") == "checkbox" and "checked" not in given:
                return
            fields[name] = given.get("value", "")
        elif tag == "textarea":
            self._area = name
            fields[name] = ""
        elif tag == "select":
            self._select = name
        elif tag == "option" and self._select and ("selected" in given or self._select not in fields):
            fields[self._select] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            # A browser passes over the first line break.
            fields = self.found[-1][1]
            fields[self._area] = fields[self._area].removeprefix("\n")
            self._area = ""
        elif tag == "select":
            self._select = ""

    def handle_data(self, data: str) -> None:
        if self._area:
            self.found[-1][1][self._area] += data


def forms(page: Answer) -> list[tuple[str, Fields]]:
    """Return the forms of a page by where they go."""
    parser = _Forms()
    parser.feed(page.html)
    return parser.found


def form(page: Answer, action: str, **having: str) -> Fields:
    """Return what stands in the form that goes to `action`; of several, the one that carries these values.

    One that changes something comes before one that only looks.
    """
    found = [
        fields
        for goes, fields in forms(page)
        if goes == action and all(fields.get(name) == value for name, value in having.items())
    ]
    assert found, f"no form goes to {action}: {[goes for goes, _ in forms(page)]}"
    return next((fields for fields in found if "csrf" in fields), found[0])


async def fill(visitor: Visitor, page: str, action: str, /, **values: Any) -> Answer:
    """Open a page, fill in one of its forms, and send it."""
    answer = await visitor.get(page)
    assert answer.status == 200, (page, answer.status, answer.text)
    return await send(visitor, form(answer, action), action, **values)


async def send(visitor: Visitor, fields: Fields, action: str, /, **values: Any) -> Answer:
    """Send a form with other values; None takes a field out, as a box that is not ticked."""
    sent = {**fields, **values}
    return await visitor.post(action, {name: value for name, value in sent.items() if value is not None})


async def done(visitor: Visitor, answer: Answer) -> str:
    """Return what the page says to which a form that went well leads."""
    assert answer.status == 303, (answer.status, answer.text)
    page = await visitor.get(answer.location)
    assert page.status == 200, (answer.location, page.status, page.text)
    return page.text
