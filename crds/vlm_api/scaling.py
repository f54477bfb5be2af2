"""How many replicas there are, and how they are replaced: ``spec.scaling`` and ``spec.rolloutStrategy``."""

from typing import Annotated, ClassVar

from vlm_api.base import ApiModel, Rule, Surge, Unavailable, between


class Scaling(ApiModel):
    """Autoscaling by requests in flight. Mutually exclusive with ``replicas``."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.minReplicas <= self.maxReplicas",
            message="minReplicas must not be greater than maxReplicas: lower minReplicas or raise maxReplicas",
            holds=lambda s: s.min_replicas <= s.max_replicas,
            field="minReplicas",
        ),
    )

    min_replicas: Annotated[int, between(1, 1000)] = 1
    """Minimum number of replicas."""
    max_replicas: Annotated[int, between(1, 1000)]
    """Maximum number of replicas."""
    target_in_flight: Annotated[int, between(1, 100_000)] | None = None
    """Target number of requests in flight per replica. Default: 80% of ``workload.concurrency``, or of the requests that a
    replica's memory holds if those are fewer; 32 if the concurrency is unset."""


class RolloutStrategy(ApiModel):
    """How a rollout replaces pods. By default the old pod is stopped first, because a spare GPU is rare."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!(string(self.maxSurge) in ['0', '0%'] && string(self.maxUnavailable) in ['0', '0%'])",
            message="maxSurge and maxUnavailable must not both be zero: raise one of them, or no pod can be replaced",
            holds=lambda s: not (str(s.max_surge) in ("0", "0%") and str(s.max_unavailable) in ("0", "0%")),
            field="maxSurge",
        ),
    )

    max_surge: Surge = 0
    """Pods above the desired number during a rollout: a number or a percentage."""
    max_unavailable: Unavailable = 1
    """Pods that may be unavailable during a rollout: a number or a percentage."""
