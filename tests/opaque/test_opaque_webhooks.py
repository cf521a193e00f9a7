"""What comes in without a credential is answered alike, in words, headers and time, whatever there is."""

from __future__ import annotations

import time

import aiohttp
import pytest
from hopline.registry.v1.agent_pb2 import DeleteAgentRequest, PauseAgentRequest
from hopline.relay.v1.webhook_pb2 import AddWebhookRequest
from hopline_rpc import signatures

from tests.opaque.hidden import FLEETING
from tests.opaque.questions import Question
from tests.opaque.times import leaks
from tests.support.mesh_process import Space

# As large as it may be: a signature that is worked out once more would show.
BODY = b"x" * 65536


async def _targets(space: Space) -> dict[str, tuple[str, str]]:
    """Make webhooks; returns, by what is wrong, a slug and the secret of its webhook `orders`."""
    found = {"never there": ("nobody", "whs_wrong")}
    for why, slug in (
        ("another secret", "active"),
        ("a paused agent", "paused"),
        ("a deleted agent", "gone"),
    ):
        await space.agent(slug)
        made = await space.admin.webhooks.AddWebhook(AddWebhookRequest(agent=slug, name="orders"))
        found[why] = (slug, "whs_wrong" if why == "another secret" else made.secret)
    await space.agent("bare")
    found["an unknown name"] = ("bare", "whs_wrong")
    await space.admin.agents.PauseAgent(PauseAgentRequest(agent="paused"))
    await space.admin.agents.DeleteAgent(DeleteAgentRequest(agent="gone"))
    return found


def _question(space: Space, http: aiohttp.ClientSession, targets: dict[str, tuple[str, str]]) -> Question:
    async def ask(why: str) -> str:
        slug, secret = targets[why]
        header = {signatures.HEADER: signatures.sign(secret, BODY, int(time.time()))}
        async with http.post(f"/{slug}/v1/webhooks/orders", data=BODY, headers=header) as found:
            told = sorted((key, value) for key, value in found.headers.items() if key.lower() not in FLEETING)
            return f"{found.status} {told} {await found.text()}"

    return Question("webhook", {why: why for why in targets}, ask)


@pytest.mark.parametrize("what", ["the answer", "its time"])
async def test_a_delivery_that_is_refused_tells_nothing(space: Space, what: str) -> None:
    targets = await _targets(space)
    async with aiohttp.ClientSession(space.mesh.endpoints["gateway"]) as http:
        question = _question(space, http, targets)
        answers = await question.answers()
        assert answers == dict.fromkeys(targets, answers["never there"])
        assert answers["never there"].startswith("401 ")
        if what == "its time":
            assert await leaks(question, space.mesh.up.pid) == {}
