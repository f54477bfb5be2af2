"""The reports of the pods' runtimes: requested rarely, in threads of their own, and barely waited for.

A NetworkPolicy may drop requests to a pod, which then take their whole timeout. Thousands of such pods must not block the
workers: a report that comes late requeues its service.
"""

import contextlib
import http.client
import random
import socket
import threading
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Final

from vlm_api.names import RUNTIME_PORT
from vlm_api.report import Report
from vlm_operator.controller.run.queue import Key
from vlm_operator.controller.status.pods import PodView

TIMEOUT_SECONDS: Final = 2.0
# Longer than a pod in the cluster takes to answer, so that nearly all reports are in the next status.
PATIENCE_SECONDS: Final = 0.2
ANSWER_SECONDS: Final = 5.0
MAXIMUM_BYTES: Final = 1 << 20
# A starting pod is asked again after this time; one that serves only rarely.
STARTING_SECONDS: Final = 5.0
SERVING_SECONDS: Final = 300.0
# How often a pod that serves is asked again soon if it does not answer, or has not read its engine's settings yet. After that
# it counts as one that never will: a simulated one, or one behind a policy.
SOON_AGAIN: Final = 5
AT_ONCE: Final = 32
# Of one namespace: its silent pods must not hold up the reports of others.
AT_ONCE_OF_A_NAMESPACE: Final = 8


@dataclass
class _Answer:
    state: tuple[bool, int]
    """The pod's readiness and restarts when it was asked: if they change, it is asked again."""
    ask_again_at: float
    packed: bytes | None
    """The report as compressed JSON: 1 kB instead of 36 as an object."""
    silent: bool
    """Whether it did not answer the last time."""
    misses: int = 0
    """How often in a row a pod that serves did not report its engine's settings."""


def fetch(address: str) -> Report | None:
    """``GET /report`` of a pod; None if it does not answer in time or the answer is not a report.

    Proxies and redirects are ignored: only the pod itself counts.
    """
    connection = http.client.HTTPConnection(address, RUNTIME_PORT, timeout=TIMEOUT_SECONDS)
    # The timeout is per read, so an answer that trickles in byte by byte needs a deadline.
    deadline = threading.Timer(ANSWER_SECONDS, _hang_up, (connection,))
    deadline.daemon = True
    try:
        connection.connect()
        deadline.start()
        connection.request("GET", "/report")
        answer = connection.getresponse()
        if answer.status != http.HTTPStatus.OK:
            return None
        report = Report.model_validate_json(answer.read(MAXIMUM_BYTES), extra="ignore")
        # Dumping turns NaN and infinity into null, as in a status.
        return Report.model_validate_json(report.model_dump_json(by_alias=True))
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        deadline.cancel()
        connection.close()


def _hang_up(connection: http.client.HTTPConnection) -> None:
    with contextlib.suppress(OSError, AttributeError):  # it may have closed just now
        connection.sock.shutdown(socket.SHUT_RDWR)


class _Turns:
    """Threads that ask pods, of which a namespace gets only some. Safe for threads."""

    def __init__(self, ask: Callable[[str], Report | None], threads: Executor) -> None:
        self._ask = ask
        self._threads = threads
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[tuple[Future[Report | None], str]]] = {}
        self._asking: Counter[str] = Counter()

    def ask(self, namespace: str, address: str) -> Future[Report | None]:
        """The pod's report, in its namespace's turn. Raises RuntimeError once the threads are shut down."""
        answer: Future[Report | None] = Future()
        with self._lock:
            self._waiting.setdefault(namespace, deque()).append((answer, address))
        self._start(namespace)
        return answer

    def _start(self, namespace: str) -> None:
        with self._lock:
            waiting = self._waiting.get(namespace)
            if not waiting:
                self._waiting.pop(namespace, None)
                return
            if self._asking[namespace] >= AT_ONCE_OF_A_NAMESPACE:
                return
            self._asking[namespace] += 1
            answer, address = waiting.popleft()
        self._threads.submit(self._run, namespace, answer, address)

    def _run(self, namespace: str, answer: Future[Report | None], address: str) -> None:
        try:
            report = self._ask(address)
        except Exception as error:
            answer.set_exception(error)
        else:
            answer.set_result(report)
        finally:
            with self._lock:
                self._asking[namespace] -= 1
                if not self._asking[namespace]:
                    del self._asking[namespace]
            with contextlib.suppress(RuntimeError):  # closed just now
                self._start(namespace)


class Reports:
    """Remembers the reports of each service's pods. A service is handled by one thread at a time.

    ``on_late`` is called, from any thread, with the service of a pod that answered, or timed out, after ``of`` had returned.
    """

    def __init__(
        self,
        ask: Callable[[str], Report | None] = fetch,
        clock: Callable[[], float] = time.monotonic,
        on_late: Callable[[Key], None] = lambda key: None,
        threads: Executor | None = None,
    ) -> None:
        self._clock = clock
        self._on_late = on_late
        self._answers: dict[Key, dict[str, _Answer]] = {}
        self._asking: dict[Key, dict[str, _Question]] = {}
        self._threads = threads or ThreadPoolExecutor(AT_ONCE, thread_name_prefix="report")
        self._turns = _Turns(ask, self._threads)
        self._open = True

    def of(self, key: Key, pods: Iterable[PodView]) -> Mapping[str, Report]:
        """Reports by pod name. Asks pods whose readiness changed or whose report is old, all at the same time."""
        pods = [p for p in pods if p.running and p.address and not p.deleting]
        now, known, asked = self._clock(), self._answers.get(key, {}), self._asking.get(key, {})
        answers = {p.uid: known[p.uid] for p in pods if p.uid in known}
        asking = {p.uid: asked[p.uid] for p in pods if p.uid in asked and asked[p.uid].state == _state(p)}
        for pod in pods:
            if self._open and pod.uid not in asking and _is_due(pod, answers.get(pod.uid), now):
                with contextlib.suppress(RuntimeError):  # closed just now
                    asking[pod.uid] = _Question(_state(pod), self._turns.ask(key.namespace, str(pod.address)))
        # A pod that did not answer before is not waited for.
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
                question.answer.add_done_callback(lambda answer: None if answer.cancelled() else self._on_late(key))
        packed = {p.name: answers[p.uid].packed for p in pods if p.uid in answers}
        return {name: _unpacked(report) for name, report in packed.items() if report is not None}

    def unsettled(self, key: Key) -> bool:
        """Whether a pod that serves has not reported its engine's settings yet, and may do so soon."""
        return any(0 < answer.misses < SOON_AGAIN for answer in self._answers.get(key, {}).values())

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._answers.pop(key, None)
        self._asking.pop(key, None)

    def close(self) -> None:
        """Sends no more requests, so that the process can exit."""
        self._open = False
        self._threads.shutdown(wait=False, cancel_futures=True)


@dataclass
class _Question:
    state: tuple[bool, int]
    answer: Future[Report | None]
    wakes: bool = False
    """Whether its answer requeues the service."""


def _state(pod: PodView) -> tuple[bool, int]:
    return (pod.ready, pod.restarts)


def _answer(pod: PodView, report: Report | None, before: _Answer | None, now: float) -> _Answer:
    state, silent = _state(pod), report is None
    same = before is not None and before.state == state
    packed = None if report is None else zlib.compress(report.model_dump_json(by_alias=True).encode(), 1)
    if report is None and same and before is not None:
        packed = before.packed  # one lost answer says nothing about the engine
        reported = False
    else:
        reported = report is not None and (not pod.leader or report.settings_read or bool(report.settings))
    misses = 0 if reported or not pod.ready else (before.misses if same and before is not None else 0) + 1
    settled = pod.ready and (misses == 0 or misses >= SOON_AGAIN)
    # Before the next reconcile, which comes up to a tenth early or late.
    wait = SERVING_SECONDS * random.uniform(0.9, 1.1) if settled else STARTING_SECONDS * 0.8
    return _Answer(state, now + wait, packed, silent, misses)


def _unpacked(packed: bytes) -> Report:
    return Report.model_validate_json(zlib.decompress(packed))


def _is_due(pod: PodView, answer: _Answer | None, now: float) -> bool:
    return answer is None or answer.state != _state(pod) or now >= answer.ask_again_at
