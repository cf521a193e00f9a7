"""What the console's tests share."""

from __future__ import annotations

from tests.support.browser import browser
from tests.support.mesh_fixtures import mesh, space, started

__all__ = ["browser", "mesh", "space", "started"]
