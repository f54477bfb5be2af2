"""Whether the running engines use what was planned, and whether their traffic is as declared. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from vlm_api import reasons
from vlm_api.bounds import cut, first
from vlm_api.plan import ExpectedHardware, ServingPlan
from vlm_api.reasons import FindingReason
from vlm_api.report import DetectedHardware, EffectiveSetting, EngineDefault, Fallback, Report
from vlm_api.status import MAX_LISTED, Condition, Effective
from vlm_operator.controller.status.observation import FALSE, TRUE, UNKNOWN, PoolObservation, Verdict
from vlm_operator.controller.status.traffic import images_in_traffic

# A burst of images overflows any feature pool. It counts as too small from these numbers in the last hour on, until they
# have halved.
FELL_BACK_FEATURES: Final = 10
FELL_BACK_SHARE: Final = 0.01

SHOWN_SETTINGS: Final = 5
# In characters: what a pod's report says beyond them is cut.
MAX_NAME: Final = 128
MAX_VALUE: Final = 512
_MIB: Final = 1 << 20
_ON_GPU: Final = frozenset({"cuda_ipc", "cuda_vmm"})


def overrides_effective(pool: PoolObservation, before: Condition | None = None) -> Verdict:
    """Whether the running engines use what was planned, on the hardware that it was planned for.

    ``before`` is the previous condition, so that a feature pool at the limit does not flip it.
    """
    if pool.plan is None:
        return Verdict(UNKNOWN, reasons.NOT_ASKED, "there is no plan to compare engines with")
    reports = _reports(pool)
    if (wrong := _hardware(pool, pool.plan, reports)) or (wrong := _settings(reports)):
        return wrong
    held = before is not None and before.reason == reasons.FEATURE_POOL_FELL_BACK
    capped = any(f.reason == FindingReason.FEATURE_POOL_CAPPED for f in pool.plan.findings)
    for name, report in reports.items():
        if why := _fell_back(report, capped=capped, held=held):
            return Verdict(FALSE, reasons.FEATURE_POOL_FELL_BACK, f"pod {name}: {why}")
    unasked = [p for p in pool.current_pods if p.ready and p.leader and p.running and p.name not in reports]
    if not reports:
        return Verdict(UNKNOWN, reasons.NOT_ASKED, "no running engine has reported its settings yet")
    if unasked:
        count = f"{len(reports)} of {len(reports) + len(unasked)} pods have reported their settings"
        return Verdict(UNKNOWN, reasons.NOT_ASKED, count)
    silent = sorted({name for report in reports.values() for name in report.not_reported})
    but = f"; not reported by the engine: {_some([cut(name, MAX_NAME) for name in silent])}" if silent else ""
    pods = f"{len(reports)} pods use" if len(reports) > 1 else "1 pod uses"
    return Verdict(TRUE, reasons.IN_FORCE, f"{pods} every planned setting{but}")


def effective(pool: PoolObservation, before: Effective | None) -> Effective | None:
    """One pod's report: the first that differs from the plan, else the first; and the traffic of all pods."""
    reports = _reports(pool)
    if not reports:
        return None
    name, report = next(((n, r) for n, r in reports.items() if _differing(r)), next(iter(reports.items())))
    size_bytes = None if report.feature_pool is None else report.feature_pool.size_bytes
    return Effective(
        pod=name,
        agrees=not _differing(report),
        settings=_entries(_differing(report), "planned"),
        not_reported=first([cut(name, MAX_NAME) for name in report.not_reported], MAX_LISTED, _more),
        engine_defaults=_entries([s for s in report.engine_defaults if not s.agrees], "expected"),
        feature_pool_mib=None if size_bytes is None else -(-size_bytes // _MIB),
        images=images_in_traffic(
            pool.spec.workload.images.reuse.value,
            [r.images for r in reports.values() if r.images],
            before.images if before else None,
        ),
    )


def _entries(settings: Sequence[EffectiveSetting | EngineDefault], wanted: str) -> list[dict[str, Any]]:
    """Beside the wanted value, the engine's. A pod may answer anything, and the status has little room."""
    entries = [
        {"name": cut(s.name, MAX_NAME), wanted: _short(getattr(s, wanted)), "effective": _short(s.effective)}
        for s in settings
    ]
    return first(entries, MAX_LISTED, lambda count: {"name": _more(count), wanted: None, "effective": None})


def _short(value: Any) -> Any:
    """The value, or the beginning of its text if that is long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return value if len(text) <= MAX_VALUE else cut(text, MAX_VALUE)


def _more(count: int) -> str:
    return f"and {count} more"


def _reports(pool: PoolObservation) -> dict[str, Report]:
    """Reports by pod of engines that run the plan in force and have been asked; a group's workers never are."""
    plan_hash = pool.plan.hash if pool.plan else ""
    asked = {n: r for n, r in pool.reports.items() if r.plan_hash == plan_hash and (r.settings_read or r.settings)}
    return dict(sorted(asked.items()))


def _hardware(pool: PoolObservation, plan: ServingPlan, reports: Mapping[str, Report]) -> Verdict | None:
    for pod in pool.current_pods:
        if pod.failure and pod.mismatch:
            return Verdict(FALSE, pod.failure.reason, pod.failure.message)
    for name, report in reports.items():
        if other := _other_hardware(plan.runtime.hardware, report.hardware):
            return Verdict(
                FALSE,
                "HardwareMismatch",
                f"pod {name}: {other}, so its settings may not suit it: set spec.hardware.products or "
                "computeCapability, or correct the node's labels and delete the pod",
            )
    return None


def _other_hardware(planned: ExpectedHardware, found: DetectedHardware) -> str | None:
    """How the hardware differs. It is not smaller than planned: then the runtime would have ended."""
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
        differences = _some(
            [f"{cut(s.name, MAX_NAME)} is {_short(s.effective)} instead of {_short(s.planned)}" for s in different]
        )
        if any(_left_the_gpu(s) for s in different):
            return Verdict(
                FALSE,
                reasons.FEATURE_POOL_FELL_BACK,
                f"pod {name}: {differences}: image features go through host memory. See the pod's log for the cause, or set "
                "mm_feature_transport: cpu in spec.engine.settings to plan for it",
            )
        return Verdict(
            FALSE,
            reasons.ENGINE_IGNORED_SETTING,
            f"pod {name}: {differences}. Remove what the engine does not support from spec.engine, or find what overrides it: "
            "spec.template, or a limit that the pod's log names",
        )
    return None


def _differing(report: Report) -> list[EffectiveSetting]:
    return [s for s in report.settings if not s.agrees]


def _left_the_gpu(setting: EffectiveSetting) -> bool:
    return setting.name == "mm_feature_transport" and setting.planned in _ON_GPU and setting.effective not in _ON_GPU


def _fell_back(report: Report, *, capped: bool, held: bool) -> str | None:
    """Why image features do not travel as planned. A feature pool that was capped in the plan may overflow."""
    pool, images = report.feature_pool, report.images
    if pool is None:
        return None
    if Fallback.SHARED_MEMORY_FULL in pool.logged:
        return "/dev/shm was too small for image features, which went through a pipe: raise spec.sharedMemorySize"
    if Fallback.PREPROCESSED_ON_CPU in pool.logged:
        return (
            "the GPU had no memory left to preprocess images, so the CPU did it: lower mem_fraction_static in "
            "spec.engine.settings, or declare the images' true size in workload.images"
        )
    if capped or pool.planned_bytes is None:
        return None
    advice = (
        "declare the true workload.concurrency and workload.images, or raise SGLANG_MM_FEATURE_CACHE_MB in "
        "spec.engine.settings"
    )
    if images is None:
        return f"the feature pool was full at least once: {advice}" if pool.fallbacks else None
    least = FELL_BACK_FEATURES / 2 if held else FELL_BACK_FEATURES
    share = FELL_BACK_SHARE / 2 if held else FELL_BACK_SHARE
    if images.fell_back < least or images.fell_back < share * images.received:
        return None
    return f"the feature pool is too small, and 1 % of images or more went through host memory: {advice}"


def _some(items: Sequence[str]) -> str:
    more = len(items) - SHOWN_SETTINGS
    return ", ".join(items[:SHOWN_SETTINGS]) + (f" and {more} more" if more > 0 else "")
