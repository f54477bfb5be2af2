"""Whether running engines do what was planned: the condition, and what the status lists."""

from dataclasses import replace
from typing import Any

import pytest
from unit.controller.observations import LATER, PLAN, SERVED, observed, pod, report, status_of

from vlm_api.plan import ExpectedHardware, Finding, PlanMemory, Severity
from vlm_api.report import (
    DetectedDevice,
    DetectedHardware,
    EffectiveSetting,
    EngineDefault,
    Failure,
    Fallback,
    FeaturePool,
    ImageCounts,
    Report,
)
from vlm_api.status import Condition, Effective
from vlm_operator.controller.status.observation import PoolObservation

MIB = 1 << 20
SAME = EffectiveSetting(name="max_running_requests", planned=8, effective=8, agrees=True)
IGNORED = EffectiveSetting(name="prefill_decode_interval", planned=22, effective=0, agrees=False)
ON_CPU = EffectiveSetting(name="mm_feature_transport", planned="cuda_ipc", effective="cpu", agrees=False)


def asked(**changes: Any) -> Report:
    """What a pod says whose engine uses what was planned."""
    return report(**({"ready": True, "settings_read": True, "settings": [SAME]} | changes))


def pool_with(*reports: Report, pods: list[Any] | None = None, **plan: Any) -> PoolObservation:
    names = [f"vlm-{number}" for number in range(len(reports))]
    there = pods if pods is not None else [pod(name, ready=True) for name in names]
    return replace(
        SERVED, plan=PLAN.model_copy(update=plan), pods=there, reports=dict(zip(names, reports, strict=True))
    )


def verdict(found: PoolObservation, before: Condition | None = None) -> tuple[str, str, str]:
    """Status, reason and message, after the condition was as given."""
    previous = status_of(found)
    if before is not None:
        previous = previous.model_copy(update={"conditions": [before]})
    after = status_of(found, previous if before else None, LATER)
    (condition,) = [c for c in after.conditions if c.type == "OverridesEffective"]
    return condition.status.value, condition.reason, condition.message


def listed(found: PoolObservation) -> Effective:
    effective = status_of(found).effective
    assert effective is not None
    return effective


def test_all_settings_in_force_is_true_and_what_the_engine_does_not_report_is_named() -> None:
    found = pool_with(asked(), asked(not_reported=["TORCHDYNAMO_DISABLE"]))
    assert verdict(found) == (
        "True",
        "InForce",
        "2 pods use every planned setting; not reported by the engine: TORCHDYNAMO_DISABLE",
    )
    assert listed(pool_with(asked(not_reported=["TORCHDYNAMO_DISABLE"]))) == Effective(
        pod="vlm-0", agrees=True, not_reported=["TORCHDYNAMO_DISABLE"]
    )


@pytest.mark.parametrize(
    "found",
    [
        pool_with(),
        pool_with(report(ready=True)),
        pool_with(asked(plan_hash="of-the-plan-before")),
        observed(),
        pool_with(asked(), pods=[pod("vlm-0", ready=True), pod("vlm-1", ready=True)]),
    ],
    ids=["no report", "not asked", "another plan", "no plan", "one of two pods"],
)
def test_it_is_unknown_until_every_ready_pod_of_the_plan_has_reported(found: PoolObservation) -> None:
    assert verdict(found)[:2] == ("Unknown", "NotAsked")


def test_starting_and_ending_pods_and_workers_need_not_report() -> None:
    others = [pod("a"), pod("b", ready=True, deleting=True), pod("c", ready=True, leader=False)]
    assert verdict(pool_with(asked(), pods=[pod("vlm-0", ready=True), *others]))[:2] == ("True", "InForce")


def test_an_engine_that_becomes_unready_keeps_its_settings() -> None:
    assert verdict(pool_with(asked(ready=False)))[:2] == ("True", "InForce")


def test_an_older_runtime_that_reports_settings_has_read_them() -> None:
    assert verdict(pool_with(report(ready=True, settings=[SAME])))[:2] == ("True", "InForce")


def test_an_ignored_setting_is_reported_with_both_values() -> None:
    state, reason, message = verdict(pool_with(asked(), asked(settings=[SAME, IGNORED])))
    assert (state, reason) == ("False", "EngineIgnoredSetting")
    assert message.startswith("pod vlm-1: prefill_decode_interval is 0 instead of 22. ")
    assert listed(pool_with(asked(), asked(settings=[SAME, IGNORED]))) == Effective(
        pod="vlm-1",
        agrees=False,
        settings=[{"name": "prefill_decode_interval", "planned": 22, "effective": 0}],
    )


def test_many_differences_are_counted_in_the_message_and_all_of_them_listed() -> None:
    many = [IGNORED.model_copy(update={"name": f"setting_{number}"}) for number in range(9)]
    assert "and 4 more" in verdict(pool_with(asked(settings=many)))[2]
    assert len(listed(pool_with(asked(settings=many))).settings) == 9


def test_what_was_left_to_the_engine_and_came_otherwise_is_listed_and_nothing_is_wrong() -> None:
    left = [
        EngineDefault(name="attention_backend", expected="fa3", effective="flashinfer", agrees=False),
        EngineDefault(name="page_size", expected=1, effective=1, agrees=True),
    ]
    found = pool_with(asked(engine_defaults=left))
    assert verdict(found)[:2] == ("True", "InForce")
    assert listed(found).engine_defaults == [
        {"name": "attention_backend", "expected": "fa3", "effective": "flashinfer"}
    ]


def test_features_that_were_planned_on_the_gpu_and_go_through_the_host_have_a_reason_of_their_own() -> None:
    state, reason, message = verdict(pool_with(asked(settings=[ON_CPU, IGNORED])))
    assert (state, reason) == ("False", "FeaturePoolFellBack")
    assert "mm_feature_transport is cpu instead of cuda_ipc" in message


def test_the_pools_true_size_is_listed() -> None:
    pool = FeaturePool(planned_bytes=3072 * MIB, size_bytes=3072 * MIB - 32 * 1024)
    assert listed(pool_with(asked(feature_pool=pool))).feature_pool_mib == 3072
    assert listed(pool_with(asked(feature_pool=FeaturePool(planned_bytes=1)))).feature_pool_mib is None


def pool(*logged: Fallback, fallbacks: int = 0, planned: int | None = 3072 * MIB) -> FeaturePool:
    return FeaturePool(planned_bytes=planned, fallbacks=fallbacks, logged=list(logged))


def images(fell_back: int, received: int = 10_000) -> ImageCounts:
    return ImageCounts(received=received, repeated=0, fell_back=fell_back, window_seconds=3600)


POOLS = {
    "a few in a burst": (asked(feature_pool=pool(fallbacks=99), images=images(99)), True),
    "one in a hundred": (asked(feature_pool=pool(fallbacks=100), images=images(100)), False),
    "one in a hundred of few": (asked(feature_pool=pool(fallbacks=9), images=images(9, 100)), True),
    "long ago": (asked(feature_pool=pool(Fallback.POOL_FULL, fallbacks=500), images=images(0)), True),
    "no counts, but a line": (asked(feature_pool=pool(Fallback.POOL_FULL, fallbacks=1)), False),
    "no pool planned": (asked(feature_pool=pool(fallbacks=500, planned=None), images=images(500)), True),
    "a full /dev/shm": (asked(feature_pool=pool(Fallback.SHARED_MEMORY_FULL, planned=None)), False),
    "no memory on the GPU": (asked(feature_pool=pool(Fallback.PREPROCESSED_ON_CPU), images=images(0)), False),
}


@pytest.mark.parametrize(("answer", "good"), POOLS.values(), ids=POOLS.keys())
def test_a_feature_pool_that_falls_back_is_reported(answer: Report, good: bool) -> None:
    expected = ("True", "InForce") if good else ("False", "FeaturePoolFellBack")
    assert verdict(pool_with(answer))[:2] == expected


def test_a_pool_on_the_edge_does_not_change_the_condition_all_the_time() -> None:
    def condition(answer: Report) -> Condition:
        return next(c for c in status_of(pool_with(answer)).conditions if c.type == "OverridesEffective")

    def near(fell_back: int) -> Report:
        return asked(feature_pool=pool(fallbacks=1000), images=images(fell_back))

    fell = condition(near(100))
    assert verdict(pool_with(near(60)))[0] == "True"
    assert verdict(pool_with(near(60)), fell)[0] == "False"
    assert verdict(pool_with(near(49)), fell)[0] == "True"
    # The numbers of the last hour are in metrics: a message that carries them would be written again and again.
    assert verdict(pool_with(near(200)), fell) == verdict(pool_with(near(300)), fell)


def test_a_pool_that_was_planned_too_small_does_what_was_planned() -> None:
    capped = Finding(severity=Severity.WARNING, reason="FeaturePoolCapped", about="Resources", message="m")
    answer = asked(feature_pool=pool(fallbacks=1000), images=images(1000))
    assert verdict(pool_with(answer, findings=[capped]))[:2] == ("True", "InForce")


HOPPER = PLAN.runtime.model_copy(
    update={"hardware": ExpectedHardware(device="cuda", devices=1, compute_capability="9.0")}
)


def found_capability(capability: str | None, *, mig: bool = False) -> Report:
    device = DetectedDevice(name="GPU", compute_capability=capability, memory_mib=180_000, mig=mig)
    return asked(hardware=DetectedHardware(driver="580", devices=[device]))


def test_a_pod_that_found_less_hardware_than_planned_and_ended_is_a_mismatch() -> None:
    ended = Failure(reason="HardwareMismatch", message="1 device is missing")
    assert verdict(pool_with(pods=[pod("vlm-0", failure=ended)])) == (
        "False",
        "HardwareMismatch",
        "1 device is missing",
    )
    assert verdict(pool_with(pods=[pod("vlm-0", failure=ended, plan_hash="before")]))[0] == "Unknown"


def test_other_hardware_than_planned_is_a_mismatch_also_where_it_is_no_smaller() -> None:
    state, reason, message = verdict(pool_with(found_capability("10.0"), runtime=HOPPER))
    assert (state, reason) == ("False", "HardwareMismatch")
    assert "device 0 has compute capability 10.0, the plan was made for 9.0" in message
    for same in ("9.0", None):
        assert verdict(pool_with(found_capability(same), runtime=HOPPER))[:2] == ("True", "InForce")
    sliced = HOPPER.model_copy(update={"hardware": ExpectedHardware(device="cuda", devices=1, mig=True)})
    assert verdict(pool_with(found_capability("9.0"), runtime=sliced))[1] == "HardwareMismatch"
    assert verdict(pool_with(found_capability("9.0", mig=True), runtime=sliced))[1] == "InForce"


def test_the_same_observation_is_the_same_status_with_every_field_set() -> None:
    full = pool_with(
        asked(
            feature_pool=FeaturePool(planned_bytes=MIB, size_bytes=MIB),
            not_reported=["A"],
            engine_defaults=[EngineDefault(name="x", expected=1, effective=2, agrees=False)],
            images=ImageCounts(received=5000, repeated=2000, window_seconds=3600),
        ),
        memory=PlanMemory(feature_pool_mib=1),
    )
    first = status_of(full)
    assert status_of(full, first, LATER) == first


def test_a_service_that_serves_all_day_costs_no_write_however_its_traffic_moves() -> None:
    """Each reconcile, every five minutes: the status is the same JSON as before."""
    status = status_of(pool_with(asked(), asked()))
    traffic = [(0, 0, 0), (300, 20, 0), (499, 30, 3), (4000, 130, 9), (40_000, 700, 399), (9000, 90, 4), (10, 10, 9)]
    first_answer = None
    for look, (received, repeated, fell_back) in enumerate(traffic):
        answer = ImageCounts(
            received=received, repeated=repeated, fell_back=fell_back, window_seconds=min(300 * look, 3600)
        )
        reports = [
            asked(images=answer, elapsed_seconds=300.0 * look, feature_pool=pool(fallbacks=1000 * look))
            for _ in range(2)
        ]
        status = status_of(pool_with(*reports), status, LATER)
        if status.effective is not None and status.effective.images is not None and first_answer is None:
            first_answer = status.to_api()
        assert first_answer in (None, status.to_api())
    assert first_answer["effective"]["images"] == {"declared": "Unknown", "repeatedPercent": 5}
