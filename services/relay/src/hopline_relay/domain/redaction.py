"""Well-known shapes of credentials, and how they are taken out of a text. Standard library only.

Only what names itself is taken: a prefix that an issuer gives to its tokens, a private key's own frame, a
word that says what follows. Nothing is guessed by how random it looks, so that hashes, ids and images pass.
Each shape is tried only where one of its words occurs, and begins where no other could have begun: the time
grows with the text alone.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_WORD: Final = r"(?<![A-Za-z0-9_-])"
# Within base64 these words could stand by chance.
_FREE: Final = r"(?<![A-Za-z0-9_/+-])"
_END: Final = r"(?![A-Za-z0-9_-])"


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a credential looks like; `secret` is the group that holds it where words around it stay."""

    name: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]


def _shape(name: str, hints: str, pattern: str) -> _Shape:
    return _Shape(name, tuple(hints.split()), re.compile(pattern))


_SHAPES: Final = (
    _shape("hopline token", "hpl_ hps_", _WORD + r"hp[ls]_(?:[a-z]_)?[A-Za-z0-9_-]{32,}"),
    _shape("aws key", "AKIA ASIA ABIA ACCA", _FREE + r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}" + _END),
    _shape(
        "aws secret",
        "ecret_access_key SECRET_ACCESS_KEY ecretAccessKey",
        r"(?i:secret_?access_?key)[\"']?\s{0,8}[=:]\s{0,8}[\"']?(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])",
    ),
    _shape("github token", "ghp_ gho_ ghu_ ghs_ ghr_", _WORD + r"gh[pousr]_[A-Za-z0-9]{16,255}" + _END),
    _shape("github token", "github_pat_", _WORD + r"github_pat_[A-Za-z0-9_]{22,255}"),
    _shape(
        "gitlab token",
        "glpat- gldt- glrt- glcbt- glptt- glft- glimt- glagent- gloas- glsoat-",
        _WORD + r"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat)-[A-Za-z0-9_.-]{20,}",
    ),
    _shape("slack token", "xox", _WORD + r"xox[abceoprs](?:\.xox[bp])?-[A-Za-z0-9-]{10,}"),
    _shape("slack token", "xapp-", _WORD + r"xapp-\d-[A-Za-z0-9-]{16,}"),
    _shape(
        "slack webhook",
        "hooks.slack.com/",
        r"(?<=hooks\.slack\.com/)(?:services|workflows|triggers)/[A-Za-z0-9_/+-]{20,}",
    ),
    _shape(
        "stripe key",
        "sk_live_ sk_test_ rk_live_ rk_test_ pk_live_ pk_test_",
        _WORD + r"[srp]k_(?:live|test)_[A-Za-z0-9]{16,}",
    ),
    _shape("stripe key", "whsec_", _WORD + r"whsec_[A-Za-z0-9+/=]{24,}"),
    _shape("api key", "sk_ pk_", _WORD + r"[sp]k_(?=[a-z_]{0,60}[A-Z0-9])[A-Za-z0-9]{16,}" + _END),
    _shape(
        "api key",
        "sk-proj- sk-svcacct- sk-admin- sk-ant- sk-or- sk-lf-",
        _WORD + r"sk-(?:proj|svcacct|admin|ant|or|lf)-[A-Za-z0-9_-]{16,}",
    ),
    _shape("api key", "sk-", _WORD + r"sk-(?=[a-z]{0,60}[A-Z0-9])[A-Za-z0-9]{20,}" + _END),
    _shape("google key", "AIza", _FREE + r"AIza[A-Za-z0-9_-]{35}" + _END),
    _shape("google token", "ya29.", _WORD + r"ya29\.[A-Za-z0-9_-]{20,}"),
    _shape("google secret", "GOCSPX-", _WORD + r"GOCSPX-[A-Za-z0-9_-]{20,60}"),
    _shape("jwt", "eyJ", _FREE + r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{16,}"),
    _shape("npm token", "npm_", _WORD + r"npm_[A-Za-z0-9]{36}" + _END),
    _shape("pypi token", "pypi-AgE", _WORD + r"pypi-AgE[A-Za-z0-9_-]{50,}"),
    _shape("hugging face token", "hf_", _WORD + r"hf_[A-Za-z0-9]{34,40}" + _END),
    _shape("sendgrid key", "SG.", _WORD + r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{32,64}" + _END),
    _shape("digitalocean token", "dop_v1_ doo_v1_ dor_v1_", _WORD + r"do[opr]_v1_[a-f0-9]{64}" + _END),
    _shape(
        "shopify token", "shpat_ shpca_ shppa_ shpss_", _WORD + r"shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32}" + _END
    ),
    _shape("vault token", "hvs. hvb.", _WORD + r"hv[sb]\.[A-Za-z0-9_-]{24,}"),
    _shape("linear key", "lin_api_", _WORD + r"lin_api_[A-Za-z0-9]{32,64}" + _END),
    _shape("telegram token", ":AA", _WORD + r"\d{8,10}:AA[A-Za-z0-9_-]{33}" + _END),
    _shape("age key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
    _shape("azure key", "AccountKey=", r"(?<=AccountKey=)[A-Za-z0-9+/]{86}=="),
    _shape(
        "bearer token",
        "earer EARER",
        r"(?i:authorization[\"']?\s{0,8}[:=]\s{0,8}[\"']?bearer)\s{1,8}(?P<secret>[A-Za-z0-9._~+/=-]{16,})",
    ),
    _shape(
        "password",
        "://",
        r"(?<=://)[^\s/:@\"'<>]{0,64}:(?P<secret>[^\s/:@\"'<>${}*]{3,128})@(?=[A-Za-z0-9\[])",
    ),
)
_BEGIN: Final = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_FINISH: Final = re.compile(r"-----END (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
# What is left of a key whose end is missing; in JSON its lines end in two characters.
_BODY: Final = re.compile(r"(?:(?:\s|\\[nrt])+[A-Za-z0-9+/=]{16,})+")
_LINE: Final = re.compile(r"[A-Za-z0-9+/=]{16}")


def redact(text: str) -> str:
    """Return a text without the credentials in it: each leaves word of what it was."""
    for shape in _SHAPES:
        if any(hint in text for hint in shape.hints):
            text = shape.pattern.sub(lambda found, name=shape.name: _without(found, name), text)  # type: ignore[misc]
    return _without_private_keys(text) if "PRIVATE KEY" in text else text


def redact_json(text: str) -> str:
    """Return a JSON text whose strings were redacted; as it was, to the letter, where none is touched."""
    if not text or redact(text) == text == _plain(text):
        return text
    try:
        value = json.loads(text)
        redacted = _redacted(value)
    except (ValueError, RecursionError):
        # Numbers without end, or nesting: what stands there as it is goes all the same.
        return redact(text)
    return text if redacted == value else json.dumps(redacted, ensure_ascii=False)


def _plain(text: str) -> str:
    """Return the text, unless what it escapes could hide a word in it."""
    return text if "\\" not in text else ""


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_redacted(each) for each in value]
    if isinstance(value, Mapping):
        return {redact(str(key)): _redacted(each) for key, each in value.items()}
    return value


def mark(name: str) -> str:
    """Return what stands in the place of a credential."""
    return f"[{name} removed]"


def _without(found: re.Match[str], name: str) -> str:
    if "secret" not in found.re.groupindex:
        return mark(name)
    start, end = (each - found.start() for each in found.span("secret"))
    return found[0][:start] + mark(name) + found[0][end:]


def _without_private_keys(text: str) -> str:
    """Take out private keys: from their first line to their last, or as far as a cut one goes."""
    begins = [found.span() for found in _BEGIN.finditer(text)]
    ends = [found.span() for found in _FINISH.finditer(text)]
    starts = [start for start, _ in ends]
    parts, done = [], 0
    for (begin, inside), (following, _) in zip(begins, [*begins[1:], (len(text), 0)], strict=True):
        nearest = bisect_left(starts, inside)
        whole = nearest < len(ends) and starts[nearest] < following
        if whole and _LINE.search(text, inside, starts[nearest]):
            stop = ends[nearest][1]
        elif not whole and (body := _BODY.match(text, inside)):
            stop = body.end()
        else:
            continue  # words about keys
        parts += [text[done:begin], mark("private key")]
        done = stop
    return "".join([*parts, text[done:]]) if parts else text
