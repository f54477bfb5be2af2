"""Every live object that a reconcile reads, fed by watches, so that reading costs no request.

What is read may be a moment old. That is harmless: writes name the object that they mean (by uid) and say the whole of
what is wanted, and the event that is still on its way brings the service back.
"""

from __future__ import annotations

import json
import sys
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

from vlm_api.names import FIELD_MANAGER, LABEL_SERVICE
from vlm_operator.controller.queue import NO_CAUSE, Cause, Key
from vlm_operator.kube import kinds
from vlm_operator.kube.apply import HANDOVER_MANAGER
from vlm_operator.kube.client import Json
from vlm_operator.kube.kinds import Kind

# Uids of objects that went, so that the answer to a write that was slower than the news does not bring them back; and
# states that were answers to writes of our own, whose news may have been faster.
REMEMBERED: Final = 4096
MANAGERS: Final = frozenset({FIELD_MANAGER, HANDOVER_MANAGER})
Wake = Callable[[Key, Cause], None]


class _Entry(NamedTuple):
    uid: str
    version: str
    packed: bytes
    """Compressed JSON: a tenth of what the object would take, and read at most once a reconcile."""


class Store:
    """The live objects of one kind, by the service that they are made for. Safe to use from several threads."""

    def __init__(self, kind: Kind, wake: Wake = lambda key, cause: None) -> None:
        """``wake`` is told which service has news, and of which state of which object (its uid and version)."""
        self._kind = kind
        self._wake = wake
        self._lock = threading.Lock()
        self._found: dict[Key, dict[str, _Entry]] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._ours: OrderedDict[Cause, None] = OrderedDict()

    def see(self, found: Json, *, deleted: bool = False, listed: bool = False) -> None:
        """An event, or an item of a list; wakes the service where that is news."""
        key, name = self._key(found), found["metadata"]["name"]
        if key is None:
            return
        if self._remove(key, name, found) if deleted else self._put(key, name, found, overrule=listed):
            self._wake(key, Cause(found["metadata"]["uid"], found["metadata"]["resourceVersion"]))

    def put(self, found: Json) -> None:
        """The answer to a write of our own, which is no news to anybody."""
        if (key := self._key(found)) is not None:
            self._put(key, found["metadata"]["name"], found, overrule=False)
            with self._lock:
                cause = Cause(found["metadata"]["uid"], found["metadata"]["resourceVersion"])
                _remember(self._ours, cause)

    def wrote(self, cause: Cause) -> bool:
        """Whether that state of an object is the answer to a write of our own."""
        with self._lock:
            return cause in self._ours

    def keep(self, namespace: str | None, names: Collection[tuple[str | None, str]]) -> None:
        """A list has ended: everything else in that namespace, or anywhere, is gone."""
        with self._lock:
            here = [key for key in self._found if namespace in (None, key.namespace)]
            gone = [(k, n) for k in here for n in self._found[k] if (k.namespace, n) not in names]
            for key, name in gone:
                self._drop(key, name)
        for key in {key for key, _ in gone}:
            self._wake(key, NO_CAUSE)

    def of(self, key: Key) -> list[Json]:
        """All objects of a service, by name."""
        with self._lock:
            found = sorted(self._found.get(key, {}).items())
        return [_unpack(entry.packed) for _, entry in found]

    def keys(self) -> list[Key]:
        """Services that have one."""
        with self._lock:
            return sorted(self._found)

    def identities(self) -> list[tuple[Key, str, str]]:
        """Service, name and uid of all objects."""
        with self._lock:
            return [(key, name, entry.uid) for key, some in self._found.items() for name, entry in some.items()]

    def _key(self, found: Json) -> Key | None:
        metadata = found["metadata"]
        mine = self._kind is kinds.VLM_SERVICE
        name = metadata["name"] if mine else (metadata.get("labels") or {}).get(LABEL_SERVICE)
        # Interned: the same words are keys of many stores.
        return Key(sys.intern(str(metadata["namespace"])), sys.intern(str(name))) if name else None

    def _put(self, key: Key, name: str, found: Json, *, overrule: bool) -> bool:
        metadata = found["metadata"]
        uid, version = str(metadata["uid"]), str(metadata["resourceVersion"])
        entry = _Entry(uid, version, _pack(_kept(self._kind, found)))
        with self._lock:
            before = self._found.get(key, {}).get(name)
            if uid in self._gone or (before is not None and before[:2] == (uid, version)):
                return False
            if before is not None and not overrule and not _newer(version, before.version):
                return False
            self._found.setdefault(key, {})[name] = entry
            return True

    def _remove(self, key: Key, name: str, found: Json) -> bool:
        uid = str(found["metadata"]["uid"])
        with self._lock:
            _remember(self._gone, uid)
            before = self._found.get(key, {}).get(name)
            if before is None or before.uid != uid:
                return False
            self._drop(key, name)
            return True

    def _drop(self, key: Key, name: str) -> None:
        _remember(self._gone, self._found[key].pop(name).uid)
        if not self._found[key]:
            del self._found[key]


class Cache:
    """One store for each kind that a service is made of."""

    def __init__(self, wake: Wake = lambda key, cause: None) -> None:
        read = (kinds.VLM_SERVICE, *kinds.OWNED, *kinds.OWNED_OPTIONAL, kinds.JOB, kinds.POD, kinds.REPLICA_SET)
        self._stores = {(k.api_version, k.kind): Store(k, wake) for k in (*read, kinds.REVISION)}

    def store(self, kind: Kind) -> Store:
        """The store of a kind, to be fed. Raises KeyError for a kind that no reconcile reads."""
        return self._stores[kind.api_version, kind.kind]

    def service(self, key: Key) -> Json | None:
        """The VLMService."""
        return next(iter(self.store(kinds.VLM_SERVICE).of(key)), None)

    def services(self) -> list[Key]:
        """All of them."""
        return self.store(kinds.VLM_SERVICE).keys()

    def of(self, key: Key, which: Iterable[Kind]) -> Iterator[Json]:
        """Objects of those kinds that carry the service's label, whoever owns them."""
        for kind in which:
            yield from self.store(kind).of(key)

    def wrote(self, cause: Cause) -> bool:
        """Whether that state of an object is the answer to a write of our own, so that it is no news."""
        return any(store.wrote(cause) for store in self._stores.values())

    def put(self, found: Json) -> None:
        """The answer to a write of our own; kinds that no reconcile reads are passed over."""
        store = self._stores.get((str(found.get("apiVersion")), str(found.get("kind"))))
        if store is not None:
            store.put(found)


def _remember(some: OrderedDict[Any, None], one: Any) -> None:
    some[one] = None
    while len(some) > REMEMBERED:
        some.popitem(last=False)


def _newer(version: str, than: str) -> bool:
    """Resource versions of one kind are numbers that grow (KEP-5504); whatever else comes counts as news."""
    return not (version.isdigit() and than.isdigit()) or int(version) > int(than)


def _kept(kind: Kind, found: Json) -> Json:
    """What reconciles read of an object: of other managers' fields nothing, of pods their state, of ReplicaSets the plan."""
    metadata = {k: v for k, v in found["metadata"].items() if k != "managedFields"}
    if kind is kinds.POD:
        metadata.pop("annotations", None)
        return {**found, "metadata": metadata, "spec": {"nodeName": (found.get("spec") or {}).get("nodeName")}}
    if kind is kinds.REPLICA_SET:
        labels = found["spec"]["template"]["metadata"].get("labels")
        return {"metadata": metadata, "spec": {"template": {"metadata": {"labels": labels}}}}
    entries = found["metadata"].get("managedFields") or []
    if kind is kinds.VLM_SERVICE:
        # Whether somebody has said a number of replicas: a default is in nobody's fields.
        said = [e for e in entries if "f:replicas" in ((e.get("fieldsV1") or {}).get("f:spec") or {})]
        fields = [{"manager": e.get("manager"), "fieldsV1": {"f:spec": {"f:replicas": {}}}} for e in said]
        return {**found, "metadata": {**metadata, "managedFields": fields}}
    # Besides ours: who last set the number of replicas.
    ours = [e for e in entries if e.get("manager") in MANAGERS or e.get("subresource") == "scale"]
    return {**found, "metadata": {**metadata, "managedFields": ours}}


def _pack(found: Json) -> bytes:
    return zlib.compress(json.dumps(found, separators=(",", ":")).encode(), 1)


def _unpack(packed: bytes) -> Any:
    return json.loads(zlib.decompress(packed))
