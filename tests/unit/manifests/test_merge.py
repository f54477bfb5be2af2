"""spec.template over the operator's own template."""

import copy
import cProfile

import pytest

from vlm_operator.errors import InvalidInput
from vlm_operator.manifests.pod.merge import merge_template

TOLERATIONS = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
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
        "tolerations": TOLERATIONS,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532},
    },
}


def merged(theirs: dict) -> dict:
    before = copy.deepcopy(OURS)
    result = merge_template(OURS, theirs)
    assert before == OURS, "the operator's own template was changed"
    return result


def test_labels_and_annotations_are_added():
    result = merged({"metadata": {"labels": {"team": "vision"}, "annotations": {"x": "y"}}})
    assert result["metadata"] == {"labels": {"a": "1", "team": "vision"}, "annotations": {"x": "y"}}


def test_a_container_is_merged_by_name_and_a_sidecar_is_added():
    result = merged({"spec": {"containers": [{"name": "main", "tty": True}, {"name": "proxy", "image": "envoy"}]}})
    names = [c["name"] for c in result["spec"]["containers"]]
    assert names == ["main", "proxy"]
    assert result["spec"]["containers"][0]["tty"] is True
    assert result["spec"]["containers"][0]["env"] == [{"name": "HOME", "value": "/x"}]


MAIN = OURS["spec"]["containers"][0]
SECRET = [{"name": "HOME", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
MINE = [{"name": "mine", "mountPath": "/dev/shm"}]
UDP = {"containerPort": 8000, "protocol": "UDP"}
EXEC = {"exec": {"command": ["true"]}}
HOST = [{"name": "shm", "hostPath": {"path": "/shm"}}]
TEAM = {"key": "team", "operator": "Exists"}
ZONES = [{"topologyKey": "zone", "whenUnsatisfiable": w, "maxSkew": 1} for w in ("DoNotSchedule", "ScheduleAnyway")]
# What happens -> (the field of the main container, the user's value, the result)
CONTAINER = {
    "a variable from a Secret replaces our literal": ("env", SECRET, SECRET),
    "a mount on the same path replaces ours": ("volumeMounts", MINE, MINE),
    "a port of another protocol is another port": ("ports", [UDP], [*MAIN["ports"], UDP]),
    "a probe of another kind keeps our period": ("readinessProbe", EXEC, EXEC | {"periodSeconds": 5}),
}
# What happens -> (the field of the pod, the user's value, the result)
POD = {
    "a volume of the same kind keeps what the user left out": (
        "volumes",
        [{"name": "shm", "emptyDir": {"sizeLimit": "9Gi"}}],
        [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "9Gi"}}],
    ),
    "a volume of another kind has no second source": ("volumes", HOST, HOST),
    "$patch: delete removes an entry": ("volumes", [{"name": "shm", "$patch": "delete"}], []),
    "the same toleration is not repeated": ("tolerations", [*TOLERATIONS, TEAM], [*TOLERATIONS, TEAM]),
    "$patch: replace takes the user's list alone": ("tolerations", [{"$patch": "replace"}, TEAM], [TEAM]),
    "constraints on one topology are different entries": ("topologySpreadConstraints", ZONES, ZONES),
    "null removes a field": ("securityContext", {"runAsUser": None}, {"runAsNonRoot": True}),
    "$patch: replace takes the user's map alone": (
        "securityContext",
        {"$patch": "replace", "runAsUser": 7},
        {"runAsUser": 7},
    ),
}


@pytest.mark.parametrize(("field", "theirs", "result"), CONTAINER.values(), ids=CONTAINER.keys())
def test_a_field_of_the_main_container_is_merged(field, theirs, result):
    spec = merged({"spec": {"containers": [{"name": "main", field: theirs}]}})["spec"]
    assert spec["containers"][0][field] == result


@pytest.mark.parametrize(("field", "theirs", "result"), POD.values(), ids=POD.keys())
def test_a_field_of_the_pod_is_merged(field, theirs, result):
    assert merged({"spec": {field: theirs}})["spec"][field] == result


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
def test_anything_but_a_pod_template_is_refused_with_its_path(theirs, path):
    with pytest.raises(InvalidInput) as refused:
        merged(theirs)
    assert refused.value.path == path


@pytest.mark.parametrize("word", ["env", "ports", "volumes", "claims", "tolerations"])
def test_a_label_may_have_the_name_of_a_list_field(word):
    assert merged({"metadata": {"labels": {word: "x"}}})["metadata"]["labels"] == {"a": "1", word: "x"}


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
def test_a_directive_without_effect_is_refused(spec, path):
    with pytest.raises(InvalidInput) as refused:
        merged({"spec": spec})
    assert refused.value.path == path


def test_the_work_grows_with_the_number_of_entries_and_not_with_its_square():
    def calls(count: int) -> int:
        env = [{"name": f"E{i}", "value": "1"} for i in range(count)]
        template = {"spec": {"containers": [{"name": "main", "env": env}]}}
        profile = cProfile.Profile()
        profile.runcall(merge_template, OURS, template)
        return sum(each.callcount for each in profile.getstats())

    assert calls(800) < 2.5 * calls(400)


def test_entries_may_be_deleted_and_written_again():
    delete = {"name": "A", "$patch": "delete"}
    env = [{"name": "A"}, {"name": "B"}, delete, delete, {"name": "C"}, {"name": "A", "value": "2"}]
    result = merged({"spec": {"containers": [{"name": "main", "env": env}]}})
    assert result["spec"]["containers"][0]["env"][1:] == [{"name": "B"}, {"name": "C"}, {"name": "A", "value": "2"}]
