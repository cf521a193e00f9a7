"""What the quota service is told from outside."""

from __future__ import annotations

from hopline_rpc.settings import ServiceSettings


class Settings(ServiceSettings):
    """The settings of every service; this one needs no others. Limits come with each call."""
