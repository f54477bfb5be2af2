"""A stand-in for the API server, as far as a measurement speaks to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vlm_operator.kube import kinds
from vlm_operator.kube.client import ApiError


class Api:
    """Objects by name. ``before`` and ``after`` are called at each request, before and after it takes effect."""

    def __init__(self) -> None:
        self.objects: dict[str, str] = {}
        self.requests: list[str] = []
        self.before: Callable[[str], None] = lambda request: None
        self.after: Callable[[str], None] = lambda request: None

    def _request(self, request: str, effect: Callable[[], Any]) -> Any:
        self.requests.append(request)
        self.before(request)
        found = effect()
        self.after(request)
        return found

    def create(self, kind: kinds.Kind, manifest: dict[str, Any]) -> dict[str, Any]:
        name = manifest["metadata"]["name"]

        def effect() -> dict[str, Any]:
            if name in self.objects:
                raise ApiError(409, "AlreadyExists", f"{name} already exists")
            self.objects[name] = f"uid of {name}"
            return {"metadata": {**manifest["metadata"], "uid": self.objects[name]}}

        made: dict[str, Any] = self._request(f"create {kind.kind}", effect)
        return made

    def get(self, kind: kinds.Kind, namespace: str, name: str) -> dict[str, Any] | None:
        def effect() -> dict[str, Any] | None:
            uid = self.objects.get(name)
            return None if uid is None else {"metadata": {"name": name, "namespace": namespace, "uid": uid}}

        found: dict[str, Any] | None = self._request(f"get {kind.kind}", effect)
        return found

    def delete(self, kind: kinds.Kind, manifest: dict[str, Any]) -> None:
        def effect() -> None:
            if self.objects.get(manifest["metadata"]["name"]) == manifest["metadata"]["uid"]:
                del self.objects[manifest["metadata"]["name"]]

        self._request(f"delete {kind.kind}", effect)

    def list(self, kind: kinds.Kind, namespace: str, *, labels: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._request(f"list {kind.kind}", list)
        return found

    def merge(self, kind: kinds.Kind, namespace: str, name: str, patch: dict[str, Any]) -> dict[str, Any]:
        changed: dict[str, Any] = self._request(f"merge {kind.kind} {patch}", lambda: patch)
        return changed

    def serves(self, kind: kinds.Kind) -> bool:
        return True
