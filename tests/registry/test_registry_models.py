"""The catalogue of models: who may change it, and what agents run."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from hopline.registry.v1.agent_pb2 import Agent, GetAgentRequest
from hopline.registry.v1.crew_pb2 import CrewMember, ModelPreferences
from hopline.registry.v1.model_pb2 import (
    CreateModelRequest,
    DeleteModelRequest,
    ListModelsRequest,
    Model,
    SetDefaultModelRequest,
    UpdateModelRequest,
)
from hopline_directory import OPERATOR
from hopline_rpc.errors import to_status

from tests.registry.builders import Caller, Rig, refusal
from tests.registry.crewing import LEAD, apply, changed, crew, set_agent

pytestmark = pytest.mark.both_stores

PRICES = ("input_usd_per_1m", "output_usd_per_1m", "cached_usd_per_1m")


async def add(caller: Caller, identifier: str, request_id: str = "", **fields: Any) -> Model:
    model = Model(model_identifier=identifier, **fields)
    return (await caller.models.CreateModel(CreateModelRequest(model=model, request_id=request_id))).model


async def change(caller: Caller, ref: str, *named: str, **fields: Any) -> Model:
    mask = FieldMask(paths=[*named, *fields])
    request = UpdateModelRequest(model_ref=ref, model=Model(**fields), update_mask=mask)
    return (await caller.models.UpdateModel(request)).model


async def catalogue(caller: Caller) -> dict[str, Model]:
    found = await caller.models.ListModels(ListModelsRequest(page_size=200))
    return {each.model_identifier: each for each in found.models}


def runs(rig: Rig, agent: Agent) -> str:
    """Return what an agent's worker is told to run."""
    directory = rig.registry.directory
    found = directory.agent(directory.workspaces()[0].id, agent.id)
    assert found is not None
    return directory.model_of(found)


async def test_a_model_is_added_changed_listed_and_removed(rig: Rig) -> None:
    made = await add(
        rig.admin, "claude-opus-4", display_name="Opus", input_usd_per_1m="15", cached_usd_per_1m="1.50"
    )
    assert made.id.startswith("mdl_")
    assert [made.HasField(each) for each in PRICES] == [True, False, True]  # type: ignore[arg-type]
    assert made.cached_usd_per_1m == "1.5"
    assert (await add(rig.admin, "gpt-5")).display_name == "gpt-5"
    assert list(await catalogue(rig.admin)) == ["claude-opus-4", "gpt-5"]
    now = await change(rig.admin, "claude-opus-4", "cached_usd_per_1m", output_usd_per_1m="75.000001")
    assert [getattr(now, each) for each in PRICES] == ["15", "75.000001", ""]
    assert not now.HasField("cached_usd_per_1m")
    await rig.admin.models.DeleteModel(DeleteModelRequest(model=made.id))
    assert list(await catalogue(rig.admin)) == ["gpt-5"]


async def test_a_model_called_by_its_identifier_goes_on_being_called_so(rig: Rig) -> None:
    await add(rig.admin, "gpt-5")
    assert (await change(rig.admin, "gpt-5", model_identifier="gpt-6")).display_name == "gpt-6"
    assert (await change(rig.admin, "gpt-6", display_name="Six")).display_name == "Six"
    assert (await change(rig.admin, "gpt-6", model_identifier="gpt-7")).display_name == "Six"
    assert (await change(rig.admin, "gpt-7", "display_name")).display_name == "gpt-7"


async def test_the_same_request_adds_one_model(rig: Rig) -> None:
    request_id = str(uuid.uuid4())
    made = [await add(rig.admin, "gpt-5", request_id) for _ in range(2)]
    assert made[0] == made[1]
    assert (await refusal(add(rig.admin, "gpt-6", request_id))).reason == "request_id_conflict"


@pytest.mark.parametrize("price", ["0", "0.000001", "999999999.999999"])
async def test_a_price_is_a_decimal_and_kept_to_the_last_digit(rig: Rig, price: str) -> None:
    assert (await add(rig.admin, "m", input_usd_per_1m=price)).input_usd_per_1m == price


@pytest.mark.parametrize("price", ["", "-1", "1e3", "1,5", ".5", "5.", "0.0000001", "1000000000", "NaN", "٣"])
async def test_what_is_no_price_is_refused(rig: Rig, price: str) -> None:
    error = await refusal(add(rig.admin, "m", output_usd_per_1m=price))
    assert (error.reason, error.violations[0][0]) == ("invalid_argument", "model.output_usd_per_1m")


async def test_a_price_that_only_looks_different_is_no_change(rig: Rig) -> None:
    await add(rig.admin, "m", input_usd_per_1m="2.5")
    seq = rig.registry.directory.seq
    assert (await change(rig.admin, "m", input_usd_per_1m="2.500")).input_usd_per_1m == "2.5"
    assert rig.registry.directory.seq == seq


async def test_an_identifier_is_unique_in_a_workspace(rig: Rig) -> None:
    await add(rig.admin, "a")
    await add(rig.admin, "b")
    for call in (add(rig.admin, "a"), change(rig.admin, "b", model_identifier="a")):
        error = await refusal(call)
        assert (error.reason, error.violations) == (
            "failed_precondition",
            (("model.model_identifier", "is taken"),),
        )
    await add(await rig.workspace("other"), "a")


async def test_two_hundred_models_fit_and_one_more_does_not(rig: Rig) -> None:
    for number in range(200):
        await add(rig.admin, f"m{number:03}")
    assert (await refusal(add(rig.admin, "more"))).reason == "limit_reached"
    page = await rig.admin.models.ListModels(ListModelsRequest(page_size=199))
    rest = await rig.admin.models.ListModels(ListModelsRequest(page_token=page.next_page_token))
    assert [each.model_identifier for each in rest.models] == ["m199"]


async def test_admins_change_the_catalogue_and_everyone_of_the_workspace_reads_it(rig: Rig) -> None:
    await add(rig.admin, "a")
    alice = await rig.user("Alice", OPERATOR)
    assert list(await catalogue(alice)) == ["a"]
    for call in (
        add(alice, "b"),
        change(alice, "a", display_name="x"),
        alice.models.SetDefaultModel(SetDefaultModelRequest(model="a")),
        alice.models.DeleteModel(DeleteModelRequest(model="a")),
    ):
        assert (await refusal(call)).reason == "permission_denied"


async def test_a_model_of_another_workspace_is_as_if_it_had_never_been(rig: Rig) -> None:
    other = await rig.workspace("other")
    theirs = await add(other, "theirs")
    await add(rig.admin, "ours")

    async def told(ref: str) -> list[str]:
        calls: list[Any] = [
            change(rig.admin, ref, display_name="x"),
            rig.admin.models.SetDefaultModel(SetDefaultModelRequest(model=ref)),
            rig.admin.models.DeleteModel(DeleteModelRequest(model=ref, force=True)),
            rig.agent("A", model_id=ref),
        ]
        return [repr(to_status(await refusal(each))).replace(ref, "REF") for each in calls]

    assert await told(theirs.id) == await told("mdl_" + "0" * 26)
    assert await told("theirs") == await told("nobody")
    assert list(await catalogue(rig.admin)) == ["ours"]


# -- what agents run -----------------------------------------------------------------------------------


async def test_without_a_catalogue_any_text_is_an_agents_model(rig: Rig) -> None:
    agent, _ = await rig.agent("A", model_id="whatever-1")
    assert (agent.model_id, runs(rig, agent)) == ("whatever-1", "whatever-1")
    bare, _ = await rig.agent("B")
    assert runs(rig, bare) == ""


async def test_an_agent_runs_its_own_model_else_the_default(rig: Rig) -> None:
    opus = await add(rig.admin, "opus")
    await add(rig.admin, "haiku", is_default=True)
    own, _ = await rig.agent("Own", model_id="opus")
    by_id, _ = await rig.agent("By id", model_id=opus.id)
    bare, _ = await rig.agent("Bare")
    assert own.model_id == by_id.model_id == opus.id
    assert [runs(rig, each) for each in (own, by_id, bare)] == ["opus", "opus", "haiku"]
    await rig.admin.models.SetDefaultModel(SetDefaultModelRequest(model="opus"))
    assert [each.is_default for each in (await catalogue(rig.admin)).values()] == [False, True]
    assert runs(rig, bare) == "opus"
    await change(rig.admin, "opus", model_identifier="opus-5")
    assert [runs(rig, each) for each in (own, bare)] == ["opus-5", "opus-5"]
    assert not (await rig.admin.models.SetDefaultModel(SetDefaultModelRequest())).HasField("model")
    assert [runs(rig, each) for each in (own, bare)] == ["opus-5", ""]


async def test_there_is_one_default_however_it_is_set(rig: Rig) -> None:
    for name in ("a", "b", "c"):
        await add(rig.admin, name, is_default=True)
    await change(rig.admin, "a", is_default=True)
    assert [name for name, each in (await catalogue(rig.admin)).items() if each.is_default] == ["a"]
    assert not (await change(rig.admin, "a", is_default=False)).is_default
    assert not any(each.is_default for each in (await catalogue(rig.admin)).values())


async def test_a_model_that_the_catalogue_does_not_hold_is_refused_and_an_older_one_stays(rig: Rig) -> None:
    old, _ = await rig.agent("Old", model_id="from-before")
    await add(rig.admin, "opus")
    error = await refusal(rig.agent("New", model_id="opsu"))
    assert (error.reason, error.violations[0][0]) == ("invalid_argument", "agent.model_id")
    assert "there are: opus" in error.message
    assert (
        await set_agent(rig.admin, "old", description="x", model_id="from-before")
    ).model_id == "from-before"
    assert runs(rig, old) == "from-before"
    assert (await set_agent(rig.admin, "old", model_id="")).model_id == ""


async def test_a_model_in_use_is_removed_only_by_force_and_its_agents_take_the_default(rig: Rig) -> None:
    await add(rig.admin, "haiku", is_default=True)
    await add(rig.admin, "opus")
    agent, _ = await rig.agent("A", model_id="opus")
    error = await refusal(rig.admin.models.DeleteModel(DeleteModelRequest(model="opus")))
    assert (error.reason, error.details["agents"]) == ("failed_precondition", 1)
    assert "opus" in await catalogue(rig.admin)
    await rig.admin.models.DeleteModel(DeleteModelRequest(model="opus", force=True))
    assert (await rig.admin.agents.GetAgent(GetAgentRequest(agent="a"))).agent.model_id == ""
    assert runs(rig, agent) == "haiku"


async def test_the_catalogue_outlives_a_restart_and_is_in_the_snapshot(rig: Rig) -> None:
    await add(rig.admin, "haiku", is_default=True, input_usd_per_1m="0.80")
    agent, _ = await rig.agent("A")
    before = await catalogue(rig.admin)
    kinds = [each.WhichOneof("entity") for each in rig.registry.directory.snapshot()]
    assert kinds.count("model") == 1
    reopened = await rig.reopen()
    try:
        assert await catalogue(reopened.caller(rig.root)) == before
        assert runs(reopened, agent) == "haiku"
    finally:
        await reopened.registry.close()


# -- preferences of members ----------------------------------------------------------------------------


def liking(*patterns: str) -> CrewMember:
    return CrewMember(key="m", models=ModelPreferences(patterns=patterns))


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (("opus",), "claude-opus-4"),
        (("OPUS", "gpt"), "claude-opus-4"),
        (("gemini", "gpt-5"), "gpt-5"),
        (("gpt",), "gpt-5"),
        (("gpt-5-mini",), "gpt-5-mini"),
        (("Flagship",), "claude-opus-4"),
        (("claude*4",), "claude-haiku-4"),
        (("claude*opus*",), "claude-opus-4"),
        (("*",), "claude-haiku-4"),
        (("4*claude", "gpt.5", "^gpt", "(gpt)+"), "haiku-default"),
        ((), "haiku-default"),
    ],
)
async def test_the_first_pattern_that_matches_decides_else_the_default(
    rig: Rig, patterns: tuple[str, ...], expected: str
) -> None:
    await add(rig.admin, "gpt-5-mini")
    await add(rig.admin, "gpt-5")
    await add(rig.admin, "claude-opus-4", display_name="The flagship")
    await add(rig.admin, "claude-haiku-4")
    await add(rig.admin, "haiku-default", is_default=True)
    applied = await apply(rig.admin, liking(*patterns))
    note = applied.members[0].note
    assert ("it runs the default" in note) == (bool(patterns) and expected == "haiku-default")
    assert runs(rig, (await crew(rig.admin))["m"]) == expected
    again = await apply(rig.admin, liking(*patterns))
    assert changed(again, "m") == {}


async def test_preferences_follow_the_catalogue_at_the_next_run_and_none_leaves_the_model(rig: Rig) -> None:
    assert "runs the default" in (await apply(rig.admin, liking("opus"))).members[0].note
    await add(rig.admin, "opus")
    applied = await apply(rig.admin, liking("opus"))
    assert changed(applied, "m") == {"model_id": ("", "opus")}
    assert changed(await apply(rig.admin, CrewMember(key="m")), "m") == {}
    assert changed(await apply(rig.admin, liking()), "m") == {"model_id": ("opus", "")}


async def test_a_pattern_made_to_be_slow_is_not(rig: Rig) -> None:
    """A pattern is no regular expression: it is found in one pass over the text."""
    await add(rig.admin, "a" * 200)
    applied = await apply(rig.admin, liking("a*" * 99 + "b"), LEAD)
    assert "it runs the default" in next(each for each in applied.members if each.key == "m").note
