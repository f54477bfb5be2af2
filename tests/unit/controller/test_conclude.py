"""From what was seen to the status."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from unit.render.samples import plan, service

from vlm_api.model import Inspection
from vlm_api.plan import Finding, PlanMemory, Severity
from vlm_api.reasons import FAILURES, Conditions
from vlm_api.report import EffectiveSetting, Failure, Phase, Report, SeenImages
from vlm_api.status import Benchmark, VLMServiceStatus
from vlm_operator.controller import reasons
from vlm_operator.controller.conclude import conclude, told
from vlm_operator.controller.observed import (
    Drift,
    Observed,
    Problem,
    Replicas,
    replicas,
)
from vlm_operator.controller.pods import PodView
from vlm_operator.errors import InvalidInput

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"
PLAN = plan(hash="abc", memory=PlanMemory(weights_mib=15259, kv_cache_mib=30000, reserved_mib=13728))
SERVING = Replicas(wanted=1, present=1, ready=1, updated=1, available=1)
STARTING = Replicas(wanted=1, present=1, ready=0, updated=1, available=0)


def pod(name: str = "vlm-0", **changes: Any) -> PodView:
    made = PodView(
        name=name,
        uid=name,
        plan_hash="abc",
        node="node-0",
        address="10.0.0.1",
        ready=False,
        running=True,
        restarts=0,
        leader=True,
        deleting=False,
        unschedulable=None,
        failure=None,
    )
    return replace(made, **changes)


def report(**changes: Any) -> Report:
    return Report(
        plan_hash="abc", phase=Phase.LOADING_WEIGHTS, ready=False, elapsed_seconds=10, budget_seconds=900
    ).model_copy(update=changes)


def error(path: str, reason: str = "DoesNotFit") -> Finding:
    return Finding(severity=Severity.ERROR, reason=reason, message="8 MiB are missing: use more GPUs", path=path)


def verdicts(seen: Observed, **spec: Any) -> dict[str, tuple[str, str]]:
    status = conclude(service(**spec), seen, None, NOW)
    return {c.type: (c.status.value, c.reason) for c in status.conditions}


SERVED = Observed(plan=PLAN, replicas=SERVING, pods=[pod(ready=True)])


def test_the_address_says_https_where_the_engine_has_a_certificate_also_while_a_change_is_refused():
    engine = PLAN.engine.model_copy(update={"args": ["--ssl-certfile", "/tls/tls.crt"]})
    serving = conclude(service(), replace(SERVED, plan=PLAN.model_copy(update={"engine": engine})), None, NOW)
    assert serving.url == "https://vlm.default.svc:8000/v1"
    assert conclude(service(), replace(SERVED, plan=None), serving, NOW).url == serving.url
    assert conclude(service(), SERVED, None, NOW).url == "http://vlm.default.svc:8000/v1"


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


def test_every_condition_of_the_api_is_told():
    wanted = {value for name, value in vars(Conditions).items() if name.isupper()}
    # An autoscaler is only told of where there is one.
    assert set(verdicts(SERVED)) == wanted - {Conditions.SCALING_ACTIVE}
    assert set(verdicts(SERVED, scaling={"maxReplicas": 4})) == wanted


# name -> (what was seen, the spec, status and reason of Ready)
READY: dict[str, tuple[Observed, dict[str, Any], tuple[str, str]]] = {
    "pods on their way": (Observed(plan=PLAN, replicas=STARTING, pods=[pod()]), {}, ("False", "Starting")),
    "no workload yet": (Observed(plan=PLAN, replicas=Replicas(wanted=1)), {}, ("False", "Starting")),
    "suspended": (Observed(plan=PLAN), {"suspend": True}, ("False", "Suspended")),
    "zero replicas": (Observed(plan=PLAN), {"replicas": 0}, ("False", "ScaledToZero")),
    "a failed pod": (
        Observed(plan=PLAN, replicas=STARTING, pods=[pod(failure=Failure(reason="OutOfDeviceMemory", message="m"))]),
        {},
        ("False", "OutOfDeviceMemory"),
    ),
    "a failed pod of an older plan": (
        Observed(
            plan=PLAN,
            replicas=STARTING,
            pods=[pod(plan_hash="old", failure=Failure(reason="OutOfDeviceMemory", message="m"))],
        ),
        {},
        ("False", "Starting"),
    ),
    "a pod without a node": (
        Observed(plan=PLAN, replicas=STARTING, pods=[pod(node=None, unschedulable="0/3 nodes")]),
        {},
        ("False", "Unschedulable"),
    ),
    "no pod may be made": (
        Observed(plan=PLAN, replicas=Replicas(wanted=1, unmade='pods "vlm-1" is forbidden: exceeded quota')),
        {},
        ("False", "PodsRefused"),
    ),
    "one failed, others answer": (
        Observed(
            plan=PLAN,
            replicas=Replicas(wanted=2, present=2, ready=1, updated=2, available=1),
            pods=[pod("a", ready=True), pod("b", failure=Failure(reason="EngineExited", message="m"))],
        ),
        {"replicas": 2},
        ("True", "Serving"),
    ),
    "an invalid spec": (Observed(invalid=InvalidInput("spec.x", "is wrong")), {}, ("False", "InvalidSpec")),
    "an invalid spec while old pods answer": (
        Observed(invalid=InvalidInput("spec.x", "is wrong"), replicas=SERVING, pods=[pod(ready=True)]),
        {},
        ("False", "InvalidSpec"),
    ),
    "a refused plan": (
        Observed(plan=PLAN.model_copy(update={"findings": [error("spec.parallelism")]})),
        {},
        ("False", "DoesNotFit"),
    ),
    "a taken name": (Observed(plan=PLAN, problem=Problem("NameTaken", "Service/vlm")), {}, ("False", "NameTaken")),
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


@pytest.mark.parametrize(("seen", "spec", "expected"), READY.values(), ids=READY.keys())
def test_ready_is(seen, spec, expected):
    assert verdicts(seen, **spec)["Ready"] == expected


@pytest.mark.parametrize(
    ("path", "condition"),
    [
        ("spec.hardware.products", "HardwareResolved"),
        ("spec.engine.settings.x", "OverridesResolved"),
        ("spec.parallelism.tensor", "ResourceFit"),
        ("spec.multinode.nodeCount", "ResourceFit"),
        (None, "ResourceFit"),
    ],
)
def test_an_error_is_told_by_the_condition_that_it_is_about_and_by_no_other(path, condition):
    told_by = verdicts(Observed(plan=PLAN.model_copy(update={"findings": [error(path)]})))
    false = {name for name, verdict in told_by.items() if verdict == ("False", "DoesNotFit")}
    assert false == {condition, "Ready"}


@pytest.mark.parametrize("reason", ["TooManyDevices", "TensorParallelOverMIG", "SharesAreNotDevices"])
def test_hardware_that_no_node_can_ever_give_is_not_waited_for_and_nothing_has_drifted_from_it(reason):
    never = error("spec.parallelism").model_copy(update={"reason": reason, "message": "no node can ever run this"})
    nowhere = PLAN.hardware.model_copy(update={"nodes": []})
    seen = Observed(plan=PLAN.model_copy(update={"hardware": nowhere, "findings": [never]}))
    told = {c.type: c for c in conclude(service(), seen, None, NOW).conditions}
    for name in ("Ready", "HardwareResolved"):
        assert (told[name].status.value, told[name].reason) == ("False", reason)
        assert told[name].message == "no node can ever run this"
    assert told["ResourceFit"].reason != reason
    assert (told["HardwareDrift"].status.value, told["HardwareDrift"].reason) == ("Unknown", "NoPlan")


def test_without_a_plan_there_is_nothing_to_drift_from():
    assert verdicts(Observed(invalid=InvalidInput("spec.x", "is wrong")))["HardwareDrift"] == ("Unknown", "NoPlan")


def test_a_deployment_that_counts_itself_available_without_a_pod_is_not_available():
    # maxUnavailable 1 of 1 replica: the Deployment's own condition Available is True with no pod at all.
    conditions = [{"type": "Available", "status": "True"}]
    live = {"kind": "Deployment", "spec": {"replicas": 1}, "status": {"replicas": 1, "conditions": conditions}}
    seen = Observed(plan=PLAN, replicas=replicas(live))
    assert verdicts(seen)["Available"] == ("False", "NoReplicaAvailable")


def test_numbers_of_a_deployment_that_has_not_seen_its_spec_yet_count_as_rolling_out():
    live = {
        "kind": "Deployment",
        "metadata": {"generation": 2},
        "spec": {"replicas": 1},
        "status": dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas", "availableReplicas"), 1)
        | {"observedGeneration": 1},
    }
    seen = Observed(plan=PLAN, replicas=replicas(live), pods=[pod(ready=True)])
    assert verdicts(seen)["Progressing"] == ("True", "RollingOut")
    assert conclude(service(), seen, None, NOW).updated_replicas == 0


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
    assert verdicts(Observed(plan=PLAN, replicas=numbers))["Progressing"] == expected


def test_a_deployment_whose_pods_may_not_be_made_says_why():
    words = 'pods "vlm-5fb9" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1'
    refused = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": words}
    live = {
        "kind": "Deployment",
        "metadata": {"generation": 1},
        "spec": {"replicas": 1},
        "status": {"observedGeneration": 1, "unavailableReplicas": 1, "conditions": [refused]},
    }
    status = conclude(service(), Observed(plan=PLAN, replicas=replicas(live)), None, NOW)
    told = {c.type: (c.status.value, c.reason, c.message) for c in status.conditions}
    for condition in ("Ready", "Progressing"):
        assert told[condition][:2] == ("False", "PodsRefused")
        assert words in told[condition][2]
    mended = {**live, "status": {**live["status"], "conditions": [{**refused, "status": "False"}]}}
    assert verdicts(Observed(plan=PLAN, replicas=replicas(mended)))["Ready"] == ("False", "Starting")


def test_pods_that_wait_for_longer_than_they_may_are_no_start_any_more():
    late = Replicas(wanted=1, overdue='ReplicaSet "vlm-1" has timed out progressing.')
    told = verdicts(Observed(plan=PLAN, replicas=late, pods=[pod()]))
    assert told["Ready"] == told["Progressing"] == ("False", "ProgressDeadlineExceeded")
    served = Replicas(wanted=2, present=2, available=1, overdue="late")
    assert verdicts(Observed(plan=PLAN, replicas=served, pods=[pod(ready=True)]))["Ready"][0] == "True"


def test_no_hardware_yet_is_unknown_and_pods_that_run_all_the_same_are_not_held_back():
    nowhere = PLAN.model_copy(update={"hardware": PLAN.hardware.model_copy(update={"nodes": []})})
    assert verdicts(Observed(plan=nowhere, replicas=STARTING))["HardwareResolved"] == ("Unknown", "NoNodeYet")
    seen = Observed(plan=nowhere, replicas=SERVING, pods=[pod(ready=True)])
    assert verdicts(seen)["HardwareResolved"] == ("True", "DefaultsUsed")
    assert verdicts(seen)["Ready"] == ("True", "Serving")


def test_a_memory_that_is_unknown_is_not_called_checked():
    unknown = PLAN.model_copy(update={"memory": PlanMemory()})
    assert verdicts(Observed(plan=unknown))["ResourceFit"] == ("True", "NotChecked")


def test_a_condition_keeps_its_time_until_its_status_changes():
    first = conclude(service(), Observed(plan=PLAN, replicas=STARTING, pods=[pod()]), None, NOW)
    second = conclude(service(metadata={"generation": 2}), Observed(plan=PLAN, replicas=SERVING), first, LATER)
    times = {c.type: c.last_transition_time for c in second.conditions}
    assert times["Ready"] == LATER
    assert times["OverridesResolved"] == NOW
    assert {c.observed_generation for c in second.conditions} == {2}


def test_the_same_seen_again_later_is_the_same_status():
    first = conclude(service(), SERVED, None, NOW)
    assert conclude(service(), SERVED, first, LATER) == first


def test_a_group_is_counted_by_its_leaders():
    group = PLAN.model_copy(update={"resources": PLAN.resources.model_copy(update={"pods": 2})})
    status = conclude(service(), Observed(plan=group), None, NOW)
    assert "leaderworkerset.sigs.k8s.io/worker-index=0" in str(status.selector)


def test_the_plan_of_the_running_pods_stays_shown_while_the_spec_is_invalid():
    before = conclude(service(), SERVED, None, NOW)
    after = conclude(service(), Observed(invalid=InvalidInput("spec.x", "is wrong")), before, LATER)
    assert after.plan == before.plan


def test_a_status_survives_the_way_through_json():
    status = conclude(service(), SERVED, None, NOW)
    assert VLMServiceStatus.model_validate(status.to_api()) == status


def events(before: Observed | None, after: Observed) -> list[tuple[str, str]]:
    first = conclude(service(), before, None, NOW) if before else None
    return [(kind, reason) for kind, reason, _ in told(first, conclude(service(), after, first, LATER))]


def test_people_are_told_of_changes_and_of_nothing_twice():
    starting = Observed(plan=PLAN, replicas=STARTING, pods=[pod()])
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
    return {"vlm-0": report(ready=True, asked=True, settings=[found])}


def test_settings_that_are_not_in_force_are_told_once_and_once_more_when_they_are():
    served = replace(SERVED, pods=[pod(ready=True)])
    ignored, in_force = replace(served, reports=settings(agree=False)), replace(served, reports=settings(agree=True))
    assert events(served, ignored) == [("Warning", "EngineIgnoredSetting")]
    assert events(ignored, ignored) == []
    assert events(ignored, in_force) == [("Normal", "Serving"), ("Normal", "InForce")]
    # A setting can only come into force in a new pod, which has not been asked at first.
    assert events(ignored, served) == [("Normal", "Serving")]
    assert events(served, in_force) == [("Normal", "InForce")]
    assert events(in_force, in_force) == []


def test_settings_that_are_not_in_force_are_told_also_where_the_service_is_not_ready_for_another_reason():
    starting = Observed(plan=PLAN, replicas=STARTING, pods=[pod()])
    ignored = replace(starting, reports=settings(agree=False))
    assert events(starting, ignored) == [("Warning", "EngineIgnoredSetting")]


def test_traffic_that_is_not_as_declared_is_told_once():
    images = SeenImages(received=2000, repeated=900, window_seconds=3600)
    asked = replace(SERVED, reports=settings(agree=True))
    repeats = replace(SERVED, reports={"vlm-0": settings(agree=True)["vlm-0"].model_copy(update={"images": images})})
    assert events(asked, repeats) == [("Normal", "ImagesRepeat")]  # nothing was declared, so nothing is wrong
    assert events(repeats, repeats) == []


def test_every_reason_has_a_sentence():
    constants = {value for name, value in vars(reasons).items() if name.isupper() and isinstance(value, str)}
    assert constants == set(reasons.SENTENCES)
    assert all(sentence.endswith(".") for sentence in reasons.SENTENCES.values())
    assert not constants & set(FAILURES)


INSPECTING = "the Job vlm-inspect-x reads the model's config.json"
UNREAD = Inspection(
    digest="d", failure=Failure(reason="ModelAccessDenied", message="the hub answers 401: give a token")
)


def test_a_new_service_whose_model_is_being_read_is_on_its_way_and_says_so():
    found = verdicts(Observed(inspecting=INSPECTING))
    assert found["ModelReady"] == ("Unknown", "Inspecting")
    assert found["Progressing"] == ("True", "Inspecting")
    assert found["Ready"] == ("False", "Inspecting")
    for name in ("HardwareResolved", "OverridesResolved", "ResourceFit"):
        assert found[name] == ("Unknown", "Inspecting")


def test_a_service_that_serves_stays_ready_while_another_model_is_being_read():
    found = verdicts(replace(SERVED, inspecting=INSPECTING))
    assert (found["Ready"], found["Progressing"]) == (("True", "Serving"), ("True", "Inspecting"))


def test_a_suspended_service_whose_model_is_being_read_is_suspended():
    assert verdicts(Observed(inspecting=INSPECTING), suspend=True)["Ready"] == ("False", "Suspended")


def test_a_model_that_could_not_be_read_is_told_until_an_engine_has_loaded_it_and_holds_nothing_back():
    starting = Observed(plan=PLAN, replicas=STARTING, pods=[pod()], inspection=UNREAD)
    assert verdicts(starting)["ModelReady"] == ("False", "ModelAccessDenied")
    assert verdicts(starting)["Ready"] == ("False", "Starting")
    loading = replace(starting, reports={"vlm-0": report(phase=Phase.CAPTURING_GRAPHS)})
    assert verdicts(loading)["ModelReady"] == ("True", "ModelLoaded")
    assert verdicts(replace(SERVED, inspection=UNREAD))["Ready"] == ("True", "Serving")


def test_what_was_read_stays_in_the_status_and_a_failure_is_told_once():
    first = conclude(service(), Observed(plan=PLAN, inspection=UNREAD), None, NOW)
    assert first.model == UNREAD
    assert ("Warning", "ModelAccessDenied", "the hub answers 401: give a token") in list(told(None, first))
    again = conclude(service(), Observed(plan=PLAN, inspection=first.model), first, LATER)
    assert list(told(first, again)) == []
    assert conclude(service(), Observed(plan=PLAN, inspection=Inspection()), first, LATER).model is None


def test_what_a_benchmark_left_in_the_status_stays() -> None:
    seen = Observed(plan=PLAN, replicas=SERVING)
    measured = {
        "time": NOW, "planHash": "ab12", "concurrency": 8, "rounds": 6, "requests": 240, "failures": 0,
        "requestsPerSecond": 68.5, "outputTokensPerSecond": 8768.0,
    }  # fmt: skip
    before = conclude(service(), seen, None, NOW).model_copy(update={"benchmark": Benchmark.model_validate(measured)})
    assert conclude(service(), seen, before, LATER).to_api()["benchmark"] == measured
