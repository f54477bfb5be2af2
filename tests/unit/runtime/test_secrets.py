"""Secrets are planted everywhere that the runtime reads, and looked for in everything that it writes."""

from __future__ import annotations

import json
from collections.abc import Callable

from unit.runtime.harness import Container, make_plan

from vlm_api.plan import Setting, Source

Start = Callable[..., Container]

KEY = "sk-planted-client-key"
TOKEN = "planted-hub-token"
PASSWORD = "planted-password-of-a-store"
IN_URL = "planted-password-in-a-url"
SECRETS = (KEY, TOKEN, PASSWORD, IN_URL)

# The stand-in answers /server_info with its key and with every variable of SGLang's, as the engine may.
ENV = {
    "VLMSERVE_API_KEY": KEY,
    "HF_TOKEN": TOKEN,
    "STORE_PASSWORD": PASSWORD,
    "SGLANG_PLANTED_STORE": f"user {PASSWORD} host",
    "SGLANG_PLANTED_URL": f"https://user:{IN_URL}@store.example.com",
    "SGLANG_PLANTED_TOKEN": TOKEN,
}


def setting(name: str, *, applied: bool) -> Setting:
    value = "planned" if applied else None
    return Setting(name=name, value=value, applied=applied, expected="x", source=Source.USER, rule="r", reason="r")


def test_no_planted_secret_is_in_anything_that_a_serving_runtime_says(container: Start) -> None:
    names = ["api_key", "SGLANG_PLANTED_TOKEN", "SGLANG_PLANTED_STORE"]
    settings = [*(setting(name, applied=True) for name in names), setting("SGLANG_PLANTED_URL", applied=False)]
    run = container(make_plan(settings=settings), env=ENV)
    run.wait_ready()
    report = run.report()
    # It was read, and is shown without the secret: otherwise this test would find nothing anywhere.
    assert [s["effective"] for s in report["settings"]] == ["user [redacted] host"]
    assert [s["effective"] for s in report["leftAlone"]] == ["https://user:[redacted]@store.example.com"]
    assert report["notTold"] == ["api_key", "SGLANG_PLANTED_TOKEN"]
    assert "SGLANG_PLANTED_STORE was planned as 'planned', the engine uses 'user [redacted] host'" in run.log()
    assert "'api_key': [redacted]" in run.log()
    shown = {path: run.get(path)[1] for path in ("/report", "/metrics", "/readyz", "/livez", "/startupz")}
    for place, text in (shown | {"log": run.log()}).items():
        assert [secret for secret in SECRETS if secret in text] == [], place


def test_no_planted_secret_is_in_the_last_words_of_an_engine(container: Start) -> None:
    words = f"OSError: {KEY} {TOKEN} {PASSWORD} https://user:{IN_URL}@store.example.com Authorization: Bearer {TOKEN}"
    run = container(env=ENV, exit_code=1, last_words=words)
    assert run.wait_exit() == 1
    message = run.termination_log.read_text(encoding="utf-8")
    assert "[redacted]" in json.loads(message)["message"]
    for place, text in {"message": message, "log": run.log()}.items():
        assert [secret for secret in SECRETS if secret in text] == [], place
