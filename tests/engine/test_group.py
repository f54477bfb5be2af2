"""Two pods of one group, as a LeaderWorkerSet starts them: the leader serves, the worker pod computes with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from engine.conftest import ARGS, ENV, start_below_runtime
from unit.runtime.harness import Container

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def group(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Container]]:
    """Head and worker, on one core each."""
    pods = [
        start_below_runtime(
            library,
            tmp_path_factory.mktemp("pod"),
            env={"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": str(rank), "LWS_LEADER_ADDRESS": "127.0.0.1"},
            engine={"args": [*ARGS, "--tp-size", "2"], "env": {**ENV, "SGLANG_CPU_OMP_THREADS_BIND": "0|1"}},
            runtime={"startup_budget_seconds": 600, "drain_seconds": 60, "nodes": 2},
        )
        for rank in range(2)
    ]
    yield pods
    for pod in pods:
        pod.end()


def test_a_group_serves_images_and_ends_together(group: list[Container]) -> None:
    leader, worker = group
    leader.wait_ready(650)
    worker.wait_ready(60)
    assert leader.report()["firstImageSeconds"] > 0
    assert worker.report()["firstImageSeconds"] is None
    assert worker.report()["phase"] == "Ready"
    for pod in group:
        pod.terminate()
    assert [pod.wait_exit(120) for pod in group] == [0, 0]
