"""What a refusal says: the rail, its limit, what is used, when it resets; of a recipient only its name."""

from __future__ import annotations

from typing import Any

import pytest
from google.rpc import error_details_pb2, status_pb2
from hopline_rpc.errors import STATUS_KEY, HoplineError, to_status

from tests.support.relay_mesh import Caller, RelayMesh, refusal

MIDNIGHT = "2025-06-16T00:00:00Z"


def on_the_wire(error: HoplineError) -> dict[str, Any]:
    """Return what gRPC carries of a refusal, by the names of its parts."""
    (found,) = [value for key, value in to_status(error).trailing_metadata if key == STATUS_KEY]
    parts: dict[str, Any] = {}
    for packed in status_pb2.Status.FromString(found).details:
        for kind in (error_details_pb2.QuotaFailure, error_details_pb2.RetryInfo):
            message = kind()
            if packed.Unpack(message):
                parts[kind.__name__] = message
    return parts


async def pair(mesh: RelayMesh, **policy: Any) -> tuple[Caller, Caller]:
    await mesh.policy(**policy)
    return await mesh.agent("ada"), await mesh.agent("bob")


async def test_a_senders_own_day_says_its_figures_and_when_it_resets(mesh: RelayMesh) -> None:
    ada, bob = await pair(mesh, sent_per_day=1)
    await ada.send(bob)
    error = await refusal(ada.send(bob))
    assert error.reason == "quota_exceeded"
    assert error.retryable
    assert error.details == {"rail": "sent_per_day", "limit": 1, "used": 1, "resets_at": MIDNIGHT}
    wire = on_the_wire(error)
    assert wire["QuotaFailure"].violations[0].subject == "sent_per_day"
    assert wire["RetryInfo"].retry_delay.seconds == int(error.retry_after or 0)


async def test_a_limit_of_nothing_is_said_as_well(mesh: RelayMesh) -> None:
    ada, bob = await pair(mesh, sent_per_day=0)
    error = await refusal(ada.send(bob))
    assert (error.details["limit"], error.details["used"]) == (0, 0)


@pytest.mark.parametrize(
    ("policy", "reason", "details"),
    [
        (
            {"received_per_day": 1},
            "quota_exceeded",
            {"rail": "received_per_day", "agent": "bob", "resets_at": MIDNIGHT},
        ),
        ({"inbox_backlog": 1}, "inbox_full", {"rail": "inbox_backlog", "agent": "bob"}),
    ],
)
async def test_of_a_recipient_nothing_is_said_but_its_name(
    mesh: RelayMesh, policy: dict[str, int], reason: str, details: dict[str, str]
) -> None:
    ada, bob = await pair(mesh, **policy)
    await ada.send(bob)
    error = await refusal(ada.send(bob))
    assert (error.reason, error.retryable) == (reason, True)
    assert error.details == details
    assert not any(character.isdigit() for character in error.message.replace("00:00", ""))
    assert on_the_wire(error)["QuotaFailure"].violations[0].subject == details["rail"]


async def test_depth_and_a_full_thread_say_their_limits(mesh: RelayMesh) -> None:
    ada, bob = await pair(mesh, max_depth=1, messages_per_thread=1)
    sent = await ada.send(bob)
    error = await refusal(ada.send(bob, thread_id=sent.thread_id))
    assert error.details == {
        "rail": "messages_per_thread",
        "limit": 1,
        "used": 1,
        "thread_id": sent.thread_id,
    }
    assert on_the_wire(error)["QuotaFailure"].violations[0].subject == "messages_per_thread"
    await bob.take()
    error = await refusal(bob.send(ada))
    assert error.details == {"rail": "max_depth", "limit": 1, "used": 2}


async def test_too_many_agents_say_how_many_there_may_be(mesh: RelayMesh) -> None:
    await pair(mesh, agents=2)
    error = await refusal(mesh.agent("cid"))
    assert error.reason == "limit_reached"
    assert error.details == {"rail": "agents", "limit": 2, "used": 2}
