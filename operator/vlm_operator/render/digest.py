"""The plan's hash: it changes exactly when running pods must be replaced."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from vlm_api.plan import ServingPlan

HASH_LENGTH = 10


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
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
