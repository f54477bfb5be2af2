"""A new operator finds services that an earlier release made and that serve: it keeps their plans and their pods."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from apiserver.operating import Operator, World, eventually

DATA = Path(__file__).parent / "data"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "qwen3-vl-h100.yaml"
RELEASES = sorted(path.stem.removeprefix("release-") for path in DATA.glob("release-*.yaml"))
NAME = "qwen3-vl-h100"


@pytest.fixture
def world(kubectl: Any, namespace: str) -> World:
    return World(kubectl, namespace)


@pytest.fixture
def operator(api_server: Any, namespace: str, tmp_path: Path) -> Iterator[Operator]:
    log = tmp_path / "operator.log"
    made = Operator(api_server.kubeconfig, log, "--namespace", namespace, "--no-leader-election", namespace=namespace)
    yield made
    if made.running:
        made.stop()


def install(world: World, release: str) -> list[dict[str, Any]]:
    """The service and its objects as that release left them, with one pod that serves."""
    world("create", "-f", str(EXAMPLE))
    service = world.get("vlms", NAME)
    owner = {
        "apiVersion": service["apiVersion"],
        "kind": service["kind"],
        "name": NAME,
        "uid": service["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    text = (
        (DATA / f"release-{release}.yaml")
        .read_text()
        .replace('"namespace": "default"', f'"namespace": "{world.namespace}"')
    )
    manifests = list(yaml.safe_load_all(text))
    for manifest in manifests:
        manifest["metadata"] |= {"namespace": world.namespace, "ownerReferences": [owner]}
        world("apply", "--server-side", "--field-manager=vlm-operator", "-f", "-", stdin=manifest)
    labels = world.get("deployment", NAME)["spec"]["template"]["metadata"]["labels"]
    spec = {"containers": [{"name": "main", "image": "x"}], "nodeName": "h100-0"}
    world("create", "-f", "-", stdin={
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{NAME}-0", "labels": labels}, "spec": spec,
    })  # fmt: skip
    world.serving(NAME)
    return manifests


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
        assert world.get(kind.lower(), name)["metadata"]["uid"] == uids[kind], f"{kind} was made anew"
    after = world.get("deployment", NAME)
    assert after["spec"]["template"] == before["spec"]["template"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert world.condition("Available", NAME)[:2] == ("True", "ReplicasAvailable")
