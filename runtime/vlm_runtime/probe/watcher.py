"""Watches the engine from outside: until it serves, the first image, its settings, and whether it keeps serving."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from vlm_api.plan import ServingPlan
from vlm_api.report import Failure, Phase
from vlm_runtime.probe.hang import HangDetector
from vlm_runtime.probe.stall import StallLimits, stall_limits
from vlm_runtime.report.state import RuntimeState
from vlm_runtime.sglang.client import Answer, EngineClient, EngineUnreachable
from vlm_runtime.sglang.effective import compare
from vlm_runtime.sglang.engine_metrics import (
    ImageWindow,
    Progress,
    parse_image_counts,
    parse_pool_metrics,
    parse_progress,
)
from vlm_runtime.sglang.failure import failure
from vlm_runtime.sglang.feature_pool import FeaturePoolMonitor
from vlm_runtime.sglang.first_image import TEXT_ONLY, explain_ignored_image, has_choices, image_content
from vlm_runtime.sglang.processes import WorkerProcess, is_alive, worker_processes

# The engine ends about seven seconds after a worker process died. Dumps of a crash may take a minute.
WORKER_GRACE_SECONDS: Final = 75.0
# One missed answer proves nothing: the engine's event loop may be busy with a burst of images.
MISSES_UNTIL_UNREADY: Final = 3
# An engine that refuses a correct request will refuse it again.
REFUSALS_UNTIL_FAILURE: Final = 3
# A socket's timeout must be shorter than a plan may allow.
LONGEST_REQUEST_SECONDS: Final = 86_400.0
# Before the pod takes requests; without an answer, it tries again each time it counts images.
_INFO_ATTEMPTS: Final = 3
# Reading the metrics takes some milliseconds of the engine's thread that also takes requests.
COUNT_IMAGES_SECONDS: Final = 60.0
# Healing costs a token, which must not become a load on an engine that is only slow.
HEAL_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Pace:
    """Waiting times in seconds; tests use shorter ones."""

    start_poll: float = 0.5
    retry: float = 1.0
    """After an image request without an answer, and after an internal error."""
    serving_poll: float | None = None
    """None: as the engine's version allows."""
    worker_grace: float = WORKER_GRACE_SECONDS
    count_images: float = COUNT_IMAGES_SECONDS
    heal: float = HEAL_SECONDS
    stall_limits: StallLimits | None = None
    """How long the engine may stand still; None: as the plan allows."""


class Watcher:
    """Runs in a thread of its own until the process ends."""

    def __init__(
        self,
        plan: ServingPlan,
        client: EngineClient,
        state: RuntimeState,
        *,
        is_leader: bool,
        log: Callable[[str], None],
        on_failure: Callable[[Failure], None],
        pace: Pace = Pace(),
        pool: FeaturePoolMonitor | None = None,
        redact: Callable[[str], str] = str,
    ) -> None:
        self._plan = plan
        self._client = client
        self._state = state
        self._is_leader = is_leader
        self._log = log
        self._on_failure = on_failure
        self._pace = pace
        self._pool = pool or FeaturePoolMonitor(plan)
        self._redact = redact
        self._images = ImageWindow()
        self._images_counted_at: float | None = None
        self._progress: Progress | None = None
        self._healed_at: float | None = None

    def run(self, engine_pid: int) -> None:
        """From the engine's start to its end, or to its failure."""
        while True:
            try:
                return self._watch(engine_pid)
            except Exception as error:  # must neither end an engine that serves nor leave it unwatched
                self._log(f"internal error, watching on: {error!r}")
                time.sleep(self._pace.retry)

    def _watch(self, engine_pid: int) -> None:
        self._wait_until_serving()
        watched = worker_processes(engine_pid)
        if self._is_leader:
            seconds = self._first_image()
            if seconds is None:
                return
            # Before the pod is ready, so that the report of a ready pod is complete.
            self._count_images()
            for _ in range(_INFO_ATTEMPTS):
                if self._compare_settings():
                    break
                time.sleep(self._pace.start_poll)
            self._state.set_ready(seconds)
            self._log(f"ready after {self._state.elapsed_seconds:.0f} s; the first image took {seconds:.2f} s")
        else:
            self._state.set_ready(None)
            self._log(f"ready after {self._state.elapsed_seconds:.0f} s, as a worker of its group")
        self._keep_watching(engine_pid, watched)

    def _wait_until_serving(self) -> None:
        while True:
            try:
                if self._client.is_serving().status == 200:
                    return
            except EngineUnreachable:
                pass  # It listens only after the model is loaded; the supervisor watches the budget.
            time.sleep(self._pace.start_poll)

    def _first_image(self) -> float | None:
        """Sends an image until it is answered: the answer's seconds, or None after a reported failure."""
        runtime = self._plan.runtime
        self._state.advance(Phase.FIRST_IMAGE)
        refusals = 0
        while True:
            began = time.monotonic()
            try:
                answer = self._client.chat(
                    runtime.served_model_name,
                    image_content(runtime.probe_image_width, runtime.probe_image_height),
                    timeout_seconds=self._request_seconds(),
                )
            except EngineUnreachable as error:
                self._log(f"the first image was not answered: {error}")
            else:
                if has_choices(answer):
                    seconds = time.monotonic() - began
                    return seconds if self._check_image(answer) else None
                self._log(f"the first image was answered with {answer.status}: {answer.brief()}")
                refusals += 400 <= answer.status < 500 and answer.status not in (408, 429)
                if refusals == REFUSALS_UNTIL_FAILURE:
                    self._on_failure(self._refused(answer))
                    return None
            time.sleep(self._pace.retry)

    def _request_seconds(self) -> float:
        return min(max(self._state.remaining_seconds, 1.0), LONGEST_REQUEST_SECONDS)

    def _check_image(self, answer: Answer) -> bool:
        """False, after a reported failure, if the answer cannot be about the image."""
        model = self._plan.runtime.served_model_name
        problem = explain_ignored_image(
            self._client, model, answer, timeout_seconds=self._request_seconds(), log=self._log
        )
        if problem is not None:
            self._on_failure(failure("ImageNotSeen", problem))
        return problem is None

    def _refused(self, answer: Answer) -> Failure:
        size = f"{self._plan.runtime.probe_image_width} x {self._plan.runtime.probe_image_height}"
        return failure(
            "ImageNotSeen" if TEXT_ONLY in answer.body else "ConfigurationError",
            f"The engine runs, but answers an image request of {size} pixels with {answer.status}: {answer.brief()}.",
        )

    def _compare_settings(self) -> bool:
        """Compares the engine's settings with the plan; False if the engine did not report them."""
        try:
            comparison = compare(self._plan.settings, self._client.server_info(), self._pool.state, self._redact)
        except (EngineUnreachable, ValueError) as error:
            self._log(f"the engine did not report its settings: {error}")
            return False
        except Exception as error:  # an unexpected answer must not keep an engine from serving
            self._log(f"the engine's report of its settings cannot be read: {error!r}")
            return False
        self._state.set_comparison(comparison)
        for setting in comparison.settings:
            if not setting.agrees:
                self._log(f"{setting.name} was planned as {setting.planned!r}, the engine uses {setting.effective!r}")
        if comparison.not_reported:
            self._log(f"not reported by the engine: {', '.join(comparison.not_reported)}")
        return True

    def _count_images(self) -> None:
        now = time.monotonic()
        since = self._images_counted_at
        if not self._is_leader or (since is not None and now - since < self._pace.count_images):
            return
        self._images_counted_at = now
        try:
            exposition = self._client.metrics()
        except EngineUnreachable:
            return  # the caller asks right after this whether it serves
        self._progress = parse_progress(exposition)
        pool = parse_pool_metrics(exposition)
        self._pool.update(pool)
        self._state.set_feature_pool(self._pool.state)
        counts = parse_image_counts(exposition)
        if counts is not None:
            self._images.add(now, *counts, pool.fallbacks if pool else 0)
            self._state.set_images(self._images.counts())
        if self._state.was_ready and not self._state.has_comparison:
            self._compare_settings()

    def _keep_watching(self, engine_pid: int, watched: Sequence[WorkerProcess]) -> None:
        limits = self._pace.stall_limits or stall_limits(self._plan)
        detector = HangDetector(self._client, limits, engine_pid, watched, self._log)
        misses = 0
        first_missed: float | None = None
        while True:
            time.sleep(self._pace.serving_poll or self._client.poll_seconds)
            self._count_images()
            answer, reason = self._check_serving()
            # The schedulers of a worker pod answer the leader only, which asks them all.
            if self._is_leader and detector.is_due():
                progress, self._progress = self._progress, None
                healthy = self._health(answer)
                hang = detector.check(answer, progress, is_unhealthy=healthy is False)
                if hang is not None:
                    self._on_failure(failure("EngineHung", hang))
                    return
                if healthy is not True and detector.is_answered:
                    self._heal()
            silence = detector.unready_reason()
            reason = reason or silence
            misses = 0 if reason is None else misses + 1 if silence is None else MISSES_UNTIL_UNREADY
            if (misses == 0 or misses >= MISSES_UNTIL_UNREADY) and self._state.set_unready_reason(reason):
                self._log(f"not serving: {reason}" if reason else "serving again")
            dead = [worker for worker in watched if not is_alive(worker)]
            if not dead:
                continue
            first_missed = first_missed or time.monotonic()
            if time.monotonic() - first_missed >= self._pace.worker_grace:
                names = ", ".join(sorted({worker.title for worker in dead}))
                waited = f"{self._pace.worker_grace:.0f} s"
                self._on_failure(failure("SchedulerDied", f"{names} died, and the engine did not end within {waited}."))
                return

    def _health(self, answer: Answer | None) -> bool | None:
        """False if the engine refuses requests because it calls itself unhealthy, None if it may do so, else True."""
        refuses = answer is not None and answer.status == 503 and self._client.has_ready
        return self._client.calls_itself_healthy() if refuses else True

    def _heal(self) -> None:
        """At most once a minute, makes an engine that calls itself unhealthy check again: it would stay so forever."""
        now = time.monotonic()
        if self._healed_at is not None and now - self._healed_at < self._pace.heal:
            return
        self._healed_at = now
        if self._client.computes():
            self._log("the engine refused requests because a health check came too late; it answers again")

    def _check_serving(self) -> tuple[Answer | None, str | None]:
        """The engine's answer, or None; and why it does not serve, or None."""
        try:
            answer = self._client.is_serving()
        except EngineUnreachable as error:
            return None, f"the engine does not answer {error}"
        return answer, None if answer.status == 200 else f"the engine answers {answer.status}: {answer.brief()}"
