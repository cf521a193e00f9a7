"""TLS by three settings, and what may do without: loopback addresses and unix sockets."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hopline_rpc.errors import HoplineError

_LOCAL_SCHEMES: Final = ("unix:", "unix-abstract:")
# The schemes that take several addresses: `ipv4:10.0.0.1:7420,10.0.0.2:7420`.
_LIST_SCHEMES: Final = ("ipv4:", "ipv6:")


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Certificate and key of this side, and the CA that the other side must come from.

    A server with a CA asks its clients for certificates (mutual TLS). A client without a certificate
    uses plain TLS; without a CA it trusts the system's.
    """

    cert: Path | None = None
    key: Path | None = None
    ca: Path | None = None

    def __bool__(self) -> bool:
        return self.cert is not None or self.ca is not None


def balancing(target: str) -> tuple[tuple[str, str], ...]:
    """Return the options of a channel to a target: calls go in turn to each of the addresses that it names.

    Only where it may name several: with one, a call that comes while it is being dialled anew waits for that.
    """
    several = target.startswith(("dns:", "ipv4:", "ipv6:"))
    return (("grpc.lb_policy_name", "round_robin"),) if several else ()


def is_local(address: str) -> bool:
    """Tell whether an address can only be reached from this machine."""
    if address.startswith(_LOCAL_SCHEMES):
        return True
    for scheme in _LIST_SCHEMES:
        if address.startswith(scheme):
            # One address elsewhere is enough for a credential to leave this machine.
            return all(is_loopback(host_of(each)) for each in address.removeprefix(scheme).split(","))
    return is_loopback(host_of(address))


def is_loopback(host: str) -> bool:
    """Tell whether a host, without brackets or port, is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(address: str) -> str:
    """Return the host of `host:port`, `[v6]:port` or `scheme:///host:port`."""
    rest = address.rpartition("/")[2]
    if rest.startswith("["):
        return rest[1:].partition("]")[0]
    return rest.rpartition(":")[0] if ":" in rest else rest


def require_safe(address: str, tls: TlsSettings | None, *, insecure: bool, what: str) -> None:
    """Refuse to send credentials in the clear over a network, unless that was asked for by name."""
    if tls or insecure or is_local(address):
        return
    raise HoplineError(
        "failed_precondition",
        f"{what} {address} is reachable from other machines and has no TLS: "
        "give a certificate and key, use a loopback address or a unix socket, or say --insecure",
    )
