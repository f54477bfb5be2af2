"""The cluster's nodes and their GPUs, reduced to what plans depend on."""

import sys
import threading
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from vlm_operator.facts.nodes.node import node_facts
from vlm_operator.facts.nodes.slices import DRIVER, by_node, reduced
from vlm_operator.facts.types import NodeFacts

# GPU feature discovery writes the time of its last run into a label.
_NOISE: Final = frozenset({"nvidia.com/gfd.timestamp"})
# What plans read of a node besides devices. It does not change while a node lives.
_HOST_RESOURCES: Final = frozenset({"memory", "ephemeral-storage"})
# Kinds of devices for which the facts of all nodes are kept.
RESOURCES: Final = 8

Json = dict[str, Any]


class _Reduced:
    """Objects of one kind by name, each reduced to what plans may depend on. A sink of a reflector."""

    def __init__(self, reduce: Callable[[Mapping[str, Any]], Json | None], changed: Callable[[], None]) -> None:
        """``reduce`` returns None for an object that no plan depends on."""
        self._reduce, self._changed = reduce, changed
        self._lock = threading.Lock()
        self._objects: dict[str, Json] = {}

    def update(self, found: Json, *, deleted: bool = False, listed: bool = False) -> None:
        """An object as it is now, or was when it was deleted."""
        self._set(_name(found), None if deleted else self._reduce(found))

    def retain(self, namespace: str | None, names: Collection[tuple[str | None, str]], version: str) -> None:
        """Everything else was deleted while there was no watch."""
        existing = {name for _, name in names}
        for name in [n for n in self.all() if n not in existing]:
            self._set(name, None)

    def all(self) -> dict[str, Json]:
        """The reduced objects, by name."""
        with self._lock:
            return dict(self._objects)

    def _set(self, name: str, now: Json | None) -> None:
        with self._lock:
            if self._objects.get(name) == now:
                return
            if now is None:
                del self._objects[name]
            else:
                self._objects[name] = now
        self._changed()


class Inventory:
    """Nodes and ResourceSlices, kept by watching them. Safe to use from several threads."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        """``changed`` is called, from any thread, after a change that a plan may depend on."""
        self._notify = changed
        self._lock = threading.Lock()
        self._facts: dict[str, tuple[NodeFacts, ...]] = {}
        """By resource, until something changes: to read a thousand nodes again takes tens of milliseconds."""
        self.nodes = _Reduced(_node, self._changed)
        self.slices = _Reduced(_slice, self._changed)

    def facts(self, resource_name: str) -> tuple[NodeFacts, ...]:
        """All nodes by name, with the facts about the GPUs behind that resource."""
        with self._lock:
            if (known := self._facts.get(resource_name)) is not None:
                return known
            nodes, slices = self.nodes.all(), by_node(self.slices.all().values())
            facts = tuple(node_facts(node, slices(name), resource_name) for name, node in sorted(nodes.items()))
            self._facts[resource_name] = facts
            while len(self._facts) > RESOURCES:
                self._facts.pop(next(iter(self._facts)))
            return facts

    def node(self, name: str, resource_name: str) -> NodeFacts | None:
        """One node; None if there is no node of that name."""
        facts = self.facts(resource_name)
        at = bisect_left(facts, name, key=lambda node: node.name)
        return facts[at] if at < len(facts) and facts[at].name == name else None

    def _changed(self) -> None:
        with self._lock:
            self._facts.clear()
        self._notify()


def _name(manifest: Mapping[str, Any]) -> str:
    return str(manifest["metadata"]["name"])


def _node(node: Mapping[str, Any]) -> Json:
    """A Node without its heartbeats, images, addresses and ordinary resources."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    # Interned: thousands of nodes have a hundred labels each, most of them the same.
    labels = {
        sys.intern(str(k)): sys.intern(str(v))
        for k, v in (node["metadata"].get("labels") or {}).items()
        if v is not None and k not in _NOISE
    }
    return {
        "metadata": {"name": _name(node), "labels": labels},
        "spec": {"taints": list(spec.get("taints") or []), "unschedulable": spec.get("unschedulable", False)},
        "status": {
            "allocatable": _extended(status.get("allocatable"), _HOST_RESOURCES),
            "capacity": _extended(status.get("capacity")),
            "conditions": [
                {"type": "Ready", "status": c.get("status")}
                for c in status.get("conditions") or []
                if c.get("type") == "Ready"
            ],
            "nodeInfo": {"architecture": (status.get("nodeInfo") or {}).get("architecture")},
        },
    }


def _extended(quantities: Mapping[str, Any] | None, besides: frozenset[str] = frozenset()) -> Json:
    """Names of extended resources have a domain; those of CPU, memory and disk have none."""
    return {k: v for k, v in (quantities or {}).items() if "/" in k or k in besides}


def _slice(resource_slice: Mapping[str, Any]) -> Json | None:
    """A ResourceSlice of GPUs; None for other devices."""
    if (resource_slice.get("spec") or {}).get("driver") != DRIVER:
        return None
    return {"metadata": {"name": _name(resource_slice)}, "spec": reduced(resource_slice)}
