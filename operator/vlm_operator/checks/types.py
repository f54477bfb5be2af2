"""What checks get, and the two signatures that they have."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vlm_api.plan import Finding, PlanMemory
from vlm_api.spec import VLMServiceSpec
from vlm_operator.errors import InvalidInput
from vlm_operator.facts.types import ClaimFacts, Cluster, ModelFacts, NodeFacts
from vlm_operator.placement.choose import Choice
from vlm_operator.sglang.budget import Budget
from vlm_operator.sglang.context import Context, Declared


@dataclass(frozen=True)
class CheckInput:
    """A plan before its findings, and what it was made from."""

    context: Context
    declared: Declared
    image: str
    """The engine's image."""
    choice: Choice
    """The hardware that was chosen."""
    budget: Budget
    memory: PlanMemory
    cluster: Cluster
    model_files: ModelFacts | None = None
    """What the model's own files say, if they were read."""

    @property
    def nodes(self) -> tuple[NodeFacts, ...]:
        """The nodes that were chosen; none if no node matches yet."""
        return self.choice.nodes

    @property
    def pool_mib(self) -> int:
        """The feature pool in MiB; 0 without one."""
        return self.memory.feature_pool_mib or 0


@dataclass(frozen=True)
class ScaleInput:
    """How many replicas are requested of a plan: fields of the spec that change without a new plan."""

    spec: VLMServiceSpec
    devices_per_pod: int
    max_running_requests: Any
    """What the plan sets; None if it does not."""
    nodes: tuple[NodeFacts, ...]
    """The nodes that were chosen."""
    claims: Mapping[str, ClaimFacts]
    """Claims that several pods share, as far as they could be read."""


Check = Callable[[CheckInput], Iterable[Finding]]
"""Yields findings, and nothing else."""

ScaleCheck = Callable[[ScaleInput], Iterable[Finding]]
"""The same for what must be checked again whenever the scale changes."""

InputCheck = Callable[[Context, Declared], Iterable[InvalidInput]]
"""Yields what is wrong with the input on any cluster, from the user's own settings (``declared`` holds no others). Only the
first is raised, so a check may rely on what it has passed."""

SizeCheck = Callable[[CheckInput], Iterable[InvalidInput]]
"""The same for what depends on the sizes of the plan."""
