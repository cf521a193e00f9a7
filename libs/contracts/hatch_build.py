"""Build hook: generates the contracts when the package is built or installed editable."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))  # a hook is loaded by its path, not as a package


class ContractsBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs protoc over `proto/` into `generated/`."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Generate before hatchling collects the files of the wheel."""
        from protogen import generate

        generate()
