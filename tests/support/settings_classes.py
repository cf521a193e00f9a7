"""The classes that read settings: nothing else of a mesh looks at `HOPLINE_*`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from hopline_cli.running.serve import ServeSettings
from hopline_cli.running.up import UpSettings
from hopline_console.settings import ConsoleSettings
from hopline_gateway.settings import GatewaySettings
from hopline_quota.settings import QuotaSettings
from hopline_registry.settings import RegistrySettings
from hopline_relay.settings import RelaySettings
from hopline_rpc.settings import ServiceSettings, StoreSettings
from hopline_web.settings import WebSettings

SHARED: Final[Sequence[type[ServiceSettings]]] = (
    ServiceSettings,
    StoreSettings,
    WebSettings,
    ServeSettings,
    UpSettings,
)
OWN: Final[Mapping[str, type[ServiceSettings]]] = {
    "registry": RegistrySettings,
    "relay": RelaySettings,
    "quota": QuotaSettings,
    "mcp-gateway": GatewaySettings,
    "console": ConsoleSettings,
}
