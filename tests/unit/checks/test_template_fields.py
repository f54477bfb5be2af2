"""A misspelt field of ``spec.template`` is told at once, not when the API server refuses the pods."""

from typing import Any

import pytest

from vlm_operator.checks import template
from vlm_operator.checks.template.generate import FIELDS, text
from vlm_operator.errors import InvalidInput


def main(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "main", **fields}]}}


@pytest.mark.parametrize(
    ("written", "path", "says"),
    [
        ({"spec": {"nodeSelectors": {}}}, "spec.template.spec.nodeSelectors", "did you mean nodeSelector?"),
        ({"spec": {"toleration": []}}, "spec.template.spec.toleration", "did you mean tolerations?"),
        ({"specs": {}}, "spec.template.specs", "did you mean spec?"),
        ({"metadata": {"label": {}}}, "spec.template.metadata.label", "did you mean labels?"),
        (
            main(resources={"limit": {}}),
            "spec.template.spec.containers[0].resources.limit",
            "did you mean limits?",
        ),
        (
            main(env=[{"name": "A", "valuefrom": {}}]),
            "spec.template.spec.containers[0].env[0].valuefrom",
            "did you mean valueFrom?",
        ),
        (
            main(nodeSelector={}),
            "spec.template.spec.containers[0].nodeSelector",
            "it belongs into spec.template.spec",
        ),
        (
            {"spec": {"resources": {}, "image": "x"}},
            "spec.template.spec.image",
            "it belongs into an entry of spec.template.spec.containers",
        ),
        (
            {"tolerations": []},
            "spec.template.tolerations",
            "it belongs into spec.template.spec",
        ),
        (
            {"spec": {"terminationGracePeriodSeconds": "30"}},
            "spec.template.spec.terminationGracePeriodSeconds",
            "must be a whole number, without quotes",
        ),
        ({"spec": {"hostNetwork": "true"}}, "spec.template.spec.hostNetwork", "must be true or false, without quotes"),
        ({"spec": {"priorityClassName": 5}}, "spec.template.spec.priorityClassName", "must be text: put it in quotes"),
        (
            {"spec": {"containers": [{"name": "side", "image": "https://example.com/x"}]}},
            "spec.template.spec.containers[0].image",
            "without spaces, scheme or user",
        ),
        ({"spec": {"hostAliases": {}}}, "spec.template.spec.hostAliases", "must be a list"),
        (
            main(resources={"limits": {"memory": "8Gb"}}),
            "spec.template.spec.containers[0].resources.limits.memory",
            'is "8Gb", but must be a quantity such as 16Gi, 500m or 2',
        ),
        (
            {"spec": {"containers": [{"name": "side", "resources": {"requests": {"nvidia.com/gpu": "two"}}}]}},
            "spec.template.spec.containers[0].resources.requests.nvidia.com/gpu",
            "must be a quantity such as 16Gi, 500m or 2",
        ),
        (
            {"spec": {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "big"}}]}},
            "spec.template.spec.volumes[0].emptyDir.sizeLimit",
            "must be a quantity such as 16Gi, 500m or 2",
        ),
        (
            {"spec": {"securityContext": {"runAsUser": True}}},
            "spec.template.spec.securityContext.runAsUser",
            "must be a whole number, without quotes",
        ),
    ],
)
def test_what_the_api_server_would_refuse_is_refused_with_what_was_meant(written, path, says):
    refused = next(template.problems(written))
    assert isinstance(refused, InvalidInput)
    assert str(refused).startswith(f"{path}: ")
    assert str(refused).endswith(says)


def test_a_field_like_none_that_is_known_may_be_a_newer_kubernetes_and_is_a_finding():
    (finding,) = template.problems({"spec": {"quantumAnnealing": {"qubits": 5}}})
    assert (finding.reason, finding.path) == ("TemplateFieldUnknown", "spec.template.spec.quantumAnnealing")


@pytest.mark.parametrize(
    "written",
    [
        {},
        {
            "metadata": {"labels": {"env": "x", "toleration": "y"}, "annotations": {"a/b": "c"}},
            "spec": {"nodeName": None},
        },
        {"spec": {"tolerations": None, "volumes": [{"name": "v", "$patch": "delete"}], "$setElementOrder/volumes": []}},
        {"spec": {"volumes": [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": 1024}}]}},
        main(
            resources={"requests": {"cpu": 0.5, "memory": "1e9", "ephemeral-storage": "1.5Ti", "hugepages-2Mi": None}}
        ),
        main(resources={"limits": {"cpu": "500m", "memory": "1Gi", "rdma/ib": 1}}, ports=[{"containerPort": 9000}]),
        main(livenessProbe={"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 3}),
        main(readinessProbe={"httpGet": {"path": "/", "port": 8001}}),
        main(volumeMounts=[{"name": "v", "mountPath": "/v", "subPath": "s"}], securityContext={"privileged": False}),
        {"spec": {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}}},
        {"spec": {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "t"}], "hostUsers": False}},
    ],
)
def test_what_the_api_server_takes_is_taken(written):
    assert list(template.problems(written)) == []


def test_values_that_may_be_secrets_are_not_repeated():
    (refused,) = template.problems(main(env=[{"name": "PASSWORD", "value": 271828}]))
    assert "271828" not in str(refused)


def test_the_committed_fields_are_those_of_the_kubernetes_client():
    assert FIELDS.read_text("utf-8") == text(), "run python -m vlm_operator.checks.template.generate"
