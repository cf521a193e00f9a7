"""Threads in the console: a link to a message leads to it, wherever it stands."""

from __future__ import annotations

import re

from tests.support.mesh_process import Space
from tests.support.pages import visitor


async def test_a_link_to_a_message_of_a_long_thread_opens_where_it_stands(space: Space) -> None:
    one, _ = await space.agents("one", "two")
    await space.policy(messages_per_thread=500, pair_budget="0", sent_per_day=1000)
    client = space.client(one)
    first = await client.send("two", "number 1")
    for number in range(2, 71):
        last = await client.send("two", f"number {number}", thread_id=first.thread_id)
    async with visitor(space) as admin:
        window = await admin.get(f"/floor?agent={one.id}&channel=relay")
        link = re.search(rf'href="(/threads/[^"]+#{last.message_id})"', window.html)
        assert link is not None
        path = link[1].partition("#")[0]
        shown = await admin.get(path)
        assert f'id="{last.message_id}"' in shown.html
        assert "number 66" in shown.text
        assert "number 65" not in shown.text
        older = re.search(r'rel="prev" href="([^"]+)"', shown.html)
        assert older is not None
        assert "number 65 " in (await admin.get(older[1])).text
        end = await admin.get(f"/threads/{first.thread_id}?end=1")
        assert "number 21 " in end.text
        assert "number 20 " not in end.text
        back = re.search(r'<a href="([^"]+)">From the beginning', shown.html)
        assert back is not None
        whole = await admin.get(back[1])
        assert "number 1 " in whole.text
        assert "From the beginning" not in whole.text
        assert (await admin.get(f"/threads/{first.thread_id}?message=msg_{'0' * 26}")).status == 404
