"""The cluster's nodes as they were last seen, without what changes all the time and means nothing here."""

from __future__ import annotations

import sys
import threading
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Final

from vlm_operator.facts.nodes import node_facts
from vlm_operator.facts.slices import DRIVER, by_node, reduced
from vlm_operator.facts.types import NodeFacts

# GPU feature discovery writes the time of its last run into a label.
_NOISE: Final = frozenset({"nvidia.com/gfd.timestamp"})
# What pods can ask for of a node besides devices, and plans look at. It does not change while a node lives.
_OF_THE_HOST: Final = frozenset({"memory", "ephemeral-storage"})
# Kinds of devices for which the facts of all nodes are kept.
RESOURCES: Final = 8


class Inventory:
    """Nodes and ResourceSlices, kept by watching them. Safe to read from other threads than the one that writes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nodes: dict[str, dict[str, Any]] = {}
        self._slices: dict[str, dict[str, Any]] = {}
        self._facts: dict[str, tuple[NodeFacts, ...]] = {}
        """By resource, as long as nothing has changed: to read a thousand nodes anew takes tens of milliseconds."""

    def see_node(self, node: Mapping[str, Any], *, deleted: bool) -> bool:
        """One event. Returns whether anything changed that a plan could depend on."""
        return self._see(self._nodes, _name(node), None if deleted else _node(node))

    def see_slice(self, resource_slice: Mapping[str, Any], *, deleted: bool) -> bool:
        """One event. Returns whether anything changed that a plan could depend on."""
        if not _is_gpu_slice(resource_slice):
            return False
        return self._see(self._slices, _name(resource_slice), None if deleted else _slice(resource_slice))

    def facts(self, resource_name: str) -> tuple[NodeFacts, ...]:
        """All nodes, by name, with what is known of the GPUs behind that resource."""
        with self._lock:
            if (known := self._facts.get(resource_name)) is not None:
                return known
            nodes, slices = dict(self._nodes), by_node(self._slices.values())
            found = tuple(node_facts(node, slices(name), resource_name) for name, node in sorted(nodes.items()))
            self._facts[resource_name] = found
            while len(self._facts) > RESOURCES:
                self._facts.pop(next(iter(self._facts)))
            return found

    def nodes(self) -> list[str]:
        """Names of all nodes."""
        with self._lock:
            return list(self._nodes)

    def slices(self) -> list[str]:
        """Names of all ResourceSlices of GPUs."""
        with self._lock:
            return list(self._slices)

    def forget_node(self, name: str) -> bool:
        """A node is gone. Returns whether it was known."""
        return self._see(self._nodes, name, None)

    def forget_slice(self, name: str) -> bool:
        """A ResourceSlice is gone. Returns whether it was known."""
        return self._see(self._slices, name, None)

    def node(self, name: str, resource_name: str) -> NodeFacts | None:
        """One node; None where there is none of that name."""
        facts = self.facts(resource_name)
        at = bisect_left(facts, name, key=lambda node: node.name)
        return facts[at] if at < len(facts) and facts[at].name == name else None

    def labels(self, node: str) -> Mapping[str, str] | None:
        """A node's labels; None where there is no such node."""
        with self._lock:
            found = self._nodes.get(node)
        return None if found is None else found["metadata"]["labels"]

    def _see(self, store: dict[str, dict[str, Any]], name: str, now: dict[str, Any] | None) -> bool:
        with self._lock:
            if store.get(name) == now:
                return False
            self._facts.clear()
            if now is None:
                store.pop(name, None)
            else:
                store[name] = now
            return True


def _name(manifest: Mapping[str, Any]) -> str:
    return str(manifest["metadata"]["name"])


def _node(node: Mapping[str, Any]) -> dict[str, Any]:
    """A Node without its heartbeats, images, addresses and ordinary resources."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    # Thousands of nodes have a hundred labels each, and most of them the same ones.
    said = (node["metadata"].get("labels") or {}).items()
    labels = [(sys.intern(str(k)), sys.intern(str(v))) for k, v in said if v is not None]
    return {
        "metadata": {"name": _name(node), "labels": {k: v for k, v in labels if k not in _NOISE}},
        "spec": {"taints": list(spec.get("taints") or []), "unschedulable": spec.get("unschedulable", False)},
        "status": {
            "allocatable": _extended(status.get("allocatable"), _OF_THE_HOST),
            "capacity": _extended(status.get("capacity")),
            "conditions": [
                {"type": "Ready", "status": c.get("status")}
                for c in status.get("conditions") or []
                if c.get("type") == "Ready"
            ],
            "nodeInfo": {"architecture": (status.get("nodeInfo") or {}).get("architecture")},
        },
    }


def _extended(quantities: Mapping[str, Any] | None, besides: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Extended resources have a domain in their names; processors, memory and disks have none."""
    return {k: v for k, v in (quantities or {}).items() if "/" in k or k in besides}


def _is_gpu_slice(resource_slice: Mapping[str, Any]) -> bool:
    return (resource_slice.get("spec") or {}).get("driver") == DRIVER


def _slice(resource_slice: Mapping[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": _name(resource_slice)}, "spec": reduced(resource_slice)}
