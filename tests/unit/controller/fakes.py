"""An API server in memory, as far as the operator's writers need one."""

import asyncio
import copy
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from kubernetes import client as kubernetes_client

from vlm_operator.kube.client import ApiError
from vlm_operator.kube.kinds import Kind

Json = dict[str, Any]


class FakeClient:
    """Objects by kind, namespace and name. ``calls`` are all writes; ``broken`` makes every call fail."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str | None, str], Json] = {}
        self.calls: list[tuple[str, str]] = []
        self.broken: ApiError | None = None
        self.missing: set[str] = set()

    def add(self, manifest: Json) -> Json:
        metadata = manifest["metadata"]
        metadata.setdefault("uid", f"uid-of-{metadata['name']}")
        metadata.setdefault("resourceVersion", "1")
        self.objects[manifest["kind"], metadata.get("namespace"), metadata["name"]] = manifest
        return manifest

    def get(self, kind: Kind, namespace: str | None, name: str) -> Json | None:
        self._check()
        return copy.deepcopy(self.objects.get((kind.kind, namespace, name)))

    def list(self, kind: Kind, namespace: str | None = None, **_: Any) -> list[Json]:
        self._check()
        found = [o for (k, n, _), o in self.objects.items() if k == kind.kind and namespace in (None, n)]
        return copy.deepcopy(found)

    def pages(self, kind: Kind, namespace: str | None = None, **more: Any) -> Iterator[Json]:
        for found in self.list(kind, namespace, **more):
            yield {"items": [found]}

    def serves(self, kind: Kind) -> bool:
        return kind.kind not in self.missing

    def create(self, kind: Kind, manifest: Json) -> Json:
        self._write("create", manifest)
        if self.get(kind, manifest["metadata"].get("namespace"), manifest["metadata"]["name"]):
            raise ApiError(409, "AlreadyExists", "it exists")
        return self.add(copy.deepcopy(manifest))

    def replace(self, kind: Kind, manifest: Json) -> Json:
        self._write("replace", manifest)
        live = self.get(kind, manifest["metadata"].get("namespace"), manifest["metadata"]["name"])
        if live is None or live["metadata"]["resourceVersion"] != manifest["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "it has changed")
        manifest = copy.deepcopy(manifest)
        manifest["metadata"]["resourceVersion"] += "1"
        return self.add(manifest)

    def merge(self, kind: Kind, namespace: str, name: str, patch: Json) -> Json:
        self._check()
        live = self.objects.get((kind.kind, namespace, name))
        if live is None:
            raise ApiError(404, "NotFound", f'{kind.plural} "{name}" not found')
        self._write("merge", live)
        live.update(patch)
        return live

    def apply(self, kind: Kind, manifest: Json, *, force: bool, manager: str = "vlm-operator") -> Json:
        live = self.objects.get((manifest["kind"], manifest["metadata"].get("namespace"), manifest["metadata"]["name"]))
        selectors = [o.get("spec", {}).get("selector") for o in (live or {}, manifest)]
        if live and not force and manager == "vlm-operator" and selectors[0] != selectors[1]:
            raise ApiError(409, "Conflict", "Apply failed with 1 conflict: .spec.selector")
        self._write("force" if force else "apply", manifest)
        return self.add(copy.deepcopy(manifest))

    def delete(self, kind: Kind, manifest: Json) -> bool:
        self._write("delete", manifest)
        metadata = manifest["metadata"]
        live = self.objects[manifest["kind"], metadata.get("namespace"), metadata["name"]]
        if live["metadata"].get("finalizers"):
            live["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            return False
        del self.objects[manifest["kind"], metadata.get("namespace"), metadata["name"]]
        return True

    def _write(self, verb: str, manifest: Json) -> None:
        self._check()
        self.calls.append((verb, f"{manifest['kind']}/{manifest['metadata']['name']}"))

    def _check(self) -> None:
        if self.broken is not None:
            raise self.broken


class AtOnce(Executor):
    """Nothing is late."""

    def submit(self, ask: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(ask(*args, **kwargs))
        return done


async def until(condition: Callable[[], Any]) -> None:
    """Waits in the test's loop for what other tasks and threads do."""
    for _ in range(4000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("not within 20 s")


@contextmanager
def served(
    handler: type[BaseHTTPRequestHandler], monkeypatch: pytest.MonkeyPatch, retries: int | None = 0
) -> Iterator[ThreadingHTTPServer]:
    """A server on a free port, which the Kubernetes client takes for its API server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        configuration = kubernetes_client.Configuration()
        configuration.host = f"http://127.0.0.1:{server.server_port}"
        configuration.retries = retries
        monkeypatch.setattr(kubernetes_client.Configuration, "get_default_copy", lambda: configuration)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()
