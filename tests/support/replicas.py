"""Two of each service on one PostgreSQL, each a process of its own; only quota, with its counters, is one."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.support.served_mesh import ServedMesh

REPLICATED = ("registry", "relay", "gateway")


class SecondMesh(ServedMesh):
    """A second registry, relay and gateway beside those of a mesh, on its database, in a folder of their own.

    Its relay follows its registry, and its gateway calls its relay: whatever goes from one half of the mesh
    to the other goes through the record.
    """

    def __init__(self, first: ServedMesh, name: str = "second", env: Mapping[str, str] | None = None) -> None:
        super().__init__(first.processes, name, first.env if env is None else env)
        self._first = first

    def start(self) -> None:
        """Start the three."""
        self.data.mkdir(mode=0o700)
        token = self.data / "admin.token"
        token.touch(mode=0o600)
        token.write_text(self._first.admin_token)
        self._addresses["quota"] = self._first.endpoints["quota"]
        for name in REPLICATED:
            self.serve(name)
        told = {**self.endpoints, "quota": self._first.endpoints["quota"]}
        self.endpoints_file.write_text(json.dumps(told))
        self.wait_until_ready()
