"""What probes and Prometheus are told."""

import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from prometheus_client.registry import CollectorRegistry
from unit.controller.observations import PLAN, observed, status_of

from vlm_operator.controller.run import health
from vlm_operator.controller.run.health import STUCK_SECONDS, Health, serve
from vlm_operator.controller.run.metrics import Metrics
from vlm_operator.controller.run.queue import Key


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
        health.beat()
        now[0] = STUCK_SECONDS - 1
        assert ask(f"{url}/healthz")[0] == 200
        now[0] = STUCK_SECONDS + 1
        status, text = ask(f"{url}/healthz")
        assert (status, "31.0 s ago" in text) == (503, True)


def test_it_is_ready_once_it_watches_or_stands_by():
    health = Health()
    health.beat()
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
    suspended = status_of(observed(plan=PLAN), suspend=True)
    metrics.update(Key("default", "a"), suspended)
    metrics.update(Key("default", "b"), suspended)
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


def test_half_requests_hold_few_connections_and_no_probe_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "LONGEST_SECONDS", 0.5)
    server = health.serve("127.0.0.1:0", health.Health(), CollectorRegistry())
    halves, others = [], set(threading.enumerate())
    try:
        for _ in range(health.MOST_CONNECTIONS + 20):
            half = socket.create_connection(server.server_address[:2], timeout=5)
            half.sendall(b"GET /healthz HTTP/1.1\r\n")
            halves.append(half)
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/healthz", timeout=5) as answer:
            assert answer.status == 200
        started = [thread for thread in threading.enumerate() if thread not in others]
        assert sum("process_request" in thread.name for thread in started) <= health.MOST_CONNECTIONS
        assert halves[-1].recv(1) == b""  # closed for taking too long, not for being silent
    finally:
        for half in halves:
            half.close()
        server.shutdown()
        server.server_close()
