"""The first start, later starts, and the tables."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from hopline.registry.v1.identity_pb2 import ListRolesRequest, ListUsersRequest
from hopline.registry.v1.workspace_pb2 import GetWorkspaceRequest, ListWorkspacesRequest
from hopline_registry.bootstrap import write_secret
from hopline_registry.store.schema import metadata
from hopline_rpc.errors import HoplineError
from hopline_store import open_database
from sqlalchemy import create_engine, inspect

from tests.registry.builders import Rig, refusal


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_the_first_start_makes_a_workspace_a_user_and_a_token_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rig = await Rig.open(tmp_path / "data")
    assert rig.registry.first_start
    workspaces = await rig.admin.workspaces.ListWorkspaces(ListWorkspacesRequest())
    assert [each.name for each in workspaces.workspaces] == ["default"]
    users = await rig.admin.identity.ListUsers(ListUsersRequest())
    assert [each.name for each in users.users] == ["admin"]
    roles = await rig.admin.identity.ListRoles(ListRolesRequest())
    assert [(each.user_id, each.agent_id, each.role) for each in roles.grants] == [(users.users[0].id, "", 3)]
    await rig.registry.close()
    assert rig.root not in "".join(capfd.readouterr())


async def test_what_holds_secrets_is_for_its_owner_alone(rig: Rig) -> None:
    assert mode_of(rig.registry.token_file) == 0o600
    for file in rig.folder.glob("registry.db*"):
        assert mode_of(file) == 0o600
    assert rig.root.encode() not in b"".join(file.read_bytes() for file in rig.folder.glob("registry.db*"))


async def test_a_new_data_folder_is_for_its_owner_alone(tmp_path: Path) -> None:
    rig = await Rig.open(tmp_path / "deep" / "data")
    assert mode_of(tmp_path / "deep" / "data") == 0o700
    await rig.registry.close()


async def test_a_later_start_changes_nothing(rig: Rig) -> None:
    again = await rig.reopen()
    assert not again.registry.first_start
    assert again.root == rig.root
    assert again.registry.directory.seq == rig.registry.directory.seq
    await again.admin.workspaces.GetWorkspace(GetWorkspaceRequest())
    await again.registry.close()


async def test_a_lost_token_file_is_replaced_and_the_old_token_ends(rig: Rig) -> None:
    rig.registry.token_file.unlink()
    again = await rig.reopen()
    assert again.root != rig.root
    await again.admin.workspaces.GetWorkspace(GetWorkspaceRequest())
    old = again.caller(rig.root)
    assert (await refusal(old.workspaces.GetWorkspace(GetWorkspaceRequest()))).reason == "unauthenticated"
    await again.registry.close()


async def test_the_view_after_a_restart_is_the_one_before(rig: Rig) -> None:
    alice = await rig.user("Alice", role=2)
    await rig.agent("Lead", alice, labels={"team": "x"}, soul="calm")
    await rig.agent("Child", alice, parent_agent_id="lead", is_group_only_callable=True, reach=["lead"])
    await rig.workspace("other")
    before = sorted(map(str, rig.registry.directory.snapshot()))
    again = await rig.reopen()
    assert sorted(map(str, again.registry.directory.snapshot())) == before
    await again.registry.close()


def test_a_secret_is_written_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "secret"
    write_secret(target, "first")

    def broken(self: Path, other: Path) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", broken)
    with pytest.raises(OSError, match="disk full"):
        write_secret(target, "second")
    assert target.read_text() == "first\n"
    assert list(tmp_path.iterdir()) == [target]


async def test_migrations_from_empty_make_the_tables_of_the_code(tmp_path: Path) -> None:
    db = open_database(tmp_path / "r.db", migrations="hopline_registry.migrations")
    with db.engine.connect() as conn:
        assert compare_metadata(MigrationContext.configure(conn), metadata) == []
    await db.close()


async def test_every_table_is_keyed_by_workspace_first_but_for_what_belongs_to_the_mesh(
    tmp_path: Path,
) -> None:
    db = open_database(tmp_path / "r.db", migrations="hopline_registry.migrations")
    await db.close()
    engine = create_engine(f"sqlite:///{tmp_path / 'r.db'}")
    found = inspect(engine)
    keys = {name: found.get_pk_constraint(name)["constrained_columns"][0] for name in found.get_table_names()}
    engine.dispose()
    of_the_mesh = {"alembic_version", "signing_keys", "secrets", "feed", "changes"}
    assert {name for name, first in keys.items() if first != "workspace_id"} == of_the_mesh


async def test_bad_settings_are_named_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(HoplineError) as caught:
        await Rig.open(tmp_path / "data", registry_changes_kept="few")
    assert "HOPLINE_REGISTRY_CHANGES_KEPT" in caught.value.message


async def test_a_second_registry_on_the_same_folder_is_refused(rig: Rig) -> None:
    with pytest.raises(HoplineError) as caught:
        await Rig.open(rig.folder)
    assert caught.value.reason == "failed_precondition"
    assert str(rig.folder) in caught.value.message
    await rig.admin.workspaces.GetWorkspace(GetWorkspaceRequest())
