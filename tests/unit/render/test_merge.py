"""spec.template over the operator's own template."""

from __future__ import annotations

import copy

import pytest

from vlm_operator.errors import InvalidInput
from vlm_operator.render.merge import merge_template

OURS = {
    "metadata": {"labels": {"a": "1"}},
    "spec": {
        "containers": [
            {
                "name": "main",
                "env": [{"name": "HOME", "value": "/x"}],
                "ports": [{"containerPort": 8000, "name": "http"}],
                "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
                "readinessProbe": {"httpGet": {"path": "/readyz"}, "periodSeconds": 5},
            }
        ],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532},
    },
}


def merged(theirs: dict) -> dict:
    before = copy.deepcopy(OURS)
    result = merge_template(OURS, theirs)
    assert before == OURS, "the operator's own template was changed"
    return result


def main(theirs: dict) -> dict:
    return merged({"spec": {"containers": [{"name": "main", **theirs}]}})["spec"]["containers"][0]


def test_labels_and_annotations_are_added():
    result = merged({"metadata": {"labels": {"team": "vision"}, "annotations": {"x": "y"}}})
    assert result["metadata"] == {"labels": {"a": "1", "team": "vision"}, "annotations": {"x": "y"}}


def test_a_container_is_merged_by_name_and_a_sidecar_is_added():
    result = merged({"spec": {"containers": [{"name": "main", "tty": True}, {"name": "proxy", "image": "envoy"}]}})
    names = [c["name"] for c in result["spec"]["containers"]]
    assert names == ["main", "proxy"]
    assert result["spec"]["containers"][0]["tty"] is True
    assert result["spec"]["containers"][0]["env"] == [{"name": "HOME", "value": "/x"}]


def test_a_variable_from_a_secret_replaces_our_literal_instead_of_standing_beside_it():
    source = {"secretKeyRef": {"name": "s", "key": "k"}}
    assert main({"env": [{"name": "HOME", "valueFrom": source}]})["env"] == [{"name": "HOME", "valueFrom": source}]


def test_a_mount_on_the_same_path_replaces_ours():
    mounts = main({"volumeMounts": [{"name": "mine", "mountPath": "/dev/shm"}]})["volumeMounts"]
    assert mounts == [{"name": "mine", "mountPath": "/dev/shm"}]


def test_a_volume_of_the_same_kind_keeps_what_the_user_left_out():
    volumes = merged({"spec": {"volumes": [{"name": "shm", "emptyDir": {"sizeLimit": "9Gi"}}]}})["spec"]["volumes"]
    assert volumes == [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "9Gi"}}]


def test_a_volume_of_another_kind_replaces_ours_instead_of_having_two_sources():
    volumes = merged({"spec": {"volumes": [{"name": "shm", "hostPath": {"path": "/shm"}}]}})["spec"]["volumes"]
    assert volumes == [{"name": "shm", "hostPath": {"path": "/shm"}}]


def test_a_probe_of_another_kind_replaces_our_handler_and_keeps_our_period():
    probe = main({"readinessProbe": {"exec": {"command": ["true"]}}})["readinessProbe"]
    assert probe == {"exec": {"command": ["true"]}, "periodSeconds": 5}


def test_tolerations_are_added_to_ours_and_the_same_one_is_not_repeated():
    theirs = [{"key": "nvidia.com/gpu", "operator": "Exists"}, {"key": "team", "operator": "Exists"}]
    assert merged({"spec": {"tolerations": theirs}})["spec"]["tolerations"] == theirs


def test_ports_of_another_protocol_are_another_port():
    ports = main({"ports": [{"containerPort": 8000, "protocol": "UDP"}]})["ports"]
    assert len(ports) == 2


def test_null_removes_a_field():
    context = merged({"spec": {"securityContext": {"runAsUser": None}}})["spec"]["securityContext"]
    assert context == {"runAsNonRoot": True}


def test_patch_delete_removes_an_entry():
    spec = merged({"spec": {"volumes": [{"name": "shm", "$patch": "delete"}]}})["spec"]
    assert spec["volumes"] == []


def test_patch_replace_takes_the_users_map_alone():
    context = merged({"spec": {"securityContext": {"$patch": "replace", "runAsUser": 7}}})["spec"]["securityContext"]
    assert context == {"runAsUser": 7}


@pytest.mark.parametrize(
    ("theirs", "path"),
    [
        ({"spce": {}}, "spec.template.spce"),
        ({"spec": {"containers": {"name": "main"}}}, "spec.template.spec.containers"),
        ({"spec": {"containers": [{"image": "x"}]}}, "spec.template.spec.containers[0]"),
        ({"spec": {"securityContext": True}}, "spec.template.spec.securityContext"),
        ({"spec": {"$setElementOrder/containers": []}}, "spec.template.spec.$setElementOrder/containers"),
    ],
)
def test_what_is_not_shaped_like_a_pod_template_is_refused_with_its_path(theirs, path):
    with pytest.raises(InvalidInput) as refused:
        merged(theirs)
    assert refused.value.path == path


@pytest.mark.parametrize("word", ["env", "ports", "volumes", "claims", "tolerations"])
def test_a_label_may_be_called_like_a_list_of_a_pod(word):
    assert merged({"metadata": {"labels": {word: "x"}}})["metadata"]["labels"] == {"a": "1", word: "x"}


def test_patch_replace_takes_the_users_tolerations_alone():
    theirs = [{"$patch": "replace"}, {"key": "team", "operator": "Exists"}]
    assert merged({"spec": {"tolerations": theirs}})["spec"]["tolerations"] == [{"key": "team", "operator": "Exists"}]


def test_patch_replace_of_what_we_do_not_have_leaves_no_directive_in_the_pod():
    selector = {"$patch": "replace", "pool": "vision"}
    assert merged({"spec": {"nodeSelector": selector}})["spec"]["nodeSelector"] == {"pool": "vision"}


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"volumes": [{"name": "new", "$retainKeys": ["name"]}]}, "spec.template.spec.volumes[0].$retainKeys"),
        ({"tolerations": [{"$patch": "delete", "key": "x"}]}, "spec.template.spec.tolerations[0].$patch"),
        (
            {"containers": [{"name": "new", "env": [{"name": "A", "$patch": "delete"}]}]},
            "spec.template.spec.containers[0].env[0].$patch",
        ),
    ],
)
def test_a_directive_that_says_nothing_is_refused_and_never_reaches_the_pod(spec, path):
    with pytest.raises(InvalidInput) as refused:
        merged({"spec": spec})
    assert refused.value.path == path
