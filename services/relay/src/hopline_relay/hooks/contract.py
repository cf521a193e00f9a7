"""Hooks between the relay's words and the contract: what each is asked, and how its answer is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from hopline.hooks.v1 import hook_pb2 as pb
from hopline_rpc.errors import HoplineError
from hopline_rpc.validation import check

from hopline_relay.domain.payloads import payload_problem
from hopline_relay.hooks.items import (
    DELIVERED,
    MESSAGE,
    SCHEDULED,
    SYSTEM_PROMPT,
    TODO,
    Item,
    Verdict,
    Words,
)

METHODS: Final[Mapping[str, str]] = {
    MESSAGE: "InterAgentMessage",
    TODO: "TodoAdded",
    SCHEDULED: "NotifyScheduled",
    DELIVERED: "NotifyDelivered",
    SYSTEM_PROMPT: "SystemPrompt",
}


class NonsenseError(Exception):
    """An answer that breaks the contract; its words are for the audit log."""


def read(item: Item, words: Words, response: Any) -> Verdict:
    """Read an answer about an item in these words; `NonsenseError` where it breaks a rule."""
    reader = _READERS[item.kind]
    if not isinstance(response, reader.response):
        raise NonsenseError("it answered something else")
    try:
        check(response)
    except HoplineError as error:
        raise NonsenseError(error.message) from None
    verdict = reader.read(response, words)
    if verdict.words is not None and len(verdict.words.text.encode()) > item.most:
        raise NonsenseError(f"it rewrote the text to more than {item.most} bytes")
    return verdict


class _Reader:
    def __init__(self, response: type[Any], read: Callable[[Any, Words], Verdict]) -> None:
        self.response = response
        self.read = read


def _message(response: Any, words: Words) -> Verdict:
    verdict = response.WhichOneof("verdict")
    if verdict == "veto":
        return Verdict(veto=response.veto.reason)
    if verdict != "rewrite":
        return Verdict()
    rewrite = response.rewrite
    payload = rewrite.payload_json if rewrite.HasField("payload_json") else words.payload
    if payload and (problem := payload_problem(payload)) is not None:
        raise NonsenseError(f"rewrite.payload_json: {problem}")
    subject = rewrite.subject if rewrite.HasField("subject") else words.subject
    return Verdict(Words(rewrite.text, subject, payload))


def _text(response: Any, words: Words) -> Verdict:
    verdict = response.WhichOneof("verdict")
    if verdict == "veto":
        return Verdict(veto=response.veto.reason)
    return Verdict(Words(response.text)) if verdict == "text" else Verdict()


def _prompt(response: Any, words: Words) -> Verdict:
    return Verdict(Words(response.text)) if response.HasField("text") else Verdict()


_READERS: Final = {
    MESSAGE: _Reader(pb.InterAgentMessageResponse, _message),
    TODO: _Reader(pb.TodoAddedResponse, _text),
    SCHEDULED: _Reader(pb.NotifyScheduledResponse, _text),
    DELIVERED: _Reader(pb.NotifyDeliveredResponse, _text),
    SYSTEM_PROMPT: _Reader(pb.SystemPromptResponse, _prompt),
}
