"""What the operator writes: ``VLMService.status`` and the whole object."""

from __future__ import annotations

import re
from enum import Enum
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from vlm_api.base import ApiModel, Json, Rule, UniqueBy
from vlm_api.model import Inspection
from vlm_api.names import KIND
from vlm_api.plan import Finding, PlanEngine, PlanHardware, PlanMemory, PlanResources, Setting
from vlm_api.spec import VLMServiceSpec

SERVICE_NAME = r"^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$"
NAME_SENTENCE = (
    "must be a DNS-1035 label of at most 40 characters, since it becomes a host name: "
    "lower-case letters, digits and '-', starting with a letter and ending with a letter or digit"
)


class ConditionStatus(str, Enum):
    """Yes, no, or not known yet."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(ApiModel):
    """A metav1.Condition."""

    type: Annotated[str, Field(max_length=316)]
    """What is said to hold or not."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    """A CamelCase word for scripts."""
    message: Annotated[str, Field(max_length=32_768)]
    """One sentence for people, with the next step."""
    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """When the status last changed."""
    observed_generation: int | None = None
    """The spec's generation that this is about."""


class PlanStatus(ApiModel):
    """The plan in force, without its manifests."""

    hash: str = ""
    """Changes exactly when the running pods must change."""
    spec_digest: str = ""
    """Digest of the part of the spec that the plan was made from."""
    engine: PlanEngine | None = None
    """The engine's command line and environment."""
    hardware: PlanHardware | None = None
    """The hardware that the plan was made for."""
    settings: Annotated[list[Setting], Field(max_length=256)] = []
    """Every setting that a rule looked at, with source and reason."""
    memory: PlanMemory | None = None
    """The memory sum."""
    resources: PlanResources | None = None
    """What one replica takes."""
    findings: Annotated[list[Finding], Field(max_length=64)] = []
    """What a person should know."""


class PhaseTook(ApiModel):
    """A phase of a start that is over."""

    phase: str
    """The phase."""
    seconds: int
    """How long it took."""


# Before the runtime runs: the kubelet pulls images and mounts volumes.
PULLING: Final = "Pulling"


class Startup(ApiModel):
    """How far the slowest pod is."""

    pod: str = ""
    """The pod."""
    phase: str
    """The phase of its start: ``Pulling`` before the runtime runs, then the runtime's own."""
    elapsed_seconds: int
    """Seconds since it was given a node while it is pulling, else since the runtime started; in steps of 15."""
    budget_seconds: int
    """Seconds that this may take."""
    budget_reason: Annotated[str, Field(max_length=512)] | None = None
    """Where the budget comes from."""
    phases: Annotated[list[PhaseTook], Field(max_length=16)] = []
    """The phases that are over, in order."""


class ImagesInTraffic(ApiModel):
    """How often images come back, told once there were enough of them. Changes only when the traffic really does."""

    declared: str
    """What ``spec.workload.images.reuse`` said then."""
    repeated_percent: int
    """Share of images that had come before within about an hour, in steps of 5; follows only changes of 10 or more."""
    finding: Finding | None = None
    """Set where the traffic contradicts what is declared."""


class Effective(ApiModel):
    """What the running engine says it uses."""

    pod: str
    """The pod that was asked."""
    agrees: bool
    """True: every planned setting is in force, as far as the engine tells."""
    settings: Annotated[list[dict[str, Json]], Field(max_length=256)] = []
    """Settings that differ: name, planned, effective."""
    not_told: Annotated[list[str], Field(max_length=256)] = []
    """Planned settings of which the engine says nothing."""
    left_alone: Annotated[list[dict[str, Json]], Field(max_length=256)] = []
    """Settings left to the engine for which it chose something else than the plan expected: name, expected, effective."""
    feature_pool_mib: int | None = None
    """The true size of the pool of image features, where the engine tells it."""
    images: ImagesInTraffic | None = None
    """How often images come back in the traffic of all pods."""


class Benchmark(ApiModel):
    """What `kubectl vlm bench` measured last. TTFT: time to the first token; TPOT: time per token after it."""

    time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """When the measurement ended."""
    plan_hash: str
    """The plan that was measured."""
    concurrency: int
    """Requests at once; of a curve, those with the most requests a second."""
    rounds: int
    """Rounds that count."""
    requests: int
    """Requests of all rounds."""
    failures: int
    """Those that were not answered."""
    requests_per_second: float
    """Answered requests a second, the mean over rounds."""
    output_tokens_per_second: float
    """Output tokens a second, the mean over rounds."""
    ttft_p50_milliseconds: float | None = None
    """Half of all requests had their first token by then."""
    ttft_p95_milliseconds: float | None = None
    """95 of 100."""
    ttft_p99_milliseconds: float | None = None
    """99 of 100."""
    tpot_p50_milliseconds: float | None = None
    """Half of all requests took at most this for each later token."""
    tpot_p95_milliseconds: float | None = None
    """95 of 100."""
    tpot_p99_milliseconds: float | None = None
    """99 of 100."""


class VLMServiceStatus(ApiModel):
    """What the operator knows about a service."""

    observed_generation: int | None = None
    """The spec's generation that this status is about."""
    conditions: Annotated[
        list[Condition],
        Field(max_length=16),
        UniqueBy("type"),
    ] = []
    """Ready, Available, Progressing, HardwareResolved, OverridesResolved, ResourceFit and others."""
    desired_replicas: int | None = None
    """Replicas that are wanted: by spec.replicas, or by the autoscaler."""
    replicas: int | None = None
    """Replicas that exist."""
    ready_replicas: int | None = None
    """Replicas that answer requests."""
    updated_replicas: int | None = None
    """Replicas that run the present plan."""
    available_replicas: int | None = None
    """Replicas that have been ready for long enough."""
    selector: Annotated[str, Field(max_length=1024)] | None = None
    """Label selector of the pods, for the scale subresource."""
    url: Annotated[str, Field(max_length=1024)] | None = None
    """Where clients inside the cluster reach the OpenAI-compatible API."""
    plan: PlanStatus | None = None
    """The plan in force."""
    model: Inspection | None = None
    """What the operator read from the model's own files, where neither the spec nor its table of models says enough."""
    startup: Startup | None = None
    """How far the slowest pod is, while one starts."""
    effective: Effective | None = None
    """What the running engine says it uses, and where that differs from the plan."""
    benchmark: Benchmark | None = None
    """What `kubectl vlm bench` measured last. The command writes it, the operator keeps it."""


class VLMService(ApiModel):
    """A vision-language model, served by SGLang on the GPUs that are there."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"self.metadata.name.matches('{SERVICE_NAME}')",
            message=NAME_SENTENCE,
            sentence=lambda s: _name_sentence(s.metadata),
            holds=lambda s: _is_service_name(s.metadata.get("name", "")),
            field="metadata.name",
        ),
    )

    api_version: Literal["vlmserve.dev/v1alpha1"] = "vlmserve.dev/v1alpha1"
    """The API's version."""
    kind: Literal["VLMService"] = KIND
    """The kind."""
    metadata: dict[str, Any]
    """Standard object metadata."""
    spec: VLMServiceSpec
    """What the user wants."""
    status: VLMServiceStatus | None = None
    """What the operator knows."""

    @property
    def name(self) -> str:
        """``metadata.name``."""
        return str(self.metadata["name"])

    @property
    def namespace(self) -> str:
        """``metadata.namespace``, or ``default``."""
        return str(self.metadata.get("namespace") or "default")


def _is_service_name(name: object) -> bool:
    return isinstance(name, str) and re.fullmatch(SERVICE_NAME, name) is not None


def _name_sentence(metadata: dict[str, Any]) -> str:
    if name := metadata.get("name"):
        return f'is "{name}", but {NAME_SENTENCE}'
    generated = " (metadata.generateName does not say which name it will be)" if metadata.get("generateName") else ""
    return f"is required{generated}: it {NAME_SENTENCE}"
