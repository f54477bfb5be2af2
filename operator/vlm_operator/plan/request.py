"""What each pool of a service asks for: read from the spec once, and the only reading that planning and manifests use."""

from dataclasses import dataclass
from functools import cached_property

from vlm_api.names import MAIN_POOL
from vlm_api.plan import Finding, Role
from vlm_api.spec import Device, VLMServiceSpec
from vlm_api.status import VLMService
from vlm_operator.plan.digest import spec_digest
from vlm_operator.sglang.catalogue.engine_image import select_engine
from vlm_operator.sglang.catalogue.releases import Release
from vlm_operator.sglang.choices import UserChoices
from vlm_operator.sglang.choices.user_choices import user_choices
from vlm_operator.sglang.ranks import rank_count


@dataclass(frozen=True)
class PoolRequest:
    """One pool of a service. What is parsed from its spec is parsed at first use, and once: a plan that stays is applied
    without it, so a setting that a newer operator refuses does not stop a service that runs."""

    service: str
    """The VLMService's name."""
    namespace: str
    spec: VLMServiceSpec
    """The pool's own spec: the service's fields, with the pool's in their place."""
    pool: str = MAIN_POOL
    role: Role = Role.SERVE

    @cached_property
    def digest(self) -> str:
        """Digest of the part of the spec that plans are made from. Raises InvalidInput if it is nested too deeply."""
        return spec_digest(self.spec)

    @cached_property
    def _selected(self) -> tuple[Release, str, tuple[Finding, ...]]:
        return select_engine(self.spec.engine)

    @property
    def engine(self) -> Release:
        """The engine's release."""
        return self._selected[0]

    @property
    def image(self) -> str:
        """The engine's image."""
        return self._selected[1]

    @cached_property
    def choices(self) -> UserChoices:
        """What the user wrote about the engine, anywhere in the spec. Raises InvalidInput for what cannot be right."""
        return user_choices(self.spec, self.engine)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What a person should know about the release and the user's choices. Raises InvalidInput as ``choices`` does."""
        return self._selected[2] + self.choices.findings

    @property
    def served_model_name(self) -> str:
        """The model name in clients' requests."""
        return self.spec.model.name or self.service

    @property
    def cuda(self) -> bool:
        """Whether the pods use GPUs."""
        return self.spec.hardware.device is Device.CUDA

    @cached_property
    def devices_per_pod(self) -> int:
        """GPUs of each pod; 0 on the CPU. Raises InvalidInput as ``choices`` does."""
        return rank_count(self.spec, self.choices) // self.spec.multinode.node_count if self.cuda else 0


def requests_of(service: VLMService) -> tuple[PoolRequest, ...]:
    """The requests of all pools, in the spec's order."""
    return (PoolRequest(service.name, service.namespace, service.spec),)
