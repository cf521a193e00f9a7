"""Pages, settings, logs, wiring."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hopline_rpc import calls, logs
from hopline_rpc.calls import CallInfo, detach, set_current_call
from hopline_rpc.clock import ManualClock
from hopline_rpc.errors import HoplineError
from hopline_rpc.ids import seeded_ids
from hopline_rpc.paging import Pager, fit, page_size
from hopline_rpc.principals import new_token
from hopline_rpc.service import ORDER, Wiring
from hopline_rpc.settings import ServiceSettings
from hypothesis import given
from hypothesis import strategies as st

# --- paging --------------------------------------------------------------------------------------


def test_a_page_has_fifty_items_unless_asked_otherwise_and_two_hundred_at_most() -> None:
    assert [page_size(asked) for asked in (0, 1, 200, 201, 10**6)] == [50, 1, 200, 200, 200]


def test_a_negative_page_size_is_refused_by_name() -> None:
    with pytest.raises(HoplineError) as caught:
        page_size(-1)
    assert caught.value.violations[0][0] == "page_size"


names = st.text(max_size=200)
positions = st.lists(names | st.integers(-(2**63), 2**63) | st.none(), max_size=2)


@given(positions, st.lists(st.text() | st.integers(), max_size=4))
def test_a_page_token_leads_back_to_its_position(position: list[Any], query: list[Any]) -> None:
    pager = Pager(b"secret")
    token = pager.token(query, position)
    assert pager.position(query, token) == position
    assert Pager(b"secret").position(query, token) == position


@given(st.integers(1_000_000, 2**62))
def test_a_page_token_tells_nothing_of_its_position(number: int) -> None:
    token = Pager().token(["q"], [number])
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    assert str(number).encode() not in raw
    assert number.to_bytes(8, "big").lstrip(b"\0") not in raw


def test_no_token_is_the_first_page() -> None:
    assert Pager().position(["q"], "") is None


@given(st.text(max_size=60))
def test_a_made_up_page_token_is_an_invalid_argument(token: str) -> None:
    if not token:
        return
    with pytest.raises(HoplineError) as caught:
        Pager(b"secret").position(["q"], token)
    assert caught.value.reason == "invalid_argument"


def test_a_page_token_works_only_for_its_own_list() -> None:
    pager = Pager()
    token = pager.token(["threads", "ws_1"], ["2026", "th_1"])
    for query in (["threads", "ws_2"], ["messages", "ws_1"], []):
        with pytest.raises(HoplineError):
            pager.position(query, token)
    with pytest.raises(HoplineError):
        Pager().position(["threads", "ws_1"], token)
    with pytest.raises(HoplineError):
        pager.position(["threads", "ws_1"], "x" * 5000)


# --- settings ------------------------------------------------------------------------------------


class Settings(ServiceSettings):
    wait_seconds: int = 50


def test_settings_come_from_the_environment_and_overrides_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPLINE_WAIT_SECONDS", "20")
    monkeypatch.setenv("HOPLINE_MESH_ID", "from-the-environment")
    found = Settings.load({"wait_seconds": "30"})
    assert (found.wait_seconds, found.mesh_id) == (30, "from-the-environment")


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings.load().wait_seconds = 1


def test_a_bad_setting_is_named_as_the_variable_it_comes_from() -> None:
    with pytest.raises(HoplineError) as caught:
        Settings.load({"wait_seconds": "soon", "log_level": "loud"})
    assert "HOPLINE_WAIT_SECONDS" in caught.value.message
    assert "HOPLINE_LOG_LEVEL" in caught.value.message


def test_the_three_tls_settings_are_one() -> None:
    assert not Settings.load().tls
    tls = Settings.load({"tls_cert": "a.pem", "tls_key": "a.key", "tls_ca": "ca.pem"}).tls
    assert (tls.cert, tls.key, tls.ca) == (Path("a.pem"), Path("a.key"), Path("ca.pem"))


# --- logs ----------------------------------------------------------------------------------------


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_json_log_is_one_object_a_line_with_its_extra_fields(root_logger: logging.Logger) -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    logging.getLogger("hopline.test").info("sent %d", 3, extra={"method": "/a/B", "milliseconds": 1.5})
    logging.getLogger("hopline.test").debug("not shown")
    entry = json.loads(stream.getvalue())
    assert entry["message"] == "sent 3"
    assert (entry["level"], entry["logger"], entry["method"]) == ("info", "hopline.test", "/a/B")
    assert entry["time"].endswith("Z")


def test_a_traceback_stays_within_its_line(root_logger: logging.Logger) -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    try:
        raise RuntimeError("broken")
    except RuntimeError:
        logging.getLogger("hopline.test").exception("failed")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1
    assert "RuntimeError: broken" in json.loads(lines[0])["exception"]


@pytest.mark.parametrize("form", ["json", "human"])
def test_no_credential_gets_into_a_log(root_logger: logging.Logger, form: Any) -> None:
    stream = io.StringIO()
    logs.configure("info", form, stream)
    token = new_token("agent")
    assertion = "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJhZ18xIn0.c2lnbmF0dXJlLXNpZ25hdHVyZQ"
    logger = logging.getLogger("hopline.test")
    logger.info("token %s", token, extra={"header": f"Bearer {assertion}"})
    logger.info("cookie", extra={"nested": {"authorization": "Bearer some-opaque-credential"}})
    try:
        raise RuntimeError(f"refused {token}")
    except RuntimeError:
        logger.exception("failed")
    written = stream.getvalue()
    assert "[redacted]" in written
    for secret in (token, assertion, "some-opaque-credential"):
        assert secret not in written


def test_ordinary_text_is_not_redacted() -> None:
    text = "hpl_ is a prefix, msg_01jxt21q01n1k8j6qxsxd53rc0 an id, eyJ no token"
    assert logs.redact(text) == text


async def test_a_line_of_a_call_names_the_call(root_logger: logging.Logger) -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    task = asyncio.current_task()
    assert task is not None
    set_current_call(CallInfo("/a/B", "req_7", seeded_ids(ManualClock(), 1), task))
    logging.getLogger("hopline.test").info("within")
    assert json.loads(stream.getvalue())["request_id"] == "req_7"
    seen = await detach(_current_call())
    assert seen is None


async def _current_call() -> CallInfo | None:
    return calls.current_call()


# --- wiring --------------------------------------------------------------------------------------


def test_a_service_that_was_given_no_neighbour_says_which_it_misses() -> None:
    with pytest.raises(HoplineError, match="registry"):
        Wiring().channel("registry")
    with pytest.raises(HoplineError, match="service token"):
        Wiring().service_token()


def test_the_registry_opens_first_and_the_gateway_after_the_relay() -> None:
    assert ORDER.index("registry") == 0
    assert ORDER.index("quota") < ORDER.index("relay") < ORDER.index("gateway")


@pytest.mark.parametrize(
    ("sizes", "fitting"),
    [([], 0), ([11], 1), ([11, 1], 1), ([5, 5], 2), ([5, 5, 1], 2), ([5, 6], 1), ([0, 0, 10, 0, 1], 4)],
)
def test_a_page_holds_what_fits_and_one_item_in_any_case(sizes: list[int], fitting: int) -> None:
    class Item:
        def __init__(self, size: int) -> None:
            self.size = size

        def ByteSize(self) -> int:
            return self.size

    assert [item.size for item in fit(map(Item, sizes), 10)] == sizes[:fitting]
