"""The user's own limit of the pod's memory, against what the pod is computed to need. None is set by the operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vlm_api.names import MAIN_CONTAINER
from vlm_api.plan import Finding, Severity
from vlm_operator import memory
from vlm_operator.errors import InvalidInput
from vlm_operator.facts.labels import mapping, quantity

PATH = f"spec.template.spec.containers[name={MAIN_CONTAINER}].resources.limits.memory"


def limit_findings(template: Mapping[str, Any], host_mib: int) -> list[Finding]:
    """A Warning for a limit below ``host_mib``, the pod's computed memory with images in /dev/shm.

    Raises InvalidInput for a limit below what the pod asks for, which the API server takes from nobody.
    """
    containers = (template.get("spec") or {}).get("containers") or []
    main: Mapping[str, Any] = next((c for c in containers if c["name"] == MAIN_CONTAINER), {})
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
