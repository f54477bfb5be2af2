"""What probes and Prometheus are told."""

from __future__ import annotations

import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from prometheus_client.registry import CollectorRegistry
from unit.render.samples import plan, service

from vlm_operator.controller import health
from vlm_operator.controller.conclude import conclude
from vlm_operator.controller.health import STUCK_SECONDS, Health, serve
from vlm_operator.controller.metrics import Metrics
from vlm_operator.controller.observed import Observed
from vlm_operator.controller.queue import Key


@contextmanager
def served(health: Health, registry: CollectorRegistry) -> Iterator[str]:
    server = serve("127.0.0.1:0", health, registry)
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def ask(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_an_event_loop_that_stands_still_fails_the_liveness_probe():
    now = [0.0]
    health = Health(lambda: now[0])
    with served(health, CollectorRegistry()) as url:
        assert ask(f"{url}/healthz") == (200, "starting\n")
        health.turned()
        now[0] = STUCK_SECONDS - 1
        assert ask(f"{url}/healthz")[0] == 200
        now[0] = STUCK_SECONDS + 1
        status, text = ask(f"{url}/healthz")
        assert (status, "31.0 s ago" in text) == (503, True)


def test_it_is_ready_once_it_watches_or_stands_by():
    health = Health()
    health.turned()
    with served(health, CollectorRegistry()) as url:
        assert ask(f"{url}/readyz") == (503, "starting\n")
        health.standby = True
        assert ask(f"{url}/readyz")[0] == 200
        health.standby = False
        health.watching = True
        assert ask(f"{url}/readyz") == (200, "watching\n")
        assert ask(f"{url}/other")[0] == 404


def test_whoever_connects_and_says_nothing_keeps_no_thread(monkeypatch):
    monkeypatch.setattr(health, "SILENT_SECONDS", 0.2)
    with served(Health(), CollectorRegistry()) as url, ExitStack() as silent:
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        before = threading.active_count()
        for _ in range(5):
            silent.enter_context(socket.create_connection(address))
        deadline = time.monotonic() + 20
        while threading.active_count() < before + 5:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        while threading.active_count() > before:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert ask(f"{url}/healthz")[0] == 200


def test_services_are_counted_by_condition_and_gone_ones_are_not():
    metrics = Metrics(CollectorRegistry())
    metrics.watch_queue(lambda: 3)
    suspended = conclude(service(suspend=True), Observed(plan=plan()), None, "2026-01-01T00:00:00Z")
    metrics.see(Key("default", "a"), suspended)
    metrics.see(Key("default", "b"), suspended)
    metrics.reconciles.labels("success").inc()
    with served(Health(), metrics.registry) as url:
        line = 'vlm_operator_services{condition="Ready",reason="Suspended",status="False"}'
        said = ask(f"{url}/metrics")[1]
        assert f"{line} 2.0" in said
        assert "vlm_operator_queue_depth 3.0" in said
        assert 'vlm_operator_reconciles_total{result="success"} 1.0' in said
        metrics.forget(Key("default", "a"))
        assert f"{line} 1.0" in ask(f"{url}/metrics")[1]
        metrics.forget(Key("default", "b"))
        assert line not in ask(f"{url}/metrics")[1]
