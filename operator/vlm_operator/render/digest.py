"""The plan's hash: it changes exactly when running pods must be replaced."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from vlm_api.plan import ServingPlan

HASH_LENGTH = 10
# Validated specs and what is made of them have no cycles; to look for some is a fifth of the work.
_COMPACT: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), check_circular=False)
_READABLE: Final = json.JSONEncoder(sort_keys=True, check_circular=False)


def plan_hash(plan: ServingPlan, pod_template: dict[str, Any]) -> str:
    """Ten hex digits over the pod template and what the runtime in the pod acts on.

    That is the engine's command line, the runtime's part and the settings that it compares with the running engine.
    Reasons, evidence, findings and memory sums explain a plan and restart nothing.
    """
    acted_on = {
        "template": pod_template,
        "engine": plan.engine.to_api(),
        "runtime": {name: value for name, value in plan.runtime.to_api().items() if name != "startupReason"},
        "settings": {s.name: s.value for s in plan.settings if s.applied},
    }
    return hashlib.sha256(canonical(acted_on).encode()).hexdigest()[:HASH_LENGTH]


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces, so that equal values are equal texts."""
    return _COMPACT.encode(value)


def stored(value: Any) -> str:
    """JSON with sorted keys, as the plan's ConfigMap holds it."""
    return _READABLE.encode(value)
