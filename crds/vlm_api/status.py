"""``VLMService.status``, written by the operator, and the whole object."""

import re
from enum import Enum
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from vlm_api.base import ApiModel, Json, Rule, UniqueBy
from vlm_api.inspection import Inspection
from vlm_api.names import KIND
from vlm_api.plan import MAX_SHORT, Finding, PlanEngine, PlanHardware, PlanMemory, PlanResources, Role, Setting
from vlm_api.pools import MAX_POOLS
from vlm_api.spec import VLMServiceSpec

MAX_MESSAGE: Final = 32_768
# Of a service and a pool together: objects of the pool are called NAME-POOL.
MAX_POOL_NAME: Final = 40
_POOL_NAMES: Final = f"the names of the service and of a pool must have at most {MAX_POOL_NAME} characters together"
MAX_LISTED: Final = 256
MAX_PHASES: Final = 16
SERVICE_NAME = r"^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$"
NAME_SENTENCE = (
    "must be a DNS-1035 label of at most 40 characters, because it becomes a host name: "
    "lower-case letters, digits and '-', starting with a letter and ending with a letter or digit"
)


class ConditionStatus(str, Enum):
    """The status of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(ApiModel):
    """A metav1.Condition."""

    type: Annotated[str, Field(max_length=316)]
    """The condition's type."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    """A CamelCase reason for programs."""
    message: Annotated[str, Field(max_length=MAX_MESSAGE)]
    """A sentence for people, with the next step."""
    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """When the status last changed."""
    observed_generation: int | None = None
    """The generation of the spec that the condition is based on."""


class PlanStatus(ApiModel):
    """The current plan, without its manifests."""

    hash: str = ""
    """Changes exactly when the running pods must change."""
    spec_digest: str = ""
    """Digest of the spec fields that the plan was made from."""
    engine: PlanEngine | None = None
    """The engine's command line and environment."""
    hardware: PlanHardware | None = None
    """The hardware that the plan is for."""
    settings: Annotated[list[Setting], Field(max_length=256)] = []
    """Every setting that a rule considered, with source and reason."""
    memory: PlanMemory | None = None
    """Memory of a device and a pod."""
    resources: PlanResources | None = None
    """What one replica requires."""
    findings: Annotated[list[Finding], Field(max_length=64)] = []
    """What the user should know."""


class PhaseTook(ApiModel):
    """A finished phase of a start."""

    phase: str
    """The phase."""
    seconds: int
    """Its duration."""


# Before the runtime runs: the kubelet pulls images and mounts volumes.
PULLING: Final = "Pulling"


class Startup(ApiModel):
    """Progress of the slowest pod."""

    pod: str = ""
    """The pod."""
    phase: str
    """The phase of its start: ``Pulling`` until the runtime runs, then the runtime's phase."""
    elapsed_seconds: int
    """Seconds since the pod was scheduled while it is pulling, else since the runtime started; in steps of 15."""
    budget_seconds: int
    """Maximum seconds for the start."""
    budget_reason: Annotated[str, Field(max_length=512)] | None = None
    """How the budget was computed."""
    phases: Annotated[list[PhaseTook], Field(max_length=MAX_PHASES)] = []
    """The finished phases, in order."""


class ImagesInTraffic(ApiModel):
    """How often images repeat, once there are enough of them. Small changes in the traffic do not change it."""

    declared: str
    """The value of ``spec.workload.images.reuse`` at that time."""
    repeated_percent: int
    """Percentage of images that were sent before within about an hour, in steps of 5. It follows changes of 10 or more."""
    finding: Finding | None = None
    """Set if the traffic contradicts the declared reuse."""


class Effective(ApiModel):
    """The settings that the running engine reports."""

    pod: str
    """The reporting pod."""
    agrees: bool
    """True if every planned setting that the engine reports is in force."""
    settings: Annotated[list[dict[str, Json]], Field(max_length=MAX_LISTED)] = []
    """Settings that differ: name, planned, effective."""
    not_reported: Annotated[list[str], Field(max_length=MAX_LISTED)] = []
    """Planned settings that the engine does not report."""
    engine_defaults: Annotated[list[dict[str, Json]], Field(max_length=MAX_LISTED)] = []
    """Engine defaults that differ from what the plan expected: name, expected, effective."""
    feature_pool_mib: int | None = None
    """The actual size of the feature pool, if the engine reports it."""
    images: ImagesInTraffic | None = None
    """How often images repeat in the traffic of all pods."""


class Benchmark(ApiModel):
    """The last result of `kubectl vlm bench`. TTFT is the time to first token, TPOT the time per output token after it."""

    time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """When the measurement ended."""
    plan_hash: str
    """The plan's hash."""
    concurrency: int
    """Requests in flight. For a curve, the level with the most requests per second."""
    rounds: int
    """Measured rounds."""
    requests: int
    """Requests in all rounds."""
    failures: int
    """Failed requests."""
    requests_per_second: float
    """Successful requests per second, mean over the rounds."""
    output_tokens_per_second: float
    """Output tokens per second, mean over the rounds."""
    ttft_p50_milliseconds: float | None = None
    """Median TTFT."""
    ttft_p95_milliseconds: float | None = None
    """95th percentile of TTFT."""
    ttft_p99_milliseconds: float | None = None
    """99th percentile of TTFT."""
    tpot_p50_milliseconds: float | None = None
    """Median TPOT."""
    tpot_p95_milliseconds: float | None = None
    """95th percentile of TPOT."""
    tpot_p99_milliseconds: float | None = None
    """99th percentile of TPOT."""


class PoolStatus(ApiModel):
    """The observed state of a pool."""

    name: Annotated[str, Field(max_length=12)]
    """The pool."""
    role: Role = Role.SERVE
    """What its pods do."""
    desired_replicas: int | None = None
    """Desired replicas, from the spec or the autoscaler."""
    replicas: int | None = None
    """Existing replicas."""
    ready_replicas: int | None = None
    """Replicas that answer requests."""
    updated_replicas: int | None = None
    """Replicas that run the pool's plan."""
    available_replicas: int | None = None
    """Replicas that have been ready for long enough to count as available."""
    plan: str = ""
    """The hash of its plan."""
    product: Annotated[str, Field(max_length=MAX_SHORT)] | None = None
    """The GPU that the plan is for."""
    reason: Annotated[str, Field(max_length=1024)] = ""
    """The reason of its condition Ready."""
    message: Annotated[str, Field(max_length=MAX_SHORT)] = ""
    """The message of that condition, cut short."""
    model: Inspection | None = None
    """Facts read from the files of the pool's model, if it is another one than ``status.model`` describes."""


class VLMServiceStatus(ApiModel):
    """The observed state of a service."""

    observed_generation: int | None = None
    """The generation of the spec that the status is based on."""
    conditions: Annotated[list[Condition], Field(max_length=16), UniqueBy("type")] = []
    """Ready, Available, Progressing, HardwareResolved, OverridesResolved, ResourceFit and others."""
    desired_replicas: int | None = None
    """Desired replicas, from spec.replicas or the autoscaler."""
    replicas: int | None = None
    """Existing replicas."""
    ready_replicas: int | None = None
    """Replicas that answer requests."""
    updated_replicas: int | None = None
    """Replicas that run the current plan."""
    available_replicas: int | None = None
    """Replicas that have been ready for long enough to count as available."""
    selector: Annotated[str, Field(max_length=1024)] | None = None
    """Label selector of the pods, for the scale subresource."""
    url: Annotated[str, Field(max_length=1024)] | None = None
    """URL of the OpenAI-compatible API inside the cluster."""
    plan: PlanStatus | None = None
    """The current plan."""
    model: Inspection | None = None
    """Facts read from the model's files, if the spec and the operator's table of models are not enough."""
    startup: Startup | None = None
    """Progress of the slowest starting pod."""
    effective: Effective | None = None
    """The settings that the running engine reports, and how they differ from the plan."""
    benchmark: Benchmark | None = None
    """The last result of `kubectl vlm bench`, which writes it."""
    pools: Annotated[list[PoolStatus], Field(max_length=MAX_POOLS), UniqueBy("name")] = []
    """The pools, if the spec has ``pools``. The fields above are of pool ``main``, else of the first, and sums."""


class VLMService(ApiModel):
    """A vision-language model, served by SGLang on the cluster's GPUs."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"self.metadata.name.matches('{SERVICE_NAME}')",
            message=NAME_SENTENCE,
            sentence=lambda s: _name_sentence(s.metadata),
            holds=lambda s: _is_service_name(s.metadata.get("name", "")),
            field="metadata.name",
        ),
        Rule(
            cel=(
                f"!has(self.spec.pools) || self.spec.pools.all(p, self.metadata.name.size() + p.name.size() <= {MAX_POOL_NAME})"
            ),
            message=f"{_POOL_NAMES}: shorten one of them",
            message_cel=(
                f"'{_POOL_NAMES}, but the service has %d and its longest pool %d: shorten one of them'.format("
                "[self.metadata.name.size(), self.spec.pools.map(p, p.name.size()).max()])"
            ),
            sentence=lambda s: (
                f"{_POOL_NAMES}, but the service has {len(s.name)} and its longest pool "
                f"{max(len(p.name) for p in s.spec.pools)}: shorten one of them"
            ),
            holds=lambda s: all(
                len(str(s.metadata.get("name", ""))) + len(p.name) <= MAX_POOL_NAME for p in s.spec.pools
            ),
            field="spec.pools",
        ),
    )

    api_version: Literal["vlmserve.dev/v1alpha1"] = "vlmserve.dev/v1alpha1"
    """The API's version."""
    kind: Literal["VLMService"] = KIND
    """The kind."""
    metadata: dict[str, Any]
    """Standard object metadata."""
    spec: VLMServiceSpec
    """The desired state."""
    status: VLMServiceStatus | None = None
    """The observed state."""

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
