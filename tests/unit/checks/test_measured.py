"""Profiles that are applied to what they were not measured with, and decode graphs that are too small."""

import pytest
from unit.plan.builders import REFERENCE_WORKLOAD, findings_of, node, plan, reasons, service, values

L40S = node("ada", "NVIDIA-L40S", 46_068, "8.9")
HERE = "ProfileNotMeasuredHere"


def at(concurrency: int, **spec):
    return service(workload=REFERENCE_WORKLOAD | {"concurrency": concurrency}, **spec)


@pytest.mark.parametrize(
    ("concurrency", "tensor", "says"),
    [
        (1, 1, "and here 1 is declared: whether"),
        (64, 1, "with 400 requests in flight on 1 device, and here 64 are declared: whether"),
        (1000, 1, "and here 1,000 are declared: whether"),
        (400, 2, "and here the model is split over 2 devices: whether"),
        (8, 2, "and here 8 are declared and the model is split over 2 devices: whether"),
    ],
)
def test_a_profile_that_was_measured_with_other_traffic_says_so(concurrency, tensor, says):
    (told,) = findings_of(HERE, plan(at(concurrency, parallelism={"tensor": tensor})))
    assert told.severity.value == "Info"
    assert says in told.message


@pytest.mark.parametrize("concurrency", [200, 400, 800])
def test_traffic_like_the_measured_one_is_not_mentioned(concurrency):
    assert HERE not in reasons(plan(at(concurrency)))


def test_a_profile_of_which_nothing_is_applied_is_not_mentioned():
    assert HERE not in reasons(plan(at(1), L40S))
    assert HERE not in reasons(plan(at(1, engine={"tuning": "Off"})))


def test_a_decode_graph_of_the_engine_s_that_is_below_the_declared_requests_is_told():
    made = plan(at(64), L40S)
    (told,) = findings_of("DecodeGraphSmall", made)
    assert "up to 64 requests run at once on a rank" in told.message
    assert "batches of up to 32" in told.message
    wider = plan(at(64, engine={"settings": {"cuda_graph_max_bs_decode": 64}}), L40S)
    assert "DecodeGraphSmall" not in reasons(wider)
    # On the profile's own hardware the graph is as wide as the requests.
    assert values(plan(at(64)))["cuda_graph_max_bs_decode"] == 64
    assert "DecodeGraphSmall" not in reasons(plan(at(64)))


def test_a_decode_graph_of_the_user_s_that_is_too_small_names_its_field():
    (told,) = findings_of("DecodeGraphSmall", plan(at(64, engine={"settings": {"cuda_graph_max_bs_decode": 16}})))
    assert told.path == "spec.engine.settings.cuda_graph_max_bs_decode"


@pytest.mark.parametrize("settings", [{"disable_cuda_graph": True}, {"cuda_graph_bs_decode": [1, 2, 64]}])
def test_graphs_that_the_user_sets_otherwise_are_left_alone(settings):
    assert "DecodeGraphSmall" not in reasons(plan(at(64, engine={"settings": settings}), L40S))
