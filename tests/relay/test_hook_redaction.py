"""Credentials are taken out of texts by their shape; what only looks random stays."""

from __future__ import annotations

import json
import random
import string

import pytest
from hopline_relay.domain.evidence import lacks_evidence
from hopline_relay.domain.redaction import redact, redact_json
from hopline_rpc.principals import new_token


def letters(count: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    """Return characters that are the same in every run; nobody's credential stands in this file."""
    return "".join(random.Random(count).choices(alphabet, k=count))


HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + "234567"
URLSAFE = string.ascii_letters + string.digits + "_-"
B64 = string.ascii_letters + string.digits + "+/"

TRUE = {
    "hopline agent token": new_token("agent"),
    "hopline plugin secret": "hps_" + letters(43),
    "aws key id": "AKIA" + letters(16, UPPER),
    "aws temporary key id": "ASIA" + letters(16, UPPER),
    "github classic": "ghp_" + letters(36),
    "github app": "ghs_" + letters(36),
    "github fine-grained": "github_pat_" + letters(22) + "_" + letters(59),
    "gitlab": "glpat-" + letters(20),
    "gitlab routable": "glpat-" + letters(27, URLSAFE) + ".01." + letters(9, HEX),
    "slack bot": "xoxb-123456789012-1234567890123-" + letters(24),
    "slack user": "xoxp-123456789012-123456789012-123456789012-" + letters(32, HEX),
    "slack app": "xapp-1-A0123456789-1234567890123-" + letters(64, HEX),
    "stripe live": "sk_live_" + letters(24),
    "stripe restricted": "rk_live_" + letters(40),
    "stripe webhook": "whsec_" + letters(32),
    "openai old": "sk-" + letters(20) + "T3BlbkFJ" + letters(20),
    "openai project": "sk-proj-" + letters(74, URLSAFE) + "T3BlbkFJ" + letters(74, URLSAFE),
    "openai service": "sk-svcacct-" + letters(60, URLSAFE),
    "anthropic": "sk-ant-api03-" + letters(93, URLSAFE) + "AA",
    "openrouter": "sk-or-v1-" + letters(64, HEX),
    "generic": "sk_" + letters(32),
    "google": "AIza" + letters(35, URLSAFE),
    "google oauth": "ya29." + letters(120, URLSAFE),
    "google client": "GOCSPX-" + letters(28),
    "jwt": f"eyJ{letters(33)}.eyJ{letters(80)}.{letters(43, URLSAFE)}",
    "npm": "npm_" + letters(36),
    "pypi": "pypi-AgEIcHlwaS5vcmc" + letters(120, URLSAFE),
    "hugging face": "hf_" + letters(34),
    "sendgrid": "SG." + letters(22) + "." + letters(43),
    "digitalocean": "dop_v1_" + letters(64, HEX),
    "shopify": "shpat_" + letters(32, HEX),
    "vault": "hvs." + letters(90, URLSAFE),
    "linear": "lin_api_" + letters(40),
    "telegram": "123456789:AA" + letters(33, URLSAFE),
    "age": "AGE-SECRET-KEY-1" + letters(58, string.ascii_uppercase + string.digits),
}
AROUND = {
    "aws secret": (f"aws_secret_access_key = {letters(40, B64)}", letters(40, B64)),
    "aws secret in json": (f'{{"SecretAccessKey": "{letters(40, B64)}"}}', letters(40, B64)),
    "bearer": (f"curl -H 'Authorization: Bearer {letters(40)}' x", letters(40)),
    "url": ("postgres://app:s3cr3t-pw@db.internal:5432/app", "s3cr3t-pw"),
    "azure": (f"AccountName=x;AccountKey={letters(86, B64)}==;", letters(86, B64)),
    "slack webhook": (
        f"https://hooks.slack.com/services/T0123/B0123/{letters(24)}",
        letters(24),
    ),
}
PEM = "-----BEGIN {0}PRIVATE KEY-----\n{1}\n-----END {0}PRIVATE KEY-----"
KEY = "\n".join(letters(64, B64) for _ in range(12))

FALSE = {
    "git hash": "commit 9a1fa84c0d3be5b2a7d5d4cb3f1e8f6a5b4c3d2e fixes it",
    "sha256": "sha256:" + letters(64, HEX),
    "uuid": "018f4e3a-7b1c-7d2e-9f3a-4b5c6d7e8f90",
    "ids of hopline": "msg_01jxt21q00ctvzxkxzyyg7s2rk in ses_01jxt21q00ctvzxkxzyyg7s2rk",
    "image": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUg" + letters(4000, B64),
    "words with sk": "task-force risk-assessment-of-everything-else desk-ABCDEFGHIJKLMNOPQRSTUVWX ask-me",
    "css class": "sk-folding-cube sk-chasing-dot-before-animation-delay",
    "python names": "pk_user_account_identifier sk_learn_feature_extraction_text sk_buff_head_initialised",
    "python module": "from sklearn.model_selection import train_test_split",
    "prefixes alone": "tokens begin with ghp_, glpat-, xoxb-, sk-ant- or AKIA; a JWT begins with eyJ",
    "placeholders": "export GITHUB_TOKEN=ghp_xxx; OPENAI_API_KEY=sk-...; postgres://user:${PASSWORD}@host/db",
    "url": "see https://example.org:8443/a@b and http://127.0.0.1:7400/mcp",
    "mail": "mailto:someone@example.org, git@github.com:owner/name.git, ssh://git@host:22/x.git",
    "frame alone": "a key begins with -----BEGIN PRIVATE KEY----- and ends with -----END PRIVATE KEY-----",
    "frame in words": "-----BEGIN RSA PRIVATE KEY----- is how the file has to begin, if it is one at all",
    "certificate": "-----BEGIN CERTIFICATE-----\n" + KEY + "\n-----END CERTIFICATE-----",
    "public key": "-----BEGIN PUBLIC KEY-----\n" + KEY + "\n-----END PUBLIC KEY-----",
    "ssh public key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + letters(43, B64) + " me@host",
    "time": "2025-06-15T12:34:56:AAbout noon",
    "bearer of news": "the bearer of this letter; Authorization: Bearer TOKEN",
    "version": "v1.2.3-rc.4+build.20250615 npm_config_registry hf_hub_download(repo_id)",
    "base64 words": letters(20, B64) + "/AKIA" + letters(16, UPPER) + "/eyJ" + letters(20, B64),
    "code": "self._pk_ = sk_test; SG.append(x); ya29 = 1; dop_v1_ = None; AccountKey=None",
}


@pytest.mark.parametrize("name", TRUE)
@pytest.mark.parametrize(
    "frame", ["{}", "use {} now", "key={}", '"{}"', "`{}`.", "({})", "a\n{}\nb", "KEY={};"]
)
def test_a_credential_is_taken_out_and_what_stands_around_it_stays(name: str, frame: str) -> None:
    found = redact(frame.format(TRUE[name]))
    before, _, after = frame.partition("{}")
    assert TRUE[name] not in found
    assert found.startswith(before)
    assert found.endswith(after)
    middle = found[len(before) : len(found) - len(after)]
    assert middle.startswith("[")
    assert middle.endswith(" removed]")


@pytest.mark.parametrize("name", AROUND)
def test_what_words_say_is_a_credential_is_taken_out_of_them(name: str) -> None:
    text, secret = AROUND[name]
    found = redact(text)
    assert secret not in found
    assert " removed]" in found
    assert found.partition("[")[0] == text[: found.index("[")]


@pytest.mark.parametrize("name", FALSE)
def test_what_is_none_stays_to_the_letter(name: str) -> None:
    assert redact(FALSE[name]) == FALSE[name]


@pytest.mark.parametrize("kind", ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "])
def test_a_private_key_goes_as_a_whole(kind: str) -> None:
    key = PEM.format(kind, KEY)
    assert redact(f"before\n{key}\nafter") == "before\n[private key removed]\nafter"
    assert redact(f"{key} and {key}") == "[private key removed] and [private key removed]"
    with_headers = key.replace("KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES\n\n", 1)
    assert redact(with_headers) == "[private key removed]"
    cut = key[: key.index("-----END")].rstrip()
    assert redact(f"{cut}\nthat is all I have") == "[private key removed]\nthat is all I have"
    escaped = json.dumps(key)
    assert json.loads(redact(escaped)) == "[private key removed]"


def test_a_payload_stays_json_and_to_the_letter_where_nothing_is_in_it() -> None:
    clean = '{"b":1.50,  "a": ["x", null, 12345678901234567890]}'
    assert redact_json(clean) == clean
    assert redact_json("") == ""
    secret = TRUE["github classic"]
    found = json.loads(redact_json(json.dumps({"deep": [{"token": secret}], secret: 1})))
    assert found == {"deep": [{"token": "[github token removed]"}], "[github token removed]": 1}
    hidden = '{"a": "gh\\u0070_' + letters(36) + '"}'
    assert json.loads(redact_json(hidden)) == {"a": "[github token removed]"}
    assert "PRIVATE" not in redact_json(json.dumps({"key": PEM.format("", KEY)}))


@pytest.mark.parametrize("rough", ['{"n": ' + "9" * 5000 + ', "t": "%s"}', "[" * 5000 + '"%s"' + "]" * 5000])
def test_a_payload_that_no_parser_likes_loses_its_credentials_too(rough: str) -> None:
    secret = TRUE["github classic"]
    assert redact_json(rough % secret) == rough % "[github token removed]"


def test_redacting_twice_changes_nothing_more() -> None:
    text = "\n".join([*TRUE.values(), *(text for text, _ in AROUND.values()), PEM.format("RSA ", KEY)])
    once = redact(text)
    assert redact(once) == once


ROUGH = [
    "eyJ" * 21_000,
    "eyJaaaaaaaa." * 5_400,
    "sk-" * 21_000,
    "sk-proj-" * 8_000,
    "xoxb-" * 13_000,
    "-----BEGIN PRIVATE KEY-----" * 2_400,
    ("-----BEGIN PRIVATE KEY-----\n" + "a" * 40 + "\n") * 900,
    "-----BEGIN " * 5_900,
    "://a:" * 13_000,
    "://" + "a" * 65_000,
    "secret_access_key" * 3_800,
    "secretaccesskey = " + " " * 64_000,
    "authorization: bearer " * 2_900,
    "Authorization:" + " " * 64_000 + "Bearer",
    "1:AA" * 16_000,
    "ghp_" + "a" * 65_000,
    "SG." * 21_000,
    "a" * 65_536,
    "." * 65_536,
]


@pytest.mark.parametrize("text", ROUGH, ids=range(len(ROUGH)))
def test_what_is_rough_for_expressions_is_through_at_once(text: str) -> None:
    # One that went back and forth over 64 KiB would be at it for minutes.
    once = redact(text)
    assert redact(once) == once
    assert not lacks_evidence(f"done, verified {text}", "")
