"""The Job that sends the load, from its creation to its deletion, and the twin that it may own."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from vlm_bench.commands.cleanup import existing, patiently
from vlm_bench.load.job_manifest import BENCH
from vlm_bench.statistics.rounds import read_line
from vlm_operator.cli.cluster import Connection, cluster_errors
from vlm_operator.controller.status.pods import CANNOT_START
from vlm_operator.documents import Document
from vlm_operator.errors import ClusterError
from vlm_operator.kube import kinds
from vlm_operator.kube.client import ApiError
from vlm_operator.kube.pod_streams import follow_log

PAUSE_SECONDS: Final = 1.0
# A Job's pod is created within a second; if none is after this long, a quota or a webhook prevents it.
NO_POD_SECONDS: Final = 60.0
# Images may have to be pulled and nodes to be added; what a person must fix is reported sooner.
START_SECONDS: Final = 900.0
OBSTACLE_SECONDS: Final = 20.0
GONE_SECONDS: Final = 60.0
# Why a new service is not ready. Waiting seldom resolves any other reason: a refused plan or pod, a failing container, a setting
# that the engine ignores.
UNDER_WAY: Final = frozenset({"Starting", "Inspecting"})
# An engine that is ending holds its devices until it has ended: the next twin may need them.
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
        """The owner reference for objects that end with the Job, by its deadline at the latest.

        Raises ClusterError if its deadline does not run.
        """
        if (self.manifest.get("spec") or {}).get("suspend"):
            raise ClusterError(
                f"Job {self.name} was created suspended, as by Kueue, so it and its twin would stay if this command were killed: "
                "exempt Jobs with the label app.kubernetes.io/name=vlm-bench from suspension"
            )
        return {"apiVersion": "batch/v1", "kind": "Job", "name": self.name, "uid": self.manifest["metadata"]["uid"]}

    def events(self) -> Iterator[dict[str, Any]]:
        """The events of the program in the pod, each once, until the pod has ended.

        Raises ClusterError if the pod cannot start, or ends before its last event.
        """
        pod = self._started()
        read, is_last = 0, False
        while True:
            ended = _has_ended(pod)
            for line in self._lines(pod):
                event = read_line(line)
                if event is not None and event["line"] > read:
                    read, is_last = event["line"], event["event"] in ("end", "failed")
                    yield event
            if is_last:
                return
            if ended:
                raise ClusterError(f"the pod of Job {self.name} ended early: {_end_of(pod)}")
            time.sleep(PAUSE_SECONDS)
            now = patiently(self._pod)
            if now is None:
                raise ClusterError(f"the pod of Job {self.name} was deleted before it had ended: measure again")
            pod = now

    def hold(self) -> None:
        """Keeps a waiting Job waiting. Raises ClusterError if the user may not patch Jobs."""
        self.patch({"spec": {"parallelism": 0}})

    def patch(self, patch: Document) -> None:
        """Merges the patch into the Job. Raises ClusterError."""

        def merge() -> None:
            with cluster_errors():
                self.connection.client.merge(kinds.JOB, self.connection.namespace, self.name, patch)

        patiently(merge)

    def _lines(self, pod: Document) -> Iterator[str]:
        try:
            yield from follow_log(self.connection.namespace, str(pod["metadata"]["name"]), BENCH)
        except ApiError as error:
            if error.status == 403:
                raise ClusterError(f"{error.message}: you need the right to get pods/log") from error

    def _pod(self) -> Document | None:
        with cluster_errors():
            pods = self.connection.client.list(
                kinds.POD, self.connection.namespace, labels=f"batch.kubernetes.io/job-name={self.name}"
            )
        return pods[0] if pods else None

    def _started(self) -> Document:
        begun = time.monotonic()
        blocked_since: float | None = None
        while True:
            pod, now = patiently(self._pod), time.monotonic()
            if pod is not None and (_has_started(pod) or _has_ended(pod)):
                return pod
            why = _obstacle(pod) if pod is not None else None
            blocked_since = None if why is None else blocked_since or now
            if blocked_since is not None and now - blocked_since > OBSTACLE_SECONDS:
                raise ClusterError(f"the load's pod cannot start: {why}")
            if pod is None and now - begun > NO_POD_SECONDS:
                raise ClusterError(
                    f"no pod was created for Job {self.name}, perhaps because of a quota or an admission webhook: see "
                    f"`kubectl describe job {self.name}`"
                )
            if now - begun > START_SECONDS:
                raise ClusterError(f"the load's pod did not start within {START_SECONDS:.0f} s: see its events")
            time.sleep(PAUSE_SECONDS)


def _has_started(pod: Mapping[str, Any]) -> bool:
    return any(state and "waiting" not in state for state in _states(pod))


def _has_ended(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _obstacle(pod: Mapping[str, Any]) -> str | None:
    """What prevents the pod's start and a person must fix, in the cluster's words; None without such."""
    for each in (pod.get("status") or {}).get("conditions") or []:
        if each.get("type") == "PodScheduled" and each.get("reason") == "Unschedulable":
            return f"unschedulable: {each.get('message') or 'the scheduler gives no reason'}"
    for state in _states(pod):
        waiting = state.get("waiting") or {}
        if waiting.get("reason") in CANNOT_START:
            return f"{waiting['reason']}: {waiting.get('message') or 'no message'}"
    return None


def _end_of(pod: Mapping[str, Any]) -> str:
    """How its container ended: the last line that it printed, or the code."""
    for state in _states(pod):
        if end := state.get("terminated"):
            lines = str(end.get("message") or "").strip().splitlines()
            return lines[-1][:300] if lines else f"{end.get('reason') or 'ended'}, exit code {end.get('exitCode')}"
    return str((pod.get("status") or {}).get("message") or "no reason was given")


def _states(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each.get("state") or {} for each in (pod.get("status") or {}).get("containerStatuses") or []]


@contextmanager
def running(connection: Connection, manifest: Document, left: list[str]) -> Iterator[LoadJob]:
    """Creates the Job, and deletes it with what it owns however the body ends. What remains is added to ``left``.

    Raises ClusterError."""
    remains = LoadJob(connection, manifest)._pod
    with existing(connection, kinds.JOB, manifest, remains=remains, gone_seconds=GONE_SECONDS, left=left) as created:
        yield LoadJob(connection, created)


@contextmanager
def twin(connection: Connection, manifest: Document, left: list[str]) -> Iterator[str]:
    """Creates the twin, and deletes it with its pods however the body ends; its name. What remains is added to ``left``.

    Raises ClusterError."""
    name = str(manifest["metadata"]["name"])

    def remains() -> object:
        return connection.pods(name)

    with existing(connection, kinds.VLM_SERVICE, manifest, remains=remains, gone_seconds=TWIN_GONE_SECONDS, left=left):
        yield name


def wait_until_ready(
    connection: Connection,
    name: str,
    seconds: float,
    *,
    replicas: int = 1,
    check: Callable[[Mapping[str, Any]], None] = lambda status: None,
) -> Iterator[str]:
    """The reasons of condition Ready, each as it changes, until so many replicas are ready.

    ``check`` gets every status, the last one included, and may raise. Raises ClusterError if the service cannot become ready.
    """
    begun, last = time.monotonic(), ""
    blocked_since: float | None = None
    while True:
        status = patiently(lambda: connection.service(name)).get("status") or {}
        check(status)
        ready: Mapping[str, Any] = next((c for c in status.get("conditions") or [] if c.get("type") == "Ready"), {})
        reason, message = str(ready.get("reason") or "not reconciled yet"), str(ready.get("message") or "")
        count = int(status.get("readyReplicas") or 0)
        if ready.get("status") == "True":
            if count >= replicas:
                return
            reason = f"{count} of {replicas} replicas are ready"
        now = time.monotonic()
        is_blocked = ready.get("status") == "False" and reason not in UNDER_WAY
        blocked_since = (blocked_since or now) if is_blocked else None
        if blocked_since is not None and now - blocked_since > OBSTACLE_SECONDS:
            raise ClusterError(f"{name} does not become ready: {reason}: {message}")
        if now - begun > seconds:
            raise ClusterError(f"{name} was not ready within {seconds:.0f} s (--start-timeout): {reason}: {message}")
        if reason != last:
            yield reason
            last = reason
        time.sleep(PAUSE_SECONDS)
