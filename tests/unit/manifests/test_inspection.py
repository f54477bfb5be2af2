"""The Job that reads a model's config.json."""

from typing import Any

import pytest
from unit.manifests.samples import service
from unit.plan.builders import request_of

from vlm_operator.manifests import inspection_digest, inspection_job
from vlm_operator.manifests.names import engine_labels

IMAGE = "registry.example/vlm-operator:1"
OWNER = {"apiVersion": "vlmserve.dev/v1alpha1", "kind": "VLMService", "name": "vlm", "uid": "u", "controller": True}
CLAIM = {"uri": "pvc://models/org/model"}
HUB = {"uri": "hf://org/model"}


def job(**spec: Any) -> dict[str, Any]:
    return inspection_job(request_of(service(**spec)), IMAGE, OWNER)


def pod(**spec: Any) -> dict[str, Any]:
    return job(**spec)["spec"]["template"]["spec"]


def container(**spec: Any) -> dict[str, Any]:
    (found,) = pod(**spec)["containers"]
    return dict(found)


def test_it_belongs_to_the_service_ends_by_itself_and_its_pod_is_not_an_engine():
    made = job(model=HUB)
    assert made["metadata"]["ownerReferences"] == [OWNER]
    assert made["spec"]["activeDeadlineSeconds"] <= 180
    assert made["spec"]["backoffLimit"] <= 2
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert labels["vlmserve.dev/service"] == "vlm"
    assert not engine_labels("vlm").items() <= labels.items()


def test_the_longest_service_name_gives_a_valid_name():
    made = inspection_job(request_of(service("a" * 40, model=HUB)), IMAGE, OWNER)
    assert len(made["metadata"]["name"]) <= 63


def test_it_requests_no_gpu_and_no_rights():
    found, main = pod(model=HUB), container(model=HUB)
    assert "nvidia.com/gpu" not in str(found)
    assert found["automountServiceAccountToken"] is False
    assert found["securityContext"]["runAsNonRoot"] is True
    assert main["image"] == IMAGE
    assert main["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_a_hub_model_is_named_with_its_revision_and_its_token_stays_a_reference():
    main = container(model={**HUB, "revision": "v1", "tokenSecretRef": {"name": "hub", "key": "token"}})
    assert main["command"][3:] == ["hf://org/model", "--revision", "v1"]
    assert main["env"] == [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}]


def test_a_claim_is_mounted_read_only_at_the_engine_s_path():
    (mount,) = container(model=CLAIM)["volumeMounts"]
    assert (mount["mountPath"], mount["readOnly"]) == ("/models", True)
    (volume,) = pod(model=CLAIM)["volumes"]
    assert volume["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}


def test_of_the_engine_s_environment_it_has_only_the_variables_for_the_hub():
    env = [
        {"name": "HF_ENDPOINT", "value": "https://mirror.example"},
        {"name": "HTTPS_PROXY", "value": "http://proxy:3128"},
        {"name": "NCCL_DEBUG", "value": "INFO"},
    ]
    main = {"name": "main", "env": [{"name": "HF_ENDPOINT", "value": "https://nearer.example"}]}
    made = container(model=HUB, engine={"env": env}, template={"spec": {"containers": [main]}})
    assert made["env"] == [
        {"name": "HF_ENDPOINT", "value": "https://nearer.example"},
        {"name": "HTTPS_PROXY", "value": "http://proxy:3128"},
    ]


def test_an_authority_that_the_engine_trusts_is_trusted_when_the_model_is_read():
    mount = {"name": "ca", "mountPath": "/etc/own-ca", "readOnly": True}
    other = {"name": "scratch", "mountPath": "/scratch"}
    volume = {"name": "ca", "configMap": {"name": "own-ca"}}
    main = {
        "name": "main",
        "env": [{"name": "SSL_CERT_FILE", "value": "/etc/own-ca/ca.crt"}],
        "volumeMounts": [other, mount],
    }
    template = {"spec": {"containers": [main], "volumes": [volume, {"name": "scratch", "emptyDir": {}}]}}
    found = pod(model=HUB, template=template)
    assert found["volumes"] == [volume]
    assert found["containers"][0]["volumeMounts"] == [mount]
    assert found["containers"][0]["env"] == main["env"]
    # Without the variable nothing is taken over, and a folder beside it is none of it.
    for env in ([], [{"name": "SSL_CERT_FILE", "value": "/etc/own-ca-too/ca.crt"}]):
        main["env"] = env
        assert "volumes" not in pod(model=HUB, template=template)


def test_it_runs_and_pulls_where_the_user_s_pods_may():
    wishes: dict[str, Any] = {
        "imagePullSecrets": [{"name": "mine"}],
        "nodeSelector": {"pool": "a"},
        "tolerations": [{"key": "pool", "operator": "Exists"}],
        "securityContext": {"fsGroup": 2000},
    }
    engine = {"name": "main", "resources": {"limits": {"memory": "64Gi"}}}
    found = pod(model=CLAIM, template={"spec": {**wishes, "containers": [engine]}})
    assert {name: found[name] for name in ("imagePullSecrets", "nodeSelector", "tolerations")} == {
        name: wishes[name] for name in ("imagePullSecrets", "nodeSelector", "tolerations")
    }
    assert (found["securityContext"]["fsGroup"], found["securityContext"]["runAsNonRoot"]) == (2000, True)
    assert found["containers"][0]["resources"]["limits"]["memory"] != "64Gi"


BASE: dict[str, Any] = {"model": HUB}
SAME: dict[str, dict[str, Any]] = {
    "the workload": {"workload": {"concurrency": 8}},
    "replicas": {"replicas": 3},
    "the served name": {"model": {**HUB, "name": "other"}},
    "a setting": {"engine": {"settings": {"prefill_decode_interval": 3}}},
}
OTHER: dict[str, dict[str, Any]] = {
    "the model": {"model": {"uri": "hf://org/other"}},
    "the revision": {"model": {**HUB, "revision": "v2"}},
    "the token": {"model": {**HUB, "tokenSecretRef": {"name": "hub", "key": "token"}}},
    "the endpoint": {"engine": {"env": [{"name": "HF_ENDPOINT", "value": "https://mirror.example"}]}},
    "a toleration": {"template": {"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}}},
}


@pytest.mark.parametrize("change", SAME.values(), ids=SAME.keys())
def test_changes_that_leave_the_files_as_they_are_keep_the_digest(change: dict[str, Any]):
    assert inspection_digest(request_of(service(**BASE))) == inspection_digest(
        request_of(service(**{**BASE, **change}))
    )


@pytest.mark.parametrize("change", OTHER.values(), ids=OTHER.keys())
def test_other_files_or_other_access_to_them_change_the_digest(change: dict[str, Any]):
    assert inspection_digest(request_of(service(**BASE))) != inspection_digest(
        request_of(service(**{**BASE, **change}))
    )
