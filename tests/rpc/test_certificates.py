"""Certificates that are renewed while the mesh runs: on ports, in channels, and what is wrong with files."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hopline_rpc.certificates import Certificates
from hopline_rpc.channels import bearer, dial
from hopline_rpc.errors import HoplineError
from hopline_rpc.status_port import StatusPort
from hopline_rpc.tls import TlsSettings

from tests.rpc.conftest import World
from tests.support.certificates import Authority

GONE = {"unavailable", "deadline_exceeded"}


async def _refused(calling: Awaitable[Any]) -> None:
    with pytest.raises(HoplineError) as caught:
        await calling
    assert caught.value.reason in GONE


async def test_a_port_shows_its_renewed_certificate_and_trusts_its_renewed_authority(
    world: World, tmp_path: Path
) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    cert, key = old.issue("server")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(old.ca.read_bytes())
    address = await world.server(tls=TlsSettings(cert, key, trusted)).start("127.0.0.1:0")
    before, after = old.issue("before"), new.issue("after")
    assert await world.call(address, tls=TlsSettings(*before, old.ca)) == "hi"
    await _refused(world.call(address, tls=TlsSettings(*after, old.ca)))

    for fresh, used in zip(new.issue("renewed"), (cert, key), strict=True):
        fresh.rename(used)
    trusted.write_bytes(new.ca.read_bytes())
    assert await world.call(address, tls=TlsSettings(*after, new.ca)) == "hi"
    await _refused(world.call(address, tls=TlsSettings(*before, new.ca)))
    await _refused(world.call(address, tls=TlsSettings(*after, old.ca)))


async def test_a_channel_goes_on_with_renewed_certificates_and_keeps_what_runs(
    world: World, tmp_path: Path
) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    cert, key = old.issue("server")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(old.ca.read_bytes() + new.ca.read_bytes())
    address = await world.server(tls=TlsSettings(cert, key, trusted)).start("127.0.0.1:0")
    own = old.issue("client")
    channel = dial(address, tls=TlsSettings(*own, trusted), credentials=bearer(world.registry.assertion()))
    stub, note = world.contract.grpc.EchoServiceStub(channel), world.contract.note
    assert (await stub.Echo(note("hi"))).text == "hi"
    running = stub.Chat()
    await running.write(note("one"))
    assert (await running.read()).text == "one"
    for fresh, used in zip(new.issue("renewed"), own, strict=True):
        fresh.rename(used)
    trusted.write_bytes(new.ca.read_bytes())  # the port now takes only those whom the new one has signed
    new_cert, new_key = new.issue("server-renewed")
    new_cert.rename(cert)
    new_key.rename(key)
    assert (await stub.Echo(note("again"))).text == "again"
    await running.write(note("two"))
    assert (await running.read()).text == "two"
    running.cancel()
    await channel.close()


@pytest.mark.parametrize("wrong", ["nonsense", "another's key", "gone"])
async def test_files_that_do_not_fit_leave_the_former_ones_in_use(
    world: World, tmp_path: Path, wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path, "ours")
    cert, key = authority.issue("server")
    address = await world.server(tls=TlsSettings(cert, key)).start("127.0.0.1:0")
    if wrong == "nonsense":
        cert.write_text("nonsense")
    elif wrong == "gone":
        cert.unlink()
    else:
        authority.issue("another")[1].rename(key)
    with caplog.at_level(logging.WARNING, "hopline.tls"):
        assert await world.call(address, tls=TlsSettings(ca=authority.ca)) == "hi"
        assert await world.call(address, tls=TlsSettings(ca=authority.ca)) == "hi"
    said = [record.getMessage() for record in caplog.records if record.name == "hopline.tls"]
    assert len(said) == 1
    assert "the former certificates go on" in said[0]
    renewed = authority.issue("renewed")
    renewed[0].rename(cert)
    renewed[1].rename(key)
    assert await world.call(address, tls=TlsSettings(ca=authority.ca)) == "hi"


async def test_an_http_port_takes_over_renewed_certificates(tmp_path: Path) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    cert, key = old.issue("server")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(old.ca.read_bytes())
    port = StatusPort({}, TlsSettings(cert, key, trusted), insecure=False)
    url = await port.start("127.0.0.1:0")
    number = int(url.rpartition(":")[2])
    before, after = old.issue("before"), new.issue("after")

    async def asked(own: tuple[Path, Path] | None, ca: Path) -> bytes:
        context = ssl.create_default_context(cafile=ca)
        if own is not None:
            context.load_cert_chain(*own)
        reader, writer = await asyncio.open_connection("127.0.0.1", number, ssl=context)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        try:
            return await reader.read()
        finally:
            writer.close()

    assert b"404" in await asked(before, old.ca)
    for fresh, used in zip(new.issue("renewed"), (cert, key), strict=True):
        fresh.rename(used)
    trusted.write_bytes(new.ca.read_bytes())
    assert b"404" in await asked(after, new.ca)
    for own, ca in ((before, new.ca), (None, new.ca), (after, old.ca)):
        # A client of TLS 1.3 hears only with the first bytes that it is not let in, or just gets none.
        with contextlib.suppress(OSError):
            assert await asked(own, ca) == b""
    await port.stop()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda cert, key, ca: ca.write_text("no"), "the TLS CA .* does not hold certificates in PEM"),
        (lambda cert, key, ca: cert.write_text("no"), "the TLS certificate .* does not hold certificates"),
        (lambda cert, key, ca: key.write_text("no"), "the TLS key .* is not a key in PEM without a password"),
        (lambda cert, key, ca: key.write_bytes(b""), "the TLS key .* is not a key in PEM"),
        (lambda cert, key, ca: key.unlink(), "the TLS key .* cannot be read: No such file"),
    ],
)
def test_what_cannot_be_used_from_the_start_is_named(
    tmp_path: Path, spoil: Callable[..., Any], said: str
) -> None:
    authority = Authority(tmp_path, "ours")
    cert, key = authority.issue("server")
    spoil(cert, key, authority.ca)
    with pytest.raises(HoplineError, match=said) as caught:
        Certificates(TlsSettings(cert, key, authority.ca))
    assert caught.value.reason == "failed_precondition"


def test_a_key_of_another_certificate_is_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    cert, _ = authority.issue("server")
    _, key = authority.issue("another")
    with pytest.raises(HoplineError, match=r"another\.key does not belong to the certificate .*server\.pem"):
        Certificates(TlsSettings(cert, key))
