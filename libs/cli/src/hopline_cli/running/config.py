"""The file of `hopline up --config`: settings of the services, and where they listen.

settings: {log_level: warning, public_url: https://mesh.example.org}
listen: {gateway: "127.0.0.1:8400"}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hopline_rpc.errors import HoplineError
from hopline_rpc.service import ORDER

_KEYS: Final = ("settings", "listen")


@dataclass(frozen=True)
class UpConfig:
    """What the file says. Settings are named as in the environment, without `HOPLINE_`, in lower case."""

    settings: Mapping[str, str] = field(default_factory=dict)
    listen: Mapping[str, str] = field(default_factory=dict)


def read_config(path: Path | None) -> UpConfig:
    """Read the file; what is wrong with it is said with its name and line."""
    if path is None:
        return UpConfig()
    import yaml  # a mesh without such a file starts without it

    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise HoplineError("invalid_argument", f"--config {path} cannot be read: {error}") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise HoplineError("invalid_argument", f"{path}:{line}: {error.problem}") from None
    if root is None:
        return UpConfig()
    sections = dict(_pairs(root, path))
    for key, value in sections.items():
        if key not in _KEYS:
            raise _wrong(path, value, f"{key!r} is not known here; there are: {', '.join(_KEYS)}")
    return UpConfig(_texts(sections.get("settings"), path), _addresses(sections.get("listen"), path))


def _pairs(node: Any, path: Path) -> list[tuple[str, Any]]:
    if node.id != "mapping":
        raise _wrong(path, node, "a mapping (key: value) belongs here")
    return [(str(key.value), value) for key, value in node.value]


def _texts(node: Any, path: Path) -> dict[str, str]:
    if node is None:
        return {}
    found = {}
    for key, value in _pairs(node, path):
        if value.id != "scalar":
            raise _wrong(path, value, f"{key} needs one plain value")
        found[key] = value.value
    return found


def _addresses(node: Any, path: Path) -> dict[str, str]:
    found = _texts(node, path)
    for name in found:
        if name not in ORDER:
            raise _wrong(path, node, f"there is no service {name!r}; there are: {', '.join(ORDER)}")
    return found


def _wrong(path: Path, node: Any, text: str) -> HoplineError:
    return HoplineError("invalid_argument", f"{path}:{node.start_mark.line + 1}: {text}")
