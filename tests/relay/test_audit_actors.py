"""The audit log by who did something."""

from __future__ import annotations

import pytest
from hopline.registry.v1 import identity_pb2
from hopline.relay.v1 import audit_pb2
from hopline_relay.store import audit as audit_store

from tests.support.relay_mesh import Caller, RelayMesh, refusal


async def _told(caller: Caller, actor: str, **more: object) -> list[tuple[str, str]]:
    """Return what the log tells of an actor, over all pages."""
    request = audit_pb2.ListEventsRequest(actor=actor, page_size=2, **more)  # type: ignore[arg-type]
    found = []
    while True:
        page = await caller.audit.ListEvents(request)
        found += [(each.actor_name, each.action) for each in page.events]
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


async def test_the_log_of_one_agent_is_what_it_did_itself(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    for _ in range(3):
        await ada.send(bob)
        await bob.send(ada)
    for ref in ("ada", ada.id):
        assert await _told(mesh.admin, ref) == [("ada", "message.sent")] * 3
        assert await _told(mesh.admin, ref, descending=True) == [("ada", "message.sent")] * 3


async def test_the_log_of_a_person_is_found_by_name_and_by_id(mesh: RelayMesh) -> None:
    await mesh.person("vera")
    await mesh.grant("vera", identity_pb2.ROLE_OPERATOR)
    (user,) = [
        each
        for each in (await mesh.admin.people.ListUsers(identity_pb2.ListUsersRequest())).users
        if each.name == "admin"
    ]
    told = await _told(mesh.admin, "admin")
    assert ("admin", "role.granted") in told
    assert {name for name, _ in told} == {"admin"}
    assert await _told(mesh.admin, user.id) == told


async def test_an_actor_that_the_reader_may_not_see_answers_like_one_that_never_existed(
    mesh: RelayMesh,
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.send(bob)
    zoe = await mesh.person("zoe")
    await mesh.grant("zoe", identity_pb2.ROLE_VIEWER, "bob")
    hidden = await refusal(_told(zoe, "ada"))
    missing = await refusal(_told(zoe, "nobody"))
    assert (hidden.reason, hidden.message.replace("ada", "nobody")) == (missing.reason, missing.message)
    assert await _told(zoe, "bob") == []


async def test_few_events_of_an_actor_in_a_long_log_are_found_over_several_pages(
    mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_store, "LOOKED_AT", 3)
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.send(bob)
    for _ in range(8):
        await bob.send(ada)
    await ada.send(bob)
    assert await _told(mesh.admin, "ada") == [("ada", "message.sent")] * 2
    assert await _told(mesh.admin, "ada", descending=True) == [("ada", "message.sent")] * 2
