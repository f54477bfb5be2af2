"""The pod's memory against the nodes' and against the user's own limit. The operator sets none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vlm_api.names import MAIN_CONTAINER
from vlm_api.plan import Finding, Severity
from vlm_operator import memory
from vlm_operator.errors import InvalidInput
from vlm_operator.facts.labels import mapping, quantity
from vlm_operator.facts.types import NodeFacts

PATH = f"spec.template.spec.containers[name={MAIN_CONTAINER}].resources.limits.memory"


def node_findings(template: Mapping[str, Any], host_mib: int, nodes: Sequence[NodeFacts]) -> list[Finding]:
    """A Warning where none of the nodes has as much memory as the pod asks for: the scheduler would take none of them."""
    sizes = [node.memory_mib for node in nodes]
    asked = quantity(mapping(engine_container(template), "resources", "requests").get("memory"))
    wanted = host_mib if asked is None else int(asked / memory.MIB)
    most = max((size for size in sizes if size is not None), default=0)
    if not sizes or None in sizes or most >= wanted:
        return []
    return [
        Finding(
            severity=Severity.WARNING,
            reason="NodeMemoryTooSmall",
            message=f"the pod asks for {wanted:,} MiB of memory and the largest of these nodes has {most:,}: it waits for a "
            "larger one; declare fewer requests in flight or smaller images, or say requests.memory of container main in "
            "spec.template",
            path="spec.workload.concurrency" if asked is None else PATH.replace("limits", "requests"),
        )
    ]


def engine_container(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """What ``spec.template`` says of the engine's container; empty where it says nothing."""
    containers: list[Mapping[str, Any]] = (template.get("spec") or {}).get("containers") or []
    return next((c for c in containers if c["name"] == MAIN_CONTAINER), {})


def limit_findings(template: Mapping[str, Any], host_mib: int) -> list[Finding]:
    """A Warning for a limit below ``host_mib``, the pod's computed memory with images in /dev/shm.

    Raises InvalidInput for a limit below what the pod asks for, which the API server takes from nobody.
    """
    main = engine_container(template)
    limit = quantity(mapping(main, "resources", "limits").get("memory"))
    if limit is None or limit >= host_mib * memory.MIB:
        return []
    asked = quantity(mapping(main, "resources", "requests").get("memory"))
    if asked is None or asked > limit:
        raise InvalidInput(
            PATH,
            f"{float(limit) / memory.MIB:,.0f} MiB are less than the "
            f"{host_mib if asked is None else float(asked) / memory.MIB:,.0f} MiB that the pod asks for: raise the limit, "
            "or set requests.memory beside it, to that or less",
        )
    return [
        Finding(
            severity=Severity.WARNING,
            reason="MemoryLimitTooLow",
            message=f"{float(limit) / memory.MIB:,.0f} MiB are less than the {host_mib:,} MiB that processes, pinned memory "
            "and images in /dev/shm are computed to need: the kernel can kill the engine under load; raise or remove it",
            path=PATH,
        )
    ]
