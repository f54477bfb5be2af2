"""What each pool of a service asks for: read from the spec once, and the only reading that planning and manifests use."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from vlm_api.names import MAIN_POOL
from vlm_api.plan import Finding, Role
from vlm_api.pools import PoolSpec
from vlm_api.spec import Device, Router, VLMServiceSpec
from vlm_api.status import VLMService
from vlm_operator.errors import InvalidInput
from vlm_operator.plan.digest import DIGEST_LENGTH, canonical, spec_digest
from vlm_operator.plan.pools import own_path, spec_of_pool
from vlm_operator.sglang.catalogue.engine_image import select_engine
from vlm_operator.sglang.catalogue.releases import Release
from vlm_operator.sglang.choices import UserChoices
from vlm_operator.sglang.choices.user_choices import user_choices
from vlm_operator.sglang.ranks import rank_count

_PATH: Final = re.compile(r"\bspec(?:\.\w+|\[\d+\])+")


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
    router: Router | None = None
    """The service's router."""
    declared: tuple[PoolSpec, int] | None = None
    """What ``spec.pools`` says about the pool, and its place in the list; None in a service without ``pools``."""

    def path_of(self, path: str) -> str:
        """Where the user finds a field of ``spec``, such as ``spec.engine.args``: in the pool or in the service."""
        return path if self.declared is None else own_path(*self.declared, path)

    def located(self, error: InvalidInput) -> InvalidInput:
        """An error about a field of ``spec``, with the path that the user finds it by."""
        if self.declared is None:
            return error
        return InvalidInput(self.path_of(error.path), self.text_of(error.message))

    def text_of(self, text: str) -> str:
        """A text with the paths in it as ``path_of`` has them."""
        if self.declared is None:
            return text
        return _PATH.sub(lambda path: self.path_of(path[0]), text)

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


def digest_of_pools(requests: Sequence[PoolRequest]) -> str:
    """Digest of all that the pods of a service are made from. Raises InvalidInput as ``digest`` does."""
    if len(requests) == 1 and requests[0].pool == MAIN_POOL:
        return requests[0].digest
    return hashlib.sha256(canonical({r.pool: r.digest for r in requests}).encode()).hexdigest()[:DIGEST_LENGTH]


def requests_of(service: VLMService) -> tuple[PoolRequest, ...]:
    """The requests of all pools, in the spec's order. Raises InvalidInput for a pool whose fields do not go together."""
    name, namespace, spec = service.name, service.namespace, service.spec
    if not spec.pools:
        return (PoolRequest(name, namespace, spec, router=spec.router),)
    requests = tuple(
        PoolRequest(name, namespace, spec_of_pool(spec, number), pool.name, router=spec.router, declared=(pool, number))
        for number, pool in enumerate(spec.pools)
    )
    _refuse_across(requests)
    return requests


def _refuse_across(requests: Sequence[PoolRequest]) -> None:
    """Raises InvalidInput if pools differ in what one address must have alike."""
    first = requests[0]
    for number, other in enumerate(requests):
        if other.served_model_name != first.served_model_name:
            raise InvalidInput(
                f"spec.pools[{number}].model.name",
                f"pool {first.pool} serves {first.served_model_name!r} and pool {other.pool} {other.served_model_name!r}, but a "
                "client sends one name to one address: give all pools the same name",
            )
        if (other.spec.multinode.node_count > 1) != (first.spec.multinode.node_count > 1):
            raise InvalidInput(
                f"spec.pools[{number}].multinode.nodeCount",
                f"pool {first.pool} has replicas of {first.spec.multinode.node_count} nodes and pool {other.pool} of "
                f"{other.spec.multinode.node_count}: one Service cannot address single pods and leaders of groups, so use one "
                "VLMService for each",
            )
