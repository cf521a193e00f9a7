"""A mesh on SQLite becomes one on PostgreSQL: ids, history, credentials and what was under way go along."""

from __future__ import annotations

import asyncio

from hopline_client import Turn

from tests.support import postgres
from tests.support.mesh_process import HOPLINE, SECONDS, MeshProcess, Processes, Space, shout, until
from tests.support.served_mesh import ServedMesh


async def said(space: Space, thread_id: str) -> list[tuple[str, int, str]]:
    return [(each.id, each.seq, each.body) for each in await space.thread(thread_id)]


async def test_a_mesh_goes_on_in_postgresql_where_it_stopped_on_sqlite(started: Processes) -> None:
    old = MeshProcess(started, "old")
    await asyncio.to_thread(old.start)
    async with old.space() as before:
        asker, worker, absent = await before.agents("asker", "worker", "absent")
        client = before.client(asker)
        await before.work(worker, shout)
        answered = await client.ask("worker", "marmalade?")
        await client.send("absent", "when you are back")
        history = await said(before, answered.thread_id)
    old.up.terminate()
    assert await old.up.ended() == 0

    file = str(started.folder / "mesh.zip")
    assert old.hopline("export", file).returncode == 0
    with postgres.database() as url:
        env = {"HOPLINE_DATABASE_URL": url}
        new = ServedMesh(started, "new", env=env)
        taken = await asyncio.to_thread(
            started.run, HOPLINE, "import", file, "--data", str(new.data), env=env
        )
        assert taken.returncode == 0, taken.stderr
        await asyncio.to_thread(new.start)
        async with Space(new, before.name) as after:
            assert await said(after, answered.thread_id) == history
            taken_up = asyncio.Event()

            async def take(turn: Turn) -> str:
                assert turn.text == "when you are back"
                taken_up.set()
                return "here I am"

            # By the tokens that they had.
            await after.work(absent, take)
            await asyncio.wait_for(taken_up.wait(), SECONDS)
            await after.work(worker, shout)
            again = after.client(asker)
            assert (await again.ask("worker", "and now?")).text == "AND NOW?"
            more = await again.send("worker", "one more", thread_id=answered.thread_id)
            newest = (await said(after, answered.thread_id))[-1]
            assert newest == (more.message_id, len(history) + 1, "one more")
            of = ("--workspace", before.name)
            await new.cli("audit", "verify", *of)  # ends with 1 where a link is missing

            async def found() -> bool:
                words = ("exchanges", "asker", "--search", "marmalade", *of)
                return bool((await new.cli(*words))["exchanges"])

            await until(found, "the words of an old message")
        assert new.complaints() == []
