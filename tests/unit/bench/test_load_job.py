"""The Job from its making to its removal, with a stand-in for the cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from vlm_bench.commands import cleanup, load_job
from vlm_bench.programs.driver import MARK
from vlm_operator.cli.cluster import Connection
from vlm_operator.errors import ClusterError
from vlm_operator.kube import kinds
from vlm_operator.kube.client import ApiError

JOB = {"metadata": {"name": "vlm-bench-1", "namespace": "team"}}
TWIN = {"metadata": {"name": "vlm-ab12cd", "namespace": "team"}}


class Cluster:
    """What it was told to make and to remove; one pod for the Job, as long as the Job is there."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.objects: list[str] = []
        self.ending = 0  # how often the twin's pod is still there
        self._pods = [{"metadata": {"name": "pod"}, "status": status} for status in pods]

    def create(self, kind: kinds.Kind, manifest: dict[str, Any]) -> dict[str, Any]:
        self.objects.append(f"{kind.kind}/{manifest['metadata']['name']}")
        return {**manifest, "metadata": {**manifest["metadata"], "uid": "u"}}

    def delete(self, kind: kinds.Kind, manifest: dict[str, Any]) -> None:
        self.objects.remove(f"{kind.kind}/{manifest['metadata']['name']}")

    def list(self, kind: kinds.Kind, namespace: str, *, labels: str) -> list[dict[str, Any]]:
        if labels.startswith("vlmserve.dev/service="):
            self.ending -= 1
            return [{"metadata": {"name": "engine"}}] if self.ending > 0 else []
        if not self.objects or not self._pods:
            return []
        return [self._pods.pop(0) if len(self._pods) > 1 else self._pods[0]]


def connection(cluster: Cluster) -> Connection:
    return Connection(cluster, "team")  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_job, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(cleanup, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(cleanup, "LATE_SECONDS", 0.05)
    monkeypatch.setattr(load_job, "OBSTACLE_SECONDS", 0.01)
    monkeypatch.setattr(load_job, "NO_POD_SECONDS", 0.01)


def state(kind: str, phase: str = "Running", **fields: Any) -> dict[str, Any]:
    return {"phase": phase, "containerStatuses": [{"name": "bench", "state": {kind: fields}}]}


RUNS = state("running")
PULLS = state("waiting", "Pending", reason="ContainerCreating")


def logs(monkeypatch: pytest.MonkeyPatch, *reads: list[dict[str, Any]]) -> None:
    """Each time that the log is read it gives the next of these."""
    remaining = list(reads)

    def follow(namespace: str, pod: str, container: str) -> Iterator[str]:
        yield "Starting warmup with 0 sequences..."
        for event in remaining.pop(0):
            yield MARK + json.dumps(event)

    monkeypatch.setattr(load_job, "follow_log", follow)


def event(line: int, name: str = "progress") -> dict[str, Any]:
    return {"event": name, "line": line}


def test_a_log_that_is_read_again_gives_each_line_once(monkeypatch: pytest.MonkeyPatch) -> None:
    logs(monkeypatch, [event(1), event(2)], [event(1), event(2), event(3), event(4, "end")])
    with load_job.running(connection(Cluster(PULLS, RUNS)), JOB, []) as job:
        assert [each["line"] for each in job.events()] == [1, 2, 3, 4]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ClusterError, ValueError])
def test_whatever_ends_the_command_the_job_and_the_twin_are_removed(error: type[BaseException]) -> None:
    cluster = Cluster(RUNS)
    twin = {"metadata": {"name": "vlm-ab12cd", "namespace": "team"}}

    def measure() -> None:
        with load_job.running(connection(cluster), JOB, []), load_job.twin(connection(cluster), twin, []):
            assert cluster.objects == ["Job/vlm-bench-1", "VLMService/vlm-ab12cd"]
            raise error

    with pytest.raises(error):
        measure()
    assert cluster.objects == []


def test_the_next_twin_may_have_the_devices_since_this_ones_pods_are_gone() -> None:
    cluster = Cluster(RUNS)
    cluster.ending = 3
    with load_job.twin(connection(cluster), TWIN, []):
        assert cluster.ending == 3
    assert (cluster.objects, cluster.ending) == ([], 0)


def test_a_cluster_that_does_not_answer_after_the_removal_takes_nothing_of_what_was_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(RUNS)
    answers = iter([ApiError(0, "Unreachable", "connection refused"), []])

    def listed(*_: object, **__: object) -> list[dict[str, Any]]:
        if isinstance(found := next(answers), ApiError):
            raise found
        return found

    with load_job.running(connection(cluster), JOB, []):
        monkeypatch.setattr(cluster, "list", listed)
    assert (cluster.objects, list(answers)) == ([], [])


def test_an_api_server_that_is_away_for_a_moment_ends_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    logs(monkeypatch, [event(1)], [event(1), event(2, "end")])
    cluster = Cluster(RUNS)
    listed, asked = cluster.list, iter([False, True, True])  # it is there for the start, then away twice

    def sometimes(*given: Any, **more: Any) -> list[dict[str, Any]]:
        if next(asked, False):
            raise ApiError(503, "ServiceUnavailable", "the server is shutting down")
        return listed(*given, **more)

    monkeypatch.setattr(cluster, "list", sometimes)
    with load_job.running(connection(cluster), JOB, []) as job:
        assert [each["line"] for each in job.events()] == [1, 2]


def test_a_pod_that_ends_without_its_last_word_is_told_with_what_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = state("terminated", "Failed", reason="OOMKilled", exitCode=137)
    logs(monkeypatch, [event(1)], [event(1)])
    with (
        pytest.raises(ClusterError, match="ended early: OOMKilled, exit code 137"),
        load_job.running(connection(Cluster(RUNS, ended)), JOB, []) as job,
    ):
        list(job.events())


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (
            state("waiting", "Pending", reason="CreateContainerConfigError", message='secret "k" not found'),
            'secret "k" not',
        ),
        (
            {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "reason": "Unschedulable", "message": "0/3 nodes"}],
            },
            "unschedulable: 0/3 nodes",
        ),
    ],
)
def test_a_pod_that_cannot_start_is_told_in_the_clusters_words(status: dict[str, Any], message: str) -> None:
    with (
        pytest.raises(ClusterError, match=f"cannot start: .*{message}"),
        load_job.running(connection(Cluster(status)), JOB, []) as job,
    ):
        list(job.events())


def test_a_job_for_which_no_pod_is_made_says_where_to_look() -> None:
    with (
        pytest.raises(ClusterError, match="kubectl describe job vlm-bench-1"),
        load_job.running(connection(Cluster()), JOB, []) as job,
    ):
        list(job.events())
