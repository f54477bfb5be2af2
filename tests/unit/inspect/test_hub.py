"""The inspector against a stand-in of the hub."""

import json
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest
from unit.inspect.hub_stand_in import Answer, HubStandIn, hub_stand_in

from vlm_operator.inspect.files import MAX_CONFIG_BYTES, ModelReadError, parse_config
from vlm_operator.inspect.hub import Hub, Timeouts

CONFIG = {"architectures": ["Qwen3VLForConditionalGeneration"]}
TOKEN = "hf_abcdefgh"
QUICK = Timeouts(request=0.3, all=5.0, pauses=(0.01, 0.01))


@pytest.fixture
def hub() -> Iterator[HubStandIn]:
    with hub_stand_in() as started:
        started.says("config.json", Answer(json.dumps(CONFIG).encode()))
        yield started


def ask(hub: HubStandIn, revision: str | None = None, **options: Any) -> Hub:
    return Hub("org/model", revision, **{"endpoint": hub.address, "timeouts": QUICK, **options})


def refusal(hub: HubStandIn, **options: Any) -> ModelReadError:
    with pytest.raises(ModelReadError) as caught:
        parse_config(ask(hub, **options).config())
    assert TOKEN not in caught.value.message
    return caught.value


def test_config_json_is_read_from_the_default_branch(hub: HubStandIn):
    assert parse_config(ask(hub).config()) == CONFIG


def test_a_revision_with_a_slash_is_one_part_of_the_path(hub: HubStandIn):
    hub.says("config.json", Answer(b"{}"), revision="refs%2Fpr%2F1")
    assert parse_config(ask(hub, "refs/pr/1").config()) == {}


def test_the_token_is_sent_to_the_hub(hub: HubStandIn):
    ask(hub, token=f"{TOKEN}\n").config()
    assert hub.asked[0][1]["Authorization"] == f"Bearer {TOKEN}"


def test_a_redirect_within_the_hub_keeps_the_token(hub: HubStandIn):
    hub.says("config.json", Answer(status=307, headers={"Location": "/api/resolve-cache/config.json"}))
    hub.answers["/api/resolve-cache/config.json"] = [Answer(json.dumps(CONFIG).encode())]
    assert parse_config(ask(hub, token=TOKEN).config()) == CONFIG
    assert hub.asked[1][1]["Authorization"] == f"Bearer {TOKEN}"


def test_a_redirect_within_the_hub_keeps_the_token_behind_a_proxy_too(monkeypatch: pytest.MonkeyPatch):
    with hub_stand_in() as proxy:
        # A proxy is asked for the whole address.
        proxy.answers["http://hub.test/org/model/resolve/main/config.json"] = [
            Answer(status=307, headers={"Location": "/api/resolve-cache/config.json"})
        ]
        proxy.answers["http://hub.test/api/resolve-cache/config.json"] = [
            Answer(status=302, headers={"Location": f"{proxy.address}/signed"})
        ]
        proxy.answers["/signed"] = proxy.answers[f"{proxy.address}/signed"] = [Answer(json.dumps(CONFIG).encode())]
        monkeypatch.setenv("http_proxy", proxy.address)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        hub = Hub("org/model", None, endpoint="http://hub.test", token=TOKEN, timeouts=QUICK)
        assert parse_config(hub.config()) == CONFIG
        assert [asked.get("Authorization") for _, asked in proxy.asked] == [f"Bearer {TOKEN}", f"Bearer {TOKEN}", None]


def test_the_proxys_password_is_given_to_the_proxy_and_to_no_host_that_is_asked_past_it(
    monkeypatch: pytest.MonkeyPatch,
):
    with hub_stand_in() as proxy:
        proxy.answers["http://hub.test/org/model/resolve/main/config.json"] = [
            Answer(status=307, headers={"Location": "http://cdn.test/x"})
        ]
        proxy.answers["http://cdn.test/x"] = [Answer(status=302, headers={"Location": f"{proxy.address}/signed"})]
        proxy.answers["/signed"] = [Answer(json.dumps(CONFIG).encode())]
        monkeypatch.setenv("http_proxy", proxy.address.replace("//", "//user:secret@"))
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert parse_config(Hub("org/model", None, endpoint="http://hub.test", timeouts=QUICK).config()) == CONFIG
        assert ["Proxy-Authorization" in asked for _, asked in proxy.asked] == [True, True, False]


def test_a_redirect_to_another_host_does_not_carry_the_token(hub: HubStandIn):
    with hub_stand_in() as elsewhere:
        elsewhere.answers["/signed"] = [Answer(json.dumps(CONFIG).encode())]
        hub.says("config.json", Answer(status=302, headers={"Location": f"{elsewhere.address}/signed"}))
        assert parse_config(ask(hub, token=TOKEN).config()) == CONFIG
        assert "Authorization" not in elsewhere.asked[0][1]


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://x"])
def test_a_redirect_away_from_http_is_not_followed(hub: HubStandIn, target: str):
    hub.says("config.json", Answer(status=302, headers={"Location": target}))
    assert refusal(hub).reason in ("ModelUnreadable", "HubUnreachable")


def test_redirects_without_end_are_given_up(hub: HubStandIn):
    hub.says("config.json", Answer(status=302, headers={"Location": "/org/model/resolve/main/config.json"}))
    assert refusal(hub).reason == "ModelUnreadable"
    assert len(hub.asked) < 20


@pytest.mark.parametrize(
    ("status", "code", "token", "reason", "says"),
    [
        (401, None, None, "ModelAccessDenied", "spec.model.tokenSecretRef"),
        (403, None, None, "ModelAccessDenied", "spec.model.tokenSecretRef"),
        (403, "GatedRepo", TOKEN, "ModelAccessDenied", "model's page"),
        (404, "RevisionNotFound", None, "ModelNotFound", "spec.model.revision"),
        (404, "RepoNotFound", None, "ModelNotFound", "spec.model.uri"),
        (404, "EntryNotFound", None, "ModelNotFound", "config.json"),
    ],
)
def test_a_refusal_of_the_hub_is_not_retried_and_leads_to_what_to_change(
    hub: HubStandIn, status, code, token, reason, says
):
    hub.says("config.json", Answer(status=status, headers={"X-Error-Code": code} if code else {}))
    error = refusal(hub, token=token)
    assert (error.reason, says in error.message) == (reason, True)
    assert len(hub.asked) == 1


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_hub_that_stumbles_is_asked_again(hub: HubStandIn, status: int):
    hub.says("config.json", Answer(status=status), Answer(status=status), Answer(json.dumps(CONFIG).encode()))
    assert parse_config(ask(hub).config()) == CONFIG


def test_a_hub_that_stays_down_is_given_up(hub: HubStandIn):
    hub.says("config.json", Answer(status=503))
    error = refusal(hub)
    assert (error.reason, len(hub.asked)) == ("HubUnreachable", 3)
    assert "503" in error.message
    assert "HF_ENDPOINT" in error.message


def test_a_hub_that_does_not_answer_is_given_up_in_time(hub: HubStandIn):
    hub.says("config.json", Answer(pause_seconds=2))
    begun = time.monotonic()
    error = refusal(hub)
    assert (error.reason, "timed out" in error.message) == ("HubUnreachable", True)
    assert time.monotonic() - begun < 2


def test_a_body_that_only_drips_is_given_up_in_time(hub: HubStandIn):
    hub.says("config.json", Answer(b"{" + b" " * 1000, drip_seconds=0.02))
    begun = time.monotonic()
    assert refusal(hub, timeouts=Timeouts(request=0.3, all=0.5, pauses=())).reason == "HubUnreachable"
    assert time.monotonic() - begun < 2


def test_a_port_where_nobody_listens_is_said():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://user:{TOKEN}@127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ModelReadError) as caught:
            Hub("org/model", None, endpoint=address, timeouts=QUICK).config()
    assert caught.value.reason == "HubUnreachable"
    assert TOKEN not in caught.value.message


@pytest.mark.parametrize("endpoint", ["hub.example.com", "file:///etc", "", "https://"])
def test_an_endpoint_that_is_no_address_is_refused(endpoint: str):
    with pytest.raises(ModelReadError, match="HF_ENDPOINT"):
        Hub("org/model", None, endpoint=endpoint or "x", timeouts=QUICK)


def test_a_token_with_a_line_break_inside_is_refused_without_showing_it(hub: HubStandIn):
    assert refusal(hub, token=f"{TOKEN}\nX-Evil: 1").reason == "ModelAccessDenied"
    assert hub.asked == []


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[1]", b"null", b"{" * 100_000, b'{"a": ' + b"[" * 200_000, b"\xff\xfe", b" " * (1 << 21)],
    ids=["empty", "a page", "a list", "null", "braces", "deep", "no text", "huge"],
)
def test_what_is_no_config_json_is_unreadable(hub: HubStandIn, body: bytes):
    hub.says("config.json", Answer(body))
    assert refusal(hub).reason == "ModelUnreadable"


def test_no_more_than_the_limit_of_a_huge_file_is_read(hub: HubStandIn):
    hub.says("config.json", Answer(b"x" * (8 * MAX_CONFIG_BYTES)))
    assert len(ask(hub).config()) == MAX_CONFIG_BYTES + 1


class TestBytesOfTheWeights:
    WEIGHTS = struct.pack("<Q", 100) + b" " * 100 + b"w" * 4096

    def test_the_index_says_them(self, hub: HubStandIn):
        index = {"metadata": {"total_size": 17_534_247_392}, "weight_map": {}}
        hub.says("model.safetensors.index.json", Answer(json.dumps(index).encode()))
        assert ask(hub).weights_bytes() == 17_534_247_392

    def test_a_single_file_says_them_by_its_size_and_header(self, hub: HubStandIn):
        with hub_stand_in() as storage:
            storage.answers["/blob"] = [Answer(self.WEIGHTS)]
            hub.says("model.safetensors", Answer(status=302, headers={"Location": f"{storage.address}/blob"}))
            assert ask(hub, token=TOKEN).weights_bytes() == 4096
            assert storage.asked[0][1]["Range"] == "bytes=0-7"

    def test_a_server_without_ranges_says_them_too(self, hub: HubStandIn):
        hub.says("model.safetensors", Answer(self.WEIGHTS, headers={"No-Ranges": "1"}))
        assert ask(hub).weights_bytes() == 4096

    @pytest.mark.parametrize(
        "answer",
        [Answer(status=503), Answer(b"<html>"), Answer(b'{"metadata": {"total_size": "many"}}'), Answer(b"[]")],
        ids=["a broken hub", "a page", "a word", "a list"],
    )
    def test_they_stay_unknown_where_the_index_is_broken(self, hub: HubStandIn, answer: Answer):
        hub.says("model.safetensors.index.json", answer)
        assert ask(hub).weights_bytes() is None

    def test_they_stay_unknown_without_safetensors(self, hub: HubStandIn):
        assert ask(hub).weights_bytes() is None

    def test_a_header_longer_than_its_file_is_not_believed(self, hub: HubStandIn):
        hub.says("model.safetensors", Answer(struct.pack("<Q", 2**60) + b"w" * 4096))
        assert ask(hub).weights_bytes() is None
