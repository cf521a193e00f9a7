"""An archive: one zip file for its owner alone.

`manifest.json` says what is in it, with the SHA-256 of each entry: `stores/relay.db`, the file as it is (kind
`sqlite`), or `stores/relay/turns.jsonl`, a line with the columns and then one a row (kind `rows`); and
`files/admin.token`, like every other file of the data directory that is not made anew.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import IO, Annotated, Final, Literal

from hopline_rpc.errors import HoplineError
from pydantic import BaseModel, Field

Kind = Literal["sqlite", "rows"]

_FORMAT: Final = 1
_MANIFEST: Final = "manifest.json"
# No name leads out of the folder that it is put into.
_ENTRY: Final = r"^(stores/[a-z]+\.db|stores/[a-z]+/[a-z_0-9]+\.jsonl|files/[A-Za-z0-9_-][A-Za-z0-9._-]*)$"
# Rows are text that repeats itself: the fastest level takes most of what there is to gain.
_LEVEL: Final = 1
_BLOCK: Final = 1 << 20


class Stored(BaseModel):
    """One service's part of an archive."""

    revision: str
    # How many rows each table has; empty where the file is kept as it is.
    tables: dict[str, int] = Field(default_factory=dict)


class Manifest(BaseModel):
    """What an archive says of itself."""

    kind: Kind
    made_at: str
    made_by: str
    stores: dict[str, Stored] = Field(default_factory=dict)
    # SHA-256 of each entry, in hexadecimal digits.
    entries: dict[Annotated[str, Field(pattern=_ENTRY)], str] = Field(default_factory=dict)
    format: int = _FORMAT

    @property
    def files(self) -> list[str]:
        """The names of the other files of the data directory."""
        return [name.removeprefix("files/") for name in self.entries if name.startswith("files/")]


class Draft:
    """An archive that is being written: there once it is whole, or not at all."""

    def __init__(self, target: Path, kind: Kind) -> None:
        self._target = target
        self._path = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        self.manifest = Manifest(kind=kind, made_at=_now(), made_by=f"hopline {version('hopline-store')}")

    @property
    def folder(self) -> Path:
        """Where the archive is going to be; what takes as much room as it is made there, too."""
        return self._target.parent

    def __enter__(self) -> Draft:
        if self._target.exists():
            raise HoplineError(
                "failed_precondition", f"{self._target} exists already; name another file, or remove it"
            )
        try:
            number = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _unwritable(self._target, error) from None
        self._file = os.fdopen(number, "wb")
        self._zip = zipfile.ZipFile(self._file, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._finish()
        except OSError as failed:
            raise _unwritable(self._target, failed) from None
        finally:
            with suppress(OSError, ValueError):
                self._zip.close()  # a second time does nothing
            self._file.close()
            self._path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _unwritable(self._target, error) from None

    def _finish(self) -> None:
        self._zip.writestr(_MANIFEST, self.manifest.model_dump_json(indent=1))
        self._zip.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._path.rename(self._target)

    @contextmanager
    def entry(self, name: str) -> Iterator[IO[bytes]]:
        """Give what an entry is written to."""
        with self._zip.open(name, "w", force_zip64=True) as inner:
            hashed = _Hashed(inner)
            yield hashed  # type: ignore[misc] # as much of a file as writing needs
        self.manifest.entries[name] = hashed.sha.hexdigest()

    def add(self, name: str, path: Path) -> None:
        """Add a file as it is."""
        with path.open("rb") as source, self.entry(name) as target:
            while block := source.read(_BLOCK):
                target.write(block)


class _Hashed:
    """Passes on what is written, and keeps the sum of it."""

    def __init__(self, inner: IO[bytes]) -> None:
        self._inner = inner
        self.sha = hashlib.sha256()

    def write(self, block: bytes) -> int:
        self.sha.update(block)
        return self._inner.write(block)


class Archive:
    """An archive that is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._zip = zipfile.ZipFile(path)
            self.manifest = Manifest.model_validate_json(self._zip.read(_MANIFEST))
        except OSError as error:
            raise HoplineError("invalid_argument", f"{path} cannot be read: {error.strerror}") from None
        except (zipfile.BadZipFile, zlib.error, KeyError, ValueError):
            raise HoplineError(
                "invalid_argument",
                f"{path} is not an archive of Hopline, or not all of it is there; take another copy",
            ) from None
        if self.manifest.format != _FORMAT:
            raise HoplineError(
                "failed_precondition",
                f"{path} was made by {self.manifest.made_by}, in a form that this version does not read;"
                " install that version or a newer one",
            )

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    @contextmanager
    def entry(self, name: str) -> Iterator[IO[bytes]]:
        """Give an entry's content."""
        try:
            with self._zip.open(name) as file:
                yield file
        except (zipfile.BadZipFile, zlib.error, KeyError, EOFError):
            raise self.damaged(name) from None

    def verify(self) -> int:
        """Read everything and compare the sums; returns how many bytes there were."""
        size = 0
        for name, expected in self.manifest.entries.items():
            found = hashlib.sha256()
            with self.entry(name) as file:
                while block := file.read(_BLOCK):
                    found.update(block)
                    size += len(block)
            if found.hexdigest() != expected:
                raise self.damaged(name)
        return size

    def damaged(self, name: str) -> HoplineError:
        """Return what is raised where an entry is not what was put in."""
        return HoplineError(
            "failed_precondition", f"{self.path} is damaged at {name}; take another copy of it"
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _unwritable(target: Path, error: OSError) -> HoplineError:
    return HoplineError("failed_precondition", f"{target} cannot be written: {error.strerror}")
