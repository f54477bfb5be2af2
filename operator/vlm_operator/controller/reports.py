"""The answers of the pods' runtimes, asked rarely and never waited for long."""

from __future__ import annotations

import random
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from vlm_api.names import RUNTIME_PORT
from vlm_api.report import Report
from vlm_operator.controller.pods import PodView
from vlm_operator.controller.queue import Key

TIMEOUT_SECONDS: Final = 2.0
MAXIMUM_BYTES: Final = 1 << 20
# A pod on its way is asked again after this time; one that serves only rarely.
STARTING_SECONDS: Final = 5.0
SERVING_SECONDS: Final = 300.0
# So often a pod that serves is asked soon again where it gave no answer, or had not asked its engine yet. After that it is
# taken for one that never will: a simulated one, or one behind a policy.
SOON_AGAIN: Final = 5
AT_ONCE: Final = 8


@dataclass
class _Answer:
    state: tuple[bool, int]
    """Readiness and restarts of the pod when it was asked: when they change, it is asked again."""
    ask_again_at: float
    report: Report | None
    misses: int = 0
    """How often in a row a pod that serves did not tell what its engine uses."""


def fetch(address: str) -> Report | None:
    """``GET /report`` of a pod; None where it does not answer in time or says something else."""
    host = f"[{address}]" if ":" in address else address
    try:
        with urllib.request.urlopen(f"http://{host}:{RUNTIME_PORT}/report", timeout=TIMEOUT_SECONDS) as answer:
            return Report.model_validate_json(answer.read(MAXIMUM_BYTES), extra="ignore")
    except (OSError, ValueError, ValidationError):
        return None


class Reports:
    """Remembers what the pods of each service answered. A service is asked about by one thread at a time."""

    def __init__(
        self, ask: Callable[[str], Report | None] = fetch, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._answers: dict[Key, dict[str, _Answer]] = {}
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="report")

    def of(self, key: Key, pods: Iterable[PodView]) -> Mapping[str, Report]:
        """Reports by pod name. Asks those whose readiness changed or whose answer is old, all at the same time."""
        pods = [p for p in pods if p.running and p.address and not p.deleting]
        now, known = self._clock(), self._answers.get(key, {})
        answers = {p.uid: known[p.uid] for p in pods if p.uid in known}
        due = [p for p in pods if _is_due(p, answers.get(p.uid), now)]
        for pod, report in zip(due, self._threads.map(self._ask, [str(p.address) for p in due]), strict=True):
            answers[pod.uid] = _answer(pod, report, answers.get(pod.uid), now)
        self._answers[key] = answers
        said = ((p.name, answers[p.uid].report) for p in pods)
        return {name: report for name, report in said if report is not None}

    def unsettled(self, key: Key) -> bool:
        """Whether a pod that serves has not told yet what its engine uses, and may do so soon."""
        return any(0 < answer.misses < SOON_AGAIN for answer in self._answers.get(key, {}).values())

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._answers.pop(key, None)


def _answer(pod: PodView, report: Report | None, before: _Answer | None, now: float) -> _Answer:
    state = (pod.ready, pod.restarts)
    same = before is not None and before.state == state
    if report is None and same and before is not None:
        report = before.report  # one answer that got lost is no news of the engine
        told = False
    else:
        told = report is not None and (not pod.leader or report.asked or bool(report.settings))
    misses = 0 if told or not pod.ready else (before.misses if same and before is not None else 0) + 1
    settled = pod.ready and (misses == 0 or misses >= SOON_AGAIN)
    # Sooner than the reconcile that follows, which comes a tenth early or late.
    wait = SERVING_SECONDS * random.uniform(0.9, 1.1) if settled else STARTING_SECONDS * 0.8
    return _Answer(state, now + wait, report, misses)


def _is_due(pod: PodView, answer: _Answer | None, now: float) -> bool:
    return answer is None or answer.state != (pod.ready, pod.restarts) or now >= answer.ask_again_at
