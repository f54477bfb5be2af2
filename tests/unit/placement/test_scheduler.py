"""Which nodes count, as the scheduler would read the pod."""

from dataclasses import replace

import pytest

from vlm_operator.facts.types import NodeFacts, Taint
from vlm_operator.placement.scheduler import refusal

LABELS = {"pool": "vision", "gpus": "8", "kubernetes.io/hostname": "node-0"}


def node(**changes) -> NodeFacts:
    return NodeFacts(**({"name": "node-0", "labels": LABELS} | changes))


def required(*expressions) -> dict:
    terms = [{"matchExpressions": [e]} for e in expressions]
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    }


GPU_TAINT = Taint("nvidia.com/gpu", "present", "NoSchedule")
TEAM_TAINT = Taint("team", "other", "NoSchedule")


@pytest.mark.parametrize(
    ("facts", "pod"),
    [
        pytest.param(node(), {}, id="a plain node takes a plain pod"),
        pytest.param(
            node(taints=(GPU_TAINT, replace(GPU_TAINT, effect="NoExecute"))),
            {},
            id="the usual taint of GPU nodes is tolerated",
        ),
        pytest.param(
            node(taints=(TEAM_TAINT,)),
            {"tolerations": [{"key": "team", "operator": "Equal", "value": "other"}]},
            id="a taint that the template tolerates",
        ),
        pytest.param(node(taints=(TEAM_TAINT,)), {"tolerations": [{"operator": "Exists"}]}, id="a toleration for all"),
        pytest.param(node(taints=(Taint("x", "", "PreferNoSchedule"),)), {}, id="a soft taint keeps nobody away"),
        pytest.param(node(), {"nodeSelector": {"pool": "vision"}}, id="a node selector that matches"),
        pytest.param(node(), required({"key": "pool", "operator": "In", "values": ["a", "vision"]}), id="In"),
        pytest.param(
            node(), required({"key": "absent", "operator": "NotIn", "values": ["a"]}), id="NotIn, label absent"
        ),
        pytest.param(node(), required({"key": "gpus", "operator": "Gt", "values": ["4"]}), id="Gt"),
        pytest.param(
            node(),
            required({"key": "absent", "operator": "Exists"}, {"key": "pool", "operator": "Exists"}),
            id="one of two terms is enough",
        ),
    ],
)
def test_a_node_that_the_pod_may_run_on(facts, pod):
    assert refusal(facts, pod) is None


@pytest.mark.parametrize(
    ("facts", "pod", "reason"),
    [
        pytest.param(node(cordoned=True), {}, "is cordoned", id="a cordoned node"),
        pytest.param(node(ready=False), {}, "is not ready", id="a node that is not ready"),
        pytest.param(node(taints=(TEAM_TAINT,)), {}, "team=other:NoSchedule", id="another team's taint"),
        pytest.param(
            node(taints=(TEAM_TAINT,)),
            {"tolerations": [{"key": "team", "value": "ours"}]},
            "team=other:NoSchedule",
            id="a toleration for another value",
        ),
        pytest.param(
            node(taints=(Taint("team", "other", "NoExecute"),)),
            {"tolerations": [{"key": "team", "operator": "Exists", "effect": "NoSchedule"}]},
            "NoExecute",
            id="a toleration for another effect",
        ),
        pytest.param(node(), {"nodeSelector": {"pool": "text"}}, "node selector pool=text", id="another node selector"),
        pytest.param(
            node(), required({"key": "pool", "operator": "NotIn", "values": ["vision"]}), "affinity", id="NotIn"
        ),
        pytest.param(node(), required({"key": "gpus", "operator": "Lt", "values": ["8"]}), "affinity", id="Lt"),
        pytest.param(
            node(), required({"key": "pool", "operator": "Gt", "values": ["1"]}), "affinity", id="Gt on a word"
        ),
        pytest.param(node(), {"nodeName": "node-1"}, "is not node-1", id="another node by name"),
    ],
)
def test_a_node_that_the_pod_cannot_run_on_says_why(facts, pod, reason):
    assert reason in refusal(facts, pod)


@pytest.mark.parametrize(
    ("operator", "value", "tolerated"), [("Gt", "5", True), ("Lt", "5", False), ("Gt", "x", False)]
)
def test_tolerations_that_compare_numbers_are_read(operator, value, tolerated):
    tainted = node(taints=(Taint("example.com/level", "9", "NoSchedule"),))
    wish = {"key": "example.com/level", "operator": operator, "value": value}
    assert (refusal(tainted, {"tolerations": [wish]}) is None) == tolerated


def test_an_empty_term_of_a_node_affinity_matches_no_node():
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}
    assert refusal(node(), {"affinity": {"nodeAffinity": required}}) == "does not match the required node affinity"
