"""How much is tried: a fixed little in the tests, much more and at random by `make fuzz`."""

from __future__ import annotations

import os
from typing import Final

from hypothesis import HealthCheck, settings

# Set by `make fuzz`: how many times the usual number of inputs; 0 in the tests, always the same ones.
TIMES: Final = int(os.environ.get("FUZZ_TIMES", "0"))


def inputs(count: int) -> settings:
    """Return the settings of a property that is tried on so many inputs."""
    return settings(
        max_examples=count * max(TIMES, 1),
        derandomize=TIMES == 0,
        database=None,
        deadline=None,
        print_blob=True,
        # All tests of a session share one mesh, which no input may harm: nothing is to be reset in between.
        suppress_health_check=list(HealthCheck),
    )
