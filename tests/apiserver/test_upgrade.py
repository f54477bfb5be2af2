"""A new operator meets services that an earlier one created and that serve: it keeps their plans and their pods.

Once, workloads from before pools are replaced: their selectors lack the labels of a pool and are immutable.
"""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from apiserver.operating import Operator, World, eventually

DATA = Path(__file__).parent / "data"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "qwen3-vl-h100.yaml"
RELEASES = sorted(path.stem.removeprefix("release-") for path in DATA.glob("release-*.yaml"))
NAME = "qwen3-vl-h100"
POOL_LABELS = {"vlmserve.dev/pool", "vlmserve.dev/role"}

Json = dict[str, Any]


@pytest.fixture
def operator(api_server: Any, namespace: str, tmp_path: Path) -> Iterator[Operator]:
    log = tmp_path / "operator.log"
    made = Operator(api_server.kubeconfig, log, "--namespace", namespace, "--no-leader-election", namespace=namespace)
    yield made
    if made.running:
        made.stop()


def install(world: World, release: str, change: Callable[[Json], None] = lambda manifest: None) -> list[Json]:
    """The service and its objects as that release left them, with one pod that serves; ``change`` may edit each object."""
    world("create", "-f", str(EXAMPLE))
    service = world.get("vlms", NAME)
    owner = {
        "apiVersion": service["apiVersion"],
        "kind": service["kind"],
        "name": NAME,
        "uid": service["metadata"]["uid"],
        "controller": True,
    }
    text = (
        (DATA / f"release-{release}.yaml")
        .read_text()
        .replace('"namespace": "default"', f'"namespace": "{world.namespace}"')
    )
    manifests = list(yaml.safe_load_all(text))
    for manifest in manifests:
        manifest["metadata"] |= {"namespace": world.namespace, "ownerReferences": [owner]}
        change(manifest)
        world("apply", "--server-side", "--field-manager=vlm-operator", "-f", "-", stdin=manifest)
    labels = world.get("deployment", NAME)["spec"]["template"]["metadata"]["labels"]
    spec = {"containers": [{"name": "main", "image": "x"}], "nodeName": "h100-0"}
    world("create", "-f", "-", stdin={
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{NAME}-0", "labels": labels}, "spec": spec,
    })  # fmt: skip
    world.serving(NAME)
    return manifests


def without_pool(manifest: Json) -> None:
    """Makes an object one of the operator from before pools: without the labels of a pool, on it and in selectors."""
    spec = manifest.get("spec", {})
    for labels in (
        manifest["metadata"]["labels"],
        spec.get("selector", {}),
        spec.get("selector", {}).get("matchLabels", {}),
        spec.get("template", {}).get("metadata", {}).get("labels", {}),
    ):
        for label in POOL_LABELS:
            labels.pop(label, None)
    if manifest["kind"] == "ConfigMap":
        plan = json.loads(manifest["data"]["plan.json"])
        manifest["data"]["plan.json"] = json.dumps({k: v for k, v in plan.items() if k not in ("pool", "role")})


def replacements(world: World) -> list[Json]:
    events = json.loads(world("get", "events.events.k8s.io", "-o", "json"))["items"]
    return [e for e in events if e["reason"] == "WorkloadReplaced"]


def uid(world: World) -> str:
    return str(world.get("deployment", NAME)["metadata"]["uid"])


@pytest.mark.parametrize("release", RELEASES)
def test_an_upgrade_keeps_the_plan_and_replaces_no_pod(operator: Operator, world: World, release: str) -> None:
    manifests = install(world, release)
    (plan,) = [json.loads(m["data"]["plan.json"]) for m in manifests if m["kind"] == "ConfigMap"]
    uids = {m["kind"]: world.get(m["kind"].lower(), m["metadata"]["name"])["metadata"]["uid"] for m in manifests}
    before = world.get("deployment", NAME)
    operator.start()
    eventually(
        lambda: world.plan_hash(NAME) == plan["hash"], seconds=30, what=lambda: world.get("vlms", NAME).get("status")
    )
    eventually(lambda: operator.metric("vlm_operator_queue_depth") == 0, seconds=30)
    for kind in ("ConfigMap", "Deployment"):
        (name,) = [m["metadata"]["name"] for m in manifests if m["kind"] == kind]
        assert world.get(kind.lower(), name)["metadata"]["uid"] == uids[kind], f"{kind} was created again"
    after = world.get("deployment", NAME)
    assert after["spec"]["template"] == before["spec"]["template"]
    assert after["spec"]["selector"] == before["spec"]["selector"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert world.condition("Available", NAME)[:2] == ("True", "ReplicasAvailable")
    assert not replacements(world)


def test_a_workload_from_before_pools_is_replaced_once_and_keeps_its_plan(operator: Operator, world: World) -> None:
    manifests = install(world, RELEASES[0], without_pool)
    (config_map,) = [m for m in manifests if m["kind"] == "ConfigMap"]
    old = world.get("deployment", NAME)
    assert not POOL_LABELS & old["spec"]["selector"]["matchLabels"].keys()
    operator.start()
    eventually(lambda: uid(world) != old["metadata"]["uid"], seconds=30, what=operator.said)
    (event,) = eventually(lambda: replacements(world))
    assert "selector is immutable and differs in vlmserve.dev/pool and vlmserve.dev/role" in event["note"]
    new = world.get("deployment", NAME)
    labels = new["spec"]["template"]["metadata"]["labels"]
    assert new["spec"]["selector"]["matchLabels"].keys() >= POOL_LABELS
    assert new["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert labels["vlmserve.dev/plan"] == old["spec"]["template"]["metadata"]["labels"]["vlmserve.dev/plan"]
    assert world.get("service", NAME)["spec"]["selector"].items() <= labels.items()
    assert world.get("configmap", config_map["metadata"]["name"])["data"] == config_map["data"]
    reconciled = operator.metric("vlm_operator_reconciles_total")
    world("annotate", "vlms", NAME, "look=again")
    eventually(lambda: operator.metric("vlm_operator_reconciles_total") > reconciled)
    assert operator.stop() == 0
    operator.start()
    eventually(lambda: operator.metric("vlm_operator_reconciles_total") > 0)
    assert uid(world) == new["metadata"]["uid"]
    assert replacements(world) == [event]


def test_a_replacement_outlives_a_slow_deletion_and_the_end_of_the_operator(operator: Operator, world: World) -> None:
    install(world, RELEASES[0], without_pool)
    old = uid(world)
    world("patch", "deployment", NAME, "-p", json.dumps({"metadata": {"finalizers": ["example.com/slow"]}}))
    operator.start()
    assert "is being deleted" in world.wait_for("False", "NotApplied", name=NAME, seconds=30)
    operator.stop(signal.SIGKILL)
    operator.start()
    assert uid(world) == old
    world("patch", "deployment", NAME, "--type=merge", "-p", json.dumps({"metadata": {"finalizers": None}}))
    eventually(lambda: world.exists("deployment", NAME) and uid(world) != old, what=operator.said)
    assert world.get("deployment", NAME)["spec"]["selector"]["matchLabels"].keys() >= POOL_LABELS
    eventually(lambda: world.condition(name=NAME)[1] != "NotApplied", what=lambda: world.condition(name=NAME))
    assert len(replacements(world)) == 1
