"""Whether a pod may run on a node: cordon, readiness, taints, selector and affinity, as the scheduler reads them."""

from collections.abc import Iterable, Mapping
from typing import Any

from vlm_operator.facts.types import NodeFacts, Taint

# The taint that GPU nodes usually carry; tolerated by default whatever its effect, and no other is.
GPU_TAINT = "nvidia.com/gpu"
GPU_TOLERATION: dict[str, str] = {"key": GPU_TAINT, "operator": "Exists"}


def refusal(node: NodeFacts, pod: Mapping[str, Any]) -> str | None:
    """Why a pod with the user's spec ``pod`` (core/v1 PodSpec, may be empty) cannot start there; None when it can."""
    if node.cordoned:
        return "is cordoned"
    if not node.ready:
        return "is not ready"
    tolerations = [GPU_TOLERATION, *_list(pod.get("tolerations"))] if node.taints else []
    for taint in node.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(_tolerates(t, taint) for t in tolerations):
            name = f"{taint.key}={taint.value}" if taint.value else taint.key
            return f"has the taint {name}:{taint.effect}, which the pod does not tolerate"
    if not pod:  # as most pods are, and there may be thousands of nodes
        return None
    for key, value in sorted(_map(pod.get("nodeSelector")).items()):
        if node.labels.get(key) != value:
            return f"does not match the node selector {key}={value}"
    terms = _required_terms(pod)
    if terms and not any(_matches(node, term) for term in terms):
        return "does not match the required node affinity"
    wanted = pod.get("nodeName")
    if wanted and wanted != node.name:
        return f"is not {wanted}, which spec.template names"
    return None


def _tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    effect, key = toleration.get("effect"), toleration.get("key")
    if effect and effect != taint.effect:
        return False
    if not key:
        return toleration.get("operator") == "Exists"
    if key != taint.key:
        return False
    operator, value = toleration.get("operator"), str(toleration.get("value") or "")
    if operator in ("Gt", "Lt"):  # of the taint's value, beside the toleration's: Kubernetes 1.35 and later
        return _compared(str(operator), taint.value, value)
    return operator == "Exists" or value == taint.value


def _required_terms(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    affinity = _map(
        _map(_map(pod.get("affinity")).get("nodeAffinity")).get("requiredDuringSchedulingIgnoredDuringExecution")
    )
    return _list(affinity.get("nodeSelectorTerms"))


def _matches(node: NodeFacts, term: Mapping[str, Any]) -> bool:
    expressions, fields = _list(term.get("matchExpressions")), _list(term.get("matchFields"))
    if not expressions and not fields:  # an empty term matches no node
        return False
    named = {"metadata.name": node.name}
    return all(_expression(node.labels, e) for e in expressions) and all(_expression(named, e) for e in fields)


def _expression(labels: Mapping[str, str], expression: Mapping[str, Any]) -> bool:
    key, operator = str(expression.get("key")), expression.get("operator")
    values = [str(v) for v in _list(expression.get("values"))]
    present, value = key in labels, labels.get(key, "")
    if operator == "In":
        return present and value in values
    if operator == "NotIn":
        return not present or value not in values
    if operator == "Exists":
        return present
    if operator == "DoesNotExist":
        return not present
    return operator in ("Gt", "Lt") and present and len(values) == 1 and _compared(str(operator), value, values[0])


def _compared(operator: str, one: str, other: str) -> bool:
    """Whether ``one`` is greater (Gt) or less (Lt) than ``other``; False if either is not a whole number."""
    try:
        return int(one) > int(other) if operator == "Gt" else int(one) < int(other)
    except ValueError:
        return False


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return (
        [v for v in value if isinstance(v, Mapping | str | int)]
        if isinstance(value, Iterable) and not isinstance(value, str | Mapping)
        else []
    )
