"""Thousands of inputs leave nothing behind in the mesh's process: neither memory nor descriptors."""

from __future__ import annotations

import random
from typing import Any

import grpc
import pytest

from tests.fuzz.budget import TIMES
from tests.fuzz.ground import Ground
from tests.fuzz.test_fuzz_http import BODY, whole
from tests.fuzz.test_fuzz_tunnel import played
from tests.fuzz.wire import Door, answers, said
from tests.support.mesh_process import until

MEGABYTE = 1024 * 1024
# What a leak of a kilobyte an input would exceed by far; allocators and caches stay below.
ROOM = 12 * MEGABYTE
INPUTS = 1000 * max(TIMES, 1)
DESCRIPTORS = 10


def bodies(source: random.Random) -> bytes:
    """Make a body that is refused in one way or another; each is another one."""
    mark = b"%d" % source.randrange(10**12)
    return source.choice(
        [
            BODY.replace(b"whoami", b"w" + mark),
            BODY.replace(b'"arguments":{}', b'"arguments":{"x%s":1}' % mark),
            b'{"jsonrpc":"2.0","id":%s,"method":"m%s"}' % (mark, mark),
            b'{"jsonrpc":"2.0","method":"notifications/%s"}' % mark,
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask","arguments":'
            b'{"agent":"a%s","text":"t","wait_seconds":0}}}' % mark,
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_thread","arguments":'
            b'{"thread_id":"thr_%s"}}}' % mark,
            b'{"a":"%s"' % (mark * source.randrange(200)),
            b"[" * source.randrange(1, 3000),
        ]
    )


class Load:
    """Everything that comes in by thousands."""

    def __init__(self, mesh: Ground, channel: grpc.Channel) -> None:
        self._mesh = mesh
        self._source = random.Random(7)
        self._channel = channel
        self._door = Door(mesh.gateway)

    def play(self, count: int) -> None:
        """Send so many inputs, over kept and over new connections, whole and broken off."""
        bad: Any = self._channel.unary_unary("/hopline.relay.v1.MessageService/Send", None, None)
        credential = (("authorization", f"Bearer {self._mesh.agent.token}"),)
        for number in range(count):
            body = bodies(self._source)
            self._door.post(body, self._mesh.headers())
            if number % 10 == 0:
                answers(self._mesh.gateway, whole(self._mesh, body), 1)
                said(self._mesh.gateway, whole(self._mesh, body)[:-1])
                with pytest.raises(grpc.RpcError):
                    bad(body, metadata=credential, timeout=30)
            if number % 50 == 0:
                played(self._mesh, self._channel, [body])

    def close(self) -> None:
        """Hang up."""
        self._door.close()


async def test_memory_and_descriptors_stay_where_they_were(mesh: Ground) -> None:
    with grpc.insecure_channel(mesh.mesh.endpoints["relay"]) as channel:
        load = Load(mesh, channel)
        load.play(INPUTS)
        before = mesh.process.memory_info().rss
        files = mesh.process.num_fds()
        load.play(INPUTS)
        load.close()
    grown = mesh.process.memory_info().rss - before
    print(f"{grown / MEGABYTE:+.1f} MB after {INPUTS} more inputs")
    assert grown < ROOM, f"{grown / MEGABYTE:.1f} MB after {INPUTS} more inputs"
    await until(lambda: mesh.process.num_fds() <= files + DESCRIPTORS, "the end of the connections", 60)
    mesh.serves()
