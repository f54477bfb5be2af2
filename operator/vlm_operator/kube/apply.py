"""Makes the objects of one service what they should be, with as few writes as possible."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from vlm_api.names import FIELD_MANAGER
from vlm_operator.kube import kinds
from vlm_operator.kube.client import Client, Json
from vlm_operator.kube.contained import satisfied
from vlm_operator.kube.kinds import Kind, kind_of
from vlm_operator.kube.ownership import is_owned, whose

# Whoever holds the field ``replicas`` between the operator, which lets go of it, and the autoscaler, which takes it over.
HANDOVER_MANAGER: Final = f"{FIELD_MANAGER}-handover"

# Objects of which it is remembered that an apply changed nothing; the oldest are forgotten first.
NO_OPS: Final = 8192
NAMED_BY_CONTENT: Final = (kinds.CONFIG_MAP, kinds.REVISION)


@dataclass
class Applied:
    """What was done. Names are ``Kind/name``."""

    created: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    taken: dict[str, tuple[str, str] | None] = field(default_factory=dict)
    """Objects of our names that belong to somebody else, with the kind and name of their controller where they have one. With
    one of them, nothing at all is written."""
    live: list[Json] = field(default_factory=list)
    """What writes have made of objects, and objects that nobody had seen before."""
    absent: list[str] = field(default_factory=list)
    """Kinds that the cluster does not serve, so that their objects were left out."""


class Applier:
    """Applies objects by server-side apply. Keeps only a memory of applies that changed nothing."""

    def __init__(self, client: Client, seen: Callable[[Json], None] = lambda found: None) -> None:
        """``seen`` is told what each write has made of an object."""
        self._client = client
        self._seen = seen
        self._lock = threading.Lock()
        self._no_ops: OrderedDict[str, str] = OrderedDict()

    def apply(self, manifests: Sequence[Json], owned: Iterable[Json], uid: str) -> Applied:
        """Writes what differs.

        ``manifests`` are the wanted objects, ``owned`` the live ones that carry the service's label, ``uid`` the service's.
        An object that does not carry our owner reference is never touched. Raises ApiError.
        """
        done = Applied()
        labelled = list(owned)
        live = {_key(o): o for o in labelled if is_owned(o, uid)}
        foreign = {_key(o) for o in labelled} - live.keys()
        wanted: list[tuple[Kind, Json, Json | None]] = []
        for manifest in manifests:
            kind = kind_of(manifest)
            if kind in kinds.OWNED_OPTIONAL and not self._client.serves(kind):
                done.absent.append(kind.kind)
                continue
            found = live.get(_key(manifest))
            # Nobody else makes an object without our label whose name holds a digest of ours.
            if found is None and (kind not in NAMED_BY_CONTENT or _key(manifest) in foreign):
                found = self._client.get(kind, manifest["metadata"]["namespace"], manifest["metadata"]["name"])
                if found is not None and not is_owned(found, uid):
                    done.taken[title(manifest)] = whose(found)
                elif found is not None:
                    self._note(found, done)
            if found is None and kind is kinds.LEADER_WORKER_SET:
                self._look_for_service(manifest, done)
            wanted.append((kind, manifest, found))
        if done.taken:
            return done
        autoscaled = any(kind is kinds.AUTOSCALER for kind, _, _ in wanted)
        for kind, manifest, found in wanted:
            if found is not None and not autoscaled and _leaves_replicas(manifest) and not is_handed_over(found):
                self._hand_over_replicas(kind, found)
            self._apply_one(kind, manifest, found, done)
        return done

    def _look_for_service(self, group: Json, done: Applied) -> None:
        """The controller of LeaderWorkerSets makes a headless Service of a set's name, and takes whatever Service is there for
        it: with somebody else's the pods of a group would never find each other."""
        metadata = group["metadata"]
        found = self._client.get(kinds.SERVICE, metadata["namespace"], metadata["name"])
        if found is not None and whose(found) != (kinds.LEADER_WORKER_SET.kind, metadata["name"]):
            done.taken[title(found)] = whose(found)

    def remove(self, owned: Iterable[Json], done: Applied) -> None:
        """Deletes live objects of ours that are no longer wanted."""
        for manifest in owned:
            self._client.delete(kind_of(manifest), manifest)
            done.deleted.append(title(manifest))

    def _apply_one(self, kind: Kind, manifest: Json, found: Json | None, done: Applied) -> None:
        if found is None:
            self._note(self._client.apply(kind, manifest, force=False), done)
            done.created.append(title(manifest))
            return
        if satisfied(manifest, found):
            return
        if found.get("immutable") and (found.get("data") or {}) != manifest.get("data"):
            # Same hash, so running pods need nothing new; only the explanation around it has changed.
            self._client.delete(kind, found)
            self._note(self._client.apply(kind, manifest, force=False), done)
            done.changed.append(title(manifest))
            return
        attempt = _digest(manifest) + _digest(_content(found))
        if self._no_ops.get(found["metadata"]["uid"]) == attempt:
            return
        if _lets_go_of_replicas(manifest, found):
            self._hand_over_replicas(kind, found)
        # By its uid: if it went since it was read, and another took its name, nothing happens to that one.
        named = {**manifest, "metadata": {**manifest["metadata"], "uid": found["metadata"]["uid"]}}
        result = self._client.apply(kind, named, force=True)
        self._note(result, done)
        if result["metadata"].get("resourceVersion") == found["metadata"].get("resourceVersion"):
            self._remember(found["metadata"]["uid"], attempt)
        else:
            self._no_ops.pop(found["metadata"]["uid"], None)
            done.changed.append(title(manifest))

    def _remember(self, uid: str, attempt: str) -> None:
        """Nobody tells when an object has gone, so what is remembered has a bound."""
        with self._lock:
            self._no_ops[uid] = attempt
            self._no_ops.move_to_end(uid)
            while len(self._no_ops) > NO_OPS:
                self._no_ops.popitem(last=False)

    def _note(self, found: Json, done: Applied) -> None:
        done.live.append(found)
        self._seen(found)

    def _hand_over_replicas(self, kind: Kind, found: Json) -> None:
        """Without another holder the field would fall back to 1 when we let go, and kill all other replicas."""
        holder = {
            "apiVersion": found["apiVersion"],
            "kind": found["kind"],
            "metadata": {k: found["metadata"][k] for k in ("name", "namespace")},
            "spec": {"replicas": found["spec"]["replicas"]},
        }
        self._seen(self._client.apply(kind, holder, force=False, manager=HANDOVER_MANAGER))


def _lets_go_of_replicas(manifest: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    more = (found.get("spec") or {}).get("replicas", 0) > 1
    return _leaves_replicas(manifest) and more and _holds_replicas(found, FIELD_MANAGER)


def _leaves_replicas(manifest: Mapping[str, Any]) -> bool:
    return manifest["kind"] in ("Deployment", "LeaderWorkerSet") and "replicas" not in manifest["spec"]


def is_handed_over(found: Mapping[str, Any]) -> bool:
    """Whether a workload's number of replicas is nobody's but what an autoscaler of ours has left."""
    return _holds_replicas(found, HANDOVER_MANAGER)


def _holds_replicas(found: Mapping[str, Any], manager: str) -> bool:
    return any(
        e.get("manager") == manager and "f:replicas" in (e.get("fieldsV1") or {}).get("f:spec", {})
        for e in found["metadata"].get("managedFields") or []
    )


def title(manifest: Mapping[str, Any]) -> str:
    """``Kind/name``, for people."""
    return f"{manifest['kind']}/{manifest['metadata']['name']}"


def _key(manifest: Mapping[str, Any]) -> tuple[str, str]:
    return str(manifest["kind"]), str(manifest["metadata"]["name"])


def _content(live: Mapping[str, Any]) -> Json:
    metadata = live["metadata"]
    kept = {k: metadata.get(k) for k in ("labels", "annotations", "ownerReferences")}
    return {k: v for k, v in live.items() if k not in ("metadata", "status")} | {"metadata": kept}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
