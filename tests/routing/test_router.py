"""The router is a real Envoy; behind it are stand-ins for engines, which count."""

import base64
import concurrent.futures
import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from routing.engines import Engine
from routing.envoy import LIMIT, Envoy, routing, validate

from vlm_operator.fleet.envoy import HEADER, Routing, bootstrap

Start = Callable[..., Envoy]
PATH = "/v1/chat/completions"
SCRAPS = [b"", b'"', b"{", b"\x00", b"\xff", b'"image_url":', b"\r\n", b"%"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Any] = []

    def run(asked: Routing, *pools: Sequence[Engine]) -> Envoy:
        router = Envoy(asked, pools, tmp_path)
        started.extend([*(engine for pool in pools for engine in pool), router])
        router.wait(sum(map(len, pools)))
        return router

    yield run
    for each in reversed(started):
        each.stop()


def picture(number: int, size: int = 3000) -> str:
    return "data:image/png;base64," + base64.b64encode(random.Random(number).randbytes(size)).decode()


def about(image: Any, text: str = "What is it?") -> dict[str, Any]:
    content = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": image}}]
    return {"model": "m", "messages": [{"role": "user", "content": content}]}


def asked_at_once(router: Envoy, bodies: Sequence[Any], in_flight: int) -> list[dict[str, Any]]:
    with httpx.Client(limits=httpx.Limits(max_connections=in_flight), timeout=60) as client:

        def ask(body: Any) -> dict[str, Any]:
            answer = client.post(router.url + PATH, json=body)
            assert answer.status_code == 200, answer.text
            return dict(answer.json())

        with concurrent.futures.ThreadPoolExecutor(in_flight) as pool:
            return list(pool.map(ask, bodies))


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("by_image", [False, True])
@pytest.mark.parametrize("weights", [(1,), (25, 4), (90, 10, 0)])
def test_envoy_finds_every_configuration_valid(tmp_path: Path, weights: tuple[int, ...], by_image: bool, shares: bool):
    weights = weights if shares else tuple(weight or 1 for weight in weights)
    assert validate(bootstrap(routing(*weights, by_image=by_image, shares=shares)), tmp_path) == ""


def test_new_images_go_to_the_engine_with_the_least_to_do(start: Start):
    engines = [Engine(0.1) for _ in range(3)]
    answers = asked_at_once(start(routing(), engines), [about(picture(n)) for n in range(150)], in_flight=24)
    assert max(Counter(a["port"] for a in answers).values()) <= 1.2 * len(answers) / 3


def test_an_image_that_repeats_meets_the_engine_that_has_it(start: Start):
    engines = [Engine(0.1) for _ in range(3)]
    router = start(routing(by_image=True), engines)
    images = [picture(n) for n in range(20)]
    asked_at_once(router, [about(images[n % 20], f"Question {n}?") for n in range(180)], in_flight=6)
    encodes = sum(len(engine.images) for engine in engines)
    assert encodes / 20 <= 1.4
    assert max(engine.images.total() for engine in engines) <= 1.5 * 60


def test_a_hot_image_spreads_before_one_engine_is_overloaded(start: Start):
    engines = [Engine(0.1) for _ in range(3)]
    asked_at_once(start(routing(by_image=True), engines), [about(picture(0), str(n)) for n in range(180)], in_flight=24)
    assert max(engine.images.total() for engine in engines) <= 1.6 * 60


def test_replicas_get_requests_by_their_weight(start: Start):
    large, small = Engine(0.02), Engine(0.02)
    asked_at_once(start(routing(4, 1), [large], [small]), [about(picture(n)) for n in range(300)], in_flight=4)
    assert 3 <= large.images.total() / small.images.total() <= 5.5


@pytest.mark.parametrize("by_image", [False, True])
def test_declared_shares_hold_and_an_image_always_meets_the_same_pool(start: Start, by_image: bool):
    main, canary = [Engine(), Engine()], [Engine()]
    router = start(routing(90, 10, by_image=by_image, shares=True), main, canary)
    images = [picture(n, size=300) for n in range(1000)]
    first = asked_at_once(router, [about(image) for image in images], in_flight=16)
    share = sum(answer["port"] == canary[0].port for answer in first) / len(first)
    assert 0.065 <= share <= 0.137  # four standard deviations of a binomial with 10 %
    if by_image:
        again = asked_at_once(router, [about(image, "And now?") for image in images[:200]], in_flight=16)
        pools = [[answer["port"] == canary[0].port for answer in answers[:200]] for answers in (first, again)]
        assert pools[0] == pools[1]


def test_an_image_has_one_key_however_its_request_is_written_and_no_two_share_one(start: Start):
    engine = Engine()
    router = start(routing(by_image=True), [engine])
    image = picture(1)
    spaced = json.dumps(about(image), indent=4)
    detail = {"role": "user", "content": [{"type": "image_url", "image_url": {"detail": "high", "url": image}}]}
    plain = {"role": "user", "content": [{"type": "image_url", "image_url": image}]}
    quoted = about(image, 'A text with {"image_url": {"url": "https://example.com/other.png"}} in it')
    texts = [
        json.dumps(about(image)),
        spaced,
        json.dumps(quoted),
        *(json.dumps({"messages": [m]}) for m in (detail, plain)),
    ]
    keys = {httpx.post(router.url + PATH, content=text).json()["image"] for text in texts}
    assert len(keys) == 1
    assert len(keys.pop()) > 100
    # Images of one size and one beginning, as a camera makes them.
    rng = random.Random(1)
    alike = [picture(0, 300) + base64.b64encode(rng.randbytes(2000)).decode() for _ in range(200)]
    assert len({answer["image"] for answer in asked_at_once(router, [about(each) for each in alike], 8)}) == 200


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("https://a.example/i.png?X-Amz-Signature=1&X-Amz-Date=2", "https://a.example/i.png?X-Amz-Signature=3", True),
        ("https://a.example/i.png?id=1&sig=a", "https://a.example/i.png?id=1&sig=b", True),
        ("https://a.example/i.png?id=1", "https://a.example/i.png?id=2", False),
        ("https://a.example/i.png", "https://a.example/j.png", False),
    ],
)
def test_an_address_is_known_without_its_signature(start: Start, first: str, second: str, same: bool):
    router = start(routing(by_image=True), [Engine()])
    keys = [httpx.post(router.url + PATH, json=about(image)).json()["image"] for image in (first, second)]
    assert (keys[0] == keys[1]) is same


def test_a_client_cannot_choose_the_engine_and_its_key_is_neither_lost_nor_logged(start: Start):
    engine = Engine()
    router = start(routing(by_image=True), [engine])
    headers = {HEADER: "chosen", "Authorization": "Bearer secret-key"}
    httpx.post(router.url + PATH, json={"messages": []}, headers=headers)
    httpx.post(router.url + PATH, json=about(picture(1)), headers=headers)
    for request in engine.requests:
        assert "chosen" not in request["image"]
        assert {key.lower(): value for key, value in request["headers"].items()}["authorization"] == "Bearer secret-key"
    assert "secret-key" not in router.log.read_text()


@pytest.mark.parametrize("by_image", [False, True])
def test_a_body_over_the_limit_is_an_error_that_clients_understand(start: Start, by_image: bool):
    engine = Engine()
    router = start(routing(by_image=by_image), [engine])
    large = picture(1, size=30 << 20 if by_image else 1 << 20)[: LIMIT - 1000]
    assert httpx.post(router.url + PATH, json=about(large), timeout=60).status_code == 200
    refused = httpx.post(router.url + PATH, content=b"x" * (LIMIT + 1), timeout=60)
    assert refused.status_code == 413
    assert refused.json()["error"]["code"] in (413, "413")


def test_a_body_without_a_length_is_read_to_its_end(start: Start):
    engine = Engine()
    router = start(routing(by_image=True), [engine])
    text = json.dumps(about(picture(1))).encode()
    answer = httpx.post(router.url + PATH, content=iter([text[:1000], text[1000:]]))
    assert (answer.json()["bytes"], answer.json()["image"][:5]) == (len(text), f"{len(picture(1))}:"[:5])


def test_without_engines_the_answer_is_an_error_in_the_form_of_the_openai_api(start: Start):
    engine = Engine()
    router = start(routing(), [engine])
    engine.stop()
    answers = [httpx.post(router.url + PATH, json=about(picture(n)), timeout=30) for n in range(3)]
    assert {answer.status_code for answer in answers} == {503}
    assert answers[-1].json()["error"]["type"] == "router_error"


def test_an_engine_that_dies_costs_only_what_it_was_answering(start: Start):
    engines, in_flight = [Engine(0.02) for _ in range(3)], 4
    router = start(routing(), engines)
    with httpx.Client(timeout=60) as client, concurrent.futures.ThreadPoolExecutor(in_flight) as pool:

        def ask(number: int) -> int:
            if number == 100:
                engines[0].stop()
            return client.post(router.url + PATH, json=about(picture(number, 300))).status_code

        answers = list(pool.map(ask, range(400)))
    assert answers.count(200) >= len(answers) - in_flight
    assert set(answers[150:]) == {200}


def test_streams_pass_piece_by_piece(start: Start):
    router = start(routing(by_image=True), [Engine()])
    began, arrived = time.monotonic(), []
    with httpx.stream("POST", router.url + "/stream", json=about(picture(1)), headers={"x-seconds": "1"}) as answer:
        arrived = [time.monotonic() - began for _ in answer.iter_raw()]
    assert arrived[0] < 0.5
    assert arrived[-1] > 0.8


def test_a_kept_connection_ends_between_two_requests_and_no_stream_is_cut(start: Start):
    router = start(routing(connection_seconds=1), [Engine()])
    with httpx.Client() as client:
        with client.stream("POST", router.url + "/stream", json={}, headers={"x-seconds": "3"}) as answer:
            pieces = [line for line in answer.iter_lines() if line]
        assert pieces == [f"data: {n}" for n in range(10)]
        until = time.monotonic() + 3
        while time.monotonic() < until:
            assert client.post(router.url + PATH, json={}).status_code == 200
            time.sleep(0.02)
    ended = r'^envoy_http_downstream_cx_max_duration_reached{envoy_http_conn_manager_prefix="clients"} (\d+)$'
    (count,) = re.findall(ended, httpx.get(f"{router.metrics_url}/metrics").text, re.MULTILINE)
    assert int(count) >= 3


def test_no_body_breaks_the_router(start: Start):
    engine = Engine()
    router = start(routing(by_image=True), [engine])
    rng, text = random.Random(3), json.dumps(about(picture(1, 500))).encode()
    with httpx.Client(timeout=30) as client:
        for _ in range(300):
            body = bytearray(text)
            for _ in range(rng.randrange(1, 12)):
                at = rng.randrange(len(body) + 1)
                body[at : at + rng.randrange(3)] = rng.choice(
                    [b"", b'"', b"{", b"\\x00", b"\\xff", b'"image_url":', b"\\r\\n", b"%"]
                )
            assert client.post(router.url + PATH, content=bytes(body)).status_code == 200
    assert router.process.poll() is None
    assert "error" not in router.log.read_text().lower()


def test_of_the_admin_interface_only_metrics_and_readiness_can_be_reached(start: Start):
    router = start(routing(), [Engine()])
    assert "envoy_cluster_upstream_rq_total" in httpx.get(f"{router.metrics_url}/metrics").text
    assert httpx.get(f"{router.metrics_url}/ready").status_code == 200
    for path in ("/quitquitquit", "/config_dump", "/", "/metrics/../config_dump", "/stats"):
        assert httpx.post(router.metrics_url + path).status_code == 404, path
