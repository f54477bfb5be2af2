"""The runtime's report about its pod: the answer of ``GET /report``, and the termination message."""

from enum import Enum
from typing import Annotated, Literal

from pydantic import Field

from vlm_api.base import ApiModel, Json


class Phase(str, Enum):
    """The phases of a pod's life, in order."""

    CHECKING_HARDWARE = "CheckingHardware"
    STARTING = "Starting"
    LOADING_WEIGHTS = "LoadingWeights"
    CAPTURING_GRAPHS = "CapturingGraphs"
    WARMING_UP = "WarmingUp"
    FIRST_IMAGE = "FirstImage"
    READY = "Ready"
    DRAINING = "Draining"
    STOPPED = "Stopped"
    FAILED = "Failed"


class Failure(ApiModel):
    """Why the engine's container ended: the JSON in its termination message."""

    reason: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z][A-Za-z0-9]*$")]
    """A CamelCase word for scripts; the constants are in vlm_api.reasons."""
    message: Annotated[str, Field(max_length=2048)]
    """What happened and what to do about it."""


class DetectedDevice(ApiModel):
    """One GPU according to NVML. Null: the driver does not report it."""

    name: str | None = None
    """Product name."""
    uuid: str | None = None
    """The device's UUID."""
    compute_capability: str | None = None
    """Such as ``9.0``."""
    memory_mib: int | None = None
    """Total memory in MiB."""
    mig: bool = False
    """True: a MIG slice."""


class DetectedHardware(ApiModel):
    """The GPUs in the pod. ``driver`` null with ``note`` set: the pod has no driver."""

    driver: str | None = None
    """The driver's version."""
    devices: list[DetectedDevice] = []
    """The devices in this pod."""
    note: str | None = None
    """What could not be read, and why."""


class EffectiveSetting(ApiModel):
    """A planned setting beside the one that the running engine reports."""

    name: str
    """SGLang's field name or variable name."""
    planned: Json = None
    """The planned value."""
    effective: Json = None
    """The engine's value."""
    agrees: bool
    """True: both are the same."""


class EngineDefault(ApiModel):
    """A setting that was left to the engine, beside the engine's choice."""

    name: str
    """SGLang's field name or variable name."""
    expected: Json = None
    """What the plan expected the engine to choose; null without an expectation."""
    effective: Json = None
    """The engine's value."""
    agrees: bool
    """True: the engine chose as expected, or the plan had no expectation."""


class Fallback(str, Enum):
    """A slower path of image features, of which the engine's log is the only sign."""

    POOL_FULL = "PoolFull"
    """The feature pool on the GPU was full, so features went through host memory."""
    SHARED_MEMORY_FULL = "SharedMemoryFull"
    """/dev/shm was full, so features went through a pipe."""
    PREPROCESSED_ON_CPU = "PreprocessedOnCpu"
    """The GPU had no memory left to preprocess images, so the CPU did."""


class FeaturePool(ApiModel):
    """The memory on the GPU through which image features go to the model (CUDA IPC), as observed."""

    planned_bytes: int | None = None
    """Its planned size; null if the plan has none."""
    size_bytes: int | None = None
    """What the engine reserved, according to its metrics or log; null if neither says."""
    fallbacks: int = 0
    """Features that did not fit since the engine's start. If only the log says so, 1 stands for any number."""
    logged: list[Fallback] = []
    """Slower paths that the engine's log mentions, each once."""


class ImageCounts(ApiModel):
    """Images within the last hour, counted in the engine. No image, and no hash of one, is stored or sent."""

    received: int
    """Images in requests, without the runtime's own first image."""
    repeated: int
    """Those whose content or URL had come within about an hour before."""
    fell_back: int = 0
    """Image features that went through host memory because the feature pool was full."""
    window_seconds: int
    """The time that was counted: at most an hour, less after a start."""


class PhaseStart(ApiModel):
    """A phase that the pod has reached."""

    phase: Phase
    """The phase."""
    after_seconds: float
    """When it began, in seconds after the runtime's start."""


class Report(ApiModel):
    """Everything that a pod's runtime knows."""

    api_version: Literal["vlmserve.dev/v1alpha1"] = "vlmserve.dev/v1alpha1"
    """The API's version."""
    kind: Literal["RuntimeReport"] = "RuntimeReport"
    """The kind."""
    plan_hash: str
    """The plan that this pod runs."""
    phase: Phase
    """The present phase."""
    ready: bool
    """True: the pod serves image requests."""
    elapsed_seconds: float
    """Seconds since the runtime started."""
    budget_seconds: int
    """Seconds that a start may take."""
    phases: list[PhaseStart] = []
    """The phases so far, in order, without skipped ones."""
    engine_version: str | None = None
    """The version that the engine reports."""
    first_image_seconds: float | None = None
    """How long the first image request took."""
    hardware: DetectedHardware = DetectedHardware()
    """The GPUs according to NVML."""
    settings_read: bool = False
    """True: the engine has reported its settings."""
    settings: list[EffectiveSetting] = []
    """Planned settings that the engine reports."""
    not_reported: list[str] = []
    """Names of planned settings that the engine does not report."""
    engine_defaults: list[EngineDefault] = []
    """Settings that were left to the engine, if it reports them."""
    feature_pool: FeaturePool | None = None
    """The feature pool; null if none is planned and there is no sign of one."""
    images: ImageCounts | None = None
    """Null if the engine does not count them: before its first answer, without metrics, in old releases."""
    failure: Failure | None = None
    """Set when the engine has failed."""
