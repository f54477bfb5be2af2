"""The Job that sends the load, from its making to its removal, and the twin that it may own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from vlm_operator.cli.cluster import Connection, asking
from vlm_operator.cli.errors import ClusterError
from vlm_operator.cli.temporary import existing, patiently
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
# Why a service that is only just made is not ready. Every other reason is one that waiting alone seldom mends: a plan or a
# pod that is refused, a container that fails, a setting that the engine leaves aside.
UNDER_WAY: Final = frozenset({"Starting", "Inspecting"})
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
        """The reference with which something goes when the Job goes, which it does by its deadline at the latest.

        Raises ClusterError where its deadline does not run.
        """
        if (self.manifest.get("spec") or {}).get("suspend"):
            raise ClusterError(
                f"Job {self.name} was suspended as it was made, as Kueue does, so nothing would end it and its twin if this "
                "command were killed: exempt Jobs with the label app.kubernetes.io/name=vlm-bench from that"
            )
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
            found = patiently(self._pod)
            if found is None:
                raise ClusterError(f"the pod of Job {self.name} was removed by somebody else before it was done")
            pod = found

    def hold(self) -> None:
        """Has a Job that waits wait on. Raises ClusterError for who may not patch it."""
        self.change({"spec": {"parallelism": 0}})

    def change(self, patch: Document) -> None:
        """Merges it into the Job. Raises ClusterError."""

        def ask() -> None:
            with asking():
                self.connection.client.merge(kinds.JOB, self.connection.namespace, self.name, patch)

        patiently(ask)

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

    def _started(self) -> Document:
        begun = time.monotonic()
        blocked_since: float | None = None
        while True:
            pod, now = patiently(self._pod), time.monotonic()
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
def running(connection: Connection, manifest: Document, left: list[str]) -> Iterator[LoadJob]:
    """Makes the Job, and removes it and what it owns whatever happens. What stays is added to ``left``.

    Raises ClusterError."""
    job = LoadJob(connection, manifest)
    # Until nothing of it is there when the command has ended; its pod gets one second.
    with existing(connection, kinds.JOB, manifest, there=job._pod, gone_seconds=GONE_SECONDS, left=left) as made:
        yield LoadJob(connection, made)


@contextmanager
def twin(connection: Connection, manifest: Document, left: list[str]) -> Iterator[str]:
    """Makes the twin, and removes it and its pods whatever happens; its name. What stays is added to ``left``.

    Raises ClusterError."""
    name = str(manifest["metadata"]["name"])

    def there() -> object:
        return connection.pods(name)

    with existing(connection, kinds.VLM_SERVICE, manifest, there=there, gone_seconds=TWIN_GONE_SECONDS, left=left):
        yield name


def wait_until_ready(
    connection: Connection,
    name: str,
    seconds: float,
    *,
    replicas: int = 1,
    look: Callable[[Mapping[str, Any]], None] = lambda status: None,
) -> Iterator[str]:
    """What the service says about its start, until so many replicas are ready.

    ``look`` is shown every status, the last one included, and may raise. Raises ClusterError where it cannot become ready.
    """
    begun, said = time.monotonic(), ""
    blocked_since: float | None = None
    while True:
        status = patiently(lambda: connection.service(name)).get("status") or {}
        look(status)
        ready = _condition(status, "Ready")
        reason, message = str(ready.get("reason") or "not looked at yet"), str(ready.get("message") or "")
        count = int(status.get("readyReplicas") or 0)
        if ready.get("status") == "True":
            if count >= replicas:
                return
            reason = f"{count} of {replicas} replicas are ready"
        now = time.monotonic()
        blocked = ready.get("status") == "False" and reason not in UNDER_WAY
        blocked_since = (blocked_since or now) if blocked else None
        if blocked_since is not None and now - blocked_since > OBSTACLE_SECONDS:
            raise ClusterError(f"{name} does not become ready: {reason}: {message}")
        if now - begun > seconds:
            raise ClusterError(f"{name} was not ready within {seconds:.0f} s (--start-timeout): {reason}: {message}")
        if reason != said:
            yield reason
            said = reason
        time.sleep(PAUSE_SECONDS)


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next((c for c in status.get("conditions") or [] if c.get("type") == kind), {})
    return found
