"""Whether the running engines do what was planned, and whether their traffic is what was declared. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from vlm_api.plan import ExpectedHardware, ServingPlan
from vlm_api.report import EffectiveSetting, Fallback, FoundHardware, Report
from vlm_api.status import Condition, ConditionStatus, Effective
from vlm_operator.controller import reasons
from vlm_operator.controller.observed import Observed, Verdict
from vlm_operator.controller.pods import PodView
from vlm_operator.controller.traffic import images_in_traffic

# Some features that find no room are what a burst of images does. The pool counts as too small from these numbers on,
# within the last hour, and until they are half of that.
FELL_BACK_FEATURES: Final = 10
FELL_BACK_SHARE: Final = 0.01

SHOWN_SETTINGS: Final = 5
_MIB: Final = 1 << 20
_ON_GPU: Final = frozenset({"cuda_ipc", "cuda_vmm"})


def overrides_effective(seen: Observed, before: Condition | None = None) -> Verdict:
    """Whether the running engines use what was planned, on the hardware that it was planned for.

    ``before`` is the condition as it was, so that a pool on the edge does not make it change all the time.
    """
    if seen.plan is None:
        return Verdict(
            ConditionStatus.UNKNOWN, reasons.NOT_ASKED, "there is no plan that an engine could be asked about"
        )
    reports = _of_plan(seen)
    if (wrong := _hardware(seen, seen.plan, reports)) or (wrong := _settings(reports)):
        return wrong
    held = before is not None and before.reason == reasons.FEATURE_POOL_FELL_BACK
    capped = any(f.reason == "FeaturePoolCapped" for f in seen.plan.findings)
    for name, report in reports.items():
        if why := _fell_back(report, capped=capped, held=held):
            return Verdict(ConditionStatus.FALSE, reasons.FEATURE_POOL_FELL_BACK, f"pod {name}: {why}")
    unasked = [p.name for p in _who_can_tell(seen) if p.name not in reports]
    if unasked or not reports:
        told = (
            f"{len(reports)} of {len(reports) + len(unasked)} pods have said what they use"
            if unasked
            else "no pod runs"
        )
        return Verdict(
            ConditionStatus.UNKNOWN, reasons.NOT_ASKED, told if reports else "no running engine has been asked"
        )
    silent = sorted({name for report in reports.values() for name in report.not_told})
    but = f"; not told by the engine: {_some(silent)}" if silent else ""
    pods = f"{len(reports)} pods use" if len(reports) > 1 else "1 pod uses"
    return Verdict(ConditionStatus.TRUE, reasons.IN_FORCE, f"{pods} every planned setting{but}")


def effective(seen: Observed, declared_reuse: str, before: Effective | None) -> Effective | None:
    """One pod's answer: the first that differs from the plan, else the first; and the traffic of all pods."""
    reports = _of_plan(seen)
    if not reports:
        return None
    name, report = next(((n, r) for n, r in reports.items() if _differing(r)), next(iter(reports.items())))
    pool = report.feature_pool
    return Effective(
        pod=name,
        agrees=not _differing(report),
        settings=[{"name": s.name, "planned": s.planned, "effective": s.effective} for s in _differing(report)],
        not_told=report.not_told,
        left_alone=[
            {"name": s.name, "expected": s.expected, "effective": s.effective}
            for s in report.left_alone
            if not s.agrees
        ],
        feature_pool_mib=None if pool is None or pool.size_bytes is None else -(-pool.size_bytes // _MIB),
        images=images_in_traffic(
            declared_reuse, [r.images for r in reports.values() if r.images], before.images if before else None
        ),
    )


def _of_plan(seen: Observed) -> dict[str, Report]:
    """What engines of the plan in force said of themselves, by pod; followers of a group are not asked."""
    plan_hash = seen.plan.hash if seen.plan else ""
    found = {n: r for n, r in seen.reports.items() if r.plan_hash == plan_hash and (r.asked or r.settings)}
    return dict(sorted(found.items()))


def _who_can_tell(seen: Observed) -> Sequence[PodView]:
    plan_hash = seen.plan.hash if seen.plan else ""
    return [p for p in seen.pods if p.ready and p.leader and p.running and not p.deleting and p.plan_hash == plan_hash]


def _hardware(seen: Observed, plan: ServingPlan, reports: Mapping[str, Report]) -> Verdict | None:
    ended = (p.failure for p in seen.pods if p.failure and p.mismatch and p.plan_hash == plan.hash and not p.deleting)
    for failure in ended:
        return Verdict(ConditionStatus.FALSE, failure.reason, failure.message)
    for name, report in reports.items():
        if other := _other_hardware(plan.runtime.hardware, report.hardware):
            return Verdict(
                ConditionStatus.FALSE,
                "HardwareMismatch",
                f"pod {name}: {other}: its settings may not be the best there. State spec.hardware.products or "
                "computeCapability, or correct the node's labels and delete the pod",
            )
    return None


def _other_hardware(planned: ExpectedHardware, found: FoundHardware) -> str | None:
    """Hardware that is no smaller than planned, since the runtime would have ended, but other."""
    for number, device in enumerate(found.devices):
        there = device.compute_capability
        if planned.compute_capability is not None and there not in (None, planned.compute_capability):
            return f"device {number} has compute capability {there}, the plan was made for {planned.compute_capability}"
        if planned.mig and not device.mig:
            return f"device {number} is a whole GPU, the plan was made for a MIG slice"
    return None


def _settings(reports: Mapping[str, Report]) -> Verdict | None:
    for name, report in reports.items():
        different = _differing(report)
        if not different:
            continue
        told = _some([f"{s.name} is {s.effective} and not {s.planned}" for s in different])
        if any(_left_the_gpu(s) for s in different):
            return Verdict(
                ConditionStatus.FALSE,
                reasons.FEATURE_POOL_FELL_BACK,
                f"pod {name}: {told}: image features go through host memory. The pod's log says why; "
                "mm_feature_transport: cpu in spec.engine.settings plans it so",
            )
        return Verdict(
            ConditionStatus.FALSE,
            reasons.ENGINE_IGNORED_SETTING,
            f"pod {name}: {told}. Take what the engine cannot do out of spec.engine, or see what overrides it: "
            "spec.template, or a limit that the pod's log names",
        )
    return None


def _differing(report: Report) -> list[EffectiveSetting]:
    return [s for s in report.settings if not s.agrees]


def _left_the_gpu(setting: EffectiveSetting) -> bool:
    return setting.name == "mm_feature_transport" and setting.planned in _ON_GPU and setting.effective not in _ON_GPU


def _fell_back(report: Report, *, capped: bool, held: bool) -> str | None:
    """Why image features do not go the way that was planned. A pool that was planned too small does what was planned."""
    pool, images = report.feature_pool, report.images
    if pool is None:
        return None
    if Fallback.SHARED_MEMORY_FULL in pool.logged:
        return "/dev/shm had no room for image features, which went through a pipe: raise spec.sharedMemorySize"
    if Fallback.PREPROCESSED_ON_CPU in pool.logged:
        return (
            "the GPU had no memory left to prepare images, so the CPU did it: lower mem_fraction_static in "
            "spec.engine.settings, or declare the images as large as they are"
        )
    if capped or pool.planned_bytes is None:
        return None
    advice = (
        "declare workload.concurrency and workload.images as they are, or raise SGLANG_MM_FEATURE_CACHE_MB in "
        "spec.engine.settings"
    )
    if images is None:
        return f"the pool of image features was full at least once: {advice}" if pool.fallbacks else None
    least = FELL_BACK_FEATURES / 2 if held else FELL_BACK_FEATURES
    share = FELL_BACK_SHARE / 2 if held else FELL_BACK_SHARE
    if images.fell_back < least or images.fell_back < share * images.received:
        return None
    return f"the pool of image features is too small: 1 % of images or more went through host memory: {advice}"


def _some(items: Sequence[str]) -> str:
    more = len(items) - SHOWN_SETTINGS
    return ", ".join(items[:SHOWN_SETTINGS]) + (f" and {more} more" if more > 0 else "")
