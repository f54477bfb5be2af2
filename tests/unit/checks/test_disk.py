"""Weights that pods download: what is asked for of the node's disk, and where it is too small."""

from typing import Any

import pytest
from unit.plan.builders import QWEN3_VL, RUNTIME_IMAGE, cluster, findings_of, node, reasons, request_of, service

from vlm_api.plan import ServingPlan, Severity
from vlm_operator.plan.make import make_plan
from vlm_operator.plan.stored import plan_with_manifests

WEIGHTS_MIB = 15_360  # 8 billion parameters of two bytes are 15,259 MiB


def with_disk(storage: str | None = "3000Gi", name: str = "node-0") -> dict[str, Any]:
    made = node(name)
    if storage is not None:
        made["status"]["allocatable"]["ephemeral-storage"] = storage
    return made


def asked(*nodes: dict[str, Any], **spec: Any) -> dict[str, str]:
    """What the engine's container asks for."""
    made = plan_with_manifests(
        request_of(service(**spec)), cluster(*(nodes or (with_disk(),))), runtime_image=RUNTIME_IMAGE
    )
    (workload,) = (m for m in made.manifests if m["kind"] in ("Deployment", "LeaderWorkerSet"))
    template = workload["spec"].get("template") or workload["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    return dict(template["spec"]["containers"][0]["resources"]["requests"])


def main(**resources: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "main", "resources": resources}]}}


def plan(*nodes: dict[str, Any], **spec: Any) -> ServingPlan:
    return make_plan(request_of(service(**spec)), cluster(*nodes), runtime_image=RUNTIME_IMAGE)


def test_a_pod_asks_for_the_disk_that_its_download_takes():
    assert asked()["ephemeral-storage"] == f"{WEIGHTS_MIB}Mi"
    assert plan(with_disk()).resources.ephemeral_storage_mib == WEIGHTS_MIB


def test_each_pod_of_a_group_downloads_all_weights():
    nodes = (with_disk(name="a"), with_disk(name="b"))
    two = {"parallelism": {"tensor": 16}, "multinode": {"nodeCount": 2}, "engine": {"settings": {}}}
    model = {"uri": "hf://Qwen/Qwen3-VL-235B-A22B-Instruct"}
    assert asked(*nodes, model=model, **two)["ephemeral-storage"] == "449536Mi"


def test_a_group_whose_pods_download_each_for_itself_is_told_how_little_they_may_differ():
    nodes = (with_disk(name="a"), with_disk(name="b"))
    two = {"parallelism": {"tensor": 16}, "multinode": {"nodeCount": 2}, "engine": {"settings": {}}}
    model = {"uri": "hf://Qwen/Qwen3-VL-235B-A22B-Instruct"}
    (found,) = findings_of("GroupDownloads", plan(*nodes, model=model, **two))
    assert found.severity is Severity.WARNING
    assert "each of the 2 pods of a replica downloads 449,536 MiB" in found.message
    assert "spec.model.cacheClaim" in found.message
    assert not findings_of("GroupDownloads", plan(*nodes, model=model | {"cacheClaim": "weights"}, **two))
    assert not findings_of("GroupDownloads", plan(*nodes))


@pytest.mark.parametrize(
    "spec",
    [
        {"model": QWEN3_VL | {"cacheClaim": "weights"}},
        {"model": QWEN3_VL | {"uri": "pvc://weights/qwen"}},
        {"model": QWEN3_VL | {"uri": "file:///models/qwen"}},
        {"model": QWEN3_VL | {"uri": "oci://example.com/qwen:1"}},
        {"engine": {"settings": {"download_dir": "/mine"}}},
        {"engine": {"settings": {"load_format": "dummy"}}},
        {"engine": {"env": [{"name": "HF_HOME", "value": "/mine"}]}},
        {
            "template": {
                "spec": {
                    "containers": [
                        {"name": "main", "volumeMounts": [{"name": "mine", "mountPath": "/var/cache/vlmserve"}]}
                    ],
                    "volumes": [{"name": "mine", "hostPath": {"path": "/mnt/nvme"}}],
                }
            }
        },
        {"template": {"spec": {"volumes": [{"name": "cache", "hostPath": {"path": "/mnt/nvme"}}]}}},
        {"model": {"uri": "hf://org/of-an-unknown-size"}},
    ],
)
def test_what_is_downloaded_elsewhere_or_not_at_all_asks_for_no_disk(spec):
    assert "ephemeral-storage" not in asked(**spec)
    small = plan(with_disk("1Gi"), **spec)
    assert small.resources.ephemeral_storage_mib is None
    assert not findings_of("NodeDiskTooSmall", small)


@pytest.mark.parametrize(
    "nodes", [(with_disk(None),), (with_disk(), with_disk(None, "b")), (node(spec={"unschedulable": True}),)]
)
def test_a_node_that_does_not_say_what_it_has_is_asked_for_nothing(nodes):
    assert "ephemeral-storage" not in asked(*nodes)


def test_a_node_whose_disk_is_too_small_is_told_with_the_numbers():
    (found,) = findings_of("NodeDiskTooSmall", plan(with_disk("10Gi"), with_disk("12Gi", "b")))
    assert found.severity is Severity.WARNING
    assert "15,360 MiB of weights" in found.message
    assert "offers 12,288 MiB" in found.message
    assert "waits for a larger one" in found.message
    assert "spec.model.cacheClaim" in found.message
    assert not findings_of("NodeDiskTooSmall", plan(with_disk("10Gi"), with_disk("16Gi", "b")))


def test_no_pod_waits_for_a_disk_that_files_of_which_nothing_was_read_may_not_need():
    model = {"uri": "hf://org/some-awq", "architecture": "Qwen3VLForConditionalGeneration", "parametersBillion": 8}
    assert asked(model=model)["ephemeral-storage"] == f"{WEIGHTS_MIB}Mi"
    assert "ephemeral-storage" not in asked(with_disk("10Gi"), model=model)
    (found,) = findings_of("NodeDiskTooSmall", plan(with_disk("10Gi"), model=model))
    assert "about 15,360 MiB of weights" in found.message
    assert "waits" not in found.message


def test_a_request_of_the_user_s_stays_and_does_not_make_the_disk_larger():
    template = main(requests={"ephemeral-storage": "1Gi"})
    assert asked(template=template)["ephemeral-storage"] == "1Gi"
    (found,) = findings_of("NodeDiskTooSmall", plan(with_disk("10Gi"), template=template))
    assert "would be evicted" in found.message


def test_a_limit_below_the_download_is_told_and_stands_for_the_request():
    template = main(limits={"ephemeral-storage": "10Gi"})
    made = plan(with_disk(), template=template)
    (found,) = findings_of("DiskLimitTooLow", made)
    assert "10,240 MiB are less than the 15,360 MiB" in found.message
    assert "ephemeral-storage" not in asked(template=template)
    assert "DiskLimitTooLow" not in reasons(plan(with_disk(), template=main(limits={"ephemeral-storage": "20Gi"})))
