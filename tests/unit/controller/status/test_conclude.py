"""From an observation to the status, and to events."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.controller.observations import (
    LATER,
    NOW,
    PLAN,
    SERVED,
    SERVING,
    STARTING,
    observed,
    pod,
    report,
    status_of,
    verdicts,
)
from unit.manifests.samples import service

from vlm_api import reasons
from vlm_api.inspection import Inspection
from vlm_api.plan import Finding, PlanMemory, Role, Severity
from vlm_api.reasons import FAILURES, Conditions
from vlm_api.report import EffectiveSetting, Failure, ImageCounts, Phase, Report
from vlm_api.status import Benchmark
from vlm_operator import controller
from vlm_operator.controller.status.events import events_for
from vlm_operator.controller.status.observation import Drift, PoolObservation, Problem
from vlm_operator.controller.status.replicas import Replicas, replicas
from vlm_operator.errors import InvalidInput


def error(about: str = "Resources", reason: str = "DoesNotFit") -> Finding:
    return Finding(severity=Severity.ERROR, reason=reason, about=about, message="8 MiB are missing: use more GPUs")


def test_the_url_is_https_if_the_engine_has_a_certificate_also_while_a_change_is_refused():
    engine = PLAN.engine.model_copy(update={"args": ["--ssl-certfile", "/tls/tls.crt"]})
    serving = status_of(replace(SERVED, plan=PLAN.model_copy(update={"engine": engine})))
    assert serving.url == "https://vlm.default.svc:8000/v1"
    assert status_of(replace(SERVED, plan=None), serving, NOW).url == serving.url
    assert status_of(SERVED).url == "http://vlm.default.svc:8000/v1"


def test_a_service_that_answers_is_ready():
    assert verdicts(SERVED) == {
        "Ready": ("True", "Serving"),
        "Available": ("True", "ReplicasAvailable"),
        "Progressing": ("False", "Complete"),
        "HardwareResolved": ("True", "HardwareFound"),
        "OverridesResolved": ("True", "Resolved"),
        "ResourceFit": ("True", "Fits"),
        "ModelReady": ("True", "ModelLoaded"),
        "OverridesEffective": ("Unknown", "NotAsked"),
        "HardwareDrift": ("False", "NoDrift"),
    }


def test_every_condition_of_the_api_is_reported():
    wanted = {value for name, value in vars(Conditions).items() if name.isupper()}
    # ScalingActive only exists with an autoscaler.
    assert set(verdicts(SERVED)) == wanted - {Conditions.SCALING_ACTIVE}
    assert set(verdicts(SERVED, scaling={"maxReplicas": 4})) == wanted


# name -> (observation, spec, status and reason of Ready)
READY: dict[str, tuple[PoolObservation, dict[str, Any], tuple[str, str]]] = {
    "pods on their way": (observed(plan=PLAN, replicas=STARTING, pods=[pod()]), {}, ("False", "Starting")),
    "no workload yet": (observed(plan=PLAN, replicas=Replicas(wanted=1)), {}, ("False", "Starting")),
    "suspended": (observed(plan=PLAN), {"suspend": True}, ("False", "Suspended")),
    "zero replicas": (observed(plan=PLAN), {"replicas": 0}, ("False", "ScaledToZero")),
    "a failed pod": (
        observed(plan=PLAN, replicas=STARTING, pods=[pod(failure=Failure(reason="OutOfDeviceMemory", message="m"))]),
        {},
        ("False", "OutOfDeviceMemory"),
    ),
    "a failed pod of an older plan": (
        observed(
            plan=PLAN,
            replicas=STARTING,
            pods=[pod(plan_hash="old", failure=Failure(reason="OutOfDeviceMemory", message="m"))],
        ),
        {},
        ("False", "Starting"),
    ),
    "a pod without a node": (
        observed(plan=PLAN, replicas=STARTING, pods=[pod(node=None, unschedulable="0/3 nodes")]),
        {},
        ("False", "Unschedulable"),
    ),
    "pods are rejected": (
        observed(plan=PLAN, replicas=Replicas(wanted=1, failure='pods "vlm-1" is forbidden: exceeded quota')),
        {},
        ("False", "PodsRefused"),
    ),
    "one failed, others answer": (
        observed(
            plan=PLAN,
            replicas=Replicas(wanted=2, present=2, ready=1, updated=2, available=1),
            pods=[pod("a", ready=True), pod("b", failure=Failure(reason="EngineExited", message="m"))],
        ),
        {"replicas": 2},
        ("True", "Serving"),
    ),
    "an invalid spec": (observed(invalid=InvalidInput("spec.x", "is wrong")), {}, ("False", "InvalidSpec")),
    "an invalid spec while old pods answer": (
        observed(invalid=InvalidInput("spec.x", "is wrong"), replicas=SERVING, pods=[pod(ready=True)]),
        {},
        ("False", "InvalidSpec"),
    ),
    "a refused plan": (
        observed(plan=PLAN.model_copy(update={"findings": [error()]})),
        {},
        ("False", "DoesNotFit"),
    ),
    "a taken name": (observed(plan=PLAN, problem=Problem("NameTaken", "Service/vlm")), {}, ("False", "NameTaken")),
    "settings that are not in force": (
        replace(SERVED, reports={"vlm-0": report(ready=True, settings=[EffectiveSetting(name="a", agrees=False)])}),
        {},
        ("False", "EngineIgnoredSetting"),
    ),
    "drift of a label": (
        replace(SERVED, drift=Drift("LabelsChanged", "a label")),
        {},
        ("True", "Serving"),
    ),
}


@pytest.mark.parametrize(("found", "spec", "expected"), READY.values(), ids=READY.keys())
def test_ready_is(found, spec, expected):
    assert verdicts(found, **spec)["Ready"] == expected


@pytest.mark.parametrize(
    ("about", "condition"),
    [
        ("Hardware", "HardwareResolved"),
        ("Engine", "OverridesResolved"),
        ("Resources", "ResourceFit"),
        ("Cluster", "Available"),
    ],
)
def test_an_error_shows_in_the_condition_that_it_is_about_and_in_no_other(about, condition):
    conditions = verdicts(observed(plan=PLAN.model_copy(update={"findings": [error(about)]})))
    false = {name for name, verdict in conditions.items() if verdict == ("False", "DoesNotFit")}
    assert false == {condition, "Ready"}


def test_hardware_that_no_node_can_have_is_an_error_and_nothing_has_drifted_from_it():
    reason = "TooManyDevices"
    never = error("Hardware").model_copy(update={"reason": reason, "message": "no node can ever run this"})
    nowhere = PLAN.hardware.model_copy(update={"nodes": []})
    found = observed(plan=PLAN.model_copy(update={"hardware": nowhere, "findings": [never]}))
    conditions = {c.type: c for c in status_of(found).conditions}
    for name in ("Ready", "HardwareResolved"):
        assert (conditions[name].status.value, conditions[name].reason) == ("False", reason)
        assert conditions[name].message == "no node can ever run this"
    assert conditions["ResourceFit"].reason != reason
    assert (conditions["HardwareDrift"].status.value, conditions["HardwareDrift"].reason) == ("Unknown", "NoPlan")


def test_a_deployment_that_counts_itself_available_without_a_pod_is_not_available():
    # maxUnavailable 1 of 1 replica: the Deployment's own condition Available is True with no pod at all.
    conditions = [{"type": "Available", "status": "True"}]
    live = {"kind": "Deployment", "spec": {"replicas": 1}, "status": {"replicas": 1, "conditions": conditions}}
    found = observed(plan=PLAN, replicas=replicas(live))
    assert verdicts(found)["Available"] == ("False", "NoReplicaAvailable")


def test_numbers_of_a_deployment_before_its_controller_acts_count_as_rolling_out():
    live = {
        "kind": "Deployment",
        "metadata": {"generation": 2},
        "spec": {"replicas": 1},
        "status": dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas", "availableReplicas"), 1)
        | {"observedGeneration": 1},
    }
    found = observed(plan=PLAN, replicas=replicas(live), pods=[pod(ready=True)])
    assert verdicts(found)["Progressing"] == ("True", "RollingOut")
    assert status_of(found).updated_replicas == 0


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        (Replicas(wanted=2, present=3, ready=2, updated=2, available=2), ("True", "RollingOut")),
        (Replicas(wanted=2, present=2, ready=1, updated=1, available=1), ("True", "RollingOut")),
        (Replicas(wanted=2, present=2, ready=2, updated=2, available=2), ("False", "Complete")),
        (Replicas(wanted=2, present=2, available=1, overdue="too slow"), ("False", "ProgressDeadlineExceeded")),
    ],
)
def test_progressing_is(numbers, expected):
    assert verdicts(observed(plan=PLAN, replicas=numbers))["Progressing"] == expected


def test_a_deployment_whose_pods_are_rejected_says_why():
    words = 'pods "vlm-5fb9" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1'
    refused = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": words}
    live = {
        "kind": "Deployment",
        "metadata": {"generation": 1},
        "spec": {"replicas": 1},
        "status": {"observedGeneration": 1, "unavailableReplicas": 1, "conditions": [refused]},
    }
    after = status_of(observed(plan=PLAN, replicas=replicas(live)))
    conditions = {c.type: (c.status.value, c.reason, c.message) for c in after.conditions}
    for condition in ("Ready", "Progressing"):
        assert conditions[condition][:2] == ("False", "PodsRefused")
        assert words in conditions[condition][2]
    mended = {**live, "status": {**live["status"], "conditions": [{**refused, "status": "False"}]}}
    assert verdicts(observed(plan=PLAN, replicas=replicas(mended)))["Ready"] == ("False", "Starting")


def test_pods_that_exceed_their_deadline_are_no_longer_starting():
    late = Replicas(wanted=1, overdue='ReplicaSet "vlm-1" has timed out progressing.')
    conditions = verdicts(observed(plan=PLAN, replicas=late, pods=[pod()]))
    assert conditions["Ready"] == conditions["Progressing"] == ("False", "ProgressDeadlineExceeded")
    served = Replicas(wanted=2, present=2, available=1, overdue="late")
    assert verdicts(observed(plan=PLAN, replicas=served, pods=[pod(ready=True)]))["Ready"][0] == "True"


def test_no_hardware_yet_is_unknown_until_pods_run():
    nowhere = PLAN.model_copy(update={"hardware": PLAN.hardware.model_copy(update={"nodes": []})})
    assert verdicts(observed(plan=nowhere, replicas=STARTING))["HardwareResolved"] == ("Unknown", "NoNodeYet")
    found = observed(plan=nowhere, replicas=SERVING, pods=[pod(ready=True)])
    assert verdicts(found)["HardwareResolved"] == ("True", "DefaultsUsed")
    assert verdicts(found)["Ready"] == ("True", "Serving")


def test_a_memory_that_is_unknown_is_not_called_checked():
    unknown = PLAN.model_copy(update={"memory": PlanMemory()})
    assert verdicts(observed(plan=unknown))["ResourceFit"] == ("True", "NotChecked")


def test_a_condition_keeps_its_time_until_its_status_changes():
    first = status_of(observed(plan=PLAN, replicas=STARTING, pods=[pod()]))
    second = status_of(observed(plan=PLAN, replicas=SERVING), first, LATER, metadata={"generation": 2})
    times = {c.type: c.last_transition_time for c in second.conditions}
    assert times["Ready"] == LATER
    assert times["OverridesResolved"] == NOW
    assert {c.observed_generation for c in second.conditions} == {2}


def pools(**changes: PoolObservation) -> tuple[PoolObservation, ...]:
    return tuple(replace(pool, name=name) for name, pool in changes.items())


def test_conditions_are_those_of_the_worst_pool_by_name_and_available_while_one_pool_serves():
    starting = observed(plan=PLAN, replicas=STARTING, pods=[pod(failure=Failure(reason="EngineExited", message="m"))])
    after = status_of(pools(main=SERVED, l40s=starting))
    found = {c.type: (c.status.value, c.reason, c.message) for c in after.conditions}
    assert found["Ready"] == ("False", "EngineExited", "pool l40s: m")
    assert found["Progressing"] == ("False", "EngineExited", "pool l40s: m")
    assert found["Available"] == ("True", "ReplicasAvailable", "pool main: 1 of 1 replicas are available")
    assert found["OverridesResolved"][2].startswith("0 settings"), "the same in both pools, so neither is named"
    assert (after.desired_replicas, after.replicas, after.available_replicas) == (2, 2, 1)


def test_the_status_shows_pool_main_and_counts_pools_that_serve():
    encode = replace(SERVED, role=Role.ENCODE, plan=PLAN.model_copy(update={"hash": "encode"}))
    for order in (pools(encode=encode, main=SERVED), pools(main=SERVED, encode=encode), pools(a=encode, b=SERVED)):
        after = status_of(order)
        assert (after.plan.hash, after.replicas) == ("abc", 1)
    down = observed(plan=PLAN, replicas=STARTING)
    assert verdicts(pools(main=down, encode=encode))["Available"][0] == "False", "encoders answer no requests"


def test_a_suspended_pool_does_not_count_unless_all_are():
    off = observed(plan=PLAN, spec=service(suspend=True).spec)
    assert verdicts(pools(main=SERVED, spare=off)) == verdicts(SERVED)
    assert verdicts(pools(main=off, spare=off))["Ready"] == ("False", "Suspended")


def test_drift_and_progress_of_one_pool_show_beside_one_at_rest():
    drifted, rolling = replace(SERVED, drift=Drift("LabelsChanged", "m")), observed(plan=PLAN, replicas=STARTING)
    assert verdicts(pools(main=SERVED, other=drifted))["HardwareDrift"] == ("True", "LabelsChanged")
    assert verdicts(pools(main=SERVED, other=rolling))["Progressing"] == ("True", "RollingOut")


def test_a_group_is_counted_by_its_leaders():
    group = PLAN.model_copy(update={"resources": PLAN.resources.model_copy(update={"pods": 2})})
    after = status_of(observed(plan=group))
    assert "leaderworkerset.sigs.k8s.io/worker-index=0" in str(after.selector)


def test_the_plan_of_the_running_pods_stays_shown_while_the_spec_is_invalid():
    before = status_of(SERVED)
    after = status_of(observed(invalid=InvalidInput("spec.x", "is wrong")), before, LATER)
    assert after.plan == before.plan


def events(before: PoolObservation | None, after: PoolObservation) -> list[tuple[str, str]]:
    first = status_of(before) if before else None
    return [(kind, reason) for kind, reason, _ in events_for(first, status_of(after, first, LATER))]


def test_each_change_is_one_event():
    starting = observed(plan=PLAN, replicas=STARTING, pods=[pod()])
    failed = replace(starting, pods=[pod(failure=Failure(reason="EngineExited", message="m"))])
    assert events(None, starting) == [("Normal", "Starting")]
    assert events(starting, SERVED) == [("Normal", "Serving")]
    assert events(SERVED, SERVED) == []
    assert events(starting, failed) == [("Warning", "EngineExited")]
    other = replace(SERVED, plan=PLAN.model_copy(update={"hash": "def"}))
    assert events(SERVED, other) == [("Normal", "PlanChanged")]
    drifted = replace(SERVED, drift=Drift("LabelsChanged", "a label"))
    assert events(SERVED, drifted) == [("Warning", "LabelsChanged")]


def settings(*, agree: bool) -> dict[str, Report]:
    found = EffectiveSetting(name="prefill_decode_interval", planned=22, effective=22 if agree else 0, agrees=agree)
    return {"vlm-0": report(ready=True, settings_read=True, settings=[found])}


def test_settings_that_are_not_in_force_are_one_event_and_another_when_they_are():
    served = replace(SERVED, pods=[pod(ready=True)])
    ignored, in_force = replace(served, reports=settings(agree=False)), replace(served, reports=settings(agree=True))
    assert events(served, ignored) == [("Warning", "EngineIgnoredSetting")]
    assert events(ignored, ignored) == []
    assert events(ignored, in_force) == [("Normal", "Serving"), ("Normal", "InForce")]
    # A setting can only come into force in a new pod, which has not been asked at first.
    assert events(ignored, served) == [("Normal", "Serving")]
    assert events(served, in_force) == [("Normal", "InForce")]
    assert events(in_force, in_force) == []


def test_settings_that_are_not_in_force_are_an_event_also_while_the_service_is_not_ready_for_another_reason():
    starting = observed(plan=PLAN, replicas=STARTING, pods=[pod()])
    ignored = replace(starting, reports=settings(agree=False))
    assert events(starting, ignored) == [("Warning", "EngineIgnoredSetting")]


def test_traffic_that_is_not_as_declared_is_one_event():
    images = ImageCounts(received=2000, repeated=900, window_seconds=3600)
    asked = replace(SERVED, reports=settings(agree=True))
    repeats = replace(SERVED, reports={"vlm-0": settings(agree=True)["vlm-0"].model_copy(update={"images": images})})
    assert events(asked, repeats) == [("Normal", "ImagesRepeat")]  # nothing was declared, so nothing is wrong
    assert events(repeats, repeats) == []


def test_every_reason_of_a_condition_has_a_sentence_and_is_given_by_the_controller():
    (room,) = controller.__path__
    used = {name for path in Path(room).rglob("*.py") for name in re.findall(r"reasons\.([A-Z_]+)", path.read_text())}
    assert {getattr(reasons, name) for name in used} == set(reasons.CONDITIONS)
    assert not set(reasons.CONDITIONS) & set(FAILURES)


INSPECTING = "the Job vlm-inspect-x reads the model's config.json"
UNREAD = Inspection(
    digest="d", failure=Failure(reason="ModelAccessDenied", message="the hub answers 401: give a token")
)


def test_a_new_service_whose_model_is_being_read_is_progressing():
    found = verdicts(observed(inspecting=INSPECTING))
    assert found["ModelReady"] == ("Unknown", "Inspecting")
    assert found["Progressing"] == ("True", "Inspecting")
    assert found["Ready"] == ("False", "Inspecting")
    for name in ("HardwareResolved", "OverridesResolved", "ResourceFit"):
        assert found[name] == ("Unknown", "Inspecting")


def test_a_service_that_serves_stays_ready_while_another_model_is_being_read():
    found = verdicts(replace(SERVED, inspecting=INSPECTING))
    assert (found["Ready"], found["Progressing"]) == (("True", "Serving"), ("True", "Inspecting"))


def test_a_suspended_service_whose_model_is_being_read_is_suspended():
    assert verdicts(observed(inspecting=INSPECTING), suspend=True)["Ready"] == ("False", "Suspended")


def test_a_model_that_cannot_be_read_is_reported_until_an_engine_has_loaded_it_and_does_not_hold_ready_back():
    starting = observed(plan=PLAN, replicas=STARTING, pods=[pod()], inspection=UNREAD)
    assert verdicts(starting)["ModelReady"] == ("False", "ModelAccessDenied")
    assert verdicts(starting)["Ready"] == ("False", "Starting")
    loading = replace(starting, reports={"vlm-0": report(phase=Phase.CAPTURING_GRAPHS)})
    assert verdicts(loading)["ModelReady"] == ("True", "ModelLoaded")
    assert verdicts(replace(SERVED, inspection=UNREAD))["Ready"] == ("True", "Serving")


def test_what_was_read_stays_in_the_status_and_a_failure_is_one_event():
    first = status_of(observed(plan=PLAN, inspection=UNREAD))
    assert first.model == UNREAD
    assert ("Warning", "ModelAccessDenied", "the hub answers 401: give a token") in list(events_for(None, first))
    again = status_of(observed(plan=PLAN, inspection=first.model), first, LATER)
    assert list(events_for(first, again)) == []
    assert status_of(observed(plan=PLAN, inspection=Inspection()), first, LATER).model is None


def test_what_a_benchmark_left_in_the_status_stays() -> None:
    found = observed(plan=PLAN, replicas=SERVING)
    measured = {
        "time": NOW, "planHash": "ab12", "concurrency": 8, "rounds": 6, "requests": 240, "failures": 0,
        "requestsPerSecond": 68.5, "outputTokensPerSecond": 8768.0,
    }  # fmt: skip
    before = status_of(found).model_copy(update={"benchmark": Benchmark.model_validate(measured)})
    assert status_of(found, before, LATER).to_api()["benchmark"] == measured
