"""A small JSON client on top of the official one, which brings connections, certificates and credentials."""

import contextlib
import json
import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlencode

import urllib3
import yaml
from kubernetes import client as kubernetes_client
from kubernetes import config as kubernetes_config

from vlm_api.names import FIELD_MANAGER
from vlm_operator.kube.answers import ApiError as ApiError
from vlm_operator.kube.answers import Json as Json
from vlm_operator.kube.answers import json_object, refusal
from vlm_operator.kube.kinds import LEASE, MAY_BE_MISSING, Kind

Patch = list[dict[str, Any]]

# Seconds to connect and to wait for an answer; no request here takes long but a watch.
TIMEOUT_SECONDS: Final = (5.0, 30.0)
# The API server sends a bookmark about every minute: a watch that is silent for longer is dead.
SILENT_SECONDS: Final = 90.0
# How long a watch lasts; spread, so that not all end at the same time.
WATCH_SECONDS: Final = (240, 480)
PAGE: Final = 500
# Errors of the official client for an unusable kubeconfig, and for a file that is something else.
UNUSABLE: Final = (
    kubernetes_config.ConfigException, OSError, yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError
)  # fmt: skip
METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
# Kubernetes' verbs for HTTP methods; for lists and applies the caller names it.
VERBS: Final = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
# How long discovery is trusted.
DISCOVERY_SECONDS: Final = 30.0


_DEADLINE = threading.local()


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Requests of this thread inside the block end after that time, and none is sent later: they raise ApiError."""
    before = getattr(_DEADLINE, "at", math.inf)
    _DEADLINE.at, _DEADLINE.seconds = time.monotonic() + seconds, seconds
    try:
        yield
    finally:
        _DEADLINE.at = before


def configure(kubeconfig: str | None = None, context: str | None = None) -> None:
    """Takes the pod's service account, or else the kubeconfig; only the kubeconfig if the caller names it or a context.

    Raises ApiError without either.
    """
    try:
        if kubeconfig is None and context is None:
            kubernetes_config.load_incluster_config()  # type: ignore[no-untyped-call]
            return
    except kubernetes_config.ConfigException:
        pass
    try:
        kubernetes_config.load_kube_config(config_file=kubeconfig, context=context)  # type: ignore[no-untyped-call]
    except UNUSABLE as error:
        known = isinstance(error, (kubernetes_config.ConfigException, OSError))
        why = str(error) if known else "it is not a kubeconfig: " + " ".join(str(error).split())
        raise ApiError(0, "NoConfig", f"no service account and no usable kubeconfig: {why}") from error


def context_namespace(kubeconfig: str | None = None, context: str | None = None) -> str:
    """The namespace of that context, or of the current one; ``default`` if it names none or there is no kubeconfig."""
    try:
        contexts, current = kubernetes_config.list_kube_config_contexts(kubeconfig)  # type: ignore[no-untyped-call]
    except UNUSABLE:
        return "default"
    chosen = next((c for c in contexts if c["name"] == context), current) or {}
    return str((chosen.get("context") or {}).get("namespace") or "default")


class Client:
    """JSON in and out. Safe to use from several threads; every call blocks, with a time-out."""

    def __init__(
        self,
        on_request: Callable[[str, int, float], None] = lambda verb, status, seconds: None,
        timeout_seconds: tuple[float, float] = TIMEOUT_SECONDS,
        *,
        repeats: bool = True,
    ) -> None:
        """``on_request`` gets the verb, the HTTP status (0: no answer) and the seconds of each request.
        ``timeout_seconds``: to connect, and to wait for an answer. ``repeats``: whether a request that may be sent twice is
        sent again at once without an answer, up to three times."""
        self._on_request = on_request
        self._timeout_seconds = timeout_seconds
        configuration = kubernetes_client.Configuration.get_default_copy()
        configuration.connection_pool_maxsize = 48
        if not repeats:
            configuration.retries = 0
        self._api = kubernetes_client.ApiClient(configuration)
        self._api.user_agent = FIELD_MANAGER
        self._served: dict[str, tuple[float, frozenset[str]]] = {}
        self._fenced = False

    def fence(self) -> None:
        """From now on only leases are written, since another operator may work. This cannot be undone."""
        self._fenced = True

    def get(self, kind: Kind, namespace: str | None, name: str) -> Json | None:
        """The object, or None if there is none."""
        try:
            return self._call("GET", kind.path(namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(self, kind: Kind, namespace: str | None = None, *, labels: str = "", fields: str = "") -> list[Json]:
        """All objects; of every namespace if none is given.

        None of a missing kind that a cluster may lack; any other missing kind is an ApiError.
        """
        try:
            pages = self.pages(kind, namespace, labels=labels, fields=fields)
            return [item for page in pages for item in page["items"]]
        except ApiError as error:
            if error.status == 404 and kind in MAY_BE_MISSING:
                return []
            raise

    def pages(
        self, kind: Kind, namespace: str | None = None, *, labels: str = "", fields: str = "", limit: int = PAGE
    ) -> Iterator[Json]:
        """Lists, of at most ``limit`` items each. Raises ApiError, 404 if the cluster does not serve the kind."""
        query = {"labelSelector": labels, "fieldSelector": fields, "limit": str(limit)}
        while True:
            try:
                page = self._call("GET", kind.path(namespace), query, verb="list")
            except ApiError as error:
                if error.status == 404:
                    self._forget(kind)
                raise
            # Items of a list come without their kind.
            items = page.get("items") or []
            page["items"] = [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in items]
            yield page
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            query["continue"] = token

    def count(self, kind: Kind, namespace: str | None = None) -> int:
        """The number of objects, by a list that reads the metadata of one. Raises ApiError."""
        page = self._call("GET", kind.path(namespace), {"limit": "1"}, verb="list", accept=METADATA_ONLY)
        return len(page.get("items") or []) + int((page.get("metadata") or {}).get("remainingItemCount") or 0)

    def uids(self, kind: Kind, namespace: str | None = None) -> set[str]:
        """The uids of all objects, by a list that reads only metadata. Raises ApiError."""
        found: set[str] = set()
        query = {"limit": str(PAGE)}
        while True:
            page = self._call("GET", kind.path(namespace), query, verb="list", accept=METADATA_ONLY)
            found.update(str(item["metadata"]["uid"]) for item in page.get("items") or [])
            query["continue"] = str((page.get("metadata") or {}).get("continue") or "")
            if not query["continue"]:
                return found

    def watch(self, kind: Kind, namespace: str | None = None, *, labels: str = "", version: str) -> Iterator[Json]:
        """Events after that version as they come (``type`` and ``object``), until the API server ends the watch.

        Raises ApiError, also if the connection breaks or is silent for too long.
        """
        query = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": version, "labelSelector": labels}
        query["timeoutSeconds"] = str(random.randint(*WATCH_SECONDS))
        path = f"{kind.path(namespace)}?{urlencode({k: v for k, v in query.items() if v})}"
        method, url, headers, _, _ = self._api.param_serialize(
            "GET", path, header_params={"Accept": "application/json"}, auth_settings=["BearerToken"]
        )
        rest = b""
        try:
            response = self._api.call_api(method, url, headers, _request_timeout=(TIMEOUT_SECONDS[0], SILENT_SECONDS))
            try:
                if response.status != 200:
                    raise refusal(response.status, response.response.read(10_000))
                for part in response.response.stream(None):
                    *lines, rest = (rest + part).split(b"\n")
                    yield from (json_object(line) for line in lines)
            finally:
                # Not given back to the pool: there may be more to come on this connection.
                response.response.close()
        except (urllib3.exceptions.HTTPError, kubernetes_client.ApiException, OSError, ValueError) as error:
            raise ApiError(0, "NoAnswer", f"the watch has ended: {error}") from error

    def apply(self, kind: Kind, manifest: Json, *, force: bool, manager: str = FIELD_MANAGER) -> Json:
        """Server-side apply. Without ``force`` another manager's field is a conflict."""
        metadata = manifest["metadata"]
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        path = kind.path(metadata.get("namespace"), metadata["name"])
        try:
            return self._call("PATCH", path, query, manifest, "application/apply-patch+yaml", verb="apply")
        except ApiError as error:
            if error.status == 404:
                self._forget(kind)
            raise

    def merge(self, kind: Kind, namespace: str, name: str, patch: Json, *, manager: str = FIELD_MANAGER) -> Json:
        """A JSON merge patch: maps are merged, lists and values replaced, null removes."""
        query = {"fieldManager": manager}
        return self._call("PATCH", kind.path(namespace, name), query, patch, "application/merge-patch+json")

    def json_patch(
        self, kind: Kind, namespace: str, name: str, patch: Patch, *, subresource: str | None = None
    ) -> Json:
        """A JSON patch (RFC 6902): all of its operations or none."""
        query = {"fieldManager": FIELD_MANAGER}
        path = kind.path(namespace, name, subresource)
        return self._call("PATCH", path, query, patch, "application/json-patch+json")

    def create(self, kind: Kind, manifest: Json) -> Json:
        """Raises ApiError 409 if the name is taken."""
        path = kind.path(manifest["metadata"].get("namespace"))
        return self._call("POST", path, {"fieldManager": FIELD_MANAGER}, manifest, "application/json")

    def replace(self, kind: Kind, manifest: Json) -> Json:
        """Raises ApiError 409 if the object has changed since it was read."""
        metadata = manifest["metadata"]
        path = kind.path(metadata.get("namespace"), metadata["name"])
        return self._call("PUT", path, {"fieldManager": FIELD_MANAGER}, manifest, "application/json")

    def delete(self, kind: Kind, manifest: Json) -> bool:
        """Deletes exactly this object, by its uid. False if the name is still taken: by the object itself while finalizers
        hold it, or by another that was created since."""
        metadata = manifest["metadata"]
        body = {"preconditions": {"uid": metadata["uid"]}, "propagationPolicy": "Background"}
        path = kind.path(metadata.get("namespace"), metadata["name"])
        try:
            answer = self._call("DELETE", path, {}, body, "application/json")
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            return error.status == 404
        # Of what is gone comes a Status, of what is only marked as deleted the object.
        return answer.get("kind") == "Status"

    def _forget(self, kind: Kind) -> None:
        """A kind can be removed at any time with its controller; old discovery must not hold up every service."""
        self._served.pop(kind.root, None)

    def serves(self, kind: Kind) -> bool:
        """Whether the cluster serves this kind in this version."""
        now = time.monotonic()
        known = self._served.get(kind.root)
        if known is None or now - known[0] > DISCOVERY_SECONDS:
            try:
                answer = self._call("GET", kind.root)
            except ApiError as error:
                if error.status != 404:
                    raise
                answer = {}
            known = (now, frozenset(r["name"] for r in answer.get("resources") or []))
            self._served[kind.root] = known
        return kind.plural in known[1]

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Json | Patch | None = None,
        content_type: str | None = None,
        *,
        verb: str = "",
        accept: str = "application/json",
    ) -> Json:
        if self._fenced and method != "GET" and not path.startswith(LEASE.root):
            raise ApiError(0, "Fenced", "nothing is written any more: another operator may work now")
        left = getattr(_DEADLINE, "at", math.inf) - time.monotonic()
        if left <= 0:
            raise ApiError(504, "Timeout", f"not done within {_DEADLINE.seconds:.0f} s: the API server is slow")
        timeouts = tuple(min(left, each) for each in self._timeout_seconds)
        headers = {"Accept": accept}
        if content_type:
            headers["Content-Type"] = content_type
        wanted = urlencode({k: v for k, v in (query or {}).items() if v})
        method, url, headers, _, _ = self._api.param_serialize(
            method, f"{path}?{wanted}" if wanted else path, header_params=headers, auth_settings=["BearerToken"]
        )
        text = None if body is None else json.dumps(body) if content_type == "application/apply-patch+yaml" else body
        began, status = time.monotonic(), 0
        try:
            response = self._api.call_api(method, url, headers, text, _request_timeout=timeouts)
            data = response.read()  # type: ignore[no-untyped-call]
            status = response.status
        except (urllib3.exceptions.HTTPError, kubernetes_client.ApiException, OSError) as error:
            raise ApiError(0, "NoAnswer", f"the API server did not answer: {error}") from error
        finally:
            self._on_request(verb or VERBS[method], status, time.monotonic() - began)
        if not 200 <= status <= 299:
            raise refusal(status, data)
        return json_object(data)
