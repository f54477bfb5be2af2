"""Fakes of the three exporters with every metric; counters increase with every scrape."""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from monitoring.engine_metrics import listed
from monitoring.everything import of_the_engine, of_the_operator, of_the_runtime
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest

_BOUNDS = ("0.1", "1", "+Inf")
# Labels that the queries use; all other engine metrics get the scheduler's labels.
_LABELS = {"sglang:http_responses_total": 'endpoint="/v1/chat/completions",method="POST",status_code="200"'}


def engine() -> Callable[[], str]:
    """The engine's metrics from the committed list, and the plugins' metrics."""
    ours, scrapes = of_the_engine(), itertools.count(1)

    def text() -> str:
        counted(ours)
        number = next(scrapes)
        own = (line for name, kind in listed().items() for line in _lines(name, kind, number))
        return generate_latest(ours).decode() + "\n".join(own) + "\n"

    return text


def runtime() -> Callable[[], str]:
    """The runtime of a pod with a GPU."""
    own = of_the_runtime()
    return lambda: generate_latest(own).decode()


def operator() -> Callable[[], str]:
    """The operator with its process metrics."""
    own = of_the_operator()

    def text() -> str:
        counted(own)
        return (generate_latest(own) + generate_latest(REGISTRY)).decode()

    return text


def counted(registry: CollectorRegistry) -> None:
    """Increments each counter and adds an observation to each histogram."""
    for collector in list(registry._collector_to_names):
        kind = getattr(collector, "_type", "")
        children = collector._metrics.values() if getattr(collector, "_labelnames", ()) else [collector]
        for child in children:
            if kind == "counter":
                child.inc()
            elif kind == "histogram":
                child.observe(0.2)


def _lines(name: str, kind: str, number: int) -> Iterator[str]:
    labels = _LABELS.get(name, 'model_name="m",tp_rank="0"')
    yield f"# TYPE {name} {kind}"
    if kind == "histogram":
        yield from (f'{name}_bucket{{{labels},le="{bound}"}} {3 * number}' for bound in _BOUNDS)
        yield f"{name}_sum{{{labels}}} {number}"
        yield f"{name}_count{{{labels}}} {3 * number}"
    else:
        yield f"{name}{{{labels}}} {number if kind == 'counter' else 0.5}"


def negotiated(text: str, accept: str) -> str:
    """The names as the engine's client library writes them: without the colon, unless Prometheus accepts UTF-8 names."""
    return text.replace("sglang:", "sglang_") if "openmetrics" in accept and "allow-utf-8" not in accept else text


@contextmanager
def served(text: Callable[[], str]) -> Iterator[int]:
    """Serves the text on a loopback port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = negotiated(text(), self.headers.get("Accept", "")).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Keeps requests out of the test output."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()
