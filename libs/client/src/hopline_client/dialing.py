"""Channels of the client: plain gRPC, without the machinery of a service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import grpc
import grpc.aio
from hopline_rpc.tls import TlsSettings, balancing, is_local, require_safe

Dial = Callable[[str], grpc.aio.Channel]
"""Opens a channel to a target."""

# The server allows a ping every 10 s; these are not more eager.
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 8 * 1024 * 1024),
    ("grpc.max_send_message_length", 8 * 1024 * 1024),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)


def dialer(tls: TlsSettings | None = None, *, insecure: bool = False) -> Dial:
    """Return what opens channels; plain text goes to this machine only, unless `insecure` says otherwise."""

    def dial(target: str) -> grpc.aio.Channel:
        require_safe(target, tls, insecure=insecure, what="the address")
        # A proxy from the environment cannot reach our loopback.
        options = (*_OPTIONS, *balancing(target))
        if is_local(target):
            options = (*options, ("grpc.enable_http_proxy", 0))
        if tls:
            from hopline_rpc.certificates import (
                RenewingChannel,  # most channels are loopback ones without TLS
            )

            return RenewingChannel(target, tls, options)
        return grpc.aio.insecure_channel(target, options)

    return dial


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata that carries a credential."""
    return (("authorization", f"Bearer {token}"),)
