"""What a runtime says about its pod: the answer of ``GET /report`` and the termination message."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Literal

from pydantic import Field

from vlm_api.base import ApiModel, Json


class Phase(str, Enum):
    """Where a pod is on its way to serving, in order."""

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


class FoundDevice(ApiModel):
    """One GPU as NVML describes it. Null where the driver does not say."""

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


class FoundHardware(ApiModel):
    """What the runtime found. ``driver`` null with ``note`` set: there is no driver in this pod, which is a fact."""

    driver: str | None = None
    """The driver's version."""
    devices: list[FoundDevice] = []
    """The devices in this pod."""
    note: str | None = None
    """Why nothing could be read, where nothing could."""


class EffectiveSetting(ApiModel):
    """A planned setting beside what the running engine says it uses."""

    name: str
    """SGLang's field name or variable name."""
    planned: Json = None
    """The planned value."""
    effective: Json = None
    """What the engine says it uses."""
    agrees: bool
    """True: both are the same."""


class LeftSetting(ApiModel):
    """A setting that was left to the engine, beside what the engine made of it."""

    name: str
    """SGLang's field name or variable name."""
    expected: Json = None
    """What the plan expected the engine to choose; null where it expected nothing."""
    effective: Json = None
    """What the engine says it uses."""
    agrees: bool
    """True: it is what was expected, or nothing was."""


class Fallback(str, Enum):
    """What the engine's log says once when image features leave their planned way. Slower, and otherwise silent."""

    POOL_FULL = "PoolFull"
    """The pool on the GPU had no room, so features went through host memory."""
    SHARED_MEMORY_FULL = "SharedMemoryFull"
    """/dev/shm had no room, so features went through a pipe."""
    PREPROCESSED_ON_CPU = "PreprocessedOnCpu"
    """The GPU had no memory left to prepare images, so the CPU did it."""


class FeaturePool(ApiModel):
    """The room on the GPU through which image features go to the model (CUDA IPC), as it really is."""

    planned_bytes: int | None = None
    """What the plan gives it; null where none is planned."""
    size_bytes: int | None = None
    """What the engine reserved, by its own metric or its log and not by the variable; null where neither says it."""
    fallbacks: int = 0
    """Features that found no room since the engine's start. Where only the log tells, 1 stands for any number."""
    logged: list[Fallback] = []
    """What the engine's log said of features that left their planned way, each once."""


class SeenImages(ApiModel):
    """The images of the last time, as the engine's plugin counted them. No image and no hash of one is kept or sent."""

    received: int
    """Images in requests; the runtime's own first image is not among them."""
    repeated: int
    """Those of them whose content, or whose URL, had come before within about the hour before them."""
    fell_back: int = 0
    """Features of images that found no room in the pool on the GPU and went through host memory."""
    window_seconds: int
    """How many seconds these are: at most an hour, less after a start."""


class PhaseBegan(ApiModel):
    """A phase of the start that was reached."""

    phase: Phase
    """The phase."""
    after_seconds: float
    """When it began, in seconds after the runtime's start."""


class Report(ApiModel):
    """What a pod's runtime knows, asked by the operator and by ``kubectl vlm``."""

    api_version: Literal["vlmserve.dev/v1alpha1"] = "vlmserve.dev/v1alpha1"
    """The API's version."""
    kind: Literal["RuntimeReport"] = "RuntimeReport"
    """The kind."""
    plan_hash: str
    """The plan that this pod runs."""
    phase: Phase
    """Where the pod is."""
    ready: bool
    """True: it answers requests about images."""
    elapsed_seconds: float
    """Seconds since the runtime started."""
    budget_seconds: int
    """Seconds that a start may take."""
    phases: list[PhaseBegan] = []
    """The phases of the start so far, in order. One that was passed over is not among them."""
    engine_version: str | None = None
    """The version that the engine itself says."""
    first_image_seconds: float | None = None
    """How long the first image request took."""
    hardware: FoundHardware = FoundHardware()
    """What NVML says."""
    asked: bool = False
    """True: the engine was asked what it uses, and answered."""
    settings: list[EffectiveSetting] = []
    """Planned against effective, of every planned setting that the engine tells."""
    not_told: list[str] = []
    """Planned settings of which the engine says nothing, by name."""
    left_alone: list[LeftSetting] = []
    """Settings that were left to the engine, as far as it tells them."""
    feature_pool: FeaturePool | None = None
    """The pool of image features; null where none is planned and nothing was seen of one."""
    images: SeenImages | None = None
    """Null where the engine does not count them: before its first answer, without metrics, in old versions."""
    failure: Failure | None = None
    """Set when the engine has failed."""
