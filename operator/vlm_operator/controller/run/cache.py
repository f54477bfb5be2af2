"""Every live object that a reconcile reads, fed by watches, so that reading costs no request.

The cache may lag a moment. That is harmless: writes name the object by its uid and contain all that is wanted, and the event
that is still on its way queues the service again.
"""

import json
import sys
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

from vlm_api.names import FIELD_MANAGER, LABEL_SERVICE
from vlm_operator.controller.run.queue import NO_CAUSE, Cause, Key
from vlm_operator.kube import kinds
from vlm_operator.kube.apply import HANDOVER_MANAGER
from vlm_operator.kube.client import Json
from vlm_operator.kube.kinds import Kind
from vlm_operator.kube.ownership import owner_name

# Deleted objects, so that the late answer to a write does not bring them back; and answers to our own writes, whose event
# may come first.
REMEMBERED: Final = 4096
KEPT_FIELDS: Final = ("f:replicas", "f:model")
MANAGERS: Final = frozenset({FIELD_MANAGER, HANDOVER_MANAGER})
Wake = Callable[[Key, Cause], None]


class _Entry(NamedTuple):
    uid: str
    version: str
    packed: bytes
    """Compressed JSON: a tenth of what the object would take, and read at most once a reconcile."""


class Store:
    """The live objects of one kind, by service. Safe to use from several threads.

    Objects are indexed by their controller owner, and by label only if they have none: labels can be changed by anyone.
    """

    def __init__(self, kind: Kind, wake: Wake = lambda key, cause: None) -> None:
        """``wake`` gets the service of each change, and the state of the object that it is about."""
        self._kind = kind
        self._wake = wake
        self._lock = threading.Lock()
        self._found: dict[Key, dict[str, _Entry]] = {}
        self._where: dict[str, dict[str, Key]] = {}
        """Namespace and name of an object -> its service."""
        self._gone: OrderedDict[str, str] = OrderedDict()
        """Uid -> the version up to which it is gone; empty: forever."""
        self._ours: OrderedDict[Cause, None] = OrderedDict()
        self._hidden: frozenset[str] = frozenset()

    def update(self, found: Json, *, deleted: bool = False, listed: bool = False) -> None:
        """An event, or an item of a list; wakes the services for which it is news."""
        keys = self._remove(found) if deleted else self._put(found, overrule=listed)
        for key in keys:
            self._wake(key, self._cause(found))

    def put(self, found: Json) -> None:
        """The answer to a write of our own, which is not news to its service."""
        key = self._key(found)
        left = self._put(found, overrule=False) - {key}
        if key is not None:
            with self._lock:
                _remember(self._ours, self._cause(found), None)
        for other in left:
            self._wake(other, NO_CAUSE)

    def wrote(self, cause: Cause) -> bool:
        """Whether that state of an object is the answer to a write of our own."""
        with self._lock:
            return cause in self._ours

    def retain(self, namespace: str | None, names: Collection[tuple[str | None, str]], version: str) -> None:
        """A list of that version has ended: everything else in that namespace, or anywhere, is gone."""
        with self._lock:
            here = [ns for ns in self._where if namespace in (None, ns)]
            gone = [(ns, name) for ns in here for name in self._where[ns] if (ns, name) not in names]
            for ns, name in gone:
                _remember(self._gone, self._entry(ns, name).uid, version)  # type: ignore[union-attr]
            keys = {self._drop(ns, name) for ns, name in gone}
        for key in keys:
            self._wake(key, NO_CAUSE)

    def hide(self, namespace: str) -> None:
        """Nothing is known of that namespace for now: as if it were empty, until ``show``."""
        self._set_hidden(self._hidden | {namespace}, namespace)

    def show(self, namespace: str) -> None:
        """The namespace can be read again."""
        self._set_hidden(self._hidden - {namespace}, namespace)

    def _set_hidden(self, hidden: frozenset[str], changed: str) -> None:
        with self._lock:
            self._hidden = hidden
            keys = [key for key in self._found if key.namespace == changed]
        for key in keys:
            self._wake(key, NO_CAUSE)

    def of(self, key: Key) -> list[Json]:
        """All objects of a service, by name."""
        with self._lock:
            found = [] if key.namespace in self._hidden else sorted(self._found.get(key, {}).items())
        return [_unpack(entry.packed) for _, entry in found]

    def keys(self) -> list[Key]:
        """Services with at least one object."""
        with self._lock:
            return sorted(key for key in self._found if key.namespace not in self._hidden)

    def identities(self, namespace: str | None = None) -> list[tuple[Key, str]]:
        """Service and uid of all objects of that namespace, or of all."""
        with self._lock:
            return [
                (key, entry.uid)
                for key, objects in self._found.items()
                for entry in objects.values()
                if namespace in (None, key.namespace)
            ]

    def _key(self, found: Json) -> Key | None:
        metadata = found["metadata"]
        if self._kind is kinds.VLM_SERVICE:
            name = metadata["name"]
        else:
            name = owner_name(found) or (metadata.get("labels") or {}).get(LABEL_SERVICE)
        # Interned: the same words are keys of many stores.
        return Key(sys.intern(str(metadata["namespace"])), sys.intern(str(name))) if name else None

    def _cause(self, found: Json) -> Cause:
        metadata = found["metadata"]
        return Cause(str(metadata["uid"]), str(metadata["resourceVersion"]), self._kind is kinds.VLM_SERVICE)

    def _put(self, found: Json, *, overrule: bool) -> set[Key]:
        """The services for which it is news: two if the object has moved from one to the other."""
        key, metadata = self._key(found), found["metadata"]
        namespace, name = sys.intern(str(metadata["namespace"])), str(metadata["name"])
        uid, version, _ = self._cause(found)
        with self._lock:
            if not self._is_news(namespace, name, uid, version, overrule=overrule):
                return set()
        # Only then, and not under the lock: most events are echoes of our own writes.
        entry = _Entry(uid, version, _pack(_kept(self._kind, found)) if key is not None else b"")
        with self._lock:
            if not self._is_news(namespace, name, uid, version, overrule=overrule):
                return set()
            left = {self._drop(namespace, name)} if self._entry(namespace, name) is not None else set()
            if key is None:
                return left
            self._found.setdefault(key, {})[name] = entry
            self._where.setdefault(namespace, {})[name] = key
            return left | {key}

    def _is_news(self, namespace: str, name: str, uid: str, version: str, *, overrule: bool) -> bool:
        if uid in self._gone and not _after(version, self._gone[uid]):
            return False
        before = self._entry(namespace, name)
        if before is None:
            return True
        return before[:2] != (uid, version) and (overrule or _newer(version, before.version))

    def _remove(self, found: Json) -> set[Key]:
        """An object that lost the label is reported as deleted too, and may come back."""
        namespace, name = str(found["metadata"]["namespace"]), str(found["metadata"]["name"])
        uid, version, _ = self._cause(found)
        with self._lock:
            before = self._entry(namespace, name)
            if before is not None and before.uid == uid and _after(before.version, version):
                return set()
            _remember(self._gone, uid, version)
            return {self._drop(namespace, name)} if before is not None and before.uid == uid else set()

    def _entry(self, namespace: str, name: str) -> _Entry | None:
        key = self._where.get(namespace, {}).get(name)
        return None if key is None else self._found[key][name]

    def _drop(self, namespace: str, name: str) -> Key:
        """Removes an object and returns its service."""
        key = self._where[namespace].pop(name)
        if not self._where[namespace]:
            del self._where[namespace]
        del self._found[key][name]
        if not self._found[key]:
            del self._found[key]
        return key


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
        """Objects of those kinds that have the service's label, also those of other owners."""
        for kind in which:
            yield from self.store(kind).of(key)

    def wrote(self, cause: Cause) -> bool:
        """Whether that state of an object is the answer to a write of our own."""
        return any(store.wrote(cause) for store in self._stores.values())

    def put(self, found: Json) -> None:
        """The answer to a write of our own; ignored for kinds that no reconcile reads."""
        store = self._stores.get((str(found.get("apiVersion")), str(found.get("kind"))))
        if store is not None:
            store.put(found)


def _remember(some: OrderedDict[Any, Any], one: Any, value: Any) -> None:
    some[one] = value
    while len(some) > REMEMBERED:
        some.popitem(last=False)


def _newer(version: str, than: str) -> bool:
    """Resource versions of one kind are numbers that grow (KEP-5504); whatever else comes counts as news."""
    return not (version.isdigit() and than.isdigit()) or int(version) > int(than)


def _after(version: str, than: str) -> bool:
    """Whether a state is known to be later than another; an empty version is later than all."""
    return version.isdigit() and than.isdigit() and int(version) > int(than)


def _kept(kind: Kind, found: Json) -> Json:
    """What reconciles read: nothing of other managers' fields, the state of pods, the plan's label of ReplicaSets."""
    metadata = {k: v for k, v in found["metadata"].items() if k != "managedFields"}
    if kind is kinds.POD:
        metadata.pop("annotations", None)
        return {**found, "metadata": metadata, "spec": {"nodeName": (found.get("spec") or {}).get("nodeName")}}
    if kind is kinds.REPLICA_SET:
        labels = found["spec"]["template"]["metadata"].get("labels")
        return {"metadata": metadata, "spec": {"template": {"metadata": {"labels": labels}}}}
    entries = found["metadata"].get("managedFields") or []
    if kind is kinds.VLM_SERVICE:
        # Whether somebody has set a number of replicas, or has only created the object: see ``act.sets_replicas``.
        fields = [
            {"operation": e.get("operation"), "fieldsV1": {"f:spec": {f: {} for f in KEPT_FIELDS if f in spec}}}
            for e in entries
            if "f:replicas" in (spec := (e.get("fieldsV1") or {}).get("f:spec") or {})
        ]
        return {**found, "metadata": {**metadata, "managedFields": fields}}
    # Besides ours: who last set the number of replicas.
    ours = [e for e in entries if e.get("manager") in MANAGERS or e.get("subresource") == "scale"]
    return {**found, "metadata": {**metadata, "managedFields": ours}}


def _pack(found: Json) -> bytes:
    return zlib.compress(json.dumps(found, separators=(",", ":")).encode(), 1)


def _unpack(packed: bytes) -> Any:
    return json.loads(zlib.decompress(packed))
