"""A scrape of a mesh that has worked: what is counted, what no label says, and what is drawn from it."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import promql_parser
import pytest
import yaml
from hopline_rpc.errors import HoplineError

from tests.observe.scrapes import Series, get, grouped, panels, scrape, selectors, series, value
from tests.support.mesh_process import Held, MeshProcess, Processes, Space, call, until
from tests.support.served_mesh import SERVICES, ServedMesh

GRAFANA = Path(__file__).resolve().parents[2] / "deploy" / "grafana"
# What Prometheus adds to each series by itself, and what it makes of an instance that it cannot reach.
ADDED = {"job", "instance", "le"}
UP = "up"
# What stands for an id, wherever it is: three letters and the 26 of a time and of chance.
ID = re.compile(r"\b[a-z]{2,4}_[0-9a-z]{26}\b")


async def _work(space: Space) -> list[str]:
    """Let everything happen that is counted; returns names that no label may hold."""
    ada, bob, cid = await space.agents("ada-at-work", "bob-at-work", "cid-at-work")
    held = Held()
    await space.work(bob, held)
    client = space.client(ada)
    late = await client.ask(bob.name, "slow?", wait_seconds=0)
    await held.begun()
    held.go_on.set()

    async def over() -> bool:
        return (await space.turn(late.turn_id)).HasField("ended_at")

    await until(over, "the end of the turn that nobody waits for")
    again = str(uuid.uuid4())
    for _ in range(2):
        await client.send(cid.name, "a letter", request_id=again)
    await client.ask_owner("may I?", wait_seconds=0)
    with pytest.raises(HoplineError):
        await client.send("nobody-at-all", "hello")
    async with space.mcp_over_http(ada) as mcp:
        await call(mcp, "list_agents")
        await call(mcp, "send_message", agent=cid.name, text="by mcp")
        await mcp.call_tool("send_message", {"agent": "nobody-at-all", "text": "hello"})
    return [space.name, ada.name, bob.name, cid.name, "nobody-at-all"]


@pytest.fixture
async def worked(own_mesh: MeshProcess) -> AsyncIterator[tuple[Series, list[str]]]:
    """A scrape of a mesh after all that."""
    async with own_mesh.space() as space:
        names = await _work(space)

        async def counted() -> Series | None:
            found = await scrape(own_mesh)
            # What is read from the record is read every few seconds only.
            return found if value(found, "hopline_escalations_pending") else None

        yield await until(counted, "a scrape with everything"), names


def queries() -> Iterator[tuple[str, str, str]]:
    """Where each query stands, the query, and what labels its legend or texts name."""
    for title, query, legend in panels(GRAFANA / "hopline.json"):
        plain = query.replace("$__rate_interval", "5m").replace("$job", ".+")
        yield f"panel {title}", plain, " ".join(re.findall(r"{{(\w+)}}", legend))
    rules = yaml.safe_load((GRAFANA / "alerts.yaml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            named = re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values()))
            yield f"alert {rule['alert']}", rule["expr"], " ".join(named)


async def test_every_panel_and_every_alert_asks_for_what_a_scrape_has(
    worked: tuple[Series, list[str]],
) -> None:
    found, _ = worked
    asked = set()
    for where, query, named in queries():
        expression = promql_parser.parse(query)  # raises what is wrong with it
        labels: set[str] = set(ADDED)
        for selector in selectors(expression):
            asked.add(selector.name)
            if selector.name == UP:
                continue
            assert selector.name in found, f"{where}: there is no {selector.name}"
            known = {label for given, _ in found[selector.name] for label in given}
            labels |= known
            for matcher in selector.matchers.matchers:
                assert matcher.name in known | ADDED, f"{where}: {selector.name} has no {matcher.name}"
        for label in (*grouped(expression), *named.split()):
            assert label in labels, f"{where}: nothing in it has {label}"
    drawn = {re.sub(r"_(bucket|count|sum)$", "", name) for name in asked}
    ours = {
        re.sub(r"_(bucket|count|sum|created)$", "", name)
        for name in found
        if not name.startswith(("target", "process_uptime"))
    }
    assert ours - drawn == set(), "what is measured and nobody looks at"


async def test_a_scrape_counts_what_has_happened(worked: tuple[Series, list[str]]) -> None:
    found, _ = worked
    assert value(found, "hopline_inbox_depth") == 3
    assert value(found, "hopline_inbox_deepest") == 2
    assert value(found, "hopline_inbox_oldest_age_seconds") > 0
    assert value(found, "hopline_escalations_pending") == 1
    assert value(found, "hopline_answers_late_total") == 1
    assert value(found, "hopline_duplicates_total", hopline_duplicate="request") == 1
    assert value(found, "hopline_refusals_total", error_type="not_found") == 2
    assert value(found, "hopline_tunnels") == 1
    assert value(found, "messaging_process_duration_seconds_count", hopline_outcome="completed") == 1
    assert value(found, "hopline_run_queue_wait_seconds_count") == 1
    assert value(found, "hopline_message_depth_bucket", le="1.0") >= 3
    assert value(found, "hopline_ready") == 5
    sent = {"mcp_method_name": "tools/call", "gen_ai_tool_name": "send_message"}
    assert value(found, "mcp_server_operation_duration_seconds_count", **sent) == 2
    assert value(found, "hopline_mcp_failures_total", error_type="not_found") == 1
    ask = "hopline.relay.v1.MessageService/Ask"
    assert value(found, "rpc_server_call_duration_seconds_count", rpc_method=ask) == 1
    used = {labels["hopline_limit"]: ratio for labels, ratio in found["hopline_quota_used_ratio"]}
    assert 0 < used["received_per_day"] < 1
    assert value(found, "hopline_store_commit_size_count", hopline_store="relay") > 3


async def test_no_label_tells_of_an_agent_a_thread_or_a_workspace(worked: tuple[Series, list[str]]) -> None:
    found, names = worked
    said = {text for samples in found.values() for labels, _ in samples for text in labels.values()}
    assert not [text for text in said if ID.search(text)]
    assert not [(text, name) for text in said for name in names if name in text]


async def test_each_service_with_a_process_of_its_own_says_how_it_is(started: Processes) -> None:
    mesh = ServedMesh(started)
    await asyncio.to_thread(mesh.start)
    places = {name: mesh.endpoints[f"{name}.metrics"] for name in SERVICES}
    assert len(set(places.values())) == len(SERVICES)
    for name, url in places.items():
        assert get(f"{url}/readyz") == (200, "ready\n")
        found = series(get(f"{url}/metrics")[1])
        assert value(found, "hopline_ready", hopline_service=name) == 1
        assert [labels["service_name"] for labels, _ in found["target_info"]] == [f"hopline-{name}"]
    mesh.running["registry"].terminate()
    await until(lambda: get(f"{places['relay']}/readyz")[0] == 503, "the relay without its registry")
    assert get(f"{places['relay']}/healthz")[0] == 200  # it lives all the same
    assert mesh.complaints() == []


def test_a_mesh_whose_usual_port_is_taken_or_that_is_told_otherwise(started: Processes) -> None:
    quiet = MeshProcess(started, "quiet", env={"HOPLINE_METRICS": "off"})
    quiet.start()
    assert quiet.endpoints["metrics"] is None
    taken = quiet.endpoints["relay"]
    refused = MeshProcess(started, "refused", env={"HOPLINE_METRICS": taken})
    refused.launch()
    assert refused.up.wait() == 1
    assert f"{taken} is in use by another process" in refused.up.said
    open_to_all = MeshProcess(started, "open", env={"HOPLINE_METRICS": "0.0.0.0:0"})
    open_to_all.launch()
    assert open_to_all.up.wait() == 1
    assert "reachable from other machines and has no TLS" in open_to_all.up.said
