"""What the rows of todos say: which keep an agent from being done, and what is kept of those that ended."""

from __future__ import annotations

import pytest
from hopline_relay.domain.left import KEPT_TODOS, Origin
from hopline_relay.store import todos
from hopline_relay.store.book import Book
from hopline_relay.store.schema import sessions
from hopline_relay.store.sql import Record

from tests.support.relay_mesh import RelayMesh

pytestmark = pytest.mark.both_stores

ORIGIN = Origin("trn_x", 1, "rot_x")


async def _noted(mesh: RelayMesh, *texts: str) -> tuple[tuple[str, str], list[str]]:
    ada = await mesh.agent("ada")
    bob = await mesh.agent("bob")
    sent = await bob.send(ada)
    session = (mesh.workspace_id, sent.deliveries[0].session_id)
    noted = [(f"tdo_{text}", text) for text in texts]
    await mesh.relay.journal.write(lambda book: todos.add(book, session, ada.id, noted, ORIGIN))
    return session, [todo_id for todo_id, _ in noted]


async def _holding(mesh: RelayMesh, session: tuple[str, str]) -> int:
    now = mesh.clock.now()
    return await mesh.relay.journal.read(lambda connection: todos.holding(connection, *session, now))


async def _marked(mesh: RelayMesh, session: tuple[str, str]) -> bool:
    query = sessions.select().where(sessions.c.id == session[1])
    row: Record = await mesh.relay.journal.read(lambda connection: connection.execute(query).one())
    return bool(row.todos)


async def test_what_is_snoozed_or_asleep_holds_nobody(mesh: RelayMesh) -> None:
    session, ids = await _noted(mesh, "a", "b", "c")
    assert await _holding(mesh, session) == 3

    def rest(book: Book) -> None:
        found = todos.find(book.connection, (session[0], ids[0]))
        todos.snooze(book, found, book.now + 60)

    await mesh.relay.journal.write(rest)
    assert await _holding(mesh, session) == 2
    await mesh.clock.advance(60)
    assert await _holding(mesh, session) == 3

    def sleep_and_stir(book: Book) -> list[int]:
        # In one go: the relay itself looks at lists in between, and may well wake this one.
        todos.sleep(book, session, "no_progress", "")
        asleep = todos.holding(book.connection, *session, book.now)
        todos.stir(book, session)
        return [asleep, todos.holding(book.connection, *session, book.now)]

    assert await mesh.relay.journal.write(sleep_and_stir) == [0, 3]


async def test_a_session_says_that_it_has_todos_until_the_last_has_ended(mesh: RelayMesh) -> None:
    session, ids = await _noted(mesh, "a", "b")
    assert await _marked(mesh, session)

    def finish(book: Book, todo_id: str) -> None:
        found = todos.find(book.connection, (session[0], todo_id))
        assert found is not None
        assert todos.end(book, found, "done")
        assert not todos.end(book, found, "done")
        todos.settle(book, session, found.agent_id)

    await mesh.relay.journal.write(lambda book: finish(book, ids[0]))
    assert await _marked(mesh, session)
    await mesh.relay.journal.write(lambda book: finish(book, ids[1]))
    assert not await _marked(mesh, session)
    assert await mesh.relay.journal.read(lambda connection: todos.list_of(connection, *session)) is None
    assert await _holding(mesh, session) == 0


async def test_of_those_that_have_ended_the_latest_hundred_are_kept(mesh: RelayMesh) -> None:
    names = [f"{number:03}" for number in range(KEPT_TODOS + 1)]
    session, _ = await _noted(mesh, *names)
    dropped = await mesh.relay.journal.write(lambda book: todos.drop_of_session(book, session))
    assert dropped == KEPT_TODOS + 1
    left = await mesh.relay.journal.read(
        lambda connection: todos.page(connection, *session, 0, 1000, ended=True)
    )
    assert [row.body for row in left] == names[1:]
