"""What the console keeps with the browser, sealed: who is signed in, and one line to show on the next page.

Fernet seals and dates it; a browser can neither read nor change it. The token inside is looked at with every
request, so that taking it away ends the session at once.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError

from hopline_console.oidc import PENDING_SECONDS, Pending

KEY_FILE: Final = "console.key"
_FLASH_SECONDS: Final = 60
_MAX_FLASH: Final = 600


@dataclass(frozen=True, slots=True)
class Session:
    """A person who is signed in: the credential, the workspace (empty: its own), the forms' secret."""

    token: str = field(repr=False)
    workspace: str
    csrf: str = field(repr=False)
    until: float
    # Whether the token was made for this session, and ends with it.
    own_token: bool = False

    @classmethod
    def begin(cls, token: str, workspace: str, until: float, *, own_token: bool = False) -> Session:
        """Begin a session; forms made in it are good for no other."""
        return cls(token, workspace, secrets.token_urlsafe(24), until, own_token)


@dataclass(frozen=True, slots=True)
class Flash:
    """One line to show on the next page; `good`: it went well."""

    text: str
    good: bool = True


class Seal:
    """Seals and opens, by one key or by several of which the first seals."""

    def __init__(self, keys: list[bytes], clock: Clock) -> None:
        self._fernet = MultiFernet([Fernet(key) for key in keys])
        self._clock = clock

    def session(self, session: Session) -> str:
        """Seal a session."""
        return self._sealed(
            {
                "t": session.token,
                "w": session.workspace,
                "c": session.csrf,
                "u": session.until,
                "o": session.own_token,
            }
        )

    def open_session(self, sealed: str) -> Session | None:
        """Return a session that is still good."""
        found = self._opened(sealed)
        try:
            session = Session(
                str(found["t"]), str(found["w"]), str(found["c"]), float(found["u"]), bool(found.get("o"))
            )
        except (KeyError, TypeError, ValueError):
            return None
        return session if session.until > self._clock.now() else None

    def pending(self, pending: Pending) -> str:
        """Seal a sign-in that goes on at an identity provider."""
        return self._sealed({"p": asdict(pending)})

    def open_pending(self, sealed: str) -> Pending | None:
        """Return a sign-in that has begun here."""
        found = self._opened(sealed, int(PENDING_SECONDS)).get("p")
        return Pending(**found) if isinstance(found, dict) else None

    def flash(self, flash: Flash) -> str:
        """Seal a line for the next page."""
        return self._sealed({"f": flash.text[:_MAX_FLASH], "g": flash.good})

    def open_flash(self, sealed: str) -> Flash | None:
        """Return the line to show."""
        found = self._opened(sealed, _FLASH_SECONDS)
        text = found.get("f")
        return Flash(text, bool(found.get("g"))) if isinstance(text, str) else None

    def _sealed(self, value: dict[str, Any]) -> str:
        text = json.dumps(value, separators=(",", ":")).encode()
        return self._fernet.encrypt_at_time(text, int(self._clock.now())).decode()

    def _opened(self, sealed: str, seconds: int | None = None) -> dict[str, Any]:
        try:
            if seconds is None:
                text = self._fernet.decrypt(sealed)
            else:
                text = self._fernet.decrypt_at_time(sealed, seconds, int(self._clock.now()))
            found = json.loads(text)
        except (InvalidToken, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def keys_of(file: Path | None, data_dir: Path | None) -> list[bytes]:
    """Return the keys: the file's, else the data directory's (made there once), else one for this process."""
    if file is not None:
        return _read(file)
    if data_dir is None:
        return [Fernet.generate_key()]
    kept = data_dir / KEY_FILE
    try:
        # Made whole under another name: a second console that starts now reads all of it or nothing.
        draft = data_dir / f".{KEY_FILE}.{secrets.token_hex(4)}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as out:
            out.write(Fernet.generate_key() + b"\n")
        try:
            os.link(draft, kept)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    except OSError as error:
        raise HoplineError("failed_precondition", f"{kept} cannot be made: {error.strerror}") from None
    return _read(kept)


def _read(file: Path) -> list[bytes]:
    try:
        keys = [line.strip() for line in file.read_bytes().splitlines() if line.strip()]
        MultiFernet([Fernet(key) for key in keys])
    except OSError as error:
        raise HoplineError("failed_precondition", f"{file} cannot be read: {error.strerror}") from None
    except ValueError:
        text = f"{file}: not one key a line, of 32 bytes in URL-safe base64; without it a new one is made"
        raise HoplineError("failed_precondition", text) from None
    return keys
