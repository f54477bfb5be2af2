"""What the runtime knows, shared by its threads: answers of the probes, the report, the metrics."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from vlm_api.report import (
    Failure,
    FeaturePool,
    FoundHardware,
    Phase,
    PhaseBegan,
    Report,
    SeenImages,
)
from vlm_runtime.effective import Comparison
from vlm_runtime.phases import later

# The main loop goes round every second, and waits for nothing but the writing of a line of the log.
STUCK_SECONDS: Final = 120.0


@dataclass(frozen=True)
class Probe:
    """The answer to a probe."""

    ok: bool
    reason: str
    """One line for people; kubelet shows it in events."""


@dataclass(frozen=True)
class Durations:
    """How long things took, in seconds; None while they have not happened."""

    startup: float | None = None
    first_image: float | None = None


class RuntimeState:
    """Where the pod is. Every method may be called from any thread."""

    def __init__(self, plan_hash: str, budget_seconds: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.plan_hash = plan_hash
        self.budget_seconds = budget_seconds
        self._clock = clock
        self._started = self._turned = clock()
        self._lock = threading.Lock()
        self._phase = Phase.CHECKING_HARDWARE
        self._phases = [PhaseBegan(phase=Phase.CHECKING_HARDWARE, after_seconds=0.0)]
        self._durations = Durations()
        self._not_serving: str | None = None
        self._hardware = FoundHardware()
        self._comparison: Comparison | None = None
        self._feature_pool: FeaturePool | None = None
        self._images: SeenImages | None = None
        self._failure: Failure | None = None

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since the runtime started."""
        return self._clock() - self._started

    @property
    def remaining_seconds(self) -> float:
        """Seconds that are left of the start's budget."""
        return self.budget_seconds - self.elapsed_seconds

    @property
    def was_ready(self) -> bool:
        """True once the first image was answered, for good."""
        with self._lock:
            return self._durations.startup is not None

    @property
    def phase(self) -> Phase:
        """Where the pod is."""
        with self._lock:
            return self._phase

    @property
    def durations(self) -> Durations:
        """How long the start and the first image took."""
        with self._lock:
            return self._durations

    def turns(self) -> None:
        """The main loop says that it still goes round."""
        self._turned = self._clock()

    def advance(self, phase: Phase) -> bool:
        """Goes on to a later phase of the start; False where the pod is already there or further."""
        with self._lock:
            return self._go_on(phase)

    def found(self, hardware: FoundHardware) -> None:
        """Keeps what NVML says."""
        with self._lock:
            self._hardware = hardware

    @property
    def nvml_note(self) -> str | None:
        """What NVML lacked, where it lacked something."""
        with self._lock:
            return self._hardware.note

    def became_ready(self, first_image_seconds: float | None) -> None:
        """The engine serves. None: this pod answers no requests itself."""
        with self._lock:
            self._durations = Durations(self._clock() - self._started, first_image_seconds)
            self._go_on(Phase.READY)

    def serving(self, why_not: str | None) -> bool:
        """Keeps whether the engine says that it serves; True where that changed."""
        with self._lock:
            changed = (self._not_serving is None) != (why_not is None)
            self._not_serving = why_not
            return changed

    @property
    def was_asked(self) -> bool:
        """True once the engine said what it uses."""
        with self._lock:
            return self._comparison is not None

    def compared(self, comparison: Comparison) -> None:
        """Keeps what the engine says it uses."""
        with self._lock:
            self._comparison = comparison

    def saw_pool(self, pool: FeaturePool | None) -> None:
        """Keeps what was seen of the pool of image features."""
        with self._lock:
            self._feature_pool = pool

    def saw_images(self, images: SeenImages) -> None:
        """Keeps which images came lately."""
        with self._lock:
            self._images = images

    def ends(self, phase: Phase) -> None:
        """Draining or Stopped: someone asked the pod to end."""
        with self._lock:
            self._phase = phase

    def failed(self, failure: Failure) -> None:
        """The engine is lost."""
        with self._lock:
            self._failure, self._phase = failure, Phase.FAILED

    def startup_probe(self) -> Probe:
        """Whether the start is over."""
        return Probe(self.was_ready, self._progress())

    def readiness_probe(self) -> Probe:
        """Whether requests should come here."""
        if self._phase is not Phase.READY:
            return Probe(False, self._progress())
        why_not = self._not_serving
        return Probe(why_not is None, why_not or "Ready")

    def liveness_probe(self) -> Probe:
        """Whether the container is worth keeping. A long prefill is no reason to end it; a lost engine is.

        A hung engine is found by the runtime, which says so; here only a runtime that hangs itself shows.
        """
        stuck = self._clock() - self._turned
        if stuck > STUCK_SECONDS:
            return Probe(False, f"the runtime's main loop has stood still for {stuck:.0f} s")
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
                asked=comparison is not None,
                settings=comparison.settings if comparison else [],
                not_told=comparison.not_told if comparison else [],
                left_alone=comparison.left_alone if comparison else [],
                feature_pool=self._feature_pool,
                images=self._images,
                failure=self._failure,
            )

    def _go_on(self, phase: Phase) -> bool:
        """With the lock held: to a later phase of the start, which is noted with its time."""
        if (next_phase := later(self._phase, phase)) is self._phase:
            return False
        self._phase = next_phase
        began = PhaseBegan(phase=next_phase, after_seconds=round(self._clock() - self._started, 1))
        self._phases = [*self._phases, began]
        return True

    def _progress(self) -> str:
        with self._lock:
            if self._failure is not None:
                return f"{self._failure.reason}: {self._failure.message}"
            if self._durations.startup is None:
                return f"{self._phase.value}: {self._clock() - self._started:.0f} of {self.budget_seconds} s"
            return self._phase.value
