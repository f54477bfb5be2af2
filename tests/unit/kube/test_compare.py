"""Whether an apply would change nothing. The live objects here are as an API server returned them."""

import copy
import cProfile
from typing import Any

import pytest

from vlm_operator.kube.compare import satisfied

DESIRED: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "vlm", "labels": {"a": "1"}, "ownerReferences": [{"uid": "u", "controller": True}]},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"a": "1"}},
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "main",
                        "command": ["python3", "start.py"],
                        "env": [{"name": "EMPTY", "value": ""}, {"name": "X", "value": "1"}],
                        "ports": [{"containerPort": 8000}],
                        "resources": {"limits": {"memory": "1024Mi", "nvidia.com/gpu": "1"}, "requests": {"cpu": 0.5}},
                        "tty": False,
                    }
                ],
                "volumes": [{"name": "cache", "emptyDir": {}}],
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
                "automountServiceAccountToken": False,
            }
        },
    },
}
OWNED = {
    "f:metadata": {"f:labels": {"f:a": {}}, "f:ownerReferences": {'k:{"uid":"u"}': {}}},
    "f:spec": {
        "f:replicas": {},
        "f:selector": {},
        "f:template": {
            "f:spec": {
                "f:containers": {
                    'k:{"name":"main"}': {
                        ".": {},
                        "f:name": {},
                        "f:command": {},
                        "f:env": {
                            'k:{"name":"EMPTY"}': {".": {}, "f:name": {}, "f:value": {}},
                            'k:{"name":"X"}': {".": {}, "f:name": {}, "f:value": {}},
                        },
                        "f:ports": {'k:{"containerPort":8000,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
                        "f:resources": {
                            "f:limits": {"f:memory": {}, "f:nvidia.com/gpu": {}},
                            "f:requests": {"f:cpu": {}},
                        },
                        "f:tty": {},
                    }
                },
                "f:volumes": {'k:{"name":"cache"}': {".": {}, "f:name": {}, "f:emptyDir": {}}},
                "f:tolerations": {},
                "f:automountServiceAccountToken": {},
            }
        },
    },
}


def stored() -> dict[str, Any]:
    """The object as the API server stores and completes it."""
    live = copy.deepcopy(DESIRED)
    live["metadata"] |= {
        "uid": "d",
        "resourceVersion": "7",
        "managedFields": [
            {"manager": "kube-controller-manager", "operation": "Update", "fieldsV1": {"f:status": {}}},
            {"manager": "vlm-operator", "operation": "Apply", "fieldsV1": copy.deepcopy(OWNED)},
        ],
    }
    live["spec"]["revisionHistoryLimit"] = 10
    main = container(live)
    main["env"][0] = {"name": "EMPTY"}
    main["ports"][0]["protocol"] = "TCP"
    main["resources"] = {"limits": {"memory": "1Gi", "nvidia.com/gpu": "1"}, "requests": {"cpu": "500m"}}
    main["terminationMessagePath"] = "/dev/termination-log"
    del main["tty"]
    return live


def container(manifest: dict[str, Any]) -> dict[str, Any]:
    return manifest["spec"]["template"]["spec"]["containers"][0]


def test_defaults_other_spellings_of_quantities_and_empty_values_are_no_difference():
    assert satisfied(DESIRED, stored())


def test_a_sidecar_that_somebody_added_is_theirs():
    live = stored()
    live["spec"]["template"]["spec"]["containers"].insert(0, {"name": "proxy", "image": "envoy"})
    assert satisfied(DESIRED, live)


def test_an_object_that_we_never_applied_is_applied():
    live = stored()
    live["metadata"]["managedFields"] = [live["metadata"]["managedFields"][0]]
    assert not satisfied(DESIRED, live)


def another_volume(live: dict[str, Any]) -> None:
    live["spec"]["template"]["spec"]["volumes"][0] = {"name": "cache", "hostPath": {"path": "/"}}
    # A field that somebody removes belongs to nobody any more.
    fields = live["metadata"]["managedFields"][1]["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:volumes"]
    del fields['k:{"name":"cache"}']["f:emptyDir"]


EDITS: dict[str, Any] = {
    "a value": lambda live: container(live)["env"][1].update(value="2"),
    "a command": lambda live: container(live)["command"].append("--more"),
    "a label": lambda live: live["metadata"]["labels"].update(a="2"),
    "a label that is gone": lambda live: live["metadata"].pop("labels"),
    "replicas": lambda live: live["spec"].update(replicas=2),
    "a volume of another kind": another_volume,
    "one toleration more": lambda live: live["spec"]["template"]["spec"]["tolerations"].append({"key": "x"}),
    "one label more in a selector": lambda live: live["spec"]["selector"]["matchLabels"].update(b="2"),
    "the owner": lambda live: live["metadata"].pop("ownerReferences"),
    "a quantity": lambda live: container(live)["resources"]["limits"].update(memory="2Gi"),
    "true for false": lambda live: live["spec"]["template"]["spec"].update(automountServiceAccountToken=True),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_what_somebody_changed_is_a_difference(edit):
    live = stored()
    edit(live)
    assert not satisfied(DESIRED, live)


def test_an_empty_value_that_somebody_else_took_over_is_a_difference():
    live = stored()
    fields = live["metadata"]["managedFields"][1]["fieldsV1"]["f:spec"]["f:template"]["f:spec"]
    del live["spec"]["template"]["spec"]["automountServiceAccountToken"]
    del fields["f:automountServiceAccountToken"]
    assert not satisfied(DESIRED, live)


DROPPED: dict[str, Any] = {
    "a variable": lambda wanted: container(wanted)["env"].pop(),
    "a whole list": lambda wanted: container(wanted).pop("ports"),
    "a field": lambda wanted: wanted["spec"].pop("replicas"),
    "a label": lambda wanted: wanted["metadata"]["labels"].clear(),
}


@pytest.mark.parametrize("drop", DROPPED.values(), ids=DROPPED.keys())
def test_what_we_no_longer_want_but_still_own_is_a_difference(drop):
    wanted = copy.deepcopy(DESIRED)
    drop(wanted)
    assert not satisfied(wanted, stored())


def many(count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """A desired object with many variables, and the live one."""
    env = [{"name": f"E{i}", "value": "1"} for i in range(count)]
    owned = {f'k:{{"name":"E{i}"}}': {".": {}, "f:name": {}, "f:value": {}} for i in range(count)}
    fields = {"f:spec": {"f:env": owned}}
    managed = [{"manager": "vlm-operator", "operation": "Apply", "fieldsV1": fields}]
    return {"spec": {"env": env}}, {"metadata": {"managedFields": managed}, "spec": {"env": copy.deepcopy(env)}}


def test_the_work_grows_with_the_number_of_entries_and_not_with_its_square():
    def calls(count: int) -> int:
        desired, live = many(count)
        profile = cProfile.Profile()
        assert profile.runcall(satisfied, desired, live)
        return sum(each.callcount for each in profile.getstats())

    assert calls(800) < 2.5 * calls(400)


@pytest.mark.parametrize("change", ["value", "owned", "missing"])
def test_a_difference_in_one_of_many_entries_is_seen(change):
    desired, live = many(300)
    if change == "value":
        live["spec"]["env"][250]["value"] = "2"
    elif change == "owned":
        del desired["spec"]["env"][250]
    else:
        del live["spec"]["env"][250]
    assert not satisfied(desired, live)
