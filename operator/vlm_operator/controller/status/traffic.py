"""Whether images repeat as often as ``spec.workload.images.reuse`` declares. Pure.

The result is part of the status, so it changes only if the traffic clearly does: it needs many images, rounds the share, and
has different thresholds for raising a finding and for dropping it.
"""

from collections.abc import Sequence
from typing import Final

from vlm_api.plan import Finding, info, warning
from vlm_api.reasons import FindingReason
from vlm_api.report import ImageCounts
from vlm_api.status import ImagesInTraffic
from vlm_api.workload import Reuse

# Fewer images, or a shorter time, are too small a sample.
LEAST_IMAGES: Final = 1000
LEAST_SECONDS: Final = 600
# Shares of repeated images: the first of each pair raises the finding, the second drops it.
REPEAT_SHARE, REPEAT_NO_MORE_SHARE = 0.20, 0.10
SINGLE_SHARE, SINGLE_NO_MORE_SHARE = 0.01, 0.05

_STEP_PERCENT: Final = 5
_MOVE_PERCENT: Final = 10


def images_in_traffic(
    declared: str, counts: Sequence[ImageCounts], before: ImagesInTraffic | None
) -> ImagesInTraffic | None:
    """The share over all pods; the previous result if the sample is too small, None at first.

    An image that reaches another replica the second time counts as new, as it is new for that engine's caches.
    """
    before = before if before is not None and before.declared == declared else None
    counted = [s for s in counts if s.window_seconds >= LEAST_SECONDS]
    received = sum(s.received for s in counted)
    if received < LEAST_IMAGES:
        return before
    share = sum(s.repeated for s in counted) / received
    percent = round(share * 100 / _STEP_PERCENT) * _STEP_PERCENT
    reported = before.finding.reason if before is not None and before.finding is not None else None
    finding = _finding(declared, share, percent, reported)
    if before is not None and (finding.reason if finding else None) == reported:
        moved = abs(share * 100 - before.repeated_percent) >= _MOVE_PERCENT
        return before.model_copy(update={"repeated_percent": percent, "finding": finding}) if moved else before
    return ImagesInTraffic(declared=declared, repeated_percent=percent, finding=finding)


def _finding(declared: str, share: float, percent: int, reported: str | None) -> Finding | None:
    if declared == Reuse.REPEATED.value:
        if share <= (SINGLE_NO_MORE_SHARE if reported == FindingReason.IMAGES_DO_NOT_REPEAT else SINGLE_SHARE):
            return warning(
                FindingReason.IMAGES_DO_NOT_REPEAT,
                "almost no image repeated within the last hour, so the embedding cache takes GPU memory without being used: set "
                "workload.images.reuse to SingleUse",
                "spec.workload.images.reuse",
            )
        return None
    if share < (REPEAT_NO_MORE_SHARE if reported == FindingReason.IMAGES_REPEAT else REPEAT_SHARE):
        return None
    planned = "which is planned like SingleUse" if declared == Reuse.UNKNOWN.value else "so no cache keeps them"
    return (info if declared == Reuse.UNKNOWN.value else warning)(
        FindingReason.IMAGES_REPEAT,
        f"about {percent} % of images repeated within the last hour, but workload.images.reuse is {declared}, {planned}: set it "
        "to Repeated, so that the vision encoder encodes an image once",
        "spec.workload.images.reuse",
    )
