"""The operator's own metrics: what they count, and that no label grows without end."""

import http.server
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from unit.controller.fakes import served

from vlm_api.status import VLMServiceStatus
from vlm_operator.controller.run.metrics import Metrics
from vlm_operator.controller.run.queue import Key
from vlm_operator.kube import kinds
from vlm_operator.kube.client import ApiError, Client


class Refuses(http.server.BaseHTTPRequestHandler):
    """An API server with no objects, where nobody may write."""

    def do_GET(self) -> None:
        self._answer(200, b'{"items": []}')

    def do_POST(self) -> None:
        self._answer(403, b'{"reason": "Forbidden", "message": "no"}')

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Not into the test's output."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[http.server.HTTPServer]:
    with served(Refuses, monkeypatch) as running:
        yield running


def test_requests_are_counted_by_what_was_asked_and_what_was_answered(server: http.server.HTTPServer):
    metrics = Metrics(CollectorRegistry())
    client = Client(metrics.count_request)
    client.list(kinds.NODE)
    client.get(kinds.NODE, None, "a")
    with pytest.raises(ApiError):
        client.create(kinds.JOB, {"metadata": {"name": "a", "namespace": "b"}})
    server.shutdown()
    server.server_close()
    with pytest.raises(ApiError):
        client.get(kinds.NODE, None, "a")

    def count(verb: str, code: str) -> float | None:
        return metrics.registry.get_sample_value("vlm_operator_api_requests_total", {"verb": verb, "code": code})

    assert [count("list", "200"), count("get", "200"), count("create", "403"), count("get", "none")] == [1, 1, 1, 1]
    assert metrics.registry.get_sample_value("vlm_operator_api_request_seconds_count", {"verb": "get"}) == 2


def test_a_reason_that_a_webhook_made_up_makes_no_series_of_its_own():
    metrics = Metrics(CollectorRegistry())
    for reason in ("Conflict", "quota-of-team-a-0", "quota-of-team-a-1"):
        metrics.count_failure(reason)
    (family,) = [f for f in metrics.registry.collect() if f.name == "vlm_operator_errors"]
    counted = {s.labels["reason"]: s.value for s in family.samples if s.name.endswith("_total")}
    assert counted == {"Conflict": 1, "Other": 2}


def test_a_service_s_replicas_are_told_until_it_is_gone():
    metrics = Metrics(CollectorRegistry())

    def told(name: str) -> tuple[float | None, float | None]:
        labels = {"vlmservice_namespace": "ml", "vlmservice": name}
        ask = metrics.registry.get_sample_value
        return (
            ask("vlm_operator_service_wanted_replicas", labels),
            ask("vlm_operator_service_available_replicas", labels),
        )

    metrics.update(Key("ml", "up"), VLMServiceStatus(desired_replicas=2, available_replicas=1))
    metrics.update(Key("ml", "suspended"), VLMServiceStatus(desired_replicas=0))
    assert (told("up"), told("suspended")) == ((2, 1), (0, 0))
    metrics.forget(Key("ml", "up"))
    assert told("up") == (None, None)


def test_a_service_whose_reconcile_takes_long_is_named_until_one_is_short_or_it_is_gone():
    metrics = Metrics(CollectorRegistry())
    name, big = "vlm_operator_service_slow_reconcile_seconds", {"vlmservice_namespace": "ml", "vlmservice": "big"}
    for seconds, told in ((0.2, None), (20.0, 20.0), (0.2, None), (3.0, 3.0)):
        metrics.took(Key("ml", "big"), seconds)
        assert metrics.registry.get_sample_value(name, big) == told
    metrics.forget(Key("ml", "big"))
    assert metrics.registry.get_sample_value(name, big) is None
    assert metrics.registry.get_sample_value("vlm_operator_reconcile_seconds_count") == 4
