"""kopf in a thread of its own, against a small HTTP server: what it tells, and how it ends."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client as kubernetes_client
from unit.controller.fakes import until

from vlm_operator.controller.kopf_thread import KopfThread

GROUP = "/apis/vlmserve.dev/v1alpha1"
RESOURCE = {"name": "vlmservices", "singularName": "vlmservice", "kind": "VLMService", "namespaced": True}
CORE = {"name": "namespaces", "singularName": "", "kind": "Namespace", "namespaced": False, "verbs": ["list", "watch"]}


class Server(http.server.BaseHTTPRequestHandler):
    """Knows VLMServices: one in a list, and one that a watch tells of; the watch then says ``last``, or nothing."""

    protocol_version = "HTTP/1.1"
    asked: list[str]
    last: dict[str, Any] | None = None
    ending = threading.Event()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path.endswith("/vlmservices"):
            self.asked.append(path)
        if "watch=true" in self.path:
            self._stream()
        elif path.endswith("/vlmservices"):
            self._answer({"metadata": {"resourceVersion": "7"}, "items": [found("listed", "6")]})
        else:
            self._answer(
                {
                    "/api": {"versions": ["v1"]},
                    "/api/v1": {"resources": [CORE]},
                    "/apis": {
                        "groups": [{"name": "vlmserve.dev", "versions": [version()], "preferredVersion": version()}]
                    },
                    GROUP: {"resources": [{**RESOURCE, "verbs": ["list", "watch", "get"]}]},
                }.get(path, {})
            )

    def _answer(self, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        events = [{"type": "ADDED", "object": found("new", "8")}, *([self.last] if self.last else [])]
        for event in events:
            self.wfile.write(json.dumps(event).encode() + b"\n")
            self.wfile.flush()
        self.ending.wait(30)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Not into the test's output."""


def version() -> dict[str, str]:
    return {"groupVersion": "vlmserve.dev/v1alpha1", "version": "v1alpha1"}


def found(name: str, version: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ml", "uid": name, "resourceVersion": version}
    return {"apiVersion": "vlmserve.dev/v1alpha1", "kind": "VLMService", "metadata": metadata, "spec": {}}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Server]]:
    monkeypatch.setattr(Server, "asked", [], raising=False)
    monkeypatch.setattr(Server, "ending", threading.Event())
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as running:
        configuration = kubernetes_client.Configuration()
        configuration.host = f"http://127.0.0.1:{running.server_port}"
        monkeypatch.setattr(kubernetes_client.Configuration, "get_default_copy", lambda: configuration)
        monkeypatch.setattr("kubernetes.config.load_incluster_config", lambda: None)
        running.daemon_threads = True
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield Server
        Server.ending.set()
        running.shutdown()


@pytest.mark.parametrize("namespaces", [[], ["ml", "other"]], ids=["all", "two"])
def test_it_tells_what_is_there_and_what_comes_and_ends_alone(server, namespaces):
    told: list[tuple[Any, str]] = []

    async def watch() -> None:
        bystander = asyncio.create_task(asyncio.sleep(3600))
        kopf = KopfThread(namespaces, lambda e: told.append((e["type"], e["object"]["metadata"]["name"])))
        kopf.start()
        await until(lambda: {(None, "listed"), ("ADDED", "new")} <= set(told))
        await kopf.end()
        assert kopf.ended.done()
        assert kopf.ended.exception() is None
        assert not bystander.done(), "kopf has ended what is not its own"
        bystander.cancel()

    asyncio.run(watch())
    where = [f"{GROUP}/namespaces/{ns}/vlmservices" for ns in namespaces] or [f"{GROUP}/vlmservices"]
    assert set(server.asked) == set(where)


def test_a_watch_that_kopf_gives_up_is_told_and_another_can_begin(server, monkeypatch):
    broken = {"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcdserver: leader changed"}}
    told: list[Any] = []

    async def watch() -> None:
        monkeypatch.setattr(server, "last", broken)
        first = KopfThread([], told.append)
        first.start()
        with pytest.raises(Exception, match="leader changed"):
            await asyncio.wait_for(first.ended, 30)
        monkeypatch.setattr(server, "last", None)
        told.clear()
        second = KopfThread([], told.append)
        second.start()
        await until(lambda: told)
        await second.end()
        assert second.ended.exception() is None

    asyncio.run(watch())
