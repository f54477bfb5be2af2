"""Claims that several pods share: what their access modes forbid is told before a pod waits for it."""

from typing import Any

import pytest
from unit.plan.builders import QWEN3_VL, RUNTIME_IMAGE, cluster, node, reasons, request_of, service

from vlm_api.plan import Finding, ServingPlan, Severity
from vlm_operator.facts.volume_claims import claim_facts, claims_in
from vlm_operator.plan.make import make_plan

TWO_NODES = (node("a"), node("b"))
CACHED = QWEN3_VL | {"cacheClaim": "weights"}
ON_A_CLAIM = QWEN3_VL | {"uri": "pvc://weights/qwen3-vl"}


def claim(*modes: str, bound: tuple[str, ...] = (), **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "weights", **metadata},
        "spec": {"accessModes": list(modes)},
        "status": {"accessModes": list(bound)} if bound else {"phase": "Pending"},
    }


def of(*nodes: dict[str, Any], modes: tuple[str, ...] = ("ReadWriteOnce",), **spec: Any) -> ServingPlan:
    """The plan for a service beside a claim with these modes."""
    claims = {"weights": claim_facts(claim(*modes))}
    return make_plan(
        request_of(service(**({"model": CACHED} | spec))),
        cluster(*(nodes or TWO_NODES), claims=claims),
        runtime_image=RUNTIME_IMAGE,
    )


def about_claims(made: ServingPlan) -> list[Finding]:
    return [f for f in made.findings if f.reason.startswith("Claim")]


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"replicas": 2}, "spec.model.cacheClaim"),
        ({"scaling": {"minReplicas": 2, "maxReplicas": 3}}, "spec.model.cacheClaim"),
        ({"replicas": 2, "model": ON_A_CLAIM}, "spec.model.uri"),
        ({"parallelism": {"tensor": 8}, "multinode": {"nodeCount": 2}}, "spec.model.cacheClaim"),
        (
            {
                "replicas": 2,
                "model": QWEN3_VL,
                "template": {
                    "spec": {"volumes": [{"name": "mine", "persistentVolumeClaim": {"claimName": "weights"}}]}
                },
            },
            "spec.template.spec.volumes[name=mine]",
        ),
    ],
)
def test_a_claim_for_one_pod_refuses_a_second_one_and_one_for_one_node_warns_of_it(spec, path):
    (refused,) = about_claims(of(modes=("ReadWriteOncePod",), **spec))
    (warned,) = about_claims(of(**spec))
    assert (refused.severity, refused.reason, refused.path) == (Severity.ERROR, "ClaimForOnePod", path)
    assert (warned.severity, warned.reason, warned.path) == (Severity.WARNING, "ClaimOnOneNode", path)
    assert "use a claim with" in refused.message
    assert "use a claim with" in warned.message
    for several in ("ReadWriteMany", "ReadOnlyMany"):
        assert not about_claims(of(modes=("ReadWriteOnce", several), **spec))


def test_pods_that_an_autoscaler_may_never_ask_for_refuse_nothing():
    (found,) = about_claims(of(modes=("ReadWriteOncePod",), scaling={"minReplicas": 1, "maxReplicas": 3}))
    assert (found.severity, found.reason) == (Severity.WARNING, "ClaimForOnePod")
    assert "up to 3 pods are requested" in found.message


@pytest.mark.parametrize("modes", [("ReadWriteOncePod",), ("ReadWriteOnce",)])
@pytest.mark.parametrize("spec", [{}, {"replicas": 0}, {"scaling": {"maxReplicas": 1}}])
def test_a_pod_that_is_alone_may_have_any_claim(spec, modes):
    assert not about_claims(of(modes=modes, **spec))


def test_without_a_claim_nothing_is_told():
    assert not about_claims(of(model=QWEN3_VL, replicas=8))


@pytest.mark.parametrize(("modes", "says"), [(("ReadWriteOncePod",), "one pod"), (("ReadWriteOnce",), "one node")])
def test_a_roll_out_that_waits_for_the_claim_of_the_old_pod_is_warned_of(modes, says):
    (found,) = about_claims(of(modes=modes, rolloutStrategy={"maxSurge": 1, "maxUnavailable": 0}))
    assert found.severity is Severity.WARNING
    assert f"for {says} at a time" in found.message
    assert "set rolloutStrategy.maxSurge to 0" in found.message
    assert not about_claims(of(modes=modes, rolloutStrategy={"maxSurge": 1, "maxUnavailable": 1}))
    # Of one replica a quarter may be missing: none.
    assert about_claims(of(modes=modes, rolloutStrategy={"maxSurge": "25%", "maxUnavailable": "25%"}))
    assert not about_claims(of(modes=modes, rolloutStrategy={"maxSurge": "25%", "maxUnavailable": "100%"}))


def test_pods_that_come_to_one_node_may_share_its_claim():
    assert not about_claims(of(node(), replicas=2))
    assert [f.reason for f in about_claims(of(node(), replicas=9))] == ["ClaimOnOneNode"]
    held = {"spec": {"nodeSelector": {"kubernetes.io/hostname": "a"}}}
    assert not about_claims(of(replicas=9, template=held))
    assert not about_claims(of(replicas=2, hardware={"device": "cpu"}, template=held))
    assert about_claims(of(replicas=2, hardware={"device": "cpu"}))


def test_where_no_node_is_there_yet_pods_may_come_to_several():
    cordoned = node(spec={"unschedulable": True})
    assert {"NoMatchingNodes", "ClaimOnOneNode"} <= set(reasons(of(cordoned, replicas=2)))


def test_a_claim_that_cannot_be_read_holds_up_no_plan_and_is_told():
    made = make_plan(request_of(service(model=CACHED, replicas=2)), cluster(*TWO_NODES), runtime_image=RUNTIME_IMAGE)
    (found,) = about_claims(made)
    assert not made.errors
    assert (found.severity, found.reason) == (Severity.INFO, "ClaimNotChecked")
    assert "ReadWriteMany" in found.message


def test_the_modes_of_the_volume_count_where_there_is_one():
    assert not claim_facts(claim("ReadWriteOnce", bound=("ReadWriteOnce", "ReadOnlyMany"))).one_node
    assert claim_facts(claim("ReadWriteMany", bound=("ReadWriteOnce",))).one_node
    assert claim_facts(claim("ReadWriteOncePod")).one_pod
    assert not claim_facts({"spec": {"accessModes": "x"}}).one_node


def test_claims_of_other_namespaces_are_others():
    assert claims_in("team", [claim("ReadWriteOnce"), claim("ReadWriteMany", namespace="team")]) == {
        "weights": claim_facts(claim("ReadWriteMany"))
    }
