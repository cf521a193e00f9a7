"""Metadata hook: the package depends on every part of Hopline at its own version, so that they never mix."""

from __future__ import annotations

from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PARTS = ("cli", "client", "console", "gateway", "quota", "registry", "relay")


class PartsHook(MetadataHookInterface):
    """Writes the dependencies."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Pin each part to the version of the package itself."""
        metadata["dependencies"] = [f"hopline-{part}=={metadata['version']}" for part in PARTS]
