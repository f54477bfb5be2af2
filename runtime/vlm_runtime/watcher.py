"""Follows the engine from outside: until it serves, the first image, what it uses, and whether it goes on serving."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from vlm_api.plan import ServingPlan
from vlm_api.report import Failure, Phase
from vlm_runtime.client import Answer, EngineClient, EngineUnreachable
from vlm_runtime.effective import compare
from vlm_runtime.failure import failure
from vlm_runtime.feature_pool import PoolWatch, pool_metrics
from vlm_runtime.hang import Patience, Production, patience, read_production
from vlm_runtime.images import ImageWindow, image_counts
from vlm_runtime.processes import is_alive, workers
from vlm_runtime.pulse import Pulse
from vlm_runtime.sight import TEXT_ONLY, is_answer, unseen
from vlm_runtime.state import RuntimeState

# The engine itself ends about seven seconds after a worker died. Dumps of a crash may take it a minute.
WORKER_GRACE_SECONDS: Final = 75.0
# One missed answer says nothing: the engine's event loop may be busy with a burst of images.
MISSES_UNTIL_UNREADY: Final = 3
# An engine that refuses a correct question refuses it again.
REFUSALS_UNTIL_FAILURE: Final = 3
# What a socket's timeout can express is less than what a plan may allow.
LONGEST_QUESTION_SECONDS: Final = 86_400.0
# Before the pod takes requests; where the engine does not answer, it is asked again whenever images are counted.
_INFO_ATTEMPTS: Final = 3
# The engine puts its metrics together in the thread that also takes requests, which takes it some milliseconds.
COUNT_IMAGES_SECONDS: Final = 60.0
# An engine that calls itself unhealthy is asked for one token, which must not become a load where it is only slow.
HEAL_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Pace:
    """Waiting times in seconds; tests take shorter ones."""

    start_poll: float = 0.5
    serving_poll: float | None = None
    """None: what the engine's version allows."""
    worker_grace: float = WORKER_GRACE_SECONDS
    count_images: float = COUNT_IMAGES_SECONDS
    heal: float = HEAL_SECONDS
    patience: Patience | None = None
    """How long the engine may stand still; None: what its plan allows."""


class Watcher:
    """Runs in a thread of its own until the process ends."""

    def __init__(
        self,
        plan: ServingPlan,
        client: EngineClient,
        state: RuntimeState,
        *,
        is_head: bool,
        say: Callable[[str], None],
        on_failure: Callable[[Failure], None],
        pace: Pace = Pace(),
        pool: PoolWatch | None = None,
        redact: Callable[[str], str] = str,
    ) -> None:
        self._plan = plan
        self._client = client
        self._state = state
        self._is_head = is_head
        self._say = say
        self._on_failure = on_failure
        self._pace = pace
        self._pool = pool or PoolWatch(plan)
        self._redact = redact
        self._images = ImageWindow()
        self._images_counted_at: float | None = None
        self._production: Production | None = None
        self._healed_at: float | None = None

    def run(self, engine_pid: int) -> None:
        """From the engine's start to its end, or to its failure."""
        while True:
            try:
                return self._follow(engine_pid)
            except Exception as error:  # a fault of ours must neither end an engine that serves nor leave it unwatched
                self._say(f"a fault of the runtime, which goes on: {error!r}")
                time.sleep(max(1.0, self._pace.start_poll))

    def _follow(self, engine_pid: int) -> None:
        self._wait_until_serving()
        if self._is_head:
            seconds = self._first_image()
            if seconds is None:
                return
            # Before anybody looks at a ready pod, so that nobody sees one that was not asked.
            self._count_images()
            for _ in range(_INFO_ATTEMPTS):
                if self._compare_settings():
                    break
                time.sleep(self._pace.start_poll)
            self._state.became_ready(seconds)
            self._say(f"ready after {self._state.elapsed_seconds:.0f} s; the first image took {seconds:.2f} s")
        else:
            self._state.became_ready(None)
            self._say(f"ready after {self._state.elapsed_seconds:.0f} s, as a part of its group")
        self._keep_watching(engine_pid)

    def _wait_until_serving(self) -> None:
        while True:
            try:
                if self._client.is_serving().status == 200:
                    return
            except EngineUnreachable:
                pass  # It listens only after the model is loaded; the supervisor keeps the time.
            time.sleep(self._pace.start_poll)

    def _first_image(self) -> float | None:
        """Asks until an image is answered: seconds of the answer, or None after a failure was reported."""
        runtime = self._plan.runtime
        self._state.advance(Phase.FIRST_IMAGE)
        refusals = 0
        while True:
            began = time.monotonic()
            try:
                answer = self._client.ask_about_image(
                    runtime.served_model_name,
                    runtime.probe_image_width,
                    runtime.probe_image_height,
                    timeout_seconds=self._question_seconds(),
                )
            except EngineUnreachable as error:
                self._say(f"the first image was not answered: {error}")
            else:
                if is_answer(answer):
                    seconds = time.monotonic() - began
                    return seconds if self._saw_it(answer) else None
                self._say(f"the first image was answered with {answer.status}: {answer.brief()}")
                refusals += 400 <= answer.status < 500 and answer.status not in (408, 429)
                if refusals == REFUSALS_UNTIL_FAILURE:
                    self._on_failure(self._refused(answer))
                    return None
            time.sleep(max(1.0, self._pace.start_poll))

    def _question_seconds(self) -> float:
        return min(max(self._state.remaining_seconds, 1.0), LONGEST_QUESTION_SECONDS)

    def _saw_it(self, answer: Answer) -> bool:
        """False, after a failure was reported, where the answer cannot be about the image."""
        model = self._plan.runtime.served_model_name
        why = unseen(self._client, model, answer, timeout_seconds=self._question_seconds(), say=self._say)
        if why is not None:
            self._on_failure(failure("ImageNotSeen", why))
        return why is None

    def _refused(self, answer: Answer) -> Failure:
        size = f"{self._plan.runtime.probe_image_width} x {self._plan.runtime.probe_image_height}"
        return failure(
            "ImageNotSeen" if TEXT_ONLY in answer.body else "ConfigurationError",
            f"The engine runs, but answers a question about an image of {size} pixels with {answer.status}: "
            f"{answer.brief()}.",
        )

    def _compare_settings(self) -> bool:
        """Asks the engine what it uses; False where it did not say."""
        try:
            found = compare(self._plan.settings, self._client.server_info(), self._pool.seen(), self._redact)
        except (EngineUnreachable, ValueError) as error:
            self._say(f"the engine did not say what it uses: {error}")
            return False
        except Exception as error:  # an answer of a shape that nobody foresaw keeps no engine from serving
            self._say(f"what the engine says it uses cannot be read: {error!r}")
            return False
        self._state.compared(found)
        for setting in found.settings:
            if not setting.agrees:
                self._say(f"{setting.name} was planned as {setting.planned!r}, the engine uses {setting.effective!r}")
        if found.not_told:
            self._say(f"not told by the engine: {', '.join(found.not_told)}")
        return True

    def _count_images(self) -> None:
        now = time.monotonic()
        since = self._images_counted_at
        if not self._is_head or (since is not None and now - since < self._pace.count_images):
            return
        self._images_counted_at = now
        try:
            exposition = self._client.metrics()
        except EngineUnreachable:
            return  # whether it serves is asked right after this
        self._production = read_production(exposition)
        in_pool = pool_metrics(exposition)
        self._pool.told(in_pool)
        self._state.saw_pool(self._pool.seen())
        counts = image_counts(exposition)
        if counts is not None:
            self._images.add(now, *counts, in_pool.fallbacks if in_pool else 0)
            self._state.saw_images(self._images.seen())
        if self._state.was_ready and not self._state.was_asked:
            self._compare_settings()

    def _keep_watching(self, engine_pid: int) -> None:
        watched = workers(engine_pid)
        pulse = Pulse(self._client, self._pace.patience or patience(self._plan), engine_pid, watched, self._say)
        misses = 0
        first_missed: float | None = None
        while True:
            time.sleep(self._pace.serving_poll or self._client.poll_seconds)
            self._count_images()
            answer, why_not = self._ask_whether_serving()
            # A follower's schedulers answer the head alone, which asks them all.
            if self._is_head and pulse.is_due():
                new, self._production = self._production, None
                healthy = self._health(answer)
                hung = pulse.take(answer, new, is_unhealthy=healthy is False)
                if hung is not None:
                    self._on_failure(failure("EngineHung", hung))
                    return
                if healthy is not True and pulse.is_answered:
                    self._heal()
            silent = pulse.why_not_serving()
            why_not = why_not or silent
            misses = 0 if why_not is None else misses + 1 if silent is None else MISSES_UNTIL_UNREADY
            if (misses == 0 or misses >= MISSES_UNTIL_UNREADY) and self._state.serving(why_not):
                self._say(f"not serving: {why_not}" if why_not else "serving again")
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
        """False where the engine refuses requests since it calls itself unhealthy, None where it may do so, True else."""
        refuses = answer is not None and answer.status == 503 and self._client.has_ready
        return self._client.calls_itself_healthy() if refuses else True

    def _heal(self) -> None:
        """From time to time, has an engine that calls itself unhealthy look again, or it would stay so for good."""
        now = time.monotonic()
        if self._healed_at is not None and now - self._healed_at < self._pace.heal:
            return
        self._healed_at = now
        if self._client.computes():
            self._say("the engine took no requests since an answer about its health came too late; it answers again")

    def _ask_whether_serving(self) -> tuple[Answer | None, str | None]:
        """The engine's answer, None where there was none; and why it does not serve, None where it does."""
        try:
            answer = self._client.is_serving()
        except EngineUnreachable as error:
            return None, f"the engine does not answer {error}"
        return answer, None if answer.status == 200 else f"the engine answers {answer.status}: {answer.brief()}"
