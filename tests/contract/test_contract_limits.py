"""The limits of what people and agents write, one below, at, and one above."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from buf.validate import validate_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from hopline.registry.v1.identity_pb2 import AuthenticateRequest
from hopline.relay.v1.message_pb2 import AskRequest, CheckRequest, DoneRequest, ReplyRequest, SendRequest
from hopline.relay.v1.session_pb2 import PromptRequest
from hopline_rpc.errors import HoplineError
from hopline_rpc.validation import check

from tests.contract.walk import METHODS, Method

FOX = "🦊"  # 4 bytes of UTF-8, one character
E_ACUTE = "é"  # 2 bytes
KIB = 1024
BODY = 64 * KIB
PAYLOAD = 16 * KIB

WITH_TEXT: dict[str, Callable[..., Any]] = {
    "send": lambda **fields: SendRequest(**{"to": ["planner"], "text": "hello", **fields}),
    "reply": lambda **fields: ReplyRequest(**{"message_id": "msg_1", "text": "hello", **fields}),
    "ask": lambda **fields: AskRequest(**{"agent": "planner", "text": "hello", **fields}),
    "prompt": lambda **fields: PromptRequest(**{"agent": "planner", "text": "hello", **fields}),
}
every_text = pytest.mark.parametrize("make", WITH_TEXT.values(), ids=WITH_TEXT)


def passes(request: Any) -> None:
    check(request)


def refused(request: Any, field: str) -> HoplineError:
    with pytest.raises(HoplineError) as caught:
        check(request)
    error = caught.value
    assert error.reason == "invalid_argument"
    assert field in [name for name, _ in error.violations], error
    assert error.message.startswith(field)
    return error


# -- bodies: bytes -----------------------------------------------------------------------------------


@every_text
@pytest.mark.parametrize("size", [1, 2, BODY - 1, BODY])
def test_a_body_of_one_byte_to_64_kib_passes(make: Callable[..., Any], size: int) -> None:
    passes(make(text="x" * size))


@every_text
@pytest.mark.parametrize("size", [0, BODY + 1, 2 * BODY])
def test_an_empty_or_longer_body_is_refused_by_name(make: Callable[..., Any], size: int) -> None:
    refused(make(text="x" * size), "text")


def test_the_refusal_of_a_long_body_says_the_limit() -> None:
    assert str(BODY) in refused(SendRequest(to=["a"], text="x" * (BODY + 1)), "text").message


@every_text
def test_64_kib_of_four_byte_characters_pass_and_one_byte_more_does_not(make: Callable[..., Any]) -> None:
    at = FOX * (BODY // 4)
    assert (len(at), len(at.encode())) == (16384, 65536)
    passes(make(text=FOX * (BODY // 4 - 1)))
    passes(make(text=at))
    refused(make(text=at + "x"), "text")
    refused(make(text=at + FOX), "text")


@every_text
def test_a_body_is_measured_in_bytes_not_in_characters(make: Callable[..., Any]) -> None:
    passes(make(text=E_ACUTE * (BODY // 2)))
    refused(make(text=E_ACUTE * (BODY // 2) + "x"), "text")


@every_text
def test_every_character_but_nul_may_stand_in_a_body(make: Callable[..., Any]) -> None:
    passes(make(text="\x01\t\n\r\x7f\u200b\u2028\ufeff\uffff" + FOX))
    assert "NUL" in refused(make(text="a\0b"), "text").message


@every_text
def test_a_lone_surrogate_is_no_text(make: Callable[..., Any]) -> None:
    with pytest.raises((UnicodeEncodeError, ValueError)):
        make(text="\ud800")


@every_text
def test_bytes_that_are_not_utf_8_are_not_read_as_a_body(make: Callable[..., Any]) -> None:
    wire = make(text="PLACE").SerializeToString().replace(b"PLACE", b"\xed\xa0\x80ab")
    with pytest.raises((DecodeError, UnicodeDecodeError)):
        make().FromString(wire)


# -- payloads: bytes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["send", "reply"])
def test_a_payload_of_up_to_16_kib_passes(name: str) -> None:
    make = WITH_TEXT[name]
    for size in (0, 1, PAYLOAD - 1, PAYLOAD):
        passes(make(payload_json="1" * size))
    passes(make(payload_json=FOX * (PAYLOAD // 4)))
    refused(make(payload_json="1" * (PAYLOAD + 1)), "payload_json")
    refused(make(payload_json=FOX * (PAYLOAD // 4) + "x"), "payload_json")


# -- subjects and names: characters ------------------------------------------------------------------


@pytest.mark.parametrize("character", ["x", E_ACUTE, FOX])
def test_a_subject_is_measured_in_characters(character: str) -> None:
    make = WITH_TEXT["send"]
    for size in (0, 1, 199, 200):
        passes(make(subject=character * size))
    refused(make(subject=character * 201), "subject")


@pytest.mark.parametrize("count", [1, 2, 9, 10])
def test_one_to_ten_recipients_pass(count: int) -> None:
    passes(SendRequest(to=[f"agent-{number}" for number in range(count)], text="x"))


@pytest.mark.parametrize("count", [0, 11])
def test_no_or_eleven_recipients_are_refused(count: int) -> None:
    refused(SendRequest(to=[f"agent-{number}" for number in range(count)], text="x"), "to")


@pytest.mark.parametrize(("size", "good"), [(0, False), (1, True), (200, True), (201, False)])
def test_the_name_of_an_agent_is_one_to_two_hundred_characters(size: int, good: bool) -> None:
    requests = {
        "to[1]": SendRequest(to=["planner", FOX * size], text="x"),
        "agent": AskRequest(agent=FOX * size, text="x"),
    }
    for field, request in requests.items():
        if good:
            passes(request)
        else:
            refused(request, field)


# -- ids ---------------------------------------------------------------------------------------------


@every_text
def test_a_request_id_is_a_uuid_or_left_out(make: Callable[..., Any]) -> None:
    passes(make(request_id=""))
    passes(make(request_id=str(uuid.UUID(int=7))))
    passes(make(request_id=str(uuid.UUID(int=7)).upper()))
    for bad in (
        "1",
        "not-a-uuid",
        str(uuid.UUID(int=7))[:-1],
        str(uuid.UUID(int=7)) + "0",
        uuid.UUID(int=7).hex,
    ):
        refused(make(request_id=bad), "request_id")


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda value: SendRequest(to=["a"], text="x", thread_id=value), "thread_id"),
        (lambda value: SendRequest(to=["a"], text="x", caller_session_id=value), "caller_session_id"),
        (lambda value: ReplyRequest(message_id="m", text="x", caller_session_id=value), "caller_session_id"),
        (lambda value: AskRequest(agent="a", text="x", session_id=value), "session_id"),
        (lambda value: AskRequest(agent="a", text="x", caller_session_id=value), "caller_session_id"),
    ],
)
def test_an_optional_id_has_at_most_64_characters(make: Callable[[str], Any], field: str) -> None:
    for size in (0, 1, 63, 64):
        passes(make("x" * size))
    refused(make("x" * 65), field)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda value: ReplyRequest(message_id=value, text="x"), "message_id"),
        (lambda value: DoneRequest(message_id=value), "message_id"),
        (lambda value: CheckRequest(turn_id=value), "turn_id"),
        (lambda value: CheckRequest(session_id=value), "session_id"),
    ],
)
def test_a_needed_id_has_one_to_64_characters(make: Callable[[str], Any], field: str) -> None:
    for size in (1, 63, 64):
        passes(make("x" * size))
    for size in (0, 65):
        refused(make("x" * size), field)


def test_a_check_names_a_session_or_a_turn() -> None:
    refused(CheckRequest(), "of")


def test_every_field_that_is_wrong_is_named() -> None:
    request = SendRequest(to=[], text="", subject="s" * 201, payload_json="1" * (PAYLOAD + 1), request_id="1")
    with pytest.raises(HoplineError) as caught:
        check(request)
    named = {field for field, _ in caught.value.violations}
    assert named == {"to", "text", "subject", "payload_json", "request_id"}


# -- everything else ---------------------------------------------------------------------------------


def _texts(
    message: Any, path: str, seen: frozenset[str] = frozenset()
) -> Iterator[tuple[str, FieldDescriptor]]:
    """Yield every text that a request of this type can hold, with where it stands."""
    for field in message.fields:
        where, inner = f"{path}.{field.name}", field.message_type
        if field.type == FieldDescriptor.TYPE_STRING:
            yield where, field
        elif inner is None or inner.GetOptions().map_entry or inner.full_name in seen:
            continue
        elif inner.full_name.startswith("hopline."):
            yield from _texts(inner, where, seen | {inner.full_name})


def _is_bounded(field: FieldDescriptor) -> bool:
    rules = field.GetOptions().Extensions[validate_pb2.field]
    if not field.is_repeated:
        text = rules.string
        # A rule of its own is a pattern, which bounds what it lets pass.
        return bool(text.max_len or text.max_bytes or text.uuid or rules.cel or getattr(text, "in"))
    each = rules.repeated.items.string
    return bool(rules.repeated.max_items and (each.max_len or each.max_bytes))


# Frames of a tunnel are bounded as a whole, and their texts where they are read.
OUTER = [
    method
    for method in METHODS
    if method.allowed != {"service"} and method.descriptor.input_type.name != "AttachRequest"
]


@pytest.mark.parametrize("method", OUTER, ids=lambda method: method.path)
def test_every_text_that_comes_from_outside_has_a_limit(method: Method) -> None:
    name = method.descriptor.name
    # A pattern says nothing to a person: a rule of its own says in words what is wanted.
    texts = _texts(method.descriptor.input_type, name)
    wordless = [at for at, field in texts if field.GetOptions().Extensions[validate_pb2.field].string.pattern]
    assert wordless == []
    endless = [where for where, field in _texts(method.descriptor.input_type, name) if not _is_bounded(field)]
    assert endless == []


@pytest.mark.parametrize(("size", "good"), [(16_383, True), (16_384, True), (16_385, False)])
def test_a_token_has_at_most_16_kib(size: int, *, good: bool) -> None:
    request = AuthenticateRequest(token="x" * size)
    passes(request) if good else refused(request, "token")
