"""A real cluster with the operator of the present sources in it, and a namespace that admits restricted pods only.

What is there is used: a cluster that runs stays, as does the operator, which is upgraded. A cluster that was started here
is stopped in the end. Services of others that run an engine on the CPU get no pods meanwhile, since two cores carry one.
"""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from demo import machine
from demo import services as installing
from demo.__main__ import LOCAL_IMAGE
from demo.commands import Cluster, start_log
from demo.screen import DemoError
from e2e import services
from e2e.world import OPERATOR_NAMESPACE, World, eventually

from minicluster import build, engine, images, kube, lifecycle, volumes
from minicluster.errors import ClusterError
from minicluster.paths import ENGINE, KUBECONFIG, RUN
from minicluster.processes import Daemons

NAMESPACE = "vlm-e2e"
SERVED = "tiny-vlm"
MODEL_NAME = "tiny-qwen3-vl"


@dataclass(frozen=True)
class Served:
    """A service with an engine, and the two secrets that it was given."""

    world: World
    name: str
    api_key: str
    hub_token: str

    @property
    def spec(self) -> services.Spec:
        spec = services.cpu(security={"apiKeySecretRef": {"name": "client-key", "key": "key"}})
        spec["replicas"] = 1  # said, so that applying it ends a pause
        spec["engine"]["args"] = ["--schedule-conservativeness", "0.9"]  # for the tests that leave a setting out
        spec["model"] |= {"name": MODEL_NAME, "tokenSecretRef": {"name": "hub", "key": "token"}}
        return spec


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """The one-node cluster with the present operator's image in it."""
    if missing := what_is_missing():
        pytest.fail(f"missing: {', '.join(missing)}; next: make prepare", pytrace=False)
    ran = KUBECONFIG.exists() and lifecycle.is_healthy(Daemons(RUN))
    try:
        images.make(["operator"])
        lifecycle.up()
    except ClusterError as error:
        pytest.fail(f"the cluster does not come up: {error}", pytrace=False)
    yield
    if not ran:
        lifecycle.down()


def what_is_missing() -> list[str]:
    """What takes minutes to make, and is made once for all suites by `make prepare`."""
    found = [f"program {name}" for name in build.outdated(list(build.packages()))]
    found += [f"image {name}" for name in images.MAKERS if not images.archive_path(name).is_file()]
    found += [] if (ENGINE / "sglang").is_dir() else ["the engine"]
    return found + ([] if engine.MODEL.is_dir() else ["the tiny model"])


@pytest.fixture(scope="session")
def operator(cluster: None) -> None:
    """The chart, installed or upgraded, with its pod ready."""
    start_log()
    try:
        installing.install(Cluster.at(KUBECONFIG), LOCAL_IMAGE, machine.operator_build())
    except DemoError as error:
        system = World(OPERATOR_NAMESPACE)
        log = system.says("logs", "-l", "app.kubernetes.io/name=vlm-operator", "--tail=20", "--prefix")
        pytest.fail(f"{error}\n{system.says('get', 'pods')}{log}", pytrace=False)


@pytest.fixture(scope="session")
def world(operator: None) -> Iterator[World]:
    """A fresh namespace that enforces the Pod Security Standard `restricted`, with the claims for engine and model."""
    remove_namespace()
    kube.kubectl("create", "namespace", NAMESPACE)
    kube.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    volumes.provide(NAMESPACE)
    yield World(NAMESPACE)
    remove_namespace()


def remove_namespace() -> None:
    """Pods first: a namespace with pods is looked at again only after half of their grace period of minutes."""
    if kube.succeeds("get", "namespace", NAMESPACE):
        World(NAMESPACE)("delete", "vlms", "--all", "--timeout=30s")
        World(NAMESPACE)("wait", "--for=delete", "pods", "--all", "--timeout=90s")
    kube.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=120s")
    for volume in volumes.VOLUMES:
        kube.kubectl("delete", "pv", f"{volume.claim}-{NAMESPACE}", "--ignore-not-found", "--timeout=30s")


@pytest.fixture(scope="session")
def free_processors(world: World) -> Iterator[None]:
    """No engine of somebody else's services runs on the CPU; afterwards they are as they were."""
    paused = []
    for service in world.items("vlms", "--all-namespaces"):
        metadata, spec = service["metadata"], service["spec"]
        if metadata["namespace"] != NAMESPACE and spec["hardware"]["device"] == "cpu" and spec.get("replicas") != 0:
            paused.append((World(metadata["namespace"]), metadata["name"], spec.get("replicas", 1)))
    for theirs, name, _ in paused:
        theirs("scale", "vlms", name, "--replicas=0")
        eventually(lambda w=theirs, n=name: not w.pods(n), f"no pods of {name}", seconds=60)  # type: ignore[misc]
    yield
    for theirs, name, replicas in paused:
        theirs.says("scale", "vlms", name, f"--replicas={replicas}")  # its owner may have removed it meanwhile


@pytest.fixture(scope="session")
def applied(world: World, free_processors: None) -> Served:
    """The service that most tests share, applied but perhaps not ready. It has a client's key and a hub token."""
    made = Served(world, SERVED, f"client-{secrets.token_hex(16)}", f"hub-{secrets.token_hex(16)}")
    for name, value in (("client-key", f"key={made.api_key}"), ("hub", f"token={made.hub_token}")):
        world("create", "secret", "generic", name, f"--from-literal={value}")
    world.apply(made.name, made.spec)
    return made


@pytest.fixture
def served(applied: Served) -> Served:
    """The same, alone on the machine and ready."""
    applied.world.pause_others(applied.name)
    applied.world.apply(applied.name, applied.spec)
    applied.world.wait_until_ready(applied.name)
    return applied


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Whoever reads of a failure sees at once what the cluster says."""
    report = yield
    if report.failed and isinstance(world := getattr(item, "funcargs", {}).get("world"), World):
        try:
            report.sections.append(("what the cluster says", world.evidence()))
        except ClusterError as error:
            report.sections.append(("what the cluster says", f"nothing: {error}"))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    measured = [
        (name, value)
        for report in terminalreporter.stats.get("passed", [])
        if "/e2e/" in report.nodeid and report.when == "call"
        for name, value in report.user_properties
    ]
    if measured:
        terminalreporter.section("measured on this machine")
        for name, value in measured:
            terminalreporter.write_line(f"{value:>10}  {name}")
