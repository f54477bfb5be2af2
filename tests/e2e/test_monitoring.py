"""A real Prometheus scrapes a real engine, the runtime and the operator, as the chart's PodMonitors say."""

import pytest
from demo import monitoring
from demo.commands import Cluster
from e2e.conftest import MODEL_NAME, NAMESPACE, Served
from e2e.world import eventually

from minicluster.paths import KUBECONFIG

pytestmark = pytest.mark.timeout(600)
# Two cores carry the engine, the cluster and Prometheus; a panel's rate needs two scrapes.
DATA_SECONDS = 180.0


@pytest.fixture(scope="module")
def started(operator: None) -> str:
    return monitoring.start(Cluster.at(KUBECONFIG))


@pytest.fixture
def prometheus(served: Served, started: str) -> str:
    """Its URL; it knows the pods that are there now that the service is ready."""
    monitoring.find_targets(Cluster.at(KUBECONFIG))
    return started


def test_every_panel_shows_something_or_needs_a_gpu(served: Served, prometheus: str) -> None:
    asked = list(monitoring.panels(monitoring.manifests(Cluster.at(KUBECONFIG)), NAMESPACE, served.name))
    assert len(asked) > 40
    address = served.world.get("service", served.name)["spec"]["clusterIP"]
    with monitoring.traffic(f"http://{address}:8000/v1", MODEL_NAME, served.api_key):
        assert monitoring.until_all_have_data(prometheus, asked, DATA_SECONDS) == []


def test_a_request_is_in_flight_by_pod_as_autoscalers_ask_for_it(served: Served, prometheus: str) -> None:
    address = served.world.get("service", served.name)["spec"]["clusterIP"]
    query = f'sum by (pod) (vlmserve_requests_in_flight{{namespace="{NAMESPACE}"}}) == 1'
    pod = served.world.pod(served.name)["metadata"]["name"]
    with monitoring.traffic(f"http://{address}:8000/v1", MODEL_NAME, served.api_key):
        (series,) = eventually(lambda: monitoring.answer(prometheus, query), "one request in flight", seconds=60)
    assert series["metric"] == {"pod": pod}


def test_a_service_that_is_well_wakes_nobody(served: Served, prometheus: str) -> None:
    query = f'vlmservice:pods_ready:sum{{namespace="{NAMESPACE}"}} == 1'
    eventually(lambda: monitoring.answer(prometheus, query), "one pod ready", seconds=60)
    assert monitoring.answer(prometheus, f'ALERTS{{alertstate="firing",namespace="{NAMESPACE}"}}') == []
