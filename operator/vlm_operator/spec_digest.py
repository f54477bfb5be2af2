"""Whether a spec still says what the plan in force was made from, also for an operator that knows more fields."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from vlm_api.spec import VLMServiceSpec
from vlm_operator.errors import InvalidInput

# Fields of the spec that never change what runs in a pod.
OUTSIDE_THE_PLAN: Final = {"replicas", "scaling", "suspend", "rollout_strategy", "metrics"}

# Fields of the first release, which are in its digests also where nobody set them. A field that came later is in a digest
# only where it is set to something else than its default: an operator that knows it must find the spec of a service that
# does not use it unchanged, or an upgrade would replace every pod. Never to be added to.
_FIRST_RELEASE: Final[dict[str, Any]] = {
    "engine": dict.fromkeys(("args", "env", "image", "settings", "tuning", "version")),
    "hardware": dict.fromkeys(
        ("computeCapability", "device", "minMemoryMiB", "products", "resourceName", "runtimeClassName")
    ),
    "model": dict.fromkeys(
        ("architecture", "cacheClaim", "name", "parametersBillion", "revision", "tokenSecretRef", "uri")
    ),
    "multinode": dict.fromkeys(("nodeCount",)),
    "parallelism": dict.fromkeys(("data", "pipeline", "tensor")),
    "security": dict.fromkeys(("allowedMediaDomains", "apiKeySecretRef")),
    "sharedMemorySize": None,
    "template": None,
    "workload": {
        **dict.fromkeys(("concurrency", "inputTokens", "maxRequestSeconds", "outputTokens")),
        "images": dict.fromkeys(("enforce", "height", "perRequest", "reuse", "width")),
    },
}


def spec_digest(spec: VLMServiceSpec) -> str:
    """Digest of the part of the spec that pods are made from. Raises InvalidInput where it is nested without end."""
    try:
        everything = spec.model_dump(mode="json", by_alias=True, exclude=OUTSIDE_THE_PLAN)
        chosen = spec.model_dump(mode="json", by_alias=True, exclude=OUTSIDE_THE_PLAN, exclude_defaults=True)
    except ValueError as error:  # pydantic ends at 255 levels
        raise InvalidInput("spec", "is nested too deeply: no field needs so many levels") from error
    said = _said(everything, chosen, _FIRST_RELEASE)
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


def _said(everything: dict[str, Any], chosen: dict[str, Any], first: dict[str, Any]) -> dict[str, Any]:
    """``everything`` without later fields that nobody set. A field with a map in ``first`` has fields of its own."""
    found: dict[str, Any] = {}
    for name, value in everything.items():
        below = first.get(name)
        if isinstance(below, dict) and isinstance(value, dict):
            found[name] = _said(value, chosen.get(name) or {}, below)
        elif name in first or name in chosen:
            found[name] = value
    return found
