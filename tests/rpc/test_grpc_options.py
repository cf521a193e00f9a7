"""Options of channels and servers: gRPC says nothing of one that it does not know."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from grpc._cython import cygrpc  # type: ignore[attr-defined] # it has no types
from hopline_rpc import channels, serving

from tests.support.mesh_process import ROOT

_NAME = re.compile(r'\(\s*"(grpc\.[a-z0-9_.]+)",')


def test_every_option_that_is_set_is_one_that_grpc_knows() -> None:
    known = Path(cygrpc.__file__).read_bytes()
    found = {
        (file.relative_to(ROOT), name)
        for folder in ("libs", "services")
        for file in (ROOT / folder).glob("*/src/**/*.py")
        for name in _NAME.findall(file.read_text())
    }
    assert len({name for _, name in found}) > 10
    assert [each for each in sorted(found) if each[1].encode() not in known] == []


def test_clients_ping_no_more_often_than_servers_bear() -> None:
    client: dict[str, Any] = dict(channels.CHANNEL_OPTIONS)
    server: dict[str, Any] = dict(serving.SERVER_OPTIONS)
    assert client["grpc.keepalive_time_ms"] > server["grpc.http2.min_ping_interval_without_data_ms"]
    for side in (client, server):
        # Connections on which nothing happens just now are kept alive as well.
        assert side["grpc.keepalive_permit_without_calls"] == 1
        assert side["grpc.http2.max_pings_without_data"] == 0
