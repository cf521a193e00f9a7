"""Tokens that were made elsewhere and are honoured by a registry that starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import new_token

from tests.registry.builders import Rig

pytestmark = pytest.mark.both_stores


@pytest.fixture
def given(tmp_path: Path) -> Path:
    folder = tmp_path / "given"
    folder.mkdir()
    for name in ("quota", "relay", "gateway", "console"):
        (folder / f"{name}.token").write_text(new_token("service") + "\n")
    (folder / "admin.token").write_text(new_token("user") + "\n")
    return folder


async def opened(data: Path, store_url: str, given: Path) -> Rig:
    return await Rig.open(data, database_url=store_url, tokens_dir=str(given))


async def who(rig: Rig, secret: str) -> str:
    """Return whom a token stands for; empty for nobody."""
    try:
        found = await rig.registry._identity.authenticator.principal(secret, "")
    except HoplineError as error:
        return "" if error.reason == "unauthenticated" else error.reason
    return f"{found.kind} {found.id if found.kind == 'service' else found.name}"


async def test_services_and_the_installation_come_with_tokens_of_their_own(
    data: Path, store_url: str, given: Path
) -> None:
    rig = await opened(data, store_url, given)
    try:
        for name in ("quota", "relay", "gateway", "console"):
            assert await who(rig, (given / f"{name}.token").read_text().strip()) == f"service {name}"
        assert await who(rig, (given / "admin.token").read_text().strip()) == "user admin"
    finally:
        await rig.registry.close()


async def test_a_file_that_changes_takes_the_place_of_what_was_there(
    data: Path, store_url: str, given: Path
) -> None:
    before = {
        name: (given / name).read_text().strip() for name in ("relay.token", "quota.token", "admin.token")
    }
    await (await opened(data, store_url, given)).registry.close()
    (given / "relay.token").write_text(new_token("service"))
    (given / "admin.token").write_text(new_token("user"))
    rig = await opened(data, store_url, given)
    try:
        assert await who(rig, before["relay.token"]) == ""
        assert await who(rig, before["admin.token"]) == ""
        assert await who(rig, before["quota.token"]) == "service quota"
        assert await who(rig, (given / "relay.token").read_text()) == "service relay"
        assert await who(rig, (given / "admin.token").read_text()) == "user admin"
    finally:
        await rig.registry.close()


@pytest.mark.parametrize(
    "content", ["", "secret", "hpl_u_" + "x" * 43, "hpl_s_short", "hpl_s_" + "x" * 43 + " and more"]
)
async def test_what_is_no_token_of_its_kind_stops_the_start(
    data: Path, store_url: str, given: Path, content: str
) -> None:
    (given / "relay.token").write_text(content)
    with pytest.raises(HoplineError, match=r"relay\.token holds no token"):
        await opened(data, store_url, given)


async def test_the_token_of_one_is_not_taken_for_another(data: Path, store_url: str, given: Path) -> None:
    (given / "relay.token").write_text((given / "quota.token").read_text())
    with pytest.raises(HoplineError, match="somebody else"):
        await opened(data, store_url, given)
