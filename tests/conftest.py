"""What holds for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A property is judged by what it finds, never by how busy the machine is.
settings.register_profile("hopline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hopline")
