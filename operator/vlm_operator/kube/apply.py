"""Applies the objects of one service with as few writes as possible."""

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from vlm_api.names import FIELD_MANAGER
from vlm_operator.kube import kinds
from vlm_operator.kube.client import ApiError, Client, Json
from vlm_operator.kube.compare import is_created_by_post, is_from_post, satisfied, why_replaced, with_live_selector
from vlm_operator.kube.kinds import Kind, kind_of
from vlm_operator.kube.ownership import controller_of, is_owned

# Owns the field ``replicas`` after the operator has given it up and before the autoscaler takes it over.
HANDOVER_MANAGER: Final = f"{FIELD_MANAGER}-handover"

# Objects of which something is remembered: that an apply changed nothing, that a name is taken. The oldest go first.
REMEMBERED: Final = 8192
# Created by POST, which costs the API server less than an apply and fails if the name is taken. An apply could merge with
# somebody else's object. Their manifests name all defaulted fields, so what the create owns is what is wanted.
CREATED_BY_POST: Final = (kinds.SERVICE, kinds.NETWORK_POLICY, kinds.CONFIG_MAP)
# Created without a look at the name first. A workload is read first, so that nothing is written beside somebody else's.
CREATED_UNSEEN: Final = (*CREATED_BY_POST, kinds.REVISION)
# Fails an apply with 409 if the object exists, which would otherwise join it: no object has this version, since etcd's first
# write has another. For objects whose manifests lack defaulted fields, and revisions (by POST their data would keep our
# order of keys, and any patch be refused).
NEVER_STORED: Final = "1"


@dataclass
class Applied:
    """The result of an apply. Names are ``Kind/name``."""

    created: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    replaced: dict[str, str] = field(default_factory=dict)
    """Workloads that were deleted because an update cannot make them the wanted ones, with the reason."""
    deleting: list[str] = field(default_factory=list)
    """Objects that are created once the deletion of their predecessors of the same name has ended."""
    taken: dict[str, tuple[str, str] | None] = field(default_factory=dict)
    """Objects with our names that belong to others, with the kind and name of their controller if they have one. With any of
    them, nothing more is written."""
    live: list[Json] = field(default_factory=list)
    """Objects as they are after writes, and objects that were not in ``owned``."""
    absent: list[str] = field(default_factory=list)
    """Kinds that the cluster does not serve; their objects were left out."""


class Applier:
    """Applies objects by server-side apply. Its only state is a memory of writes that had no effect."""

    def __init__(self, client: Client, observe: Callable[[Json], None] = lambda live: None) -> None:
        """``observe`` gets each object as it is after a write."""
        self._client = client
        self._observe = observe
        self._lock = threading.Lock()
        self._no_ops: OrderedDict[str, str] = OrderedDict()
        self._satisfied: OrderedDict[str, str] = OrderedDict()
        """What was found to be as wanted, by uid: its version and the digest of the manifest. Comparing them again costs more."""
        self._altered: OrderedDict[str, str] = OrderedDict()
        """Workloads, by uid, that were created otherwise than they were sent: another replacement would be of no use."""
        self._taken: OrderedDict[str, str] = OrderedDict()
        """Paths at which somebody else's object was read instead of a free name: from then on they are read first."""

    def apply(self, manifests: Sequence[Json], owned: Iterable[Json], uid: str) -> Applied:
        """Writes what differs.

        ``manifests`` are the desired objects, ``owned`` the live ones with the service's label, ``uid`` the service's. An
        object without our owner reference is never touched. Raises ApiError.
        """
        done = Applied()
        labelled = list(owned)
        ours = {_key(o): o for o in labelled if is_owned(o, uid)}
        foreign = {_key(o) for o in labelled} - ours.keys()
        wanted: list[tuple[Kind, Json, Json | None]] = []
        for manifest in manifests:
            kind = kind_of(manifest)
            if kind in kinds.OWNED_OPTIONAL and not self._client.serves(kind):
                done.absent.append(kind.kind)
                continue
            live = ours.get(_key(manifest))
            doubtful = _key(manifest) in foreign or _path(kind, manifest) in self._taken
            if live is None and (doubtful or kind not in CREATED_UNSEEN):
                live = self._look(kind, manifest, uid, done)
            if live is None and kind is kinds.LEADER_WORKER_SET:
                self._look_for_service(manifest, done)
            wanted.append((kind, manifest, live))
        if done.taken:
            return done
        autoscaled = any(kind is kinds.AUTOSCALER for kind, _, _ in wanted)
        # Services first: their names are the most likely to be taken.
        for kind, manifest, live in sorted(wanted, key=lambda one: one[0] is not kinds.SERVICE):
            existing = live or self._create(kind, manifest, uid, done)
            if existing is not None:
                self._apply_one(kind, manifest, existing, done, autoscaled=autoscaled)
            if done.taken:
                break
        return done

    def _look(self, kind: Kind, manifest: Json, uid: str, done: Applied) -> Json | None:
        """The object of that name, if it is ours. Notes whose it is if not."""
        live = self._client.get(kind, manifest["metadata"]["namespace"], manifest["metadata"]["name"])
        if live is not None and not is_owned(live, uid):
            done.taken[title(manifest)] = controller_of(live)
            self._remember(self._taken, _path(kind, manifest), "")
        elif live is not None:
            self._note(live, done)
        return live

    def _create(self, kind: Kind, manifest: Json, uid: str, done: Applied) -> Json | None:
        """Returns the object of that name if it exists already and is ours."""
        try:
            created = self._send_new(kind, manifest)
        except ApiError as error:
            if error.status != 409:
                raise
            live = self._look(kind, manifest, uid, done)
            if live is None:
                raise  # it went meanwhile
            return None if done.taken else live
        self._note_workload(manifest, created, done)
        done.created.append(title(manifest))
        return None

    def _send_new(self, kind: Kind, manifest: Json) -> Json:
        if kind in CREATED_BY_POST:
            return self._client.create(kind, manifest)
        unborn = {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": NEVER_STORED}}
        return self._client.apply(kind, unborn, force=False)

    def _look_for_service(self, group: Json, done: Applied) -> None:
        """The LeaderWorkerSet controller makes a headless Service with the set's name, and takes any Service of that name for
        it: with one of others the pods of a group would never find each other."""
        metadata = group["metadata"]
        live = self._client.get(kinds.SERVICE, metadata["namespace"], metadata["name"])
        if live is not None and controller_of(live) != (kinds.LEADER_WORKER_SET.kind, metadata["name"]):
            done.taken[title(live)] = controller_of(live)

    def remove(self, owned: Iterable[Json], done: Applied) -> None:
        """Deletes live objects of ours that are no longer desired."""
        for manifest in owned:
            self._client.delete(kind_of(manifest), manifest)
            done.deleted.append(title(manifest))

    def _apply_one(self, kind: Kind, manifest: Json, live: Json, done: Applied, *, autoscaled: bool) -> None:
        if live["metadata"].get("deletionTimestamp"):
            done.deleting.append(title(manifest))
            return
        if (why := why_replaced(manifest, live)) is not None:
            if live["metadata"]["uid"] in self._altered:
                hint = "exclude it from the admission webhook that changes workloads when they are created"
                raise ApiError(
                    422, "Invalid", f"{title(manifest)} was created otherwise than it was sent, {why}: {hint}"
                )
            self._replace(kind, manifest, live, why, done)
            return
        manifest = with_live_selector(manifest, live)
        if not autoscaled and _leaves_replicas(manifest) and not is_handed_over(live):
            self._hand_over_replicas(kind, live)
        if self._is_satisfied(manifest, live):
            return
        if live.get("immutable") and (live.get("data") or {}) != manifest.get("data"):
            # The hash is the same, so pods stay; only what explains the plan has changed.
            if not self._client.delete(kind, live):
                done.deleting.append(title(manifest))
                return
            self._note(self._send_new(kind, manifest), done)
            done.changed.append(title(manifest))
            return
        attempt = _digest(manifest) + _digest(_content(live))
        if self._no_ops.get(live["metadata"]["uid"]) == attempt:
            return
        if _gives_up_replicas(manifest, live):
            self._hand_over_replicas(kind, live)
        if is_created_by_post(live):
            self._claim(kind, live)
        # With its uid: if it was deleted since it was read, another object of its name is not changed.
        named = {**manifest, "metadata": {**manifest["metadata"], "uid": live["metadata"]["uid"]}}
        result = self._client.apply(kind, named, force=True)
        self._note(result, done)
        if result["metadata"].get("resourceVersion") == live["metadata"].get("resourceVersion"):
            self._remember(self._no_ops, live["metadata"]["uid"], attempt)
        else:
            self._no_ops.pop(live["metadata"]["uid"], None)
            done.changed.append(title(manifest))

    def _is_satisfied(self, manifest: Json, live: Json) -> bool:
        """As ``satisfied``, once for each version of the object and of the manifest."""
        metadata = live["metadata"]
        seen = f"{metadata.get('resourceVersion')} {_digest(manifest)}"
        if self._satisfied.get(metadata["uid"]) == seen:
            return True
        if not satisfied(manifest, live):
            return False
        self._remember(self._satisfied, metadata["uid"], seen)
        return True

    def _replace(self, kind: Kind, manifest: Json, live: Json, why: str, done: Applied) -> None:
        """Deletes a workload and creates the wanted one, with as many replicas if others set their number. If the deletion
        takes a while, or the operator ends in between, the next reconcile continues from there."""
        done.replaced[title(manifest)] = why
        if not self._client.delete(kind, live):
            done.deleting.append(title(manifest))
            return
        leaves_replicas = _leaves_replicas(manifest)
        if leaves_replicas:
            manifest = {**manifest, "spec": {**manifest["spec"], "replicas": live["spec"]["replicas"]}}
        created = self._send_new(kind, manifest)
        self._note_workload(manifest, created, done)
        if leaves_replicas:
            self._hand_over_replicas(kind, created)

    def _claim(self, kind: Kind, created: Json) -> None:
        """The fields of an object that was created by POST belong to an update, and an apply would never remove one of them.
        They are given to the apply, as client-go's csaupgrade does."""
        metadata = created["metadata"]
        live = self._client.get(kind, metadata["namespace"], metadata["name"])
        if live is None or live["metadata"]["uid"] != metadata["uid"]:
            return
        if not is_created_by_post(live):
            raise ApiError(409, "Conflict", f"{title(created)} was changed meanwhile: its managed fields are others")
        fields = live["metadata"]["managedFields"]
        entries = [{**e, "operation": "Apply"} if is_from_post(e) else e for e in fields]
        patch = [
            # Another version is a conflict (409); a "test" that fails would be a refusal (422).
            {"op": "replace", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
            {"op": "replace", "path": "/metadata/managedFields", "value": entries},
        ]
        self._client.json_patch(kind, metadata["namespace"], metadata["name"], patch)

    def _remember(self, memory: OrderedDict[str, str], key: str, value: str) -> None:
        """Nothing reports here that an object was deleted, so the memory has a bound."""
        with self._lock:
            memory[key] = value
            memory.move_to_end(key)
            while len(memory) > REMEMBERED:
                memory.popitem(last=False)

    def _note_workload(self, manifest: Json, created: Json, done: Applied) -> None:
        if why := why_replaced(manifest, created):
            self._remember(self._altered, created["metadata"]["uid"], why)
        self._note(created, done)

    def _note(self, live: Json, done: Applied) -> None:
        done.live.append(live)
        self._observe(live)

    def _hand_over_replicas(self, kind: Kind, live: Json) -> None:
        """Without another owner the field would fall back to 1 when we give it up, and end all other replicas."""
        holder = {
            "apiVersion": live["apiVersion"],
            "kind": live["kind"],
            "metadata": {k: live["metadata"][k] for k in ("name", "namespace")},
            "spec": {"replicas": live["spec"]["replicas"]},
        }
        self._observe(self._client.apply(kind, holder, force=False, manager=HANDOVER_MANAGER))


def _gives_up_replicas(manifest: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
    more = (live.get("spec") or {}).get("replicas", 0) > 1
    return _leaves_replicas(manifest) and more and _owns_replicas(live, FIELD_MANAGER)


def _leaves_replicas(manifest: Mapping[str, Any]) -> bool:
    return kind_of(manifest) in kinds.WORKLOADS and "replicas" not in manifest["spec"]


def is_handed_over(live: Mapping[str, Any]) -> bool:
    """Whether a workload's number of replicas is what an autoscaler of ours left, and nobody else has set it."""
    return _owns_replicas(live, HANDOVER_MANAGER)


def _owns_replicas(live: Mapping[str, Any], manager: str) -> bool:
    return any(
        e.get("manager") == manager and "f:replicas" in (e.get("fieldsV1") or {}).get("f:spec", {})
        for e in live["metadata"].get("managedFields") or []
    )


def title(manifest: Mapping[str, Any]) -> str:
    """``Kind/name``, for people."""
    return f"{manifest['kind']}/{manifest['metadata']['name']}"


def _key(manifest: Mapping[str, Any]) -> tuple[str, str]:
    return str(manifest["kind"]), str(manifest["metadata"]["name"])


def _path(kind: Kind, manifest: Mapping[str, Any]) -> str:
    return kind.path(manifest["metadata"]["namespace"], manifest["metadata"]["name"])


def _content(live: Mapping[str, Any]) -> Json:
    metadata = live["metadata"]
    kept = {k: metadata.get(k) for k in ("labels", "annotations", "ownerReferences")}
    return {k: v for k, v in live.items() if k not in ("metadata", "status")} | {"metadata": kept}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
