"""What was sent already: a form that is sent twice, by a double click or a reload, does nothing twice.

For calls without a `request_id` of their own, such as the making of a secret. Known for a while, in this
process alone: after a restart the same form may be sent again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from hopline_rpc.errors import HoplineError

_MOST: Final = 10_000
_SENT: Final = (
    "this form was sent before, and what it asks for was done then: a secret that you did not see is lost."
    " Open the page again to ask for another"
)


class Once:
    """The forms that were sent, the newest of them."""

    def __init__(self) -> None:
        self._sent: OrderedDict[tuple[str, str], None] = OrderedDict()

    @contextmanager
    def first(self, person: str, form: str) -> Iterator[None]:
        """Let a person's form through the first time, and no more; one that failed may be sent again."""
        key = (person, form)
        if key in self._sent:
            raise HoplineError("failed_precondition", _SENT)
        self._sent[key] = None
        if len(self._sent) > _MOST:
            self._sent.popitem(last=False)
        try:
            yield
        except HoplineError:
            self._sent.pop(key, None)
            raise
