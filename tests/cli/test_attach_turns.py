"""What a command gets for a turn under attach, and what its socket does and does not do."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from hopline.relay.v1 import message_pb2
from hopline.runtime.v1 import tunnel_pb2
from hopline_cli.attach.bridge import Upstream
from hopline_cli.attach.daemon import Daemon, private_folder
from hopline_cli.attach.handover import cleaned, fill_in
from hopline_client import Turn, TurnFailed
from hopline_rpc.errors import HoplineError

TOKEN = "hpl_a_" + "s" * 43
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
Script = Callable[..., Coroutine[Any, Any, str]]


class Gateway:
    """An HTTP server in the gateway's place; `received` has the requests that reached it."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self.answer: Callable[[web.Request], Awaitable[web.StreamResponse]] = self._ok
        self.dropped = asyncio.Event()
        self.url = ""
        # Called when somebody waits for us to come up again.
        self.paused: Callable[[], None] = lambda: None

    async def _ok(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"jsonrpc": "2.0", "id": 1, "result": {}})

    async def post(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.received.append({**headers, "path": request.path, "body": await request.text()})
        try:
            return await self.answer(request)
        except asyncio.CancelledError:
            self.dropped.set()
            raise


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    found = Gateway()
    app = web.Application()
    app.router.add_post("/mcp", found.post)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()


class NoWatchdog:
    def started(self, group: int) -> None:
        pass

    def ended(self, group: int) -> None:
        pass


class NoWire:
    """A turn's way back that nothing uses here."""

    async def call(self, *_: Any) -> Any:
        raise AssertionError("not used")

    async def write(self, *_: Any) -> None:
        raise AssertionError("not used")

    def progress(self, *_: Any) -> None:
        raise AssertionError("not used")

    def unary(self, *_: Any) -> Any:
        raise AssertionError("not used")


def start_turn(session: str = "ses_1", **more: Any) -> Turn:
    message = message_pb2.Message(
        id="msg_1", thread_id="thr_1", seq=1, body="the body", reply_expected=True, depth=2
    )
    getattr(message, "from").MergeFrom(
        message_pb2.Party(id="agt_1", name="planner", display="planner (for Alice)")
    )
    fields = {"from": "planner (for Alice)", "messages": [message], "prompt": "fenced: the body", **more}
    start = tunnel_pb2.StartTurn(
        turn_id="trn_1", session_id=session, depth=2, model_id="m-1", thinking_level="low",
        traceparent=TRACE, **{"soul": "You are kind.", "instructions": "Be brief.", **fields},
    )  # fmt: skip
    return Turn(start, NoWire())


@pytest.fixture
async def upstream(gateway: Gateway) -> AsyncIterator[Upstream]:
    async def url() -> str:
        return gateway.url

    async def token() -> str:
        return TOKEN

    async def pause(_: float) -> None:
        gateway.paused()

    found = Upstream(url, token, pause=pause)
    yield found
    await found.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    """The daemon's folder; not below pytest's own, whose paths are too long for sockets."""
    with tempfile.TemporaryDirectory(prefix="hl-") as short:
        yield private_folder(Path(short), shared=False)


@pytest.fixture
def run(upstream: Upstream, folder: Path) -> Script:
    """Run a Python script as the command of one turn; returns its answer."""

    async def run(script: str, *words: str, raw: bool = False, turn: Turn | None = None) -> str:
        command = [sys.executable, "-c", script, *words]
        daemon = Daemon(command, folder, upstream, NoWatchdog(), raw=raw)
        return await daemon.handle(turn or start_turn())

    return run


SHOW = """
import json, os, sys
print(json.dumps({"env": dict(os.environ), "argv": sys.argv[1:], "stdin": sys.stdin.read(), "files":
  {n: open(os.environ[n]).read() for n in
   ("HOPLINE_MESSAGE_FILE", "HOPLINE_SYSTEM_FILE", "HOPLINE_MCP_CONFIG", "OPENCODE_CONFIG")}}))
"""

# Posts to the turn's socket with the standard library; arguments: headers as JSON, path, method.
POST = """
import http.client, json, os, socket, sys
c = http.client.HTTPConnection("localhost")
c.sock = socket.socket(socket.AF_UNIX)
c.sock.connect(os.environ["HOPLINE_SOCKET"])
headers, path, method = (sys.argv[1:] + ["{}", "/mcp", "POST"][len(sys.argv) - 1:])
c.request(method, path, b'{"a": 1}', {"Content-Type": "application/json", **json.loads(headers)})
r = c.getresponse()
print(r.status, r.read().decode())
"""


async def test_the_environment_says_which_turn_this_is(run: Script, folder: Path) -> None:
    shown = json.loads(await run(SHOW))
    env = shown["env"]
    assert env["HOPLINE_SESSION_ID"] == "ses_1"
    assert env["HOPLINE_TURN_ID"] == "trn_1"
    assert env["HOPLINE_DEPTH"] == "2"
    assert env["HOPLINE_FROM"] == "planner (for Alice)"
    assert env["HOPLINE_MODEL"] == "m-1"
    assert env["HOPLINE_THINKING_LEVEL"] == "low"
    assert env["TRACEPARENT"] == TRACE
    assert env["HOPLINE_SOCKET"].startswith(f"{folder}/")


async def test_the_files_hold_the_message_and_the_system_prompt(run: Script) -> None:
    files = json.loads(await run(SHOW))["files"]
    message = json.loads(files["HOPLINE_MESSAGE_FILE"])
    assert message["id"] == message["message_id"] == "msg_1"
    assert message["body"] == "the body"
    assert message["from"] == {"id": "agt_1", "name": "planner", "display": "planner (for Alice)"}
    assert message["reply_expected"] is True
    assert files["HOPLINE_SYSTEM_FILE"] == "You are kind.\n\nBe brief."


async def test_of_several_messages_the_file_has_all(run: Script) -> None:
    messages = [message_pb2.Message(id=f"msg_{n}", body=f"b{n}") for n in (1, 2)]
    shown = json.loads(await run(SHOW, raw=True, turn=start_turn(messages=messages)))
    message = json.loads(shown["files"]["HOPLINE_MESSAGE_FILE"])
    assert message["id"] == "msg_1"
    assert [each["id"] for each in message["messages"]] == ["msg_1", "msg_2"]
    assert shown["stdin"] == "b1\n\nb2"


async def test_the_mcp_configurations_start_this_installation_by_absolute_path(run: Script) -> None:
    shown = json.loads(await run(SHOW))
    server = json.loads(shown["files"]["HOPLINE_MCP_CONFIG"])["mcpServers"]["hopline"]
    opencode = json.loads(shown["files"]["OPENCODE_CONFIG"])["mcp"]["hopline"]
    assert os.path.isabs(server["command"])
    assert os.access(server["command"], os.X_OK)
    assert server["args"][-1] == "mcp"
    assert server["env"] == {"HOPLINE_SOCKET": shown["env"]["HOPLINE_SOCKET"], "TRACEPARENT": TRACE}
    assert opencode["command"] == [server["command"], *server["args"]]
    assert opencode["environment"] == server["env"]


async def test_a_command_is_told_of_no_other_folder_than_the_one_it_is_in(
    run: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PWD", "/somewhere/else")
    assert json.loads(await run(SHOW))["env"]["PWD"] == os.getcwd()


async def test_opencode_reads_the_system_prompt_where_there_is_one(run: Script) -> None:
    shown = json.loads(await run(SHOW))
    read = json.loads(shown["files"]["OPENCODE_CONFIG"])["instructions"]
    assert read == [shown["env"]["HOPLINE_SYSTEM_FILE"]]
    shown = json.loads(await run(SHOW, turn=start_turn(soul="", instructions="")))
    assert "instructions" not in json.loads(shown["files"]["OPENCODE_CONFIG"])


async def test_no_credential_is_handed_over(
    run: Script, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOPLINE_TOKEN_FILE", str(tmp_path / "agent.token"))
    monkeypatch.setenv("HOPLINE_DATA", str(tmp_path))
    monkeypatch.setenv("MY_HEADER", f"Bearer {TOKEN}")
    monkeypatch.setenv("HARNESS_KEY", "its own")
    answer = await run(SHOW)
    assert TOKEN not in answer
    env = json.loads(answer)["env"]
    assert not {"HOPLINE_TOKEN_FILE", "HOPLINE_DATA", "MY_HEADER"} & set(env)
    assert env["HARNESS_KEY"] == "its own"


def test_a_command_under_another_attach_gets_nothing_of_the_outer_turn() -> None:
    outer = {"HOPLINE_SOCKET": "/s", "TRACEPARENT": TRACE, "OPENCODE_CONFIG": "/c", "PATH": "/bin"}
    assert cleaned(outer) == {"PATH": "/bin"}


@pytest.mark.parametrize(("raw", "text"), [(False, "fenced: the body"), (True, "the body")])
async def test_the_prompt_is_fenced_or_bare(run: Script, raw: bool, text: str) -> None:
    shown = json.loads(await run(SHOW, "--config={mcp_config}", raw=raw))
    assert shown["stdin"] == text
    assert shown["argv"] == [f"--config={shown['env']['HOPLINE_MCP_CONFIG']}"]


@pytest.mark.parametrize(("raw", "text"), [(False, "fenced: the body"), (True, "the body")])
async def test_a_command_with_the_prompt_among_its_words_does_not_read_it_once_more(
    run: Script, raw: bool, text: str
) -> None:
    shown = json.loads(await run(SHOW, "--say={prompt}", raw=raw))
    assert (shown["argv"], shown["stdin"]) == ([f"--say={text}"], "")


def test_what_comes_in_with_a_prompt_is_not_replaced_again() -> None:
    assert fill_in(["x{prompt}y", "{other}"], "{mcp_config} {prompt}", "/file") == [
        "x{mcp_config} {prompt}y",
        "{other}",
    ]


def test_a_prompt_that_looks_like_an_option_does_not_become_one() -> None:
    assert fill_in(["{prompt}"], "--dangerous", "") == [" --dangerous"]


async def test_files_and_socket_are_for_their_owner_alone_and_gone_after_the_turn(
    run: Script, folder: Path
) -> None:
    script = """
import json, os, stat
here = os.path.dirname(os.environ["HOPLINE_SOCKET"])
mode = lambda p: stat.S_IMODE(os.stat(p).st_mode)
print(json.dumps({"folder": mode(here), "files": {f: mode(os.path.join(here, f)) for f in os.listdir(here)}}))
"""
    modes = json.loads(await run(script))
    assert modes["folder"] == 0o700
    assert set(modes["files"].values()) == {0o600}
    assert set(modes["files"]) == {"mcp.sock", "message.json", "system.md", "mcp.json", "opencode.json"}
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert os.listdir(folder) == []


async def test_the_socket_acts_as_the_agent_in_the_session_whatever_the_command_claims(
    run: Script, gateway: Gateway
) -> None:
    claims = {
        "Authorization": "Bearer hpl_u_admin",
        "Hopline-Session": "ses_other",
        "Hopline-Workspace": "elsewhere",
        "Hopline-Subject": "somebody",
        "X-Forwarded-For": "10.0.0.1",
        "Forwarded": "for=10.0.0.1",
        "Cookie": "a=b",
        "traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "ask",
        "Mcp-Param-X": "1",
        "MCP-Protocol-Version": "2026-07-28",
    }
    assert (await run(POST, json.dumps(claims))).startswith("200 ")
    [got] = gateway.received
    assert got["authorization"] == f"Bearer {TOKEN}"
    assert got["hopline-session"] == "ses_1"
    assert got["traceparent"] == TRACE
    assert got["body"] == '{"a": 1}'
    assert got["mcp-method"] == "tools/call"
    assert got["mcp-name"] == "ask"
    assert got["mcp-param-x"] == "1"
    assert got["mcp-protocol-version"] == "2026-07-28"
    dropped = {"hopline-workspace", "hopline-subject", "x-forwarded-for", "forwarded", "cookie"}
    assert not dropped & set(got)


async def test_a_command_may_go_on_in_its_own_trace_with_a_span_of_its_own(
    run: Script, gateway: Gateway
) -> None:
    own = TRACE.replace("b7ad6b7169203331", "00f067aa0ba902b7")
    await run(POST, json.dumps({"traceparent": own}))
    assert gateway.received[0]["traceparent"] == own


@pytest.mark.parametrize("of_many", [False, True])
async def test_what_a_message_says_of_itself_moves_it_to_no_other_trace(
    run: Script, gateway: Gateway, *, of_many: bool
) -> None:
    def body(traceparent: object) -> str:
        meta = {"traceparent": traceparent, "session": "ses_other", "progressToken": 1}
        call = {"name": "ask", "arguments": {"agent": "b", "traceparent": "its own"}, "_meta": meta}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        return json.dumps([message] if of_many else message)

    own = TRACE.replace("b7ad6b7169203331", "00f067aa0ba902b7")
    other = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
    for claimed, kept in ((own, own), (other, TRACE), (7, TRACE), (None, TRACE)):
        gateway.received.clear()
        await run(POST.replace("b'{\"a\": 1}'", f"{body(claimed)!r}.encode()"))
        [got] = gateway.received
        assert json.loads(got["body"]) == json.loads(body(kept))
        assert got["hopline-session"] == "ses_1"


@pytest.mark.parametrize(("path", "method", "status"), [("/endpoints", "POST", 404), ("/mcp", "GET", 405)])
async def test_the_socket_leads_nowhere_else(
    run: Script, gateway: Gateway, path: str, method: str, status: int
) -> None:
    assert (await run(POST, "{}", path, method)).startswith(f"{status} ")
    assert gateway.received == []


async def test_answers_stream_through_the_socket(run: Script, gateway: Gateway, tmp_path: Path) -> None:
    got_first = tmp_path / "first"
    os.mkfifo(got_first)

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: one\n\n")
        await asyncio.to_thread(got_first.read_text)  # goes on when the first piece has arrived
        await response.write(b"data: two\n\n")
        return response

    gateway.answer = answer
    script = POST.replace(
        "print(r.status, r.read().decode())",
        f"one = r.readline(); open({str(got_first)!r}, 'w').write('x')\n"
        "print(r.getheader('Content-Type'), (one + r.read()).decode())",
    )
    assert await run(script) == "text/event-stream data: one\n\ndata: two\n\n"


async def test_a_gateway_that_is_gone_is_said_to_be_unreachable(
    run: Script, gateway: Gateway, unused_tcp_port: int
) -> None:
    gateway.url = f"http://127.0.0.1:{unused_tcp_port}"
    status, _, body = (await run(POST)).partition(" ")
    assert status == "503"
    assert json.loads(body)["error"]["code"] == "unavailable"


async def test_a_gateway_that_is_being_started_again_is_waited_for(
    run: Script, gateway: Gateway, unused_tcp_port: int
) -> None:
    up, gateway.url = gateway.url, f"http://127.0.0.1:{unused_tcp_port}"
    gateway.paused = lambda: setattr(gateway, "url", up)
    assert (await run(POST)).startswith("200 ")
    assert len(gateway.received) == 1


async def test_a_request_of_a_command_that_ends_is_dropped_at_the_gateway(
    run: Script, gateway: Gateway
) -> None:
    arrived = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        arrived.set()
        await asyncio.get_running_loop().create_future()
        raise AssertionError("never answered")

    gateway.answer = answer
    turn = asyncio.create_task(run(POST))
    await arrived.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    async with asyncio.timeout(20):
        await gateway.dropped.wait()


async def test_after_its_turn_a_session_has_no_socket(run: Script, gateway: Gateway) -> None:
    path = (await run("import os; print(os.environ['HOPLINE_SOCKET'])")).strip()
    with pytest.raises(aiohttp.ClientConnectorError):
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(path)) as http:
            await http.post("http://localhost/mcp", data=b"{}")
    assert gateway.received == []


async def test_a_connection_kept_from_a_turn_does_not_outlive_it(
    run: Script, gateway: Gateway, upstream: Upstream, folder: Path
) -> None:
    """A process that fled from the command's group holds a connection to the socket; it is cut."""
    at_work, go_on = asyncio.Event(), asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        at_work.set()
        await go_on.wait()
        return web.json_response({})

    gateway.answer = answer
    script = POST.replace("r = c.getresponse()", "")
    script = script.replace("print(r.status, r.read().decode())", "c.getresponse().read(); input()")
    turn = asyncio.create_task(run(script))
    await at_work.wait()
    [session] = [folder / name for name in os.listdir(folder)]
    connector = aiohttp.UnixConnector(str(session / "mcp.sock"))
    async with aiohttp.ClientSession(connector=connector) as http:
        go_on.set()
        async with http.post("http://localhost/mcp", data=b"{}") as first:
            assert first.status == 200
            await first.read()
        turn.cancel()
        await asyncio.gather(turn, return_exceptions=True)
        with pytest.raises(aiohttp.ClientError):
            await http.post("http://localhost/mcp", data=b"{}")
    assert len(gateway.received) == 2


async def test_sessions_have_sockets_of_their_own(run: Script) -> None:
    script = "import os; print(os.environ['HOPLINE_SOCKET'])"
    one, two, again = [await run(script, turn=start_turn(session)) for session in ("ses_1", "ses_2", "ses_1")]
    assert one != two
    assert one == again


async def test_the_turns_of_a_session_follow_one_another(
    run: Script, upstream: Upstream, folder: Path
) -> None:
    """The next turn of a session waits until a turn that was taken from us has ended here."""
    script = "import os, sys; print(os.path.exists(os.environ['HOPLINE_MESSAGE_FILE'])); sys.stdout.close()"
    daemon = Daemon([sys.executable, "-c", script], folder, upstream, NoWatchdog())
    answers = await asyncio.gather(*(daemon.handle(start_turn()) for _ in range(3)))
    assert answers == ["True"] * 3


async def test_a_failing_command_leaves_nothing_behind(run: Script, folder: Path) -> None:
    with pytest.raises(TurnFailed, match="exit status 7"):
        await run("raise SystemExit(7)")
    assert os.listdir(folder) == []


def test_a_folder_too_deep_for_sockets_is_refused_with_what_to_do(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 90)
    deep.mkdir()
    with pytest.raises(HoplineError, match="shorter --socket-dir"):
        private_folder(deep, shared=False)
    assert list(deep.iterdir()) == []


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(HoplineError, match=r"no folder can be made in .*/missing: No such file"):
        private_folder(tmp_path / "missing", shared=False)
