"""What people and controllers do with VLMServices through the API server: defaults, scaling, status, columns, help."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from crd_cases import MINIMAL

from vlm_api.status import VLMService

if TYPE_CHECKING:
    from apiserver.conftest import Kubectl


def manifest(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "vlmserve.dev/v1alpha1",
        "kind": "VLMService",
        "metadata": {"name": "vlm"},
        "spec": MINIMAL | spec,
    }


STATUS = {
    "observedGeneration": 1,
    "replicas": 2,
    "desiredReplicas": 2,
    "readyReplicas": 1,
    "updatedReplicas": 2,
    "selector": "vlmserve.dev/service=vlm",
    "url": "http://vlm.default.svc:8000/v1",
    "conditions": [
        {
            "type": "Ready",
            "status": "False",
            "reason": "PodsStarting",
            "message": "1 of 2 pods answers; wait for the other",
            "lastTransitionTime": "2025-11-29T12:00:00Z",
        }
    ],
    "plan": {
        "hash": "0123abcd",
        "engine": {"version": "1.2.3", "image": "lmsysorg/sglang:v1.2.3", "args": ["--host", "0.0.0.0"]},
        "hardware": {"device": "cuda", "product": "NVIDIA-H100-80GB-HBM3", "memoryMiB": 81559},
        "settings": [
            {
                "name": "prefill_decode_interval",
                "value": 22,
                "applied": True,
                "source": "profile",
                "rule": "qwen3_vl.hopper.prefill_decode_interval",
                "reason": "measured",
            },
            {
                "name": "attention_backend",
                "applied": False,
                "source": "engine",
                "rule": "attention",
                "reason": "left to the engine",
                "expected": {"prefill": "fa3"},
            },
        ],
    },
}


@pytest.fixture
def vlm(kubectl: Kubectl, namespace: str) -> str:
    """A namespace with a VLMService ``vlm`` in it that has a status."""
    kubectl("create", "-n", namespace, "-f", "-", stdin=manifest(replicas=2))
    patch = json.dumps({"status": STATUS})
    kubectl("patch", "vlms/vlm", "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)
    return namespace


def read(kubectl: Kubectl, namespace: str) -> dict[str, Any]:
    return json.loads(kubectl("get", "vlms/vlm", "-n", namespace, "-o", "json"))


def table(kubectl: Kubectl, *arguments: str) -> list[dict[str, str]]:
    """Rows of a kubectl table, by column; columns are cut where the header's words begin."""
    header, *lines = kubectl(*arguments).splitlines()
    names = header.split()
    starts = [header.index(name) for name in names] + [None]
    return [{name: line[a:b].strip() for name, a, b in zip(names, starts, starts[1:], strict=False)} for line in lines]


def test_defaults_are_those_of_the_types(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "-n", namespace, "-f", "-", stdin=manifest())
    stored = read(kubectl, namespace)["spec"]
    assert stored["replicas"] == 1
    assert stored["workload"]["images"] == {"perRequest": 1, "reuse": "Unknown", "enforce": False}
    assert stored["rolloutStrategy"] == {"maxSurge": 0, "maxUnavailable": 1}
    ours = VLMService.model_validate(manifest()).spec
    assert VLMService.model_validate(manifest(**stored)).spec == ours.model_copy(update={"replicas": 1})


def test_settings_and_template_keep_whatever_is_in_them(kubectl: Kubectl, namespace: str) -> None:
    settings = {"prefill_decode_interval": 10, "json": {"a": [1, None, "x"]}, "fraction": 0.5, "nothing": None}
    template = {"spec": {"containers": [{"name": "main", "x-unknown": {"deep": True}}]}}
    kubectl("create", "-n", namespace, "-f", "-", stdin=manifest(engine={"settings": settings}, template=template))
    spec = read(kubectl, namespace)["spec"]
    assert spec["engine"]["settings"] == settings
    assert spec["template"] == template


def test_the_scale_subresource_says_what_an_autoscaler_needs(kubectl: Kubectl, vlm: str) -> None:
    path = f"/apis/vlmserve.dev/v1alpha1/namespaces/{vlm}/vlmservices/vlm/scale"
    scale = json.loads(kubectl("get", "--raw", path))
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 2, "selector": "vlmserve.dev/service=vlm"}


def test_scaling_is_refused_where_the_rules_refuse_it(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "-n", namespace, "-f", "-", stdin=manifest(scaling={"maxReplicas": 4}))
    done = kubectl.attempt("scale", "vlms/vlm", "-n", namespace, "--replicas=2")
    assert done.returncode == 1
    assert "replicas and scaling are mutually exclusive" in done.stderr


def test_status_is_written_through_its_own_endpoint_only(kubectl: Kubectl, vlm: str) -> None:
    kubectl("patch", "vlms/vlm", "-n", vlm, "--type=merge", "-p", json.dumps({"status": {"replicas": 9}}))
    assert read(kubectl, vlm)["status"]["replicas"] == 2
    change = json.dumps({"spec": {"replicas": 9}, "status": {"replicas": 3}})
    kubectl("patch", "vlms/vlm", "-n", vlm, "--subresource=status", "--type=merge", "-p", change)
    found = read(kubectl, vlm)
    assert found["spec"]["replicas"] == 2
    assert found["status"]["replicas"] == 3
    assert found["metadata"]["generation"] == 1


def test_status_comes_back_as_it_was_written(kubectl: Kubectl, vlm: str) -> None:
    found = read(kubectl, vlm)
    assert found["status"] == STATUS
    service = VLMService.model_validate(found)
    assert service.status.plan.settings[1].expected == {"prefill": "fa3"}


def test_two_conditions_of_one_type_are_refused(kubectl: Kubectl, vlm: str) -> None:
    twice = json.dumps({"status": {"conditions": STATUS["conditions"] * 2}})
    done = kubectl.attempt("patch", "vlms/vlm", "-n", vlm, "--subresource=status", "--type=merge", "-p", twice)
    assert "Duplicate value" in done.stderr


def test_get_shows_the_columns_that_people_look_for(kubectl: Kubectl, vlm: str) -> None:
    (row,) = table(kubectl, "get", "vlms", "-n", vlm)
    assert list(row) == ["NAME", "MODEL", "GPU", "DESIRED", "READY", "UP-TO-DATE", "STATUS", "AGE"]
    assert row.pop("AGE")
    assert row == {
        "NAME": "vlm",
        "MODEL": "hf://Qwen/Qwen3-VL-8B-Instruct",
        "GPU": "NVIDIA-H100-80GB-HBM3",
        "DESIRED": "2",
        "READY": "1",
        "UP-TO-DATE": "2",
        "STATUS": "PodsStarting",
    }


def test_wide_adds_engine_plan_and_url(kubectl: Kubectl, vlm: str) -> None:
    (row,) = table(kubectl, "get", "vlms", "-n", vlm, "-o", "wide")
    assert list(row)[-3:] == ["ENGINE", "PLAN", "URL"]
    assert (row["ENGINE"], row["PLAN"], row["URL"]) == ("1.2.3", "0123abcd", "http://vlm.default.svc:8000/v1")


@pytest.mark.parametrize("name", ["vlms", "vlmservice", "vlmservices", "vlm"])
def test_a_service_is_found_by_short_name_names_and_category(kubectl: Kubectl, vlm: str, name: str) -> None:
    assert kubectl("get", name, "-n", vlm, "-o", "name").strip() == "vlmservice.vlmserve.dev/vlm"


def test_explain_shows_what_the_types_say(kubectl: Kubectl) -> None:
    explained = " ".join(kubectl("explain", "vlms.spec.workload").split())
    assert "The expected traffic." in explained
    assert "Requests in flight per replica. If unset, the engine decides." in explained
    reuse = " ".join(kubectl("explain", "vlms.spec.workload.images.reuse").split())
    assert "ENUM: SingleUse Repeated Unknown" in reuse
    assert "`SingleUse`: each image is sent once." in reuse


def test_server_side_apply_merges_variables_by_name(kubectl: Kubectl, namespace: str) -> None:
    apply = ["apply", "--server-side", "-n", namespace, "-f", "-"]
    kubectl(*apply, "--field-manager=a", stdin=manifest(engine={"env": [{"name": "A", "value": "1"}]}))
    theirs = manifest(engine={"env": [{"name": "B", "value": "2"}]})
    kubectl(*apply, "--field-manager=b", stdin=theirs)
    assert read(kubectl, namespace)["spec"]["engine"]["env"] == [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "2"},
    ]


def test_applying_the_same_again_changes_nothing(kubectl: Kubectl, namespace: str) -> None:
    for _ in range(2):
        kubectl("apply", "--server-side", "-n", namespace, "-f", "-", stdin=manifest(sharedMemorySize="16Gi"))
    first = read(kubectl, namespace)["metadata"]["resourceVersion"]
    kubectl("apply", "--server-side", "-n", namespace, "-f", "-", stdin=manifest(sharedMemorySize="16Gi"))
    assert read(kubectl, namespace)["metadata"]["resourceVersion"] == first


def test_an_old_kubectl_apply_keeps_a_scaled_number(kubectl: Kubectl, namespace: str) -> None:
    kubectl("apply", "-n", namespace, "-f", "-", stdin=manifest())
    kubectl("scale", "vlms/vlm", "-n", namespace, "--replicas=3")
    kubectl("apply", "-n", namespace, "-f", "-", stdin=manifest(suspend=True))
    assert read(kubectl, namespace)["spec"]["replicas"] == 3
