"""`hopline mcp` as a process, against a small HTTP server that stands for the gateway."""

from __future__ import annotations

import http.client
import json
import os
import queue
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hopline_cli import posting

SECONDS = 20.0
Json = dict[str, Any]
Answer = Callable[["Post"], None]


class Post:
    """One POST that the server got, and the way to answer it."""

    def __init__(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        self.handler = handler
        self.path = handler.path
        self.headers = {name.lower(): value for name, value in handler.headers.items()}
        self.body: Any = json.loads(body)
        self.is_dropped = threading.Event()

    def reply(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.handler.send_response(status)
        self.handler.send_header("Content-Type", kind)
        self.handler.send_header("Content-Length", str(len(body)))
        self.handler.end_headers()
        self.handler.wfile.write(body)

    def result(self, **result: Any) -> None:
        self.reply(200, json.dumps({"jsonrpc": "2.0", "id": self.body.get("id"), "result": result}).encode())

    def begin_events(self) -> None:
        self.handler.send_response(200)
        self.handler.send_header("Content-Type", "text/event-stream")
        self.handler.end_headers()

    def event(self, message: Json) -> None:
        self.handler.wfile.write(b"event: message\r\ndata: " + json.dumps(message).encode() + b"\r\n\r\n")
        self.handler.wfile.flush()

    def wait_for_hangup(self) -> None:
        """Return when the client has closed the connection."""
        self.handler.connection.settimeout(SECONDS)
        if self.handler.connection.recv(1) == b"":
            self.is_dropped.set()


def answer_plainly(post: Post) -> None:
    post.result(ok=True)


class Gateway:
    """The server: `answer` says how, `posts` has what came."""

    def __init__(self) -> None:
        self.posts: queue.Queue[Post] = queue.Queue()
        self.answer: Answer = answer_plainly
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                post = Post(self, self.rfile.read(int(self.headers["Content-Length"])))
                gateway.posts.put(post)
                gateway.answer(post)
                self.close_connection = True

            def log_message(self, *_: Any) -> None:
                pass

        self._handler = Handler
        self.open()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def open(self, port: int = 0) -> None:
        self.server = ThreadingHTTPServer(("127.0.0.1", port), self._handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}).start()

    def next_post(self) -> Post:
        return self.posts.get(timeout=SECONDS)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Pipe:
    """A running `hopline mcp`."""

    def __init__(self, env: Json, *words: str) -> None:
        plain = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hopline_cli", "mcp", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**plain, **env},
        )
        assert self.process.stdin
        assert self.process.stdout
        self.stdin = self.process.stdin
        self.lines: queue.Queue[bytes] = queue.Queue()
        self.reader = threading.Thread(target=self._read, args=(self.process.stdout,))
        self.reader.start()

    def _read(self, stdout: Any) -> None:
        for line in stdout:
            self.lines.put(line)

    def say(self, *messages: Json | bytes) -> None:
        for message in messages:
            self.stdin.write(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")
        self.stdin.flush()

    def hear(self) -> Any:
        return json.loads(self.lines.get(timeout=SECONDS))

    def end(self) -> int:
        self.stdin.close()
        status = self.process.wait(SECONDS)
        self.reader.join()
        return status

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.reader.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                stream.close()


def request(request_id: Any, method: str = "tools/list", **params: Any) -> Json:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    found = Gateway()
    yield found
    found.close()


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "agent.token"
    file.write_text("hpl_a_secret\n")
    return file


@pytest.fixture
def start(gateway: Gateway, token_file: Path) -> Iterator[Callable[..., Pipe]]:
    running: list[Pipe] = []

    def run(*words: str, **env: str) -> Pipe:
        usual = {"HOPLINE_URL": gateway.url, "HOPLINE_TOKEN_FILE": str(token_file)}
        running.append(Pipe({**usual, **env}, *words))
        return running[-1]

    yield run
    for pipe in running:
        pipe.close()


def test_a_request_is_posted_with_token_and_session_and_its_answer_is_a_line(
    gateway: Gateway, start: Callable[..., Pipe]
) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    pipe = start(HOPLINE_SESSION_ID="ses_1", TRACEPARENT=trace)
    pipe.say(request(7))
    assert pipe.hear() == {"jsonrpc": "2.0", "id": 7, "result": {"ok": True}}
    post = gateway.next_post()
    assert post.path == "/mcp"
    assert post.body == request(7)
    assert post.headers["authorization"] == "Bearer hpl_a_secret"
    assert post.headers["hopline-session"] == "ses_1"
    assert post.headers["traceparent"] == trace
    assert post.headers["accept"] == "application/json, text/event-stream"
    assert pipe.end() == 0


def test_a_base_url_may_have_a_path(gateway: Gateway, start: Callable[..., Pipe]) -> None:
    start(HOPLINE_URL=gateway.url + "/mesh/").say(request(1))
    assert gateway.next_post().path == "/mesh/mcp"


def test_the_version_that_initialize_settles_is_named_from_then_on(
    gateway: Gateway, start: Callable[..., Pipe]
) -> None:
    gateway.answer = lambda post: post.result(protocolVersion="2025-06-18")
    pipe = start()
    # All at once, as a script would: what comes behind `initialize` waits for its answer.
    pipe.say(request(1, "initialize", protocolVersion="2025-06-18"), request(2))
    assert [pipe.hear()["id"], pipe.hear()["id"]] == [1, 2]
    first, second = gateway.next_post(), gateway.next_post()
    assert "mcp-protocol-version" not in first.headers
    assert second.headers["mcp-protocol-version"] == "2025-06-18"
    assert "mcp-method" not in second.headers


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "ask"}, "ask"),
        ("prompts/get", {"name": "a b"}, "a b"),
        ("resources/read", {"uri": "x://y"}, "x://y"),
        ("tools/call", {"name": "größe"}, "=?base64?Z3LDtsOfZQ==?="),
        ("tools/list", {"name": "not a name here"}, None),
    ],
)
def test_modern_requests_repeat_version_method_and_name_in_headers(
    gateway: Gateway, start: Callable[..., Pipe], method: str, params: Json, name: str | None
) -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    start().say(request(1, method, _meta=meta, **params))
    headers = gateway.next_post().headers
    assert headers["mcp-protocol-version"] == "2026-07-28"
    assert headers["mcp-method"] == method
    assert headers.get("mcp-name") == name


def test_events_come_out_as_lines_while_they_are_made(gateway: Gateway, start: Callable[..., Pipe]) -> None:
    go_on = threading.Event()

    def answer(post: Post) -> None:
        post.begin_events()
        post.handler.wfile.write(b": a sign of life\r\n\r\ndata:\r\n\r\n")
        post.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}})
        go_on.wait(SECONDS)
        post.event({"jsonrpc": "2.0", "id": post.body["id"], "result": {"done": True}})

    gateway.answer = answer
    pipe = start()
    pipe.say(request("a"))
    assert pipe.hear()["params"] == {"progress": 1}
    go_on.set()
    assert pipe.hear() == {"jsonrpc": "2.0", "id": "a", "result": {"done": True}}


def test_a_slow_request_does_not_hold_up_another(gateway: Gateway, start: Callable[..., Pipe]) -> None:
    go_on = threading.Event()

    def answer(post: Post) -> None:
        if post.body["id"] == "slow":
            go_on.wait(SECONDS)
        post.result()

    gateway.answer = answer
    pipe = start()
    pipe.say(request("slow"), request("quick"))
    assert pipe.hear()["id"] == "quick"
    go_on.set()
    assert pipe.hear()["id"] == "slow"


@pytest.mark.parametrize("request_id", [5, "five"])
def test_a_cancelled_request_is_hung_up_on_and_never_answered(
    gateway: Gateway, start: Callable[..., Pipe], request_id: Any
) -> None:
    gateway.answer = lambda post: (
        post.wait_for_hangup() if post.body.get("id") == request_id else answer_plainly(post)
    )
    pipe = start()
    pipe.say(request(request_id))
    post = gateway.next_post()
    pipe.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}})
    assert post.is_dropped.wait(SECONDS)
    pipe.say(request("next"))
    assert pipe.hear()["id"] == "next"


def test_ids_of_another_type_are_other_requests(gateway: Gateway, start: Callable[..., Pipe]) -> None:
    go_on = threading.Event()

    def answer(post: Post) -> None:
        go_on.wait(SECONDS)
        post.result()

    gateway.answer = answer
    pipe = start()
    pipe.say(request(5))
    gateway.next_post()
    for wrong in ("5", None, [5], 6):
        pipe.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": wrong}})
    pipe.say({"jsonrpc": "2.0", "method": "notifications/cancelled"})
    go_on.set()
    assert pipe.hear()["id"] == 5


def test_notifications_are_posted_and_not_answered(gateway: Gateway, start: Callable[..., Pipe]) -> None:
    gateway.answer = lambda post: answer_plainly(post) if "id" in post.body else post.reply(202, b"")
    pipe = start()
    pipe.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert gateway.next_post().body["method"] == "notifications/initialized"
    pipe.say(request(1))
    assert pipe.hear()["id"] == 1


def test_without_a_mesh_every_request_says_so_and_the_pipe_lives_on(
    gateway: Gateway, start: Callable[..., Pipe]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: refuses connections
        pipe = start(HOPLINE_URL=f"http://127.0.0.1:{taken.getsockname()[1]}")
        for request_id in (1, 2):
            pipe.say(request(request_id))
            answer = pipe.hear()
            assert answer["id"] == request_id
            assert "the mesh cannot be reached" in answer["error"]["message"]
            assert answer["error"]["data"] == {"code": "unavailable", "retryable": True}
    pipe.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert pipe.end() == 0
    assert pipe.lines.empty()


def test_a_mesh_that_was_there_is_waited_for_while_it_starts_again(
    gateway: Gateway, start: Callable[..., Pipe]
) -> None:
    pipe = start()
    pipe.say(request(1))
    assert pipe.hear()["id"] == 1
    port = gateway.server.server_port
    gateway.close()
    pipe.say(request(2))
    gateway.open(port)
    assert pipe.hear() == {"jsonrpc": "2.0", "id": 2, "result": {"ok": True}}


def test_only_what_was_not_sent_is_sent_again_and_only_until_the_caller_gives_up() -> None:
    tries = 0

    class Closed(posting.Route):
        def connect(self) -> tuple[http.client.HTTPConnection, str]:
            nonlocal tries
            tries += 1
            if tries == 3:
                post.cancel()
            raise posting.UnreachableError("nobody listens")

    post = posting.Post(Closed(socket="x"), b"{}", {}, patience_seconds=60.0)
    with pytest.raises(posting.UnreachableError):
        list(post.answers())
    assert tries == 4


def test_a_mesh_that_came_back_elsewhere_is_found_again(
    gateway: Gateway, start: Callable[..., Pipe], tmp_path: Path, token_file: Path
) -> None:
    pipe = start(
        "--data", str(tmp_path), "--token-file", str(token_file), HOPLINE_URL="", HOPLINE_TOKEN_FILE=""
    )
    pipe.say(request(1))
    assert "no mesh is running on" in pipe.hear()["error"]["message"]
    (tmp_path / "endpoints.json").write_text(json.dumps({"gateway": gateway.url}))
    pipe.say(request(2))
    assert "result" in pipe.hear()


def test_a_token_that_was_replaced_is_used_at_once(
    gateway: Gateway, start: Callable[..., Pipe], token_file: Path
) -> None:
    pipe = start()
    for token in ("one", "two"):
        token_file.write_text(token)
        pipe.say(request(token))
        pipe.hear()
        assert gateway.next_post().headers["authorization"] == f"Bearer {token}"


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"a\nb", "schlüssel".encode()])
def test_a_token_file_that_holds_no_token_is_an_error_that_names_it(
    start: Callable[..., Pipe], token_file: Path, content: bytes | None
) -> None:
    token_file.unlink() if content is None else token_file.write_bytes(content)
    pipe = start()
    pipe.say(request(1))
    assert str(token_file) in pipe.hear()["error"]["message"]


@pytest.mark.parametrize(
    ("status", "body", "code", "words"),
    [
        (401, b'{"error": "invalid_token"}', "unauthenticated", "unknown, expired or revoked"),
        (
            403,
            b'{"error": {"code": "agent_paused", "message": "it is paused"}}',
            "agent_paused",
            "it is paused",
        ),
        (404, b"nothing", "not_found", "HTTP status 404"),
        (413, b"", "invalid_argument", "HTTP status 413"),
        (500, b"<html>", "unavailable", "HTTP status 500"),
        (302, b"", "failed_precondition", "HTTP status 302"),
        (200, b"[1", "failed_precondition", "HTTP status 200"),
        (202, b"", "unavailable", "gave no answer"),
    ],
)
def test_an_answer_that_is_no_protocol_becomes_an_error_of_the_request(
    gateway: Gateway, start: Callable[..., Pipe], status: int, body: bytes, code: str, words: str
) -> None:
    gateway.answer = lambda post: post.reply(status, body)
    pipe = start()
    pipe.say(request(1))
    error = pipe.hear()["error"]
    assert error["data"]["code"] == code
    assert words in error["message"]


def test_a_protocol_error_that_came_without_an_id_gets_that_of_its_request(
    gateway: Gateway, start: Callable[..., Pipe]
) -> None:
    error = {"code": -32600, "message": "no"}
    gateway.answer = lambda post: post.reply(
        400, json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    )
    pipe = start()
    pipe.say(request("mine"))
    assert pipe.hear() == {"jsonrpc": "2.0", "id": "mine", "error": error}


def test_an_answer_over_several_lines_is_one_line_of_output(
    gateway: Gateway, start: Callable[..., Pipe]
) -> None:
    def answer(post: Post) -> None:
        post.reply(200, json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"t": "a\nb"}}, indent=2).encode())

    gateway.answer = answer
    pipe = start()
    pipe.say(request(1))
    assert pipe.hear()["result"] == {"t": "a\nb"}


def test_a_stream_that_breaks_off_is_an_error_of_its_request(
    gateway: Gateway, start: Callable[..., Pipe]
) -> None:
    gateway.answer = lambda post: post.begin_events()
    pipe = start()
    pipe.say(request(1))
    assert "gave no answer; what was started goes on" in pipe.hear()["error"]["message"]


@pytest.mark.parametrize("line", [b"{nonsense\n", b"\xff\n", b"[1, 2]\n", b"7\n", b"[" * 100_000 + b"\n"])
def test_a_line_that_is_no_message_is_refused_and_the_next_one_works(
    start: Callable[..., Pipe], line: bytes
) -> None:
    pipe = start()
    pipe.say(line, b"\n", request(1))
    answers = [pipe.hear(), pipe.hear()]
    assert {answer["id"] for answer in answers} == {None, 1}
    assert next(a for a in answers if a["id"] is None)["error"]["code"] in {-32700, -32600}


def test_a_message_of_more_than_4_mib_is_refused_whole(gateway: Gateway, start: Callable[..., Pipe]) -> None:
    pipe = start()
    pipe.say(request(1, text="x" * (4 * 1024 * 1024)), request(2))
    assert "at most 4 MiB" in pipe.hear()["error"]["message"]
    assert pipe.hear()["id"] == 2


def test_at_the_end_of_input_what_is_due_is_still_answered(
    gateway: Gateway, start: Callable[..., Pipe]
) -> None:
    go_on = threading.Event()

    def answer(post: Post) -> None:
        go_on.wait(SECONDS)
        post.result()

    gateway.answer = answer
    pipe = start()
    pipe.say(request(1))
    gateway.next_post()
    pipe.stdin.close()
    go_on.set()
    assert pipe.hear()["id"] == 1
    assert pipe.process.wait(SECONDS) == 0


def test_at_the_end_of_input_a_subscription_does_not_keep_the_pipe(
    gateway: Gateway, start: Callable[..., Pipe]
) -> None:
    gateway.answer = lambda post: post.wait_for_hangup()
    pipe = start()
    pipe.say(request(1, "subscriptions/listen"))
    gateway.next_post()
    assert pipe.end() == 0


def test_a_client_that_stops_reading_ends_the_pipe(gateway: Gateway, start: Callable[..., Pipe]) -> None:
    ended, out = os.pipe()
    os.close(ended)
    env = {"HOPLINE_URL": gateway.url, "HOPLINE_TOKEN_FILE": "/dev/null", "PATH": os.environ["PATH"]}
    words = [sys.executable, "-m", "hopline_cli", "mcp"]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.DEVNULL, env=env
    ) as process:
        os.close(out)
        assert process.stdin
        process.stdin.write(json.dumps(request(1)).encode() + b"\n")
        process.stdin.flush()
        assert process.wait(SECONDS) == 0


def test_without_any_credential_it_says_what_to_set(start: Callable[..., Pipe]) -> None:
    pipe = start(HOPLINE_TOKEN_FILE="")
    assert pipe.process.wait(SECONDS) == 2
    assert pipe.process.stderr
    complaint = pipe.process.stderr.read().decode()
    assert complaint.count("\n") == 1
    assert "HOPLINE_TOKEN_FILE" in complaint


def test_over_a_socket_it_sends_no_credential_of_its_own(
    start: Callable[..., Pipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = "s"  # pytest's own paths are too long for sockets
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        pipe = start(HOPLINE_SOCKET=path, HOPLINE_SESSION_ID="ses_1")
        pipe.say(request(1))
        connection, _ = listener.accept()
        with connection:
            received = b""
            while not received.endswith(b'"params": {}}'):
                received += connection.recv(65536)
            connection.sendall(
                b"HTTP/1.1 403 No\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
                b'{"error": {"code": "permission_denied", "message": "the session\'s turn is over"}}'
            )
    head = received.decode().lower()
    assert "authorization" not in head
    assert "hopline-session" not in head
    assert pipe.hear()["error"]["message"] == "the session's turn is over"


def test_a_socket_that_is_gone_says_so(start: Callable[..., Pipe], tmp_path: Path) -> None:
    pipe = start(HOPLINE_SOCKET=str(tmp_path / "gone"))
    pipe.say(request(1))
    assert "the session's socket: No such file" in pipe.hear()["error"]["message"]


def test_over_https_it_trusts_the_given_authority_alone(
    gateway: Gateway, start: Callable[..., Pipe], tmp_path: Path
) -> None:
    certificate, key = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    gateway.server.socket = context.wrap_socket(gateway.server.socket, server_side=True)
    url = gateway.url.replace("http:", "https:")
    trusting = start(HOPLINE_URL=url, HOPLINE_TLS_CA=str(certificate))
    trusting.say(request(1))
    assert "result" in trusting.hear()
    wary = start(HOPLINE_URL=url)
    wary.say(request(1))
    assert "cannot be reached" in wary.hear()["error"]["message"]
    wrong = start(HOPLINE_URL=url, HOPLINE_TLS_CA=str(tmp_path / "missing"))
    wrong.say(request(1))
    assert "certificates cannot be read" in wrong.hear()["error"]["message"]


def self_signed(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for 127.0.0.1 that vouches for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / "cert.pem", folder / "key.pem"
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    form = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    return certificate, private


def test_it_imports_nothing_but_the_standard_library(gateway: Gateway, token_file: Path) -> None:
    script = (
        "import sys, hopline_cli.__main__ as m; sys.argv[1:] = ['mcp']\n"
        "try: m.main()\n"
        "except SystemExit: pass\n"
        "print(sorted({n.split('.')[0] for n in sys.modules} - sys.stdlib_module_names), file=sys.stderr)"
    )
    env = {**os.environ, "HOPLINE_URL": gateway.url, "HOPLINE_TOKEN_FILE": str(token_file)}
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=json.dumps(request(1)).encode() + b"\n",
        capture_output=True,
        env=env,
        timeout=SECONDS,
        check=True,
    )
    imported = set(json.loads(done.stderr.decode().replace("'", '"')))
    assert {name for name in imported if not name.startswith("_")} <= {"hopline_cli", "sitecustomize"}
