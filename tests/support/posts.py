"""Stands in for the network that the relay posts to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hopline.registry.v1 import identity_pb2

from tests.support.relay_mesh import Caller, RelayMesh

SECRET = "a secret of sixteen"
URL = "http://127.0.0.1:9/hook?key=hidden"


class Taken:
    """Takes posts, or refuses them with `problem`."""

    def __init__(self, mesh: RelayMesh) -> None:
        self.posts: list[tuple[str, bytes, Mapping[str, str]]] = []
        self.problem = ""
        self.attach(mesh)

    def attach(self, mesh: RelayMesh) -> None:
        """Take the place of the network of the relay that runs now."""
        mesh.relay.outbox._post = self

    async def __call__(self, url: str, body: bytes, headers: Mapping[str, str]) -> str:
        """Take a post."""
        self.posts.append((url, body, headers))
        return self.problem

    async def close(self) -> None:
        """Nothing is open."""

    @property
    def told(self) -> list[Any]:
        """What was said, in order."""
        return [json.loads(body) for _, body, _ in self.posts]

    def of(self, event: str) -> list[Any]:
        """Return what was said of one kind of event."""
        return [each for each in self.told if each["event"] == event]


async def set_webhook(mesh: RelayMesh, user: str = "admin", url: str = URL, by: Caller | None = None) -> Any:
    """Say where a person is told."""
    request = identity_pb2.SetUserWebhookRequest(user=user, url=url, secret=SECRET if url else "")
    return await (by or mesh.admin).people.SetUserWebhook(request)


async def waiting(mesh: RelayMesh, kind: str = "escalation") -> list[int]:
    """Return how often each post of a kind that is still to be taken was tried."""
    query = "SELECT attempts FROM posts WHERE kind = ? AND due_at IS NOT NULL"
    rows = await mesh.relay.journal.read(lambda connection: connection.exec_driver_sql(query, (kind,)).all())
    return [row[0] for row in rows]
