"""The answers of the pods' runtimes: asked rarely, in threads of their own, and hardly waited for.

A pod may be behind a policy that drops what comes to it, and then each question takes its whole time. Thousands of such pods
must not hold up the workers: who does not answer at once is heard later, and its service is looked at again then.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Final

from vlm_api.names import RUNTIME_PORT
from vlm_api.report import Report
from vlm_operator.controller.pods import PodView
from vlm_operator.controller.queue import Key

TIMEOUT_SECONDS: Final = 2.0
# Longer than any answer inside a cluster takes, so that nearly all are in the status that is written next.
PATIENCE_SECONDS: Final = 0.2
ANSWER_SECONDS: Final = 5.0
MAXIMUM_BYTES: Final = 1 << 20
# A pod on its way is asked again after this time; one that serves only rarely.
STARTING_SECONDS: Final = 5.0
SERVING_SECONDS: Final = 300.0
# So often a pod that serves is asked soon again where it gave no answer, or had not asked its engine yet. After that it is
# taken for one that never will: a simulated one, or one behind a policy.
SOON_AGAIN: Final = 5
AT_ONCE: Final = 32


@dataclass
class _Answer:
    state: tuple[bool, int]
    """Readiness and restarts of the pod when it was asked: when they change, it is asked again."""
    ask_again_at: float
    packed: bytes | None
    """The report as compressed JSON: 1 kB where the object takes 36."""
    silent: bool
    """Whether nothing came the last time."""
    misses: int = 0
    """How often in a row a pod that serves did not tell what its engine uses."""


def fetch(address: str) -> Report | None:
    """``GET /report`` of a pod; None where it does not answer in time or says something else.

    Neither a proxy nor a redirect has a say in it: what is asked is the pod.
    """
    connection = http.client.HTTPConnection(address, RUNTIME_PORT, timeout=TIMEOUT_SECONDS)
    # The time-out is for each part of an answer, and one that comes by the byte would take for ever.
    deadline = threading.Timer(ANSWER_SECONDS, _hang_up, (connection,))
    deadline.daemon = True
    try:
        connection.connect()
        deadline.start()
        connection.request("GET", "/report")
        answer = connection.getresponse()
        if answer.status != http.HTTPStatus.OK:
            return None
        said = Report.model_validate_json(answer.read(MAXIMUM_BYTES), extra="ignore")
        # Numbers that are none, or without end, are null by now, as they would be in a status.
        return Report.model_validate_json(said.model_dump_json(by_alias=True))
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        deadline.cancel()
        connection.close()


def _hang_up(connection: http.client.HTTPConnection) -> None:
    with contextlib.suppress(OSError, AttributeError):  # it may have ended just now
        connection.sock.shutdown(socket.SHUT_RDWR)


class Reports:
    """Remembers what the pods of each service answered. A service is asked about by one thread at a time.

    ``heard`` is called, from any thread, with the service of a pod whose answer came, or stayed away, after nobody waited
    for it any more.
    """

    def __init__(
        self,
        ask: Callable[[str], Report | None] = fetch,
        clock: Callable[[], float] = time.monotonic,
        heard: Callable[[Key], None] = lambda key: None,
        threads: Executor | None = None,
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._heard = heard
        self._answers: dict[Key, dict[str, _Answer]] = {}
        self._asking: dict[Key, dict[str, _Question]] = {}
        self._threads = threads or ThreadPoolExecutor(AT_ONCE, thread_name_prefix="report")
        self._open = True

    def of(self, key: Key, pods: Iterable[PodView]) -> Mapping[str, Report]:
        """Reports by pod name. Asks those whose readiness changed or whose answer is old, all at the same time."""
        pods = [p for p in pods if p.running and p.address and not p.deleting]
        now, known, asked = self._clock(), self._answers.get(key, {}), self._asking.get(key, {})
        answers = {p.uid: known[p.uid] for p in pods if p.uid in known}
        asking = {p.uid: asked[p.uid] for p in pods if p.uid in asked and asked[p.uid].state == _state(p)}
        for pod in pods:
            if self._open and pod.uid not in asking and _is_due(pod, answers.get(pod.uid), now):
                with contextlib.suppress(RuntimeError):  # closed just now
                    asking[pod.uid] = _Question(_state(pod), self._threads.submit(self._ask, str(pod.address)))
        # One that kept silent before is likely to do so again.
        wait(
            [q.answer for uid, q in asking.items() if uid not in answers or not answers[uid].silent],
            timeout=PATIENCE_SECONDS,
        )
        for pod in pods:
            question = asking.get(pod.uid)
            if question is not None and question.answer.done() and not question.answer.cancelled():
                answers[pod.uid] = _answer(pod, question.answer.result(), answers.get(pod.uid), now)
                del asking[pod.uid]
        self._answers[key], self._asking[key] = answers, asking
        for question in asking.values():
            if not question.wakes:
                question.wakes = True
                question.answer.add_done_callback(lambda answer: None if answer.cancelled() else self._heard(key))
        said = ((p.name, answers[p.uid].packed) for p in pods if p.uid in answers)
        return {name: _unpacked(packed) for name, packed in said if packed is not None}

    def unsettled(self, key: Key) -> bool:
        """Whether a pod that serves has not told yet what its engine uses, and may do so soon."""
        return any(0 < answer.misses < SOON_AGAIN for answer in self._answers.get(key, {}).values())

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._answers.pop(key, None)
        self._asking.pop(key, None)

    def close(self) -> None:
        """Asks nobody any more, so that the process can end."""
        self._open = False
        self._threads.shutdown(wait=False, cancel_futures=True)


@dataclass
class _Question:
    state: tuple[bool, int]
    answer: Future[Report | None]
    wakes: bool = False
    """Whether its answer makes its service be looked at again."""


def _state(pod: PodView) -> tuple[bool, int]:
    return (pod.ready, pod.restarts)


def _answer(pod: PodView, report: Report | None, before: _Answer | None, now: float) -> _Answer:
    state, silent = _state(pod), report is None
    same = before is not None and before.state == state
    packed = None if report is None else zlib.compress(report.model_dump_json(by_alias=True).encode(), 1)
    if report is None and same and before is not None:
        packed = before.packed  # one answer that got lost is no news of the engine
        told = False
    else:
        told = report is not None and (not pod.leader or report.asked or bool(report.settings))
    misses = 0 if told or not pod.ready else (before.misses if same and before is not None else 0) + 1
    settled = pod.ready and (misses == 0 or misses >= SOON_AGAIN)
    # Sooner than the reconcile that follows, which comes a tenth early or late.
    wait = SERVING_SECONDS * random.uniform(0.9, 1.1) if settled else STARTING_SECONDS * 0.8
    return _Answer(state, now + wait, packed, silent, misses)


def _unpacked(packed: bytes) -> Report:
    return Report.model_validate_json(zlib.decompress(packed))


def _is_due(pod: PodView, answer: _Answer | None, now: float) -> bool:
    return answer is None or answer.state != _state(pod) or now >= answer.ask_again_at
