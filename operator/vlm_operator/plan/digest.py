"""What a plan is known by: the digest of the spec that it was made from, and its own hash."""

import hashlib
import json
from typing import Any, Final

from vlm_api.names import MAIN_POOL
from vlm_api.plan import ServingPlan
from vlm_api.spec import VLMServiceSpec
from vlm_operator.errors import InvalidInput

# Fields of the spec, by their names in the API, that never change what runs in a pod.
OUTSIDE_THE_PLAN: Final = frozenset(
    {"replicas", "scaling", "suspend", "rolloutStrategy", "metrics", "router", "weight"}
)

# Fields of the first release, which are in its digests even if nobody set them. A field that came later is in a digest only
# if it is set to something else than its default: an operator that knows it must find the spec of a service that does not use
# it unchanged, or an upgrade would replace every pod. Never to be added to.
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

HASH_LENGTH: Final = 10
DIGEST_LENGTH: Final = 16
# Validated specs and what is made of them have no cycles; to look for some is a fifth of the work.
_COMPACT: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), check_circular=False)
_READABLE: Final = json.JSONEncoder(sort_keys=True, check_circular=False)


def spec_digest(spec: VLMServiceSpec) -> str:
    """Digest of the part of the spec that pods are made from; the same for an operator that knows more fields.

    Raises InvalidInput if the spec is nested too deeply.
    """
    try:
        everything = spec.model_dump(mode="json", by_alias=True)
        chosen = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    except ValueError as error:  # pydantic ends at 255 levels
        raise InvalidInput("spec", "is nested too deeply: no field needs so many levels") from error
    for name in OUTSIDE_THE_PLAN:
        everything.pop(name, None)
    used = _used(everything, chosen, _FIRST_RELEASE)
    return hashlib.sha256(json.dumps(used, sort_keys=True).encode()).hexdigest()[:DIGEST_LENGTH]


def _used(everything: dict[str, Any], chosen: dict[str, Any], first: dict[str, Any]) -> dict[str, Any]:
    """``everything`` without later fields that nobody set. A field with a map in ``first`` has fields of its own."""
    found: dict[str, Any] = {}
    for name, value in everything.items():
        below = first.get(name)
        if isinstance(below, dict) and isinstance(value, dict):
            found[name] = _used(value, chosen.get(name) or {}, below)
        elif name in first or name in chosen:
            found[name] = value
    return found


def plan_hash(plan: ServingPlan, pod_template: dict[str, Any]) -> str:
    """Ten hex digits over the pod template and what the runtime in the pod acts on: it changes exactly when running pods must
    be replaced.

    That is the engine's command line, the runtime's part and the settings that it compares with the running engine.
    Reasons, evidence, findings and memory sums explain a plan and restart nothing.
    """
    acted_on = {
        "template": pod_template,
        "engine": plan.engine.to_api(),
        "runtime": {name: value for name, value in plan.runtime.to_api().items() if name != "startupReason"},
        "settings": {s.name: s.value for s in plan.settings if s.applied},
        # Pools of one service that are otherwise alike each have a plan of their own.
        **({} if plan.pool == MAIN_POOL else {"pool": plan.pool}),
    }
    return hashlib.sha256(canonical(acted_on).encode()).hexdigest()[:HASH_LENGTH]


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces, so that equal values are equal texts."""
    return _COMPACT.encode(value)


def stored(value: Any) -> str:
    """JSON with sorted keys, as the plan's ConfigMap holds it."""
    return _READABLE.encode(value)
