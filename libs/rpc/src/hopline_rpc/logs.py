"""Logs: one JSON object a line for machines, plain lines for people; no secret in either."""

from __future__ import annotations

import json
import logging
import re
import sys
from typing import IO, Any, Final, Literal

from hopline_rpc.calls import current_call
from hopline_rpc.clock import rfc3339
from hopline_rpc.telemetry import current_traceparent

# Our tokens, and anything that could be a JWT or stands behind "Bearer".
_SECRETS: Final = re.compile(
    r"hpl_[a-z]_[A-Za-z0-9_-]{8,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"
    r"|(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{8,}"
)
_REDACTED: Final = "[redacted]"
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def redact(text: str) -> str:
    """Replace whatever looks like a credential."""
    return _SECRETS.sub(_REDACTED, text)


class JsonFormatter(logging.Formatter):
    """One JSON object a record."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record, its extra fields, and the call and trace it belongs to."""
        entry: dict[str, Any] = {
            "time": rfc3339(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry.update(_extra(record))
        call = current_call()
        if call is not None:
            entry.setdefault("request_id", call.request_id)
        trace_id = current_traceparent()[3:35]
        if trace_id:
            entry["trace_id"] = trace_id
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return redact(json.dumps(entry, default=str, ensure_ascii=False))


class HumanFormatter(logging.Formatter):
    """Plain lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record on one line, a traceback below it."""
        extra = "".join(f" {key}={value}" for key, value in _extra(record).items() if value != "")
        moment = rfc3339(record.created)[11:23]
        line = f"{moment} {record.levelname.lower():7} {record.name}: {record.getMessage()}{extra}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return redact(line)


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def configure(
    level: str = "info",
    form: Literal["auto", "human", "json"] = "auto",
    stream: IO[str] | None = None,
) -> None:
    """Send the process's logs to standard error; `auto` is human on a terminal and JSON elsewhere."""
    out = stream or sys.stderr
    human = form == "human" or (form == "auto" and out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(HumanFormatter() if human else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # gRPC logs what our interceptor answers and logs itself.
    logging.getLogger("grpc").setLevel(logging.ERROR)
