"""What an agent in reply mode `all` writes in one attempt of a turn: pieces that become one message."""

from __future__ import annotations

from hopline_relay.domain.values import MAX_ANSWER_BYTES


class Writing:
    """The text so far. Pieces that were there already are passed over, and so are those behind a gap."""

    __slots__ = ("_pieces", "over", "size")

    def __init__(self, text: str = "") -> None:
        self._pieces = [text] if text else []
        # In bytes of UTF-8.
        self.size = len(text.encode())
        # It has become longer than any answer may be.
        self.over = False

    @property
    def text(self) -> str:
        """All of it."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def add(self, piece: str, offset: int | None) -> bool:
        """Take a piece that begins at `offset`, or follows what there is; tells whether anything is new."""
        raw = piece.encode()
        if offset is not None:
            if offset > self.size:
                return False  # what is missing in between would never show
            raw = raw[self.size - offset :]
            try:
                piece = raw.decode()
            except UnicodeDecodeError:
                return False  # it cuts a character in two: not what was written before
        if not raw or self.over:
            return False
        if self.size + len(raw) > MAX_ANSWER_BYTES:
            self.over = True
            return False
        self._pieces.append(piece)
        self.size += len(raw)
        return True

    def final(self, answer: str) -> str:
        """Return the whole message of a turn that ended with `answer`: each part of it stands there once."""
        written = self.text
        if not written.strip() or written.strip() in answer:
            return answer
        if not answer.strip() or answer.strip() in written:
            return written
        return f"{written.rstrip()}\n\n{answer}"
