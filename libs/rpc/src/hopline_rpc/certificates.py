"""Certificates that are read anew when their files change: one that was renewed needs no restart.

A port looks at the files with each handshake, a channel with each call. What they hold counts only once it
fits together (a certificate with its key); until then, or when a file is gone, the former ones go on, and
the log says so.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
import grpc.aio
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from hopline_rpc.errors import HoplineError
from hopline_rpc.tls import TlsSettings

log = logging.getLogger("hopline.tls")

# A channel that newer certificates have replaced: what still runs over it (a worker's tunnel) gets so long.
_OLD_CHANNEL_SECONDS: Final = 3600.0

_Stamp = tuple[int, int, int] | None
Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What the files hold, as PEM; None where there is none."""

    cert: bytes | None
    key: bytes | None
    ca: bytes | None


class Certificates:
    """The files of one side, and what they held when they last fitted together.

    Raises `failed_precondition`, naming the file, when they cannot be used from the start.
    """

    def __init__(self, tls: TlsSettings) -> None:
        self.tls = tls
        self._stamps = self._look()
        self.loaded = _read(tls)

    def renewed(self) -> bool:
        """Look whether the files have changed; True when they hold something new that can be used."""
        stamps = self._look()
        if stamps == self._stamps:
            return False
        self._stamps = stamps
        try:
            loaded = _read(self.tls)
        except HoplineError as error:
            log.warning("the former certificates go on: %s", error.message)
            return False
        changed = loaded != self.loaded
        self.loaded = loaded
        if changed:
            log.info("certificates were renewed: %s", self.tls.cert or self.tls.ca)
        return changed

    def _look(self) -> tuple[_Stamp, ...]:
        return tuple(_stamp(path) for path in (self.tls.cert, self.tls.key, self.tls.ca) if path is not None)


# --- ports -----------------------------------------------------------------------------------------


def server_credentials(tls: TlsSettings) -> grpc.ServerCredentials:
    """Return the credentials of a gRPC port; with a CA its clients must have a certificate of it."""
    _require_pair(tls)
    certificates = Certificates(tls)

    def configuration() -> Any:
        now = certificates.loaded
        return grpc.ssl_server_certificate_configuration([(now.key or b"", now.cert or b"")], now.ca)

    def renewed() -> Any:
        return configuration() if certificates.renewed() else None  # None: as before

    return grpc.dynamic_ssl_server_credentials(
        configuration(), renewed, require_client_authentication=tls.ca is not None
    )


def server_context(tls: TlsSettings) -> ssl.SSLContext:
    """Return how an HTTP port speaks TLS; with a CA its clients must have a certificate of it."""
    _require_pair(tls)
    certificates = Certificates(tls)
    now = first = _context(tls)

    def choose(connection: Any, _name: str | None, _first: ssl.SSLContext) -> None:
        nonlocal now
        if certificates.renewed():
            now = _context(tls)
        if now is not first:
            connection.context = now

    # Called with each handshake, whether a name was asked for or not.
    first.sni_callback = choose
    return first


def _context(tls: TlsSettings) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(str(tls.cert), tls.key)
        if tls.ca is not None:
            context.load_verify_locations(tls.ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:
        raise HoplineError("failed_precondition", f"the TLS files cannot be used: {error}") from None
    return context


def _require_pair(tls: TlsSettings) -> None:
    if tls.cert is None or tls.key is None:
        raise HoplineError("failed_precondition", "TLS needs both a certificate and its key")


# --- channels --------------------------------------------------------------------------------------


def channel_credentials(tls: TlsSettings) -> grpc.ChannelCredentials:
    """Return the credentials of a channel that is opened now; without a CA it trusts the system's."""
    return _credentials(Certificates(tls))


def _credentials(certificates: Certificates) -> grpc.ChannelCredentials:
    now = certificates.loaded
    return grpc.ssl_channel_credentials(now.ca, now.key, now.cert)


class RenewingChannel(grpc.aio.Channel):
    """A channel that is opened anew, with the newest certificates, by the first call after they changed."""

    def __init__(self, target: str, tls: TlsSettings, options: Any) -> None:
        self._target = target
        self._options = options
        self._certificates = Certificates(tls)
        self._channel = self._open()
        self._leaving: set[asyncio.Task[None]] = set()

    def _open(self) -> grpc.aio.Channel:
        credentials = _credentials(self._certificates)
        return grpc.aio.secure_channel(self._target, credentials, self._options)

    def _newest(self) -> grpc.aio.Channel:
        if self._certificates.renewed():
            task = asyncio.ensure_future(self._channel.close(_OLD_CHANNEL_SECONDS))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)
            self._channel = self._open()
        return self._channel

    def _method(self, shape: str, *made: Any, **with_: Any) -> Any:
        found: tuple[grpc.aio.Channel, Callable[..., Any]] | None = None

        def call(*args: Any, **more: Any) -> Any:
            nonlocal found
            channel = self._newest()
            if found is None or found[0] is not channel:
                found = (channel, getattr(channel, shape)(*made, **with_))
            return found[1](*args, **more)

        return call

    def unary_unary(self, *made: Any, **with_: Any) -> Any:
        """Return the callable of a method."""
        return self._method("unary_unary", *made, **with_)

    def unary_stream(self, *made: Any, **with_: Any) -> Any:
        """Return the callable of a method."""
        return self._method("unary_stream", *made, **with_)

    def stream_unary(self, *made: Any, **with_: Any) -> Any:
        """Return the callable of a method."""
        return self._method("stream_unary", *made, **with_)

    def stream_stream(self, *made: Any, **with_: Any) -> Any:
        """Return the callable of a method."""
        return self._method("stream_stream", *made, **with_)

    async def close(self, grace: float | None = None) -> None:
        """Close the channel, and those that it has replaced."""
        leaving = list(self._leaving)
        for task in leaving:
            task.cancel()
        await asyncio.gather(self._channel.close(grace), *leaving, return_exceptions=True)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Return the connectivity."""
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait for another connectivity."""
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Wait until connected."""
        await self._newest().channel_ready()

    async def __aenter__(self) -> RenewingChannel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


# --- files -----------------------------------------------------------------------------------------


def _stamp(path: Path) -> _Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(tls: TlsSettings) -> _Loaded:
    """Read the files; raises `failed_precondition` where they cannot be used."""
    loaded = _Loaded(
        _bytes(tls.cert, "TLS certificate"), _bytes(tls.key, "TLS key"), _bytes(tls.ca, "TLS CA")
    )
    _check(tls, loaded)
    return loaded


def _bytes(path: Path | None, what: str) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        text = f"the {what} {path} cannot be read: {error.strerror}"
        raise HoplineError("failed_precondition", text) from None


def _check(tls: TlsSettings, loaded: _Loaded) -> None:
    """Refuse what is not PEM, and a certificate that its key does not belong to."""
    many, wanted = x509.load_pem_x509_certificates, "certificates in PEM"
    if loaded.ca is not None:
        _parsed(many, loaded.ca, f"the TLS CA {tls.ca} does not hold {wanted}")
    if loaded.cert is None or loaded.key is None:
        return
    chain = _parsed(many, loaded.cert, f"the TLS certificate {tls.cert} does not hold {wanted}")
    text = f"the TLS key {tls.key} is not a key in PEM without a password"
    key = _parsed(lambda pem: load_pem_private_key(pem, None), loaded.key, text)
    if chain[0].public_key() != key.public_key():
        text = f"the TLS key {tls.key} does not belong to the certificate {tls.cert}"
        raise HoplineError("failed_precondition", text)


def _parsed(parse: Callable[[bytes], Parsed], pem: bytes, wrong: str) -> Parsed:
    try:
        return parse(pem)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise HoplineError("failed_precondition", wrong) from None
