"""Certificates that tests make for themselves."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """A CA of the test's own; what it signs is for 127.0.0.1 and localhost, and for a day."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.ca = folder / f"{name}-ca.pem"
        _put(self.ca, self._sign(self.name, self.key.public_key(), ca=True))

    def issue(self, name: str) -> tuple[Path, Path]:
        """Write a certificate and its key, in place of those of the same name; returns both files."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        cert, private = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        form = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        _put(private, key.private_bytes(serialization.Encoding.PEM, *form))
        _put(cert, self._sign(subject, key.public_key(), ca=False))
        return cert, private

    def _sign(self, subject: x509.Name, public: Any, *, ca: bool) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        alternative = x509.SubjectAlternativeName(
            [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
        )
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(alternative, critical=False)
        )
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _put(path: Path, content: bytes) -> None:
    """Replace a file as those do who renew certificates: never half of it."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.rename(path)
