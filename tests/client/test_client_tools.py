"""Server tools of the client library on the real mesh: typed functions that other agents call."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
from enum import Enum
from typing import Annotated, Any

import pytest
from hopline_client import HoplineError, ServerTool, ToolContext, ToolFailed, Turn, tool
from hopline_client.tool_threads import ToolThreads
from hopline_client.tools import by_name
from pydantic import BaseModel, Field

from tests.support.relay_mesh import refusal, until
from tests.support.stage import Stage


class Unit(Enum):
    """How degrees are counted."""

    CELSIUS = "celsius"
    KELVIN = "kelvin"


class Weather(BaseModel):
    """How it is somewhere."""

    city: str
    degrees: float


async def forecast(
    city: Annotated[str, Field(min_length=2, description="Where.")], days: int = 1, unit: Unit = Unit.CELSIUS
) -> Weather:
    """Say how the weather will be."""
    return Weather(city=f"{city} in {days} ({unit.value})", degrees=4.5)


async def idle(turn: Turn) -> str:
    return ""


async def test_a_typed_function_is_listed_with_schemas_and_called(stage: Stage) -> None:
    eve, ada = await stage.mesh.agent("eve"), await stage.mesh.agent("ada")
    await stage.work(ada, idle, tools=[forecast])
    async with stage.client(eve) as client:
        (listed,) = await client.list_tools("ada")
        assert (listed.name, listed.description) == ("forecast", "Say how the weather will be.")
        assert listed.available
        described = listed.input_schema["properties"]["city"]
        assert (described["type"], described["minLength"], described["description"]) == (
            "string",
            2,
            "Where.",
        )
        assert (listed.input_schema["required"], listed.input_schema["additionalProperties"]) == (
            ["city"],
            False,
        )
        assert listed.output_schema is not None
        assert set(listed.output_schema["properties"]) == {"city", "degrees"}
        found = await client.call_tool("ada", "forecast", {"city": "Oslo", "unit": "kelvin"})
    assert found.value == {"city": "Oslo in 1 (kelvin)", "degrees": 4.5}
    assert (found.status, found.depth, bool(found.turn_id)) == ("completed", 1, True)


async def test_a_plain_function_runs_beside_the_loop(stage: Stage) -> None:
    eve, ada = await stage.mesh.agent("eve"), await stage.mesh.agent("ada")
    threads: list[int] = []

    def add(a: int, b: int) -> int:
        threads.append(threading.get_ident())
        return a + b

    await stage.work(ada, idle, tools=[add])
    async with stage.client(eve) as client:
        assert (await client.call_tool("ada", "add", {"a": 2, "b": 3})).value == 5
    assert threads != [threading.get_ident()]


async def test_more_plain_functions_run_at_once_than_a_pool_of_the_loop_has_threads(stage: Stage) -> None:
    eve, ada = await stage.mesh.agent("eve"), await stage.mesh.agent("ada")
    together = threading.Barrier(32, timeout=20)

    def meet() -> bool:
        return together.wait() >= 0

    await stage.work(ada, idle, tools=[meet])
    async with stage.client(eve) as client:
        await stage.mesh.policy(concurrent_runs=100, pair_budget="0")
        found = await asyncio.gather(*(client.call_tool("ada", "meet") for _ in range(32)))
    assert [each.value for each in found] == [True] * 32


async def test_a_tool_that_ends_in_an_odd_way_fails_its_own_call_alone(stage: Stage) -> None:
    eve, ada = await stage.mesh.agent("eve"), await stage.mesh.agent("ada")

    def first() -> int:
        return next(each for each in [1] if each > 1)

    def leave() -> None:
        sys.exit("usage: leave WHERE")

    async def leave_softly() -> None:
        sys.exit(2)

    await stage.work(ada, idle, tools=[first, leave, leave_softly])
    async with stage.client(eve) as client:
        for name, words in (
            ("first", "StopIteration"),
            ("leave", "SystemExit: usage: leave WHERE"),
            ("leave_softly", "SystemExit: 2"),
        ):
            failed = await client.call_tool("ada", name)
            assert (failed.code, words in failed.error) == ("tool_failed", True), failed


async def test_a_function_that_never_returns_keeps_its_place_and_no_others() -> None:
    threads, hangs = ToolThreads(2), threading.Event()
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hang() -> None:
        loop.call_soon_threadsafe(begun.set)
        hangs.wait(20)

    under_way = asyncio.create_task(threads.run(hang, {}))
    await begun.wait()
    under_way.cancel()
    for number in range(5):
        assert await threads.run(lambda a: a, {"a": number}) == number
    more = [asyncio.create_task(threads.run(hang, {})) for _ in range(2)]
    begun.clear()
    await begun.wait()
    waiting = asyncio.create_task(threads.run(lambda: 5, {}))
    await asyncio.sleep(0)
    assert not waiting.done()
    hangs.set()
    assert await waiting == 5
    await asyncio.gather(*more)


async def test_a_tool_calls_the_mesh_through_its_context_one_deeper(stage: Stage) -> None:
    mesh = stage.mesh
    eve, ada, bob = [await mesh.agent(name) for name in ("eve", "ada", "bob")]
    seen: list[tuple[str, int]] = []

    async def outer(context: ToolContext, text: str) -> str:
        seen.append((context.from_, context.depth))
        names = [each.name for each in await context.mesh.list_tools("bob")]
        return f"{names}: {(await context.mesh.call_tool('bob', 'inner', {'text': text})).value}"

    @tool(name="inner", description="Shouts.")
    def shout(text: str, context: ToolContext) -> str:
        seen.append((context.from_, context.depth))
        return text.upper()

    assert isinstance(shout, ServerTool)
    await stage.work(ada, idle, tools=[outer])
    await stage.work(bob, idle, tools=[shout])
    async with stage.client(eve) as client:
        found = await client.call_tool("ada", "outer", {"text": "tea"})
    assert found.value == "['inner']: TEA"
    assert seen == [("eve (for admin)", 1), ("ada (for admin)", 2)]


async def test_a_turn_calls_the_tool_of_a_peer(stage: Stage) -> None:
    mesh = stage.mesh
    eve, ada, bob = [await mesh.agent(name) for name in ("eve", "ada", "bob")]

    async def handle(turn: Turn) -> str:
        return str((await turn.mesh.call_tool("bob", "double", {"n": int(turn.text)})).value)

    def double(n: int) -> int:
        return 2 * n

    await stage.work(ada, handle)
    await stage.work(bob, idle, tools=[double])
    async with stage.client(eve) as client:
        assert (await client.ask("ada", "21")).text == "42"


async def test_what_goes_wrong_is_told_apart(stage: Stage) -> None:
    eve, ada = await stage.mesh.agent("eve"), await stage.mesh.agent("ada")
    away = await stage.mesh.agent("away")

    def breaks() -> None:
        raise ValueError("no such star")

    async def says() -> None:
        raise ToolFailed("come back tomorrow")

    async def refuses() -> None:
        raise HoplineError("quota_exceeded", "enough for today")

    def lies() -> int:
        return "five"  # type: ignore[return-value] # what it is about

    await stage.work(ada, idle, tools=[breaks, says, refuses, lies, forecast])
    async with stage.client(eve) as client:
        for name, words in (
            ("breaks", "ValueError: no such star"),
            ("says", "come back tomorrow"),
            ("refuses", "quota_exceeded: enough for today"),
        ):
            failed = await client.call_tool("ada", name)
            assert (failed.status, failed.code, failed.error) == ("failed", "tool_failed", words)
            with pytest.raises(HoplineError, match=words.partition(":")[0]):
                assert failed.value
        assert "not what it says it returns" in (await client.call_tool("ada", "lies")).error
        for arguments, named in (
            ({}, "'city'"),
            ({"city": "x"}, "arguments.city"),
            ({"city": "xy", "to": 1}, "to"),
        ):
            error = await refusal(client.call_tool("ada", "forecast", arguments))
            assert (error.reason, named in error.message) == ("invalid_argument", True), error
        assert (await refusal(client.call_tool("ada", "none"))).reason == "invalid_argument"
        assert (await refusal(client.call_tool(away.id, "none"))).reason == "unavailable"
        assert (await refusal(client.call_tool("nobody", "none"))).reason == "not_found"
        assert (
            await refusal(client.call_tool("ada", "says", timeout_seconds=0))
        ).reason == "invalid_argument"


async def test_that_a_worker_is_away_is_told_at_once_though_the_mesh_itself_would_be_waited_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    eve, away = await stage.mesh.agent("eve"), await stage.mesh.agent("away")
    tried: list[str] = []
    async with stage.client(eve) as client:
        assert await client.list_tools(away.id) == []
        once = client._try

        async def counted(service: str, stub: Any, method: str, *rest: Any) -> Any:
            tried.append(method)
            return await once(service, stub, method, *rest)

        monkeypatch.setattr(client, "_try", counted)
        error = await refusal(client.call_tool(away.id, "none"))
    assert (error.reason, error.details["tool"], tried) == ("unavailable", "none", ["CallTool"])


async def test_arguments_are_checked_on_the_workers_side_too(stage: Stage) -> None:
    eve, ada = await stage.mesh.agent("eve"), await stage.mesh.agent("ada")
    called: list[str] = []

    def find(code: Annotated[str, Field(pattern="^[A-Z]{3}$")]) -> str:
        called.append(code)
        return code

    await stage.work(ada, idle, tools=[find])
    async with stage.client(eve) as client:
        error = await refusal(client.call_tool("ada", "find", {"code": "oslo"}))
        assert (await client.call_tool("ada", "find", {"code": "OSL"})).value == "OSL"
    assert (error.reason, "code: " in error.message) == ("invalid_argument", True)
    assert called == ["OSL"]


async def test_a_call_that_is_given_up_cancels_the_tool(stage: Stage) -> None:
    eve, ada = await stage.mesh.agent("eve"), await stage.mesh.agent("ada")
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def sleep() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    await stage.work(ada, idle, tools=[sleep])
    async with stage.client(eve) as client:
        under_way = asyncio.create_task(client.call_tool("ada", "sleep"))
        await begun.wait()
        under_way.cancel()
        await stopped.wait()
        begun.clear()
        stopped.clear()
        under_way = asyncio.create_task(client.call_tool("ada", "sleep", timeout_seconds=2))
        await begun.wait()
        await stage.mesh.clock.advance(2.1)
        await stopped.wait()
        assert (await refusal(under_way)).reason == "deadline_exceeded"


async def test_a_stream_that_breaks_ends_the_tool_and_its_caller_hears_so(stage: Stage) -> None:
    eve, ada = await stage.mesh.agent("eve"), await stage.mesh.agent("ada")
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def sleep() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    await stage.work(ada, idle, tools=[sleep])
    async with stage.client(eve) as client:
        under_way = asyncio.create_task(client.call_tool("ada", "sleep"))
        await begun.wait()
        await stage.cut()
        await stopped.wait()
        found = await under_way
        assert (found.status, found.code) == ("failed", "unavailable")
        await stage.back(ada)
        assert [each.name for each in await client.list_tools("ada")] == ["sleep"]


async def test_a_graceful_stop_lets_calls_end(stage: Stage) -> None:
    eve, ada = await stage.mesh.agent("eve"), await stage.mesh.agent("ada")
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        begun.set()
        await go_on.wait()
        return "done"

    worker = await stage.work(ada, idle, tools=[slow])
    async with stage.client(eve) as client:
        under_way = asyncio.create_task(client.call_tool("ada", "slow"))
        await begun.wait()
        stopping = asyncio.create_task(worker.stop())
        await asyncio.sleep(0)
        go_on.set()
        assert (await under_way).value == "done"
        await stopping


async def test_a_worker_with_a_tool_that_the_mesh_cannot_use_is_refused(stage: Stage) -> None:
    ada = await stage.mesh.agent("ada")

    def named() -> None:
        return

    worker = stage.work(ada, idle, tools=[ServerTool(named, name="not a name")])
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(worker, 0.2)
    task = stage._running[-1][1]
    await until(task.done, "the refusal")
    with pytest.raises(HoplineError, match="may hold letters"):
        task.result()


def test_a_function_whose_arguments_have_no_names_is_no_tool() -> None:
    def many(*words: str) -> None: ...

    def any_of(**words: str) -> None: ...

    def first(word: str, /) -> None: ...

    for function in (many, any_of, first):
        with pytest.raises(TypeError, match="arguments have names"):
            ServerTool(function)


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two tools 'forecast'"):
        by_name([forecast, tool(forecast)])


def test_arguments_may_be_called_anything_a_model_is_called() -> None:
    def odd(copy: int, json: int, schema: int = 3, model_config: int = 4, _self: int = 5) -> Any: ...

    shape = json.loads(ServerTool(odd).definition().input_schema_json)
    assert list(shape["properties"]) == ["copy", "json", "schema", "model_config", "_self"]
    assert shape["required"] == ["copy", "json"]
