"""`helm upgrade` to another operator while a service serves: the operator's pod is replaced, the service's is not."""

from collections.abc import Iterator

import pytest
from demo import services as installing
from demo.__main__ import LOCAL_IMAGE
from demo.commands import Cluster
from demo.machine import operator_build
from e2e import services
from e2e.world import OPERATOR, OPERATOR_NAMESPACE, World, eventually

from minicluster import kube, kwok
from minicluster.node import ctr
from minicluster.paths import KUBECONFIG, RUN
from minicluster.processes import Daemons
from minicluster.shell import run

NODE, NAME = "l40s", "outlives"
# The same content under another name, as every release has one: pods of a new plan would be others.
NEWER_IMAGE = "vlmserve.local/operator:newer"
LABEL = f"app.kubernetes.io/name={OPERATOR}"


@pytest.fixture
def serving(world: World) -> Iterator[str]:
    """A service with a pod on a simulated GPU node."""
    kwok.create_nodes(NODE, 1)
    world.apply(NAME, services.l40s())
    world.wait_until_ready(NAME, 15)
    yield NAME
    world("delete", "vlms", NAME, "--timeout=60s")
    eventually(lambda: not world.items("pods", "-l", f"vlmserve.dev/service={NAME}"), "no pod is left", seconds=60)
    kube.kubectl("delete", "node", f"{NODE}-0", "--ignore-not-found", "--timeout=30s")


@pytest.fixture
def newer_image() -> Iterator[str]:
    daemons = Daemons(RUN)
    run(ctr(daemons, "images", "tag", "--force", LOCAL_IMAGE, NEWER_IMAGE))
    yield NEWER_IMAGE
    installing.install(Cluster.at(KUBECONFIG), LOCAL_IMAGE, operator_build())
    run(ctr(daemons, "images", "remove", NEWER_IMAGE))


def operators() -> set[str]:
    return {pod["metadata"]["uid"] for pod in World(OPERATOR_NAMESPACE).items("pods", "-l", LABEL)}


def test_an_upgrade_of_the_chart_replaces_the_operator_and_no_pod_of_a_service(
    world: World, serving: str, newer_image: str
) -> None:
    old, pod, deployment = operators(), world.pod(serving)["metadata"], world.get("deployment", serving)
    plan = world.service(serving)["status"]["plan"]["hash"]
    assert installing.install(Cluster.at(KUBECONFIG), newer_image, operator_build())
    eventually(lambda: not operators() & old, "the old operator has gone", seconds=60)
    # That the new one has looked at the service shows where it makes something again.
    before = world.get("service", serving)["metadata"]["uid"]
    world("delete", "service", serving)
    again = eventually(lambda: world.get("service", serving), "the new operator works", seconds=30)
    assert again["metadata"]["uid"] != before
    assert world.pod(serving)["metadata"]["uid"] == pod["uid"]
    after = world.get("deployment", serving)
    assert after["metadata"]["generation"] == deployment["metadata"]["generation"]
    assert after["spec"]["template"] == deployment["spec"]["template"]
    assert world.service(serving)["status"]["plan"]["hash"] == plan

    changed = services.l40s()
    changed["workload"] = {"concurrency": 8}
    world.apply(serving, changed)
    eventually(
        lambda: (
            world.get("deployment", serving)["spec"]["template"]["spec"]["initContainers"][0]["image"] == newer_image
        ),
        "the next change brings the new operator's runtime",
    )
