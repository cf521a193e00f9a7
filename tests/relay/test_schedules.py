"""Schedules: what is set, when it fires and as what, and what is missed or refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hopline.registry.v1 import identity_pb2
from hopline.relay.v1 import schedule_pb2 as pb
from hopline.relay.v1 import session_pb2
from hopline_directory.records import AgentRecord
from hopline_relay import firings
from hopline_relay.domain.sources import MAX_SCHEDULES
from hopline_relay.firings import Firings
from hopline_rpc.clock import from_timestamp

from tests.support.relay_mesh import Caller, RelayMesh, refusal

pytestmark = pytest.mark.both_stores

# 2025-06-15 15:06:40 UTC, when every test begins.
START = 1_750_000_000.0
REQUEST = "6f9619ff-8b86-d011-b42d-00c04fc964ff"


async def _add(caller: Caller, agent: Caller | str, cron: str = "*/5 * * * *", **more: Any) -> pb.Schedule:
    name = agent if isinstance(agent, str) else agent.id
    request = pb.AddScheduleRequest(agent=name, cron=cron, **{"text": "look around", **more})
    made: pb.Schedule = (await caller.schedules.AddSchedule(request)).schedule
    return made


async def _get(caller: Caller, schedule: pb.Schedule) -> pb.Schedule:
    found = await caller.schedules.GetSchedule(pb.GetScheduleRequest(schedule_id=schedule.id))
    return found.schedule  # type: ignore[no-any-return]


async def _when(mesh: RelayMesh, schedule: pb.Schedule, field: str, value: Any) -> pb.Schedule:
    """Return the schedule as soon as a field of it has this value; no time passes."""
    for _ in range(5000):
        found = await _get(mesh.admin, schedule)
        if getattr(found, field) == value:
            return found
        await asyncio.sleep(0.001)
    raise AssertionError(f"{field} is {getattr(found, field)} and not {value}")


async def _fires(mesh: RelayMesh, schedule: pb.Schedule, seconds: float, times: int) -> pb.Schedule:
    """Let time pass until it has fired so often."""
    await mesh.clock.advance(seconds)
    return await _when(mesh, schedule, "fired", times)


async def test_a_schedule_becomes_a_turn_of_depth_0_in_a_session_of_its_own(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    worker = await mesh.worker(ada)
    made = await _add(mesh.admin, ada, name="round")
    assert from_timestamp(made.next_at) == START + 200
    fired = await _fires(mesh, made, 201, 1)
    turn = await worker.next()
    assert (turn.turn_id, turn.depth, turn.channel) == (fired.turn_id, 0, "schedule")
    assert (turn.sender_kind, turn.sender_display) == ("schedule", "schedule round")
    assert turn.messages[0].body == "look around"
    session = (
        await mesh.admin.sessions.GetSession(session_pb2.GetSessionRequest(session_id=fired.session_id))
    ).session
    opener = session.opened_by
    assert (opener.kind, opener.id, opener.name) == ("schedule", made.id, "round")
    assert session.title == "Schedule round"
    assert from_timestamp(fired.next_at) == START + 500


async def test_the_text_is_shown_to_the_model_as_a_persons_word(mesh: RelayMesh) -> None:
    from hopline_relay.dispatch import _inbound
    from hopline_relay.domain.prompt import prompt

    ada = await mesh.agent("ada")
    worker = await mesh.worker(ada)
    await _fires(mesh, await _add(mesh.admin, ada), 201, 1)
    turn = await worker.next()
    assert prompt([_inbound(each) for each in turn.messages], START) == "look around"


async def test_every_firing_has_a_root_of_its_own_and_all_share_one_session(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    worker = await mesh.worker(ada)
    made = await _add(mesh.admin, ada)
    await _fires(mesh, made, 201, 1)
    first = await worker.next()
    for _ in range(15):
        await mesh.clock.advance(20)
        assert await worker.renew(first.held) == []
    await _when(mesh, made, "fired", 2)
    assert await worker.claim() == [], "one turn at a time runs in a session"
    await worker.end(first, answer="all quiet")
    second = await worker.next()
    assert first.session_id == second.session_id
    assert first.root_id != second.root_id
    await worker.end(second, answer="still quiet")
    request = session_pb2.ReadSessionRequest(session_id=first.session_id)
    entries = (await mesh.admin.sessions.ReadSession(request)).entries
    assert [(each.kind, each.text) for each in entries] == [
        ("prompt", "look around"),
        ("prompt", "look around"),
        ("answer", "all quiet"),
        ("answer", "still quiet"),
    ]
    assert getattr(entries[0], "from").display == "schedule look around"


async def test_what_was_missed_while_the_mesh_was_down_fires_once_and_is_counted(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    made = await _add(mesh.admin, ada)
    await mesh.close()
    mesh.clock.skip(3600)
    await mesh.open()
    fired = await _when(mesh, made, "fired", 1)
    assert fired.skipped == 11
    assert from_timestamp(fired.next_at) == START + 3800
    (event,) = await mesh.events("schedule.fired")
    assert event.details["missed"] == 11
    assert event.actor_kind == "schedule"
    worker = await mesh.worker(ada)
    assert len(await worker.claim()) == 1


async def test_two_that_look_at_once_fire_it_once(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    made = await _add(mesh.admin, ada)
    relay = mesh.relay
    await relay.firings.close()
    others = [Firings(relay.journal, relay.directory, relay._sends, mesh.clock) for _ in range(4)]
    await mesh.clock.advance(201)
    assert all(await asyncio.gather(*(each.fire() for each in others)))
    assert (await _get(mesh.admin, made)).fired == 1
    assert len(await mesh.events("schedule.fired")) == 1
    assert len(await mesh.events("message.sent")) == 1


async def test_a_firing_that_loses_the_race_keeps_no_other_message_back(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await _add(mesh.admin, ada)
    relay = mesh.relay
    await relay.firings.close()
    others = [Firings(relay.journal, relay.directory, relay._sends, mesh.clock) for _ in range(2)]
    await mesh.clock.advance(201)
    sending = asyncio.ensure_future(ada.send(bob))
    assert all(await asyncio.gather(*(each.fire() for each in others)))
    assert (await sending).message_id
    assert len(await mesh.events("schedule.fired")) == 1
    assert (await mesh.usage(ada)).received_today == 1


@pytest.mark.parametrize("broken", ["not known here", "raises"])
async def test_what_cannot_fire_just_now_keeps_no_other_schedule_back(
    mesh: RelayMesh, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firings, "_MOST", 2)
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    stuck = [await _add(mesh.admin, ada, "*/2 * * * *") for _ in range(3)]
    made = await _add(mesh.admin, bob)
    relay = mesh.relay
    await relay.firings.close()
    looking = Firings(relay.journal, relay.directory, relay._sends, mesh.clock)
    known = relay.directory.agent

    def without_ada(workspace_id: str, agent_id: str) -> AgentRecord | None:
        if agent_id != ada.id:
            return known(workspace_id, agent_id)
        if broken == "raises":
            raise RuntimeError("a row that nobody thought of")
        return None

    with monkeypatch.context() as patched:
        patched.setattr(relay.directory, "agent", without_ada)
        await mesh.clock.advance(201)
        assert not await looking.fire(), "to be tried again"
    assert (await _get(mesh.admin, made)).fired == 1
    assert [(await _get(mesh.admin, each)).fired for each in stuck] == [0, 0, 0]
    assert await looking.fire()
    assert [(await _get(mesh.admin, each)).fired for each in stuck] == [1, 1, 1]


async def test_a_paused_schedule_fires_no_more_and_a_resumed_one_from_now_on(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    made = await _add(mesh.admin, ada)
    paused = (await mesh.admin.schedules.PauseSchedule(pb.PauseScheduleRequest(schedule_id=made.id))).schedule
    assert paused.state == pb.SCHEDULE_STATE_PAUSED
    assert not paused.HasField("next_at")
    await mesh.clock.advance(601)
    resumed = (
        await mesh.admin.schedules.ResumeSchedule(pb.ResumeScheduleRequest(schedule_id=made.id))
    ).schedule
    assert (resumed.fired, resumed.skipped) == (0, 0)
    assert from_timestamp(resumed.next_at) == START + 800
    await _fires(mesh, made, 200, 1)


async def test_a_removed_schedule_is_gone_and_what_had_not_begun_is_withdrawn(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    made = await _add(mesh.admin, ada)
    fired = await _fires(mesh, made, 201, 1)
    await mesh.admin.schedules.RemoveSchedule(pb.RemoveScheduleRequest(schedule_id=made.id))
    worker = await mesh.worker(ada)
    assert await worker.claim() == []
    view = await mesh.admin.check(fired.turn_id)
    assert view.error.code == "canceled"
    error = await refusal(_get(mesh.admin, made))
    assert error.reason == "not_found"
    assert [event.action for event in await mesh.events() if event.action.startswith("schedule.")] == [
        "schedule.added",
        "schedule.fired",
        "schedule.removed",
    ]


async def test_a_paused_agent_gets_no_firing_and_the_log_says_so_once(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    made = await _add(mesh.admin, ada)
    await mesh.pause(ada)
    await mesh.clock.advance(201)
    await _when(mesh, made, "skipped", 1)
    await mesh.clock.advance(300)
    skipped = await _when(mesh, made, "skipped", 2)
    assert skipped.problem.code == "agent_paused"
    assert skipped.fired == 0
    (event,) = await mesh.events("schedule.skipped")
    assert event.details["code"] == "agent_paused"
    await mesh.resume(ada)
    fired = await _fires(mesh, made, 300, 1)
    assert not fired.HasField("problem")


async def test_a_firing_passes_all_rails_but_credits_and_the_backlog(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    await mesh.policy(received_per_day=1, inbox_backlog=4, pair_budget="1/300s", root_turns=1)
    made = await _add(mesh.admin, ada)
    for time in range(3):
        await _fires(mesh, made, 300, time + 1)
    await mesh.policy(credits="1")
    await mesh.clock.advance(300)
    skipped = await _when(mesh, made, "skipped", 1)
    assert skipped.problem.code == "credits_exhausted"
    (event,) = await mesh.events("schedule.skipped")
    assert event.agent_id == ada.id
    await mesh.deposit("10")
    await _fires(mesh, made, 300, 4)
    await mesh.clock.advance(300)
    assert (await _when(mesh, made, "skipped", 2)).problem.code == "inbox_full"


async def test_its_authors_loss_of_the_role_stops_it_and_who_resumes_it_takes_it_over(
    mesh: RelayMesh,
) -> None:
    ada = await mesh.agent("ada")
    carol = await mesh.person("carol")
    await mesh.grant("carol", identity_pb2.ROLE_OPERATOR, "ada")
    made = await _add(carol, ada)
    queued = await _fires(mesh, made, 201, 1)
    request = identity_pb2.RevokeRoleRequest(user="carol", agent="ada")
    await mesh.admin.people.RevokeRole(request)
    worker = await mesh.worker(ada)
    assert await worker.claim() == [], "what it has queued is withdrawn"
    assert (await mesh.admin.check(queued.turn_id)).error.code == "canceled"
    await mesh.clock.advance(300)
    stopped = await _when(mesh, made, "state", pb.SCHEDULE_STATE_STOPPED)
    assert stopped.problem.code == "permission_denied"
    assert "carol" in stopped.problem.message
    assert len(await mesh.events("schedule.stopped")) == 1
    assert (await refusal(_get(carol, made))).reason == "not_found"
    await mesh.admin.schedules.ResumeSchedule(pb.ResumeScheduleRequest(schedule_id=made.id))
    fired = await _fires(mesh, made, 300, 2)
    assert fired.author.name == "admin"
    assert len(await worker.claim()) == 1


async def test_what_a_person_may_not_know_of_is_not_there_and_a_viewer_is_told_the_role(
    mesh: RelayMesh,
) -> None:
    ada = await mesh.agent("ada")
    made = await _add(mesh.admin, ada)
    stranger, viewer = await mesh.person("stan"), await mesh.person("vera")
    await mesh.grant("vera", identity_pb2.ROLE_VIEWER, "ada")
    calls: tuple[tuple[Any, str], ...] = (
        (pb.GetScheduleRequest, "GetSchedule"),
        (pb.PauseScheduleRequest, "PauseSchedule"),
        (pb.ResumeScheduleRequest, "ResumeSchedule"),
        (pb.RemoveScheduleRequest, "RemoveSchedule"),
    )
    for kind, method in calls:
        hidden = await refusal(getattr(stranger.schedules, method)(kind(schedule_id=made.id)))
        never = await refusal(getattr(stranger.schedules, method)(kind(schedule_id="sch_never")))
        assert hidden.reason == never.reason == "not_found"
        assert hidden.message.replace(made.id, "X") == never.message.replace("sch_never", "X")
        told = await refusal(getattr(viewer.schedules, method)(kind(schedule_id=made.id)))
        assert told.reason == "permission_denied"
    assert (await refusal(_add(stranger, ada))).message == f"there is no agent {ada.id!r}"
    for reader in (stranger, viewer):
        assert not (await reader.schedules.ListSchedules(pb.ListSchedulesRequest())).schedules
    assert (await refusal(_add(ada, ada))).reason == "permission_denied"


async def test_an_agent_has_at_most_so_many_schedules(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    for _ in range(MAX_SCHEDULES):
        await _add(mesh.admin, ada)
    assert (await refusal(_add(mesh.admin, ada))).reason == "limit_reached"
    await _add(mesh.admin, await mesh.agent("bob"))


async def test_the_same_request_sets_one_schedule_and_other_content_is_refused(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    first = await _add(mesh.admin, ada, request_id=REQUEST)
    again = await _add(mesh.admin, ada, request_id=REQUEST.upper())
    assert first.id == again.id
    error = await refusal(_add(mesh.admin, ada, text="else", request_id=REQUEST))
    assert error.reason == "request_id_conflict"
    assert len(await mesh.events("schedule.added")) == 1


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"text": ""}, "text"),
        ({"text": "x" * 65537}, "text"),
        ({"name": "two\nlines"}, "name"),
        ({"name": "x" * 65}, "name"),
        ({"cron": "* * * *"}, "cron"),
        ({"timezone": "Mars/Olympus"}, "timezone"),
    ],
)
async def test_what_is_wrong_with_a_schedule_is_named(
    mesh: RelayMesh, fields: dict[str, str], named: str
) -> None:
    ada = await mesh.agent("ada")
    error = await refusal(_add(mesh.admin, ada, **fields))
    assert error.reason == "invalid_argument"
    assert error.message.startswith(f"{named}:")


async def test_a_text_of_64_kib_fires(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    await _fires(mesh, await _add(mesh.admin, ada, text="x" * 65536), 201, 1)


async def test_a_subagent_has_no_schedule(mesh: RelayMesh) -> None:
    lead = await mesh.agent("lead")
    await mesh.agent("helper", is_subagent=True, parent_agent_id=lead.id)
    error = await refusal(_add(mesh.admin, "helper"))
    assert error.reason == "failed_precondition"


async def test_a_deleted_agents_schedules_are_gone(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    made = await _add(mesh.admin, ada)
    await mesh.delete(ada)
    await mesh.clock.advance(301)
    assert (await refusal(_get(mesh.admin, made))).reason == "not_found"
    assert await mesh.events("schedule.fired") == []


async def test_a_clock_that_was_set_back_lets_it_fire_by_the_new_time(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    mesh.clock.set_wall(86_400 * 365)
    made = await _add(mesh.admin, ada)
    mesh.clock.set_wall(-86_400 * 365)
    await mesh.clock.advance(11)
    for _ in range(2000):
        if from_timestamp((await _get(mesh.admin, made)).next_at) < START + 1000:
            break
        await asyncio.sleep(0.001)
    await _fires(mesh, made, 300, 1)


async def test_schedules_are_listed_newest_first_in_pages(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    made = [await _add(mesh.admin, each, name=f"n{number}") for number, each in enumerate((ada, bob, ada))]
    seen: list[str] = []
    token = ""
    while True:
        page = await mesh.admin.schedules.ListSchedules(
            pb.ListSchedulesRequest(page_size=1, page_token=token)
        )
        seen += [each.id for each in page.schedules]
        token = page.next_page_token
        if not token:
            break
    assert seen == [each.id for each in reversed(made)]
    of_bob = await mesh.admin.schedules.ListSchedules(pb.ListSchedulesRequest(agent="bob"))
    assert [each.id for each in of_bob.schedules] == [made[1].id]
