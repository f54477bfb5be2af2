"""What a script waits for after a change of a service that serves, as docs/first-service.md says."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apiserver.operating import Operator, World, eventually

from minicluster.paths import tool

PAGE = Path(__file__).resolve().parents[2] / "docs" / "first-service.md"
CHANGED = "--for=condition=Progressing=False"
ON_CPU = {"device": "cpu"}
COMPLETE = "--for=jsonpath='{.status.conditions[?(@.type==\"Progressing\")].reason}'=Complete"


@pytest.fixture
def world(api_server: Any, kubectl: Any, namespace: str, tmp_path: Path) -> Iterator[World]:
    """A service whose one pod serves, with an operator beside it."""
    log = tmp_path / "operator.log"
    operator = Operator(
        api_server.kubeconfig, log, "--namespace", namespace, "--no-leader-election", namespace=namespace
    )
    operator.start()
    made = World(kubectl, namespace)
    made.apply(hardware=ON_CPU, workload={"concurrency": 4})
    eventually(lambda: made.exists("deployment"), seconds=30)
    made.serving()
    eventually(lambda: made.condition()[:2] == ("True", "Serving"), seconds=30, what=made.condition)
    yield made
    if operator.running:
        operator.stop()


def waits(world: World, kubeconfig: Path, how: str, seconds: int) -> bool:
    """Whether `kubectl wait` sees it within the time."""
    command = [str(tool("kubectl")), f"--kubeconfig={kubeconfig}", f"--namespace={world.namespace}", "wait", "vlms/vlm"]
    done = subprocess.run([*command, how.replace("'", ""), f"--timeout={seconds}s"], capture_output=True, text=True)
    assert done.returncode == 0 or "timed out waiting" in done.stderr, done.stderr
    return done.returncode == 0


def roll_out_begins(world: World) -> None:
    """Plays a Deployment's controller that has seen a new template and keeps its old pod up meanwhile."""
    live = world.get("deployment")["metadata"]["generation"]
    counts = {"replicas": 1, "readyReplicas": 1, "availableReplicas": 1, "updatedReplicas": 0}
    world.status_of("deployment", "vlm", observedGeneration=live, **counts)


def test_a_change_is_waited_for_by_progressing_and_not_by_ready(world: World, api_server: Any) -> None:
    before = world.get("deployment")["metadata"]["generation"]
    world.apply(hardware=ON_CPU, workload={"concurrency": 64})
    eventually(lambda: world.get("deployment")["metadata"]["generation"] > before, seconds=30)
    roll_out_begins(world)
    assert waits(world, api_server.kubeconfig, "--for=condition=Ready", 30), "the old pod answers"
    assert not waits(world, api_server.kubeconfig, CHANGED, 3)
    world.serving()
    assert waits(world, api_server.kubeconfig, CHANGED, 30)
    assert waits(world, api_server.kubeconfig, COMPLETE, 30)


def test_the_wait_begins_with_the_change_and_not_with_what_was_true_before(world: World, api_server: Any) -> None:
    assert waits(world, api_server.kubeconfig, CHANGED, 30)
    world.apply(hardware=ON_CPU, workload={"concurrency": 64})
    assert not waits(world, api_server.kubeconfig, CHANGED, 3)


def test_a_change_that_is_refused_ends_the_wait_and_fails_what_comes_after_it(world: World, api_server: Any) -> None:
    world.apply(hardware=ON_CPU, workload={"concurrency": 4}, engine={"settings": {"no_such_setting": 1}})
    assert waits(world, api_server.kubeconfig, CHANGED, 30)
    assert not waits(world, api_server.kubeconfig, COMPLETE, 3)


def test_the_page_shows_what_is_tested_here() -> None:
    page = PAGE.read_text()
    assert f"kubectl wait vlms qwen3-vl {CHANGED} " in page
    assert f"kubectl wait vlms qwen3-vl {COMPLETE} " in page
