"""Files that go along with a form: uploaded or pasted, shown, and sent again by the page that shows them."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final

from starlette.datastructures import UploadFile

from hopline_console.forms import Field, Filled

# A file goes along with its plan in base64, in a part of a form that may have 256 KiB.
MOST_BYTES: Final = 180 * 1024
TEXT: Final = Field("text", "Or its text", "area", "In place of a file.", rows=8)
_FILE: Final = "file"


async def text_of(posted: Mapping[str, Any], filled: Filled, too_long: str) -> str:
    """Return the text of the file, or what was pasted; what is wrong is noted."""
    upload = posted.get(_FILE)
    if isinstance(upload, UploadFile) and upload.filename:
        raw = await upload.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            filled.mistakes[_FILE] = too_long
            return ""
        try:
            return raw.decode("utf-8-sig")
        except UnicodeDecodeError:
            filled.mistakes[_FILE] = "is no text in UTF-8"
            return ""
    text = str(filled.values.get(TEXT.name, ""))
    if len(text.encode()) > MOST_BYTES:
        filled.mistakes[TEXT.name] = too_long
    elif not text.strip() and TEXT.name not in filled.mistakes:
        filled.mistakes[_FILE] = "is needed, or its text"
    return text


def carrying(text: str) -> dict[str, str]:
    """Return the hidden field by which a form carries the text."""
    return {_FILE: b64encode(text.encode()).decode()}


def carried(posted: Mapping[str, Any]) -> str:
    """Return the text that a form carried; empty where none did."""
    try:
        return b64decode(str(posted.get(_FILE, "")), validate=True).decode()
    except ValueError:
        return ""
