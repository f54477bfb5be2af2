"""Lists, watches and the end of writing, against a small HTTP server."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client as kubernetes_client

from vlm_operator.kube import kinds
from vlm_operator.kube.client import ApiError, Client


class Server(http.server.BaseHTTPRequestHandler):
    """Two pages of ConfigMaps, a watch in pieces, and nothing else."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if "watch=1" in self.path:
            self._stream(
                [b'{"type":"ADDED","object":{"metadata":{"na', b'me":"a"}}}\n{"type":"BOOKMARK","object":{}}\n']
            )
        elif "configmaps" in self.path:
            first = "continue=next" not in self.path
            metadata = {"resourceVersion": "7"} | ({"continue": "next"} if first else {})
            self._answer(200, {"metadata": metadata, "items": [{"metadata": {"name": "a" if first else "b"}}]})
        else:
            self._answer(404, {"reason": "NotFound", "message": "the server could not find the requested resource"})

    def do_POST(self) -> None:
        self._answer(201, {"metadata": {"name": "made"}})

    def do_PUT(self) -> None:
        self._answer(200, {})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, parts: list[bytes]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in parts:
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        """Not into the test's output."""


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        configuration = kubernetes_client.Configuration()
        configuration.host = f"http://127.0.0.1:{server.server_port}"
        configuration.retries = 0
        monkeypatch.setattr(kubernetes_client.Configuration, "get_default_copy", lambda: configuration)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Client()
        server.shutdown()


def test_all_pages_of_a_list_are_read_and_say_their_kind(client):
    found = client.list(kinds.CONFIG_MAP)
    assert [(o["kind"], o["metadata"]["name"]) for o in found] == [("ConfigMap", "a"), ("ConfigMap", "b")]


@pytest.mark.parametrize("kind", kinds.MAY_BE_MISSING, ids=lambda kind: kind.kind)
def test_of_a_kind_that_a_cluster_may_lack_there_are_none(client, kind):
    assert client.list(kind) == []


@pytest.mark.parametrize("kind", [kinds.DEPLOYMENT, kinds.POD, kinds.NODE, kinds.VLM_SERVICE], ids=lambda k: k.kind)
def test_a_kind_that_every_cluster_has_and_that_is_not_found_is_an_error_and_not_an_empty_cluster(client, kind):
    with pytest.raises(ApiError) as error:
        client.list(kind)
    assert error.value.status == 404


def test_events_of_a_watch_come_whole_whatever_the_pieces_that_they_are_sent_in(client):
    events = list(client.watch(kinds.CONFIG_MAP, version="7"))
    assert [e["type"] for e in events] == ["ADDED", "BOOKMARK"]
    assert events[0]["object"]["metadata"]["name"] == "a"


def test_after_the_lease_is_lost_nothing_is_written_but_leases(client):
    metadata = {"name": "a", "namespace": "default"}
    client.create(kinds.JOB, {"metadata": metadata})
    client.fence()
    for write in (
        lambda: client.create(kinds.JOB, {"metadata": metadata}),
        lambda: client.apply(kinds.CONFIG_MAP, {"metadata": metadata}, force=True),
        lambda: client.delete(kinds.CONFIG_MAP, {"metadata": {**metadata, "uid": "u"}}),
        lambda: client.merge(kinds.EVENT, "default", "a", {}),
        lambda: client.json_patch(kinds.VLM_SERVICE, "default", "a", [], subresource="status"),
    ):
        with pytest.raises(ApiError, match="another operator may work"):
            write()
    client.replace(kinds.LEASE, {"metadata": metadata})
    assert client.list(kinds.CONFIG_MAP)
