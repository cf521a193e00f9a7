"""Files that hold a credential: for their owner alone, from the first moment on."""

from __future__ import annotations

import os
from pathlib import Path


def save_token(path: Path | None, token: str) -> str:
    """Write a token to a file of mode 0600, and return the line that tells a person where it is.

    Without a file, or when it cannot be written, the line shows the token itself: it is shown this once.
    """
    if not token:
        return "its token was shown when it was first created; make another with `hopline token create`"
    shown = f"token (shown once): {token}"
    if path is None:
        return shown
    try:
        write_private(path, token + "\n")
    except OSError as error:
        return f"{shown}\nit could not be written to {path}: {error.strerror}"
    return f"token written to {path}"


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, also when it was there before with another mode."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, 0o600)
        file.write(text)
