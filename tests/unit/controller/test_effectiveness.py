"""Whether running engines do what was planned: the condition, and what the status lists."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from unit.controller.test_conclude import LATER, NOW, PLAN, SERVED, pod, report
from unit.render.samples import service

from vlm_api.plan import ExpectedHardware, Finding, PlanMemory, Severity
from vlm_api.report import (
    EffectiveSetting,
    Failure,
    Fallback,
    FeaturePool,
    FoundDevice,
    FoundHardware,
    LeftSetting,
    Report,
    SeenImages,
)
from vlm_api.status import Condition, Effective
from vlm_operator.controller.conclude import conclude
from vlm_operator.controller.observed import Observed

MIB = 1 << 20
SAME = EffectiveSetting(name="max_running_requests", planned=8, effective=8, agrees=True)
IGNORED = EffectiveSetting(name="prefill_decode_interval", planned=22, effective=0, agrees=False)
ON_CPU = EffectiveSetting(name="mm_feature_transport", planned="cuda_ipc", effective="cpu", agrees=False)


def asked(**changes: Any) -> Report:
    """What a pod says whose engine uses what was planned."""
    return report(**({"ready": True, "asked": True, "settings": [SAME]} | changes))


def seen(*reports: Report, pods: list[Any] | None = None, **plan: Any) -> Observed:
    names = [f"vlm-{number}" for number in range(len(reports))]
    there = pods if pods is not None else [pod(name, ready=True) for name in names]
    return replace(
        SERVED, plan=PLAN.model_copy(update=plan), pods=there, reports=dict(zip(names, reports, strict=True))
    )


def verdict(found: Observed, before: Condition | None = None) -> tuple[str, str, str]:
    """Status, reason and message, after the condition was as given."""
    previous = conclude(service(), found, None, NOW)
    if before is not None:
        previous = previous.model_copy(update={"conditions": [before]})
    told = conclude(service(), found, previous if before else None, LATER)
    (condition,) = [c for c in told.conditions if c.type == "OverridesEffective"]
    return condition.status.value, condition.reason, condition.message


def listed(found: Observed) -> Effective:
    effective = conclude(service(), found, None, NOW).effective
    assert effective is not None
    return effective


def test_all_settings_in_force_is_true_and_what_the_engine_does_not_tell_is_named() -> None:
    found = seen(asked(), asked(not_told=["TORCHDYNAMO_DISABLE"]))
    assert verdict(found) == (
        "True",
        "InForce",
        "2 pods use every planned setting; not told by the engine: TORCHDYNAMO_DISABLE",
    )
    assert listed(seen(asked(not_told=["TORCHDYNAMO_DISABLE"]))) == Effective(
        pod="vlm-0", agrees=True, not_told=["TORCHDYNAMO_DISABLE"]
    )


@pytest.mark.parametrize(
    "found",
    [
        seen(),
        seen(report(ready=True)),
        seen(asked(plan_hash="of-the-plan-before")),
        Observed(),
        seen(asked(), pods=[pod("vlm-0", ready=True), pod("vlm-1", ready=True)]),
    ],
    ids=["no report", "not asked", "another plan", "no plan", "one of two pods"],
)
def test_it_is_unknown_until_every_ready_pod_of_the_plan_was_asked(found: Observed) -> None:
    assert verdict(found)[:2] == ("Unknown", "NotAsked")


def test_a_pod_that_starts_or_ends_and_a_follower_need_not_be_asked() -> None:
    others = [pod("a"), pod("b", ready=True, deleting=True), pod("c", ready=True, leader=False)]
    assert verdict(seen(asked(), pods=[pod("vlm-0", ready=True), *others]))[:2] == ("True", "InForce")


def test_an_engine_that_was_asked_and_stumbles_is_no_news_of_its_settings() -> None:
    assert verdict(seen(asked(ready=False)))[:2] == ("True", "InForce")


def test_a_runtime_from_before_says_by_its_settings_that_it_asked() -> None:
    assert verdict(seen(report(ready=True, settings=[SAME])))[:2] == ("True", "InForce")


def test_a_setting_that_the_engine_ignores_is_told_with_both_values() -> None:
    status, reason, message = verdict(seen(asked(), asked(settings=[SAME, IGNORED])))
    assert (status, reason) == ("False", "EngineIgnoredSetting")
    assert message.startswith("pod vlm-1: prefill_decode_interval is 0 and not 22. ")
    assert listed(seen(asked(), asked(settings=[SAME, IGNORED]))) == Effective(
        pod="vlm-1",
        agrees=False,
        settings=[{"name": "prefill_decode_interval", "planned": 22, "effective": 0}],
    )


def test_many_differences_are_counted_in_the_message_and_all_of_them_listed() -> None:
    many = [IGNORED.model_copy(update={"name": f"setting_{number}"}) for number in range(9)]
    assert "and 4 more" in verdict(seen(asked(settings=many)))[2]
    assert len(listed(seen(asked(settings=many))).settings) == 9


def test_what_was_left_to_the_engine_and_came_otherwise_is_listed_and_nothing_is_wrong() -> None:
    left = [
        LeftSetting(name="attention_backend", expected="fa3", effective="flashinfer", agrees=False),
        LeftSetting(name="page_size", expected=1, effective=1, agrees=True),
    ]
    found = seen(asked(left_alone=left))
    assert verdict(found)[:2] == ("True", "InForce")
    assert listed(found).left_alone == [{"name": "attention_backend", "expected": "fa3", "effective": "flashinfer"}]


def test_features_that_were_planned_on_the_gpu_and_go_through_the_host_have_a_reason_of_their_own() -> None:
    status, reason, message = verdict(seen(asked(settings=[ON_CPU, IGNORED])))
    assert (status, reason) == ("False", "FeaturePoolFellBack")
    assert "mm_feature_transport is cpu and not cuda_ipc" in message


def test_the_pools_true_size_is_listed() -> None:
    pool = FeaturePool(planned_bytes=3072 * MIB, size_bytes=3072 * MIB - 32 * 1024)
    assert listed(seen(asked(feature_pool=pool))).feature_pool_mib == 3072
    assert listed(seen(asked(feature_pool=FeaturePool(planned_bytes=1)))).feature_pool_mib is None


def pool(*logged: Fallback, fallbacks: int = 0, planned: int | None = 3072 * MIB) -> FeaturePool:
    return FeaturePool(planned_bytes=planned, fallbacks=fallbacks, logged=list(logged))


def images(fell_back: int, received: int = 10_000) -> SeenImages:
    return SeenImages(received=received, repeated=0, fell_back=fell_back, window_seconds=3600)


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


@pytest.mark.parametrize(("told", "good"), POOLS.values(), ids=POOLS.keys())
def test_a_pool_that_falls_back_is_told(told: Report, good: bool) -> None:
    expected = ("True", "InForce") if good else ("False", "FeaturePoolFellBack")
    assert verdict(seen(told))[:2] == expected


def test_a_pool_on_the_edge_does_not_change_the_condition_all_the_time() -> None:
    def condition(told: Report) -> Condition:
        status = conclude(service(), seen(told), None, NOW)
        return next(c for c in status.conditions if c.type == "OverridesEffective")

    def near(fell_back: int) -> Report:
        return asked(feature_pool=pool(fallbacks=1000), images=images(fell_back))

    fell = condition(near(100))
    assert verdict(seen(near(60)))[0] == "True"
    assert verdict(seen(near(60)), fell)[0] == "False"
    assert verdict(seen(near(49)), fell)[0] == "True"
    # The numbers of the last hour are in metrics: a message that carries them would be written again and again.
    assert verdict(seen(near(200)), fell) == verdict(seen(near(300)), fell)


def test_a_pool_that_was_planned_too_small_does_what_was_planned() -> None:
    capped = Finding(severity=Severity.WARNING, reason="FeaturePoolCapped", message="m")
    told = asked(feature_pool=pool(fallbacks=1000), images=images(1000))
    assert verdict(seen(told, findings=[capped]))[:2] == ("True", "InForce")


HOPPER = PLAN.runtime.model_copy(
    update={"hardware": ExpectedHardware(device="cuda", devices=1, compute_capability="9.0")}
)


def found_capability(capability: str | None, *, mig: bool = False) -> Report:
    device = FoundDevice(name="GPU", compute_capability=capability, memory_mib=180_000, mig=mig)
    return asked(hardware=FoundHardware(driver="580", devices=[device]))


def test_a_pod_that_found_less_hardware_than_planned_and_ended_is_a_mismatch() -> None:
    ended = Failure(reason="HardwareMismatch", message="1 device is missing")
    assert verdict(seen(pods=[pod("vlm-0", failure=ended)])) == ("False", "HardwareMismatch", "1 device is missing")
    assert verdict(seen(pods=[pod("vlm-0", failure=ended, plan_hash="before")]))[0] == "Unknown"


def test_other_hardware_than_planned_is_a_mismatch_also_where_it_is_no_smaller() -> None:
    status, reason, message = verdict(seen(found_capability("10.0"), runtime=HOPPER))
    assert (status, reason) == ("False", "HardwareMismatch")
    assert "device 0 has compute capability 10.0, the plan was made for 9.0" in message
    for same in ("9.0", None):
        assert verdict(seen(found_capability(same), runtime=HOPPER))[:2] == ("True", "InForce")
    sliced = HOPPER.model_copy(update={"hardware": ExpectedHardware(device="cuda", devices=1, mig=True)})
    assert verdict(seen(found_capability("9.0"), runtime=sliced))[1] == "HardwareMismatch"
    assert verdict(seen(found_capability("9.0", mig=True), runtime=sliced))[1] == "InForce"


def test_the_same_seen_again_is_the_same_status_with_all_of_it() -> None:
    full = seen(
        asked(
            feature_pool=FeaturePool(planned_bytes=MIB, size_bytes=MIB),
            not_told=["A"],
            left_alone=[LeftSetting(name="x", expected=1, effective=2, agrees=False)],
            images=SeenImages(received=5000, repeated=2000, window_seconds=3600),
        ),
        memory=PlanMemory(feature_pool_mib=1),
    )
    first = conclude(service(), full, None, NOW)
    assert conclude(service(), full, first, LATER) == first


def test_a_service_that_serves_all_day_costs_no_write_however_its_traffic_moves() -> None:
    """Each look of the operator, every five minutes: the status that follows is the same JSON as before."""
    status = conclude(service(), seen(asked(), asked()), None, NOW)
    traffic = [(0, 0, 0), (300, 20, 0), (499, 30, 3), (4000, 130, 9), (40_000, 700, 399), (9000, 90, 4), (10, 10, 9)]
    first_told = None
    for look, (received, repeated, fell_back) in enumerate(traffic):
        told = SeenImages(
            received=received, repeated=repeated, fell_back=fell_back, window_seconds=min(300 * look, 3600)
        )
        reports = [
            asked(images=told, elapsed_seconds=300.0 * look, feature_pool=pool(fallbacks=1000 * look)) for _ in range(2)
        ]
        status = conclude(service(), seen(*reports), status, LATER)
        if status.effective is not None and status.effective.images is not None and first_told is None:
            first_told = status.to_api()
        assert first_told in (None, status.to_api())
    assert first_told is not None
    assert first_told["effective"]["images"] == {"declared": "Unknown", "repeatedPercent": 5}
