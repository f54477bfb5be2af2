"""Autoscaling by its real parts: Kubernetes' autoscaler, prometheus-adapter with the documented rule, and Prometheus.

Only the engine is a stand-in, which starts in a second and tells its requests in flight as the plugin does.
"""

import json
import re
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from benchmarks.streams import Load, Streams
from demo import monitoring
from demo.commands import Cluster
from e2e import services
from e2e.conftest import NAMESPACE
from e2e.endpoint import engine_url
from e2e.world import World, eventually

from minicluster import adapter, prometheus
from minicluster.paths import KUBECONFIG

pytestmark = pytest.mark.timeout(300)

NAME = "scaled"
KIND = "ScalingActive"
PAGE = (Path(__file__).resolve().parents[2] / "docs/autoscaling.md").read_text()
# Twice what one replica should have, so that two have what they should.
TARGET, CLIENTS = 2, 4
# The autoscaler looks every 5 s here (by default every 15 s), after a scrape and the adapter's list of series.
SCALING_SECONDS = 90.0
# Some of those rounds, in which a number that is not held would change.
HOLD_SECONDS = 20.0


def spec(update: int) -> services.Spec:
    found = services.stand_in(scaling={"minReplicas": 1, "maxReplicas": 2, "targetInFlight": TARGET})
    found["engine"]["env"].append({"name": "UPDATE", "value": str(update)})
    return found


def documented_rules() -> list[Any]:
    """What the page tells to give to the adapter."""
    block = next(
        b for b in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) if b.startswith("rules:")
    )
    return yaml.safe_load(block)["rules"]["custom"]


def documented_check() -> list[str]:
    """The page's command that shows whether the metric is served, for this namespace; without its first word."""
    (line,) = [line for line in PAGE.splitlines() if line.startswith("kubectl get --raw ")]
    return shlex.split(line.replace("/namespaces/default/", f"/namespaces/{NAMESPACE}/"))[1:]


def count(world: World) -> int:
    """Replicas that are wanted."""
    return world.get("deployment", NAME)["spec"]["replicas"]


def measure() -> None:
    """Prometheus, without older data, and the adapter that asks it; started again where they run."""
    adapter.start(documented_rules(), monitoring.start(Cluster.at(KUBECONFIG)))


@pytest.fixture(scope="module")
def scaled(world: World, free_processors: None) -> Iterator[World]:
    """The service, with one replica that serves, and nothing in the cluster that measures it."""
    adapter.stop()
    prometheus.stop()
    with services.stand_in_serves(world, NAME, spec(0)):
        yield world


@pytest.fixture(scope="module")
def measured(scaled: World) -> Iterator[World]:
    """The same, with Prometheus and the adapter."""
    measure()
    yield scaled
    adapter.stop()
    prometheus.stop()


@dataclass(frozen=True)
class Grown:
    """The service with streams in flight and the replicas that they take."""

    world: World
    seconds: float
    """From the first stream to the second replica's readiness."""
    end_streams: Callable[[], None]


@pytest.fixture(scope="module")
def grown(measured: World) -> Iterator[Grown]:
    measured.wait_for(NAME, "True", "AutoscalerActive", kind=KIND, seconds=SCALING_SECONDS)
    assert count(measured) == 1, "an idle service has no reason to grow"
    with ExitStack() as stack:
        streams = stack.enter_context(
            Streams(Load(engine_url(measured, NAME), NAME, tokens=50, image_side=32), CLIENTS)
        )
        begun = time.monotonic()
        eventually(lambda: count(measured) == 2, "a second replica", seconds=SCALING_SECONDS)
        eventually(lambda: ready_pods(measured) == 2, "both are ready", seconds=60)
        seconds = time.monotonic() - begun
        monitoring.find_targets(Cluster.at(KUBECONFIG))
        yield Grown(measured, seconds, stack.close)
    assert set(streams.outcomes()) == {"ok"}, [r.detail for r in streams.done if r.outcome != "ok"]


def ready_pods(world: World) -> int:
    return world.get("deployment", NAME)["status"].get("readyReplicas", 0)


def test_without_an_adapter_the_service_says_what_is_missing_and_where_help_is(scaled: World) -> None:
    said = scaled.wait_for(NAME, "False", "MetricMissing", kind=KIND, seconds=60)
    assert "custom metrics API" in said
    assert "docs/autoscaling.md" in said
    assert scaled.condition(NAME)[:2] == ("True", "Serving"), "it serves nevertheless"


def test_streams_in_flight_make_a_second_replica_and_each_tells_its_own_number(
    grown: Grown, record_property: Callable[[str, object], None]
) -> None:
    record_property(
        "from more streams than one replica should have to a second one that serves", f"{grown.seconds:.0f} s"
    )

    def told() -> dict[str, float]:
        items = json.loads(grown.world(*documented_check()))["items"]
        return {item["describedObject"]["name"]: float(item["value"]) for item in items}

    pods = {pod["metadata"]["name"] for pod in grown.world.pods(NAME)}
    eventually(lambda: told().keys() == pods and sum(told().values()) == CLIENTS, "both pods' numbers", seconds=60)
    assert grown.world.condition(NAME, KIND)[:2] == ("True", "AutoscalerActive")
    assert count(grown.world) == 2


def test_without_prometheus_no_replica_goes_not_even_by_a_change_of_the_spec(grown: Grown) -> None:
    world = grown.world
    prometheus.stop()
    said = world.wait_for(NAME, "False", "MetricMissing", kind=KIND, seconds=SCALING_SECONDS)
    assert "docs/autoscaling.md" in said
    grown.end_streams()
    # Five minutes by default, in which nothing would be scaled down anyway.
    at_once = {"spec": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}}
    world("patch", "hpa", NAME, "--type=merge", f"--patch={json.dumps(at_once)}")
    before = {pod["metadata"]["uid"] for pod in world.pods(NAME)}
    seen = set()
    begun = time.monotonic()
    world.apply(NAME, spec(1))

    def replaced() -> bool:
        seen.add(count(world))
        left = {pod["metadata"]["uid"] for pod in world.items("pods", "-l", f"vlmserve.dev/service={NAME}")}
        return len(left) == 2 and not left & before and time.monotonic() - begun > HOLD_SECONDS

    eventually(replaced, "two other pods, and the old ones gone", seconds=120, pause=0.5)
    assert seen == {2}
    # Prometheus held nothing but this number: with it, idle replicas go, and as fast as the patch says.
    measure()
    world.wait_for(NAME, "True", "AutoscalerActive", kind=KIND, seconds=SCALING_SECONDS)
    eventually(lambda: count(world) == 1, "one replica", seconds=SCALING_SECONDS)
