"""Exchanges by the command line, and threads as they go on."""

from __future__ import annotations

import json

from tests.support.mesh_process import HOPLINE, Space, shout, until


async def test_what_an_agent_has_sent_and_received_is_listed_and_searched(space: Space) -> None:
    lead, peer = await space.agents("lead", "peer")
    await space.work(peer, shout)
    await space.client(lead).ask("peer", "look at the release", wait_seconds=50)
    cli, here = space.mesh.cli, ("--workspace", space.name)
    found = (await cli("exchanges", "lead", *here))["exchanges"]
    assert [(each["direction"], each["kind"], each["text"]) for each in found] == [
        ("received", "answer", "LOOK AT THE RELEASE"),
        ("sent", "ask", "look at the release"),
    ]
    assert found[1]["states"] == "answered"
    assert found[1]["thread_id"].startswith("thr_")
    narrowed = await cli("exchanges", "peer", "--search", '"the rel*', "--direction", "received", *here)
    assert narrowed["exchanges"] == []
    narrowed = await cli("exchanges", "peer", "--search", "rel*", "--direction", "received", *here)
    assert [each["text"] for each in narrowed["exchanges"]] == ["look at the release"]
    wrong = space.mesh.hopline("exchanges", "peer", "--state", "lost", *here)
    assert wrong.returncode == 2
    assert "answered" in wrong.stderr


async def test_threads_go_on_with_messages_as_they_are_written(space: Space) -> None:
    lead, _ = await space.agents("lead", "peer")
    words = ("threads", "--follow", "--json", "--data", str(space.mesh.data), "--workspace", space.name)
    following = space.mesh.processes.start("follow", HOPLINE, *words)
    await until(lambda: '"threads": []' in following.said, "the list")
    await space.client(lead).send("peer", "one")
    await until(lambda: '"one"' in following.said, "the first message")
    await space.client(lead).send("peer", "two")
    await until(lambda: '"two"' in following.said, "the second message")
    bodies = [json.loads(line)["body"] for line in following.said.splitlines()[1:]]
    assert bodies == ["one", "two"]
    following.terminate()
    await following.ended()
