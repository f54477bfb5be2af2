"""The pod's state, shared by the runtime's threads: what the probes, the report and the metrics say."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from vlm_api.report import DetectedHardware, Failure, FeaturePool, ImageCounts, Phase, PhaseStart, Report
from vlm_runtime.sglang.effective import Comparison

START_ORDER: Final = tuple(Phase)[: tuple(Phase).index(Phase.READY) + 1]
# The main loop takes a second, and waits for nothing but a line of the log being written.
STUCK_SECONDS: Final = 120.0


@dataclass(frozen=True)
class Probe:
    """The answer to a probe."""

    ok: bool
    reason: str
    """One line for people; kubelet shows it in events."""


@dataclass(frozen=True)
class Durations:
    """How long things took, in seconds; None until then."""

    startup: float | None = None
    first_image: float | None = None


class RuntimeState:
    """The pod's state. Thread-safe."""

    def __init__(self, plan_hash: str, budget_seconds: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.plan_hash = plan_hash
        self.budget_seconds = budget_seconds
        self._clock = clock
        self._started = self._last_heartbeat = clock()
        self._lock = threading.Lock()
        self._phase = Phase.CHECKING_HARDWARE
        self._phases = [PhaseStart(phase=Phase.CHECKING_HARDWARE, after_seconds=0.0)]
        self._durations = Durations()
        self._unready_reason: str | None = None
        self._hardware = DetectedHardware()
        self._comparison: Comparison | None = None
        self._feature_pool: FeaturePool | None = None
        self._images: ImageCounts | None = None
        self._failure: Failure | None = None

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since the runtime started."""
        return self._clock() - self._started

    @property
    def remaining_seconds(self) -> float:
        """What is left of the start's budget, in seconds."""
        return self.budget_seconds - self.elapsed_seconds

    @property
    def was_ready(self) -> bool:
        """Whether the pod has become ready once."""
        with self._lock:
            return self._durations.startup is not None

    @property
    def phase(self) -> Phase:
        """The present phase."""
        with self._lock:
            return self._phase

    @property
    def durations(self) -> Durations:
        """How long the start and the first image took."""
        with self._lock:
            return self._durations

    def heartbeat(self) -> None:
        """The main loop calls it at every turn."""
        self._last_heartbeat = self._clock()

    def advance(self, phase: Phase) -> bool:
        """Moves to a later phase of the start; False if the pod is already there or further."""
        with self._lock:
            return self._advance(phase)

    def set_hardware(self, hardware: DetectedHardware) -> None:
        """Stores what NVML reports."""
        with self._lock:
            self._hardware = hardware

    @property
    def nvml_note(self) -> str | None:
        """Why NVML could not be read, or None."""
        with self._lock:
            return self._hardware.note

    def set_ready(self, first_image_seconds: float | None) -> None:
        """The engine serves. None: this pod serves no requests itself."""
        with self._lock:
            self._durations = Durations(self._clock() - self._started, first_image_seconds)
            self._advance(Phase.READY)

    def set_unready_reason(self, reason: str | None) -> bool:
        """Stores why the engine does not serve, None if it does; True if that changed."""
        with self._lock:
            changed = (self._unready_reason is None) != (reason is None)
            self._unready_reason = reason
            return changed

    @property
    def has_comparison(self) -> bool:
        """Whether the engine has reported its settings."""
        with self._lock:
            return self._comparison is not None

    def set_comparison(self, comparison: Comparison) -> None:
        """Stores the plan's settings beside those of the engine."""
        with self._lock:
            self._comparison = comparison

    def set_feature_pool(self, pool: FeaturePool | None) -> None:
        """Stores the observed feature pool."""
        with self._lock:
            self._feature_pool = pool

    def set_images(self, images: ImageCounts) -> None:
        """Stores the image counts of the last hour."""
        with self._lock:
            self._images = images

    def set_stopping(self, phase: Phase) -> None:
        """Draining or Stopped, after a request to stop."""
        with self._lock:
            self._phase = phase

    def set_failed(self, failure: Failure) -> None:
        """The engine has failed."""
        with self._lock:
            self._failure, self._phase = failure, Phase.FAILED

    def startup_probe(self) -> Probe:
        """Whether the start is over."""
        return Probe(self.was_ready, self._progress())

    def readiness_probe(self) -> Probe:
        """Whether the pod should get requests."""
        if self._phase is not Phase.READY:
            return Probe(False, self._progress())
        reason = self._unready_reason
        return Probe(reason is None, reason or "Ready")

    def liveness_probe(self) -> Probe:
        """Whether to keep the container: not after the engine failed, nor if the runtime itself hangs.

        The runtime detects a hung engine itself, and explains it.
        """
        stuck = self._clock() - self._last_heartbeat
        if stuck > STUCK_SECONDS:
            return Probe(False, f"the runtime's main loop has not run for {stuck:.0f} s")
        return Probe(self._failure is None, self._progress())

    def report(self) -> Report:
        """Everything, for the operator and for people."""
        ready = self.readiness_probe().ok
        with self._lock:
            comparison = self._comparison
            return Report(
                plan_hash=self.plan_hash,
                phase=self._phase,
                ready=ready,
                elapsed_seconds=round(self._clock() - self._started, 1),
                budget_seconds=self.budget_seconds,
                phases=self._phases,
                engine_version=comparison.engine_version if comparison else None,
                first_image_seconds=self._durations.first_image,
                hardware=self._hardware,
                settings_read=comparison is not None,
                settings=comparison.settings if comparison else [],
                not_reported=comparison.not_reported if comparison else [],
                engine_defaults=comparison.engine_defaults if comparison else [],
                feature_pool=self._feature_pool,
                images=self._images,
                failure=self._failure,
            )

    def _advance(self, phase: Phase) -> bool:
        """With the lock held. Draining and what follows are never left."""
        if self._phase not in START_ORDER or START_ORDER.index(phase) <= START_ORDER.index(self._phase):
            return False
        self._phase = phase
        start = PhaseStart(phase=phase, after_seconds=round(self._clock() - self._started, 1))
        self._phases = [*self._phases, start]
        return True

    def _progress(self) -> str:
        with self._lock:
            if self._failure is not None:
                return f"{self._failure.reason}: {self._failure.message}"
            if self._durations.startup is None:
                return f"{self._phase.value}: {self._clock() - self._started:.0f} of {self.budget_seconds} s"
            return self._phase.value
