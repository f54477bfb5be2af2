"""An API server in memory, as far as the operator's writers need one."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator
from typing import Any

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
        self._write("force" if force else "apply", manifest)
        return self.add(copy.deepcopy(manifest))

    def delete(self, kind: Kind, manifest: Json) -> None:
        self._write("delete", manifest)
        metadata = manifest["metadata"]
        del self.objects[manifest["kind"], metadata.get("namespace"), metadata["name"]]

    def _write(self, verb: str, manifest: Json) -> None:
        self._check()
        self.calls.append((verb, f"{manifest['kind']}/{manifest['metadata']['name']}"))

    def _check(self) -> None:
        if self.broken is not None:
            raise self.broken


async def until(condition: Callable[[], Any]) -> None:
    """Waits in the test's loop for what other tasks and threads do."""
    for _ in range(4000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("not within 20 s")
