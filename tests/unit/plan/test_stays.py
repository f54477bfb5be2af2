"""When the plan in force stays, and when a new one is made."""

import pytest
from unit.plan.builders import cluster, node, request_of, service

from vlm_operator.plan.make import make_plan
from vlm_operator.plan.sticky import stays
from vlm_operator.plan.stored import StoredPlan, seal


def stored(*nodes, **spec) -> StoredPlan:
    request = request_of(service(**spec))
    return seal(make_plan(request, cluster(*nodes), runtime_image="operator:1"), request)


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
    kept = stays(
        stored(node()),
        request_of(service()),
        cluster(node()).nodes,
        scheduled=scheduled,
        ready=ready,
        mismatch=mismatch,
    )
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
    kept = stays(stored(), request_of(service()), cluster(*nodes).nodes, scheduled=True, ready=ready, mismatch=False)
    assert kept is expected


@pytest.mark.parametrize(("labelled", "expected"), [(False, True), (True, False)])
def test_a_plan_by_the_spec_s_word_gives_way_once_a_label_tells(labelled, expected):
    bare = node(product=None, memory_mib=None, capability=None)
    bare["metadata"]["labels"] = {"kubernetes.io/hostname": "node-0"}
    wish = {"computeCapability": "9.0", "minMemoryMiB": 61_440}
    plan, request = stored(bare, hardware=wish), request_of(service(hardware=wish))
    now = cluster(node() if labelled else bare).nodes
    assert stays(plan, request, now, scheduled=True, ready=False, mismatch=False) is expected
    assert stays(plan, request, now, scheduled=True, ready=True, mismatch=False)


def test_a_changed_spec_makes_a_new_plan_and_a_changed_count_does_not():
    plan = stored(node())
    changed, more = service(engine={"version": "0.5.22"}), service(replicas=3)
    assert not stays(plan, request_of(changed), cluster(node()).nodes, scheduled=True, ready=True, mismatch=False)
    assert stays(plan, request_of(more), cluster(node()).nodes, scheduled=True, ready=True, mismatch=False)


def test_a_service_on_the_cpu_needs_no_gpu_to_settle():
    plan = stored(hardware={"device": "cpu"})
    request = request_of(service(hardware={"device": "cpu"}))
    assert stays(plan, request, cluster(node()).nodes, scheduled=True, ready=False, mismatch=False)
