"""Secrets are masked, and other text is not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_runtime.redact import MASK, Redactor, secrets_in


def test_only_variables_that_hold_secrets_count() -> None:
    env = {
        "VLMSERVE_API_KEY": "short",
        "HF_TOKEN": "hf_x",
        "S3_SECRET_ACCESS_KEY": "0123456789",
        "DB_PASSWORD": "correct horse",
        "SOME_CACHE_KEY": "0",
        "MAX_TOTAL_TOKENS": "123456789",
        "GITHUB_PAT": "personal access",
        "MYSQL_PWD": "battery staple",
        "PATH": "/usr/bin:/bin",
        "PWD": "/sgl-workspace",
    }
    assert secrets_in(env) == sorted(
        ["short", "hf_x", "0123456789", "correct horse", "personal access", "battery staple"]
    )


@pytest.mark.parametrize(
    "line",
    [
        "server_args={'api_key': 'sk-1', 'admin_api_key': 'sk-1', 'port': 8000}",
        'launch_command: "--host 0.0.0.0 --api-key sk-1 --port 8000"',
        "argv: ['--api-key', 'sk-1', '--port', '8000']",
        "--admin-api-key=sk-1",
        'GET /v1/models {"Authorization": "Bearer sk-1"}',
        "api_key=sk-1, port=8000",
        "ssl_keyfile_password='sk-1'",
    ],
    ids=["server_args", "launch command", "list", "equals", "header", "repr", "password of the key file"],
)
def test_unknown_secrets_that_the_engine_prints_are_masked(line: str) -> None:
    cut = Redactor()(line)
    assert "sk-1" not in cut
    assert MASK in cut


def test_a_hugging_face_token_is_masked_anywhere() -> None:
    assert "hf_" not in Redactor()("GET https://x/?t=hf_abcdefghijklmnopqrstuvwxyz123456 failed")


def test_only_the_signature_in_an_images_url_is_masked() -> None:
    said = "HTTPError: 403 Client Error: Forbidden for url: https://b.s3.amazonaws.com/cat.png?X-Amz-Date=20260101T000000Z&"
    cut = Redactor()(
        f"{said}X-Amz-Credential=AKIA%2F20260101&X-Amz-Signature=0a1b2c&X-Amz-Security-Token=IQoJ and so on"
    )
    assert cut == f"{said}X-Amz-Credential={MASK}&X-Amz-Signature={MASK}&X-Amz-Security-Token={MASK} and so on"
    assert "c2ln" not in Redactor()("(url: /cat.png?se=2026-01-01&amp;sig=c2ln")
    assert "c2ln" not in Redactor()(r'{"url": "/cat.png?se=2026-01-01\u0026sig=c2ln"}')
    assert "c2ln" not in Redactor()("(url: /cat.png?sv=2024&se=2026-01-01&sig=c2ln%3D (Caused by ...")
    for kept in ("https://a/b?w=100&token_type=x&h=5", "GET /metrics?name=a", "model=qwen&keys=3", "what? token=high"):
        assert Redactor()(kept) == kept


def test_only_the_password_in_a_url_is_masked() -> None:
    cut = Redactor()("proxy=http://user:p%40ss@proxy.example.com:3128 and redis://:pw@host/0")
    assert cut == f"proxy=http://user:{MASK}@proxy.example.com:3128 and redis://:{MASK}@host/0"
    for kept in ("http://0.0.0.0:8000/v1", "http://[::1]:8000", "mailto:a@b", "git@host:a/b", "http://a:8000/@x"):
        assert Redactor()(kept) == kept


@pytest.mark.parametrize(
    "line", ["'api_key': None, 'port': 8000", '"admin_api_key": null', "max_total_num_tokens=8192"]
)
def test_text_without_a_secret_is_unchanged(line: str) -> None:
    assert Redactor(["a-secret-value"])(line) == line


@settings(max_examples=40)
@given(st.text(min_size=4).filter(str.strip), st.text(), st.text())
def test_a_known_secret_is_masked_in_every_spelling(secret: str, before: str, after: str) -> None:
    redact = Redactor([secret])
    for spelling in (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1]):
        assert all(spelling not in part for part in redact(f"{before}{spelling}{after}").split(MASK))


def test_a_secret_that_contains_another_is_masked_as_a_whole() -> None:
    assert Redactor(["abcd1234", "abcd1234-tail"])("key abcd1234-tail.") == f"key {MASK}."
