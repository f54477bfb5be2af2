"""When the plan in force stays, and when a new one is made."""

from __future__ import annotations

import pytest
from unit.plan.builders import cluster, node, service

from vlm_operator.planning import StoredPlan, make_plan, seal, stays


def stored(*nodes, **spec) -> StoredPlan:
    return seal(make_plan(service(**spec), cluster(*nodes), runtime_image="operator:1"), service(**spec))


@pytest.mark.parametrize(
    ("scheduled", "ready", "mismatch", "expected"),
    [
        pytest.param(True, True, False, True, id="a pod serves"),
        pytest.param(True, False, False, True, id="a pod has a node and still loads"),
        pytest.param(False, False, False, False, id="no pod has a node"),
        pytest.param(True, True, True, False, id="a pod found less hardware than planned"),
    ],
)
def test_a_plan_for_known_gpus_stays_while_a_pod_of_it_has_a_node(scheduled, ready, mismatch, expected):
    kept = stays(stored(node()), service().spec, cluster(node()), scheduled=scheduled, ready=ready, mismatch=mismatch)
    assert kept is expected


@pytest.mark.parametrize(
    ("nodes", "ready", "expected"),
    [
        pytest.param((node(),), False, False, id="a GPU is known now, and no pod serves yet"),
        pytest.param((node(),), True, True, id="a GPU is known now, but a pod serves"),
        pytest.param((), False, True, id="nothing is known still"),
    ],
)
def test_a_plan_made_before_any_gpu_was_known_gives_way_until_a_pod_serves(nodes, ready, expected):
    kept = stays(stored(), service().spec, cluster(*nodes), scheduled=True, ready=ready, mismatch=False)
    assert kept is expected


@pytest.mark.parametrize(("labelled", "expected"), [(False, True), (True, False)])
def test_a_plan_by_the_spec_s_word_gives_way_once_a_label_tells(labelled, expected):
    bare = node(product=None, memory_mib=None, capability=None)
    bare["metadata"]["labels"] = {"kubernetes.io/hostname": "node-0"}
    wish = {"computeCapability": "9.0", "minMemoryMiB": 61_440}
    plan, spec = stored(bare, hardware=wish), service(hardware=wish).spec
    now = cluster(node() if labelled else bare)
    assert stays(plan, spec, now, scheduled=True, ready=False, mismatch=False) is expected
    assert stays(plan, spec, now, scheduled=True, ready=True, mismatch=False)


def test_a_changed_spec_makes_a_new_plan_and_a_changed_count_does_not():
    plan = stored(node())
    changed, more = service(engine={"version": "0.5.22"}), service(replicas=3)
    assert not stays(plan, changed.spec, cluster(node()), scheduled=True, ready=True, mismatch=False)
    assert stays(plan, more.spec, cluster(node()), scheduled=True, ready=True, mismatch=False)


def test_a_service_on_the_cpu_needs_no_gpu_to_settle():
    plan = stored(hardware={"device": "cpu"})
    spec = service(hardware={"device": "cpu"}).spec
    assert stays(plan, spec, cluster(node()), scheduled=True, ready=False, mismatch=False)
