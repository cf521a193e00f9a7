"""How a client finds the mesh and its credential."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from hopline_client.discovery import (
    DataDir,
    Endpoints,
    Fixed,
    Gateway,
    is_loopback,
    parse_endpoints,
    read_token,
    socket_path,
    source,
    token_source,
)
from hopline_rpc.errors import HoplineError

ADDRESSES = {
    "gateway": "http://127.0.0.1:1",
    "console": None,
    "registry": "127.0.0.1:2",
    "relay": "127.0.0.1:3",
    "quota": "127.0.0.1:4",
    "pid": 5,
}


def test_a_data_directory_is_read_again_each_time(tmp_path: Path) -> None:
    found = DataDir(tmp_path)
    (tmp_path / "endpoints.json").write_text(json.dumps(ADDRESSES))
    assert found.read().relay == "127.0.0.1:3"
    assert found.read().console == ""
    (tmp_path / "endpoints.json").write_text(json.dumps({**ADDRESSES, "relay": "127.0.0.1:9"}))
    assert found.read().relay == "127.0.0.1:9"


def test_a_data_directory_without_a_running_mesh_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(HoplineError, match="hopline up --data") as refused:
        DataDir(tmp_path).read()
    assert refused.value.reason == "unavailable"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"relay": 7}', '"relay"'])
def test_addresses_that_are_none_name_where_they_were_found(text: str) -> None:
    with pytest.raises(HoplineError, match="some/file does not list"):
        parse_endpoints(text, "some/file")


@pytest.fixture
def gateway() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(ADDRESSES).encode()
            self.send_response(200 if self.path == "/endpoints" else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


async def test_a_gateway_gives_the_other_addresses(gateway: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # loopback never goes through a proxy
    assert (await source(gateway + "/").endpoints()).relay == "127.0.0.1:3"


async def test_a_gateway_that_does_not_answer_is_named() -> None:
    with pytest.raises(HoplineError, match="no mesh answers at"):
        await Gateway("http://127.0.0.1:1").endpoints()


@pytest.mark.parametrize("url", ["http://", "http://[::1", "http://host:port"])
def test_a_malformed_url_is_refused_by_name(url: str) -> None:
    with pytest.raises(HoplineError, match="not the URL of a gateway"):
        source(url)


def test_the_environment_names_the_mesh_when_nothing_else_does(tmp_path: Path) -> None:
    assert source(None, {"HOPLINE_URL": "http://h:1", "HOPLINE_DATA": "/x"}) == Gateway("http://h:1")
    assert source(None, {"HOPLINE_DATA": str(tmp_path)}) == DataDir(tmp_path)
    assert source(None, {}) == DataDir(Path("~/.hopline").expanduser())
    assert source(tmp_path, {"HOPLINE_URL": "http://h:1"}) == DataDir(tmp_path)
    assert source("relay:7402", {}) == Fixed(Endpoints(relay="relay:7402"))
    assert source(DataDir(tmp_path)) == DataDir(tmp_path)


def test_the_daemons_socket_comes_from_the_environment() -> None:
    assert socket_path({"HOPLINE_SOCKET": "/run/s"}) == Path("/run/s")
    assert socket_path({}) is None


def test_an_unknown_address_is_said_by_the_name_of_its_service() -> None:
    with pytest.raises(HoplineError, match="address of the registry"):
        Endpoints(relay="r").target("registry")


async def test_a_token_file_is_read_again_each_time(tmp_path: Path) -> None:
    file = tmp_path / "me.token"
    read = token_source(None, None, {"HOPLINE_TOKEN_FILE": str(file)})
    file.write_text("first\n")
    assert await read() == "first"
    file.write_text("second\n")
    assert await read() == "second"


async def test_a_token_that_is_given_wins_over_the_environment() -> None:
    assert await token_source("mine", None, {"HOPLINE_TOKEN_FILE": "/x"})() == "mine"

    async def give() -> str:
        return "made"

    assert await token_source(give)() == "made"


def test_no_credential_and_two_of_them_are_refused() -> None:
    with pytest.raises(HoplineError, match="no credential"):
        token_source(None, None, {})
    with pytest.raises(HoplineError, match="not both"):
        token_source("a", "b", {})


@pytest.mark.parametrize("content", [b"", b"two words", b"\xff\xfe", "tökén".encode()])
def test_a_file_without_a_token_is_named_and_its_content_is_not(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "bad.token"
    file.write_bytes(content)
    with pytest.raises(HoplineError, match=r"bad\.token does not hold a token") as refused:
        read_token(file)
    assert "words" not in refused.value.message


def test_a_missing_token_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(HoplineError, match="does not exist"):
        read_token(tmp_path / "none")
    with pytest.raises(HoplineError, match="cannot be read"):
        read_token(tmp_path)


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1:7402", True),
        ("http://localhost:7400/", True),
        ("[::1]:7402", True),
        ("unix:/run/x", True),
        ("example.com:7402", False),
        ("http://[bad", False),
    ],
)
def test_loopback_is_recognised(address: str, *, local: bool) -> None:
    assert is_loopback(address) is local
