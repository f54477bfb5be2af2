"""The Job that sends the load, from its making to its removal, and the twin that it may own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from vlm_api.reasons import FAILURES
from vlm_operator.cli.cluster import Connection, asking
from vlm_operator.cli.errors import ClusterError
from vlm_operator.documents import Document
from vlm_operator.kube import kinds
from vlm_operator.kube.client import ApiError
from vlm_operator.kube.pod_streams import follow_log
from vlm_operator.measure import pods
from vlm_operator.measure.job import BENCH
from vlm_operator.measure.rounds import read_line

PAUSE_SECONDS: Final = 1.0
# A Job's pod is made within a second; where none is made after this long, a quota or a webhook forbids it.
NO_POD_SECONDS: Final = 60.0
# Images may have to be pulled and nodes to be added; what a person must mend is told after a shorter while.
START_SECONDS: Final = 900.0
OBSTACLE_SECONDS: Final = 20.0
GONE_SECONDS: Final = 60.0
# An API server that is started anew, or a proxy in front of it.
AWAY_SECONDS: Final = 60.0
# An engine that is asked to end holds its devices until it has: the next twin may need them.
TWIN_GONE_SECONDS: Final = 180.0


@dataclass(frozen=True)
class LoadJob:
    """A Job that exists."""

    connection: Connection
    manifest: Document
    """As the API server has it, with its uid."""

    @property
    def name(self) -> str:
        """The Job's name."""
        return str(self.manifest["metadata"]["name"])

    @property
    def owner(self) -> Document:
        """The reference with which something goes when the Job goes."""
        return {"apiVersion": "batch/v1", "kind": "Job", "name": self.name, "uid": self.manifest["metadata"]["uid"]}

    def events(self) -> Iterator[dict[str, Any]]:
        """What the program in the pod says, each line once, until the pod has ended.

        Raises ClusterError where the pod cannot start, and where it ends without its last word.
        """
        pod = self._started()
        seen, said_last = 0, False
        while True:
            over = pods.ended(pod)
            for line in self._lines(pod):
                event = read_line(line)
                if event is not None and event["line"] > seen:
                    seen, said_last = event["line"], event["event"] in ("end", "failed")
                    yield event
            if said_last:
                return
            if over:
                raise ClusterError(f"the pod of Job {self.name} ended in between: {pods.last_words(pod)}")
            time.sleep(PAUSE_SECONDS)
            found = self._pod_again()
            if found is None:
                raise ClusterError(f"the pod of Job {self.name} was removed by somebody else before it was done")
            pod = found

    def _lines(self, pod: Document) -> Iterator[str]:
        try:
            yield from follow_log(self.connection.namespace, str(pod["metadata"]["name"]), BENCH)
        except ApiError as error:
            if error.status == 403:
                raise ClusterError(f"{error.message}: the command needs the right to get pods/log") from error

    def _pod(self) -> Document | None:
        with asking():
            found = self.connection.client.list(
                kinds.POD, self.connection.namespace, labels=f"batch.kubernetes.io/job-name={self.name}"
            )
        return found[0] if found else None

    def _pod_again(self) -> Document | None:
        """The same while it is measured: an API server that is away for a moment takes no hour's work with it."""
        deadline = time.monotonic() + AWAY_SECONDS
        while True:
            try:
                return self._pod()
            except ClusterError as error:
                cause = error.__cause__
                if not isinstance(cause, ApiError) or cause.refused or time.monotonic() > deadline:
                    raise
            time.sleep(PAUSE_SECONDS)

    def _started(self) -> Document:
        begun = time.monotonic()
        blocked_since: float | None = None
        while True:
            pod, now = self._pod(), time.monotonic()
            if pod is not None and (pods.started(pod) or pods.ended(pod)):
                return pod
            why = pods.obstacle(pod) if pod is not None else None
            blocked_since = None if why is None else blocked_since or now
            if blocked_since is not None and now - blocked_since > OBSTACLE_SECONDS:
                raise ClusterError(f"the load's pod cannot start: {why}")
            if pod is None and now - begun > NO_POD_SECONDS:
                raise ClusterError(
                    f"no pod is made for Job {self.name}, perhaps by a quota or an admission webhook: "
                    f"`kubectl describe job {self.name}` says more"
                )
            if now - begun > START_SECONDS:
                raise ClusterError(f"the load's pod did not start within {START_SECONDS:.0f} s")
            time.sleep(PAUSE_SECONDS)


@contextmanager
def running(connection: Connection, manifest: Document) -> Iterator[LoadJob]:
    """Makes the Job, and removes it and what it owns whatever happens. Raises ClusterError."""
    with asking():
        made = connection.client.create(kinds.JOB, manifest)
    job = LoadJob(connection, made)
    try:
        yield job
    finally:
        _remove(connection, kinds.JOB, made)
        # So that nothing of it is there when the command has ended; its pod gets one second.
        _wait_while(job._pod, GONE_SECONDS)


@contextmanager
def twin(connection: Connection, manifest: Document) -> Iterator[str]:
    """Makes the twin, and removes it and its pods whatever happens; its name. Raises ClusterError."""
    with asking():
        made = connection.client.create(kinds.VLM_SERVICE, manifest)
    name = str(made["metadata"]["name"])
    try:
        yield name
    finally:
        _remove(connection, kinds.VLM_SERVICE, made)
        _wait_while(lambda: connection.pods(name), TWIN_GONE_SECONDS)


def wait_until_ready(connection: Connection, name: str, seconds: float) -> Iterator[str]:
    """What the service says about its start, until it is ready. Raises ClusterError where it cannot become so."""
    begun, said = time.monotonic(), ""
    blocked_since: float | None = None
    while True:
        status = connection.service(name).get("status") or {}
        ready = _condition(status, "Ready")
        reason, message = str(ready.get("reason") or "not looked at yet"), str(ready.get("message") or "")
        if ready.get("status") == "True":
            return
        now = time.monotonic()
        blocked = reason in FAILURES or reason == "Unschedulable"
        blocked_since = (blocked_since or now) if blocked else None
        if blocked_since is not None and now - blocked_since > OBSTACLE_SECONDS:
            raise ClusterError(f"{name} does not start: {reason}: {message}")
        if now - begun > seconds:
            raise ClusterError(f"{name} was not ready within {seconds:.0f} s (--start-timeout): {reason}: {message}")
        if reason != said:
            yield reason
            said = reason
        time.sleep(PAUSE_SECONDS)


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next((c for c in status.get("conditions") or [] if c.get("type") == kind), {})
    return found


def _remove(connection: Connection, kind: kinds.Kind, made: Document) -> None:
    name = made["metadata"]["name"]
    try:
        connection.client.delete(kind, made)
    except ApiError as error:
        step = f"`kubectl -n {connection.namespace} delete {kind.plural} {name}`"
        raise ClusterError(
            f"{kind.kind} {name} could not be removed ({error.message}): remove it with {step}"
        ) from error


def _wait_while(there: Callable[[], object], seconds: float) -> None:
    """Waits. Where the cluster does not answer, what was removed counts as there: what was measured must not be lost."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(ClusterError):
            if not there():
                return
        time.sleep(PAUSE_SECONDS / 4)
