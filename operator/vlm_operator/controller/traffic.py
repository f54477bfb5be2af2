"""Whether images come back as often as ``spec.workload.images.reuse`` says. Pure.

What is concluded goes into the status, so it moves only when the traffic really does: it takes many images, the share is
told in steps, and what was said once is taken back late.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from vlm_api.plan import Finding, Severity
from vlm_api.report import SeenImages
from vlm_api.status import ImagesInTraffic
from vlm_api.workload import Reuse

# Fewer images, or a shorter time, say nothing about traffic.
LEAST_IMAGES: Final = 1000
LEAST_SECONDS: Final = 600
# Shares of images that had come before: from these on the declaration is called wrong, and from the others on right again.
REPEAT_SHARE, REPEAT_NO_MORE_SHARE = 0.20, 0.10
SINGLE_SHARE, SINGLE_NO_MORE_SHARE = 0.01, 0.05

_STEP_PERCENT: Final = 5
_MOVE_PERCENT: Final = 10


def images_in_traffic(
    declared: str, seen: Sequence[SeenImages], before: ImagesInTraffic | None
) -> ImagesInTraffic | None:
    """What the images of all pods say; what was said before where there are too few of them now, None at first.

    An image that goes to another replica the second time counts as new there, as it is new for that engine's caches.
    """
    before = before if before is not None and before.declared == declared else None
    counted = [s for s in seen if s.window_seconds >= LEAST_SECONDS]
    received = sum(s.received for s in counted)
    if received < LEAST_IMAGES:
        return before
    share = sum(s.repeated for s in counted) / received
    percent = round(share * 100 / _STEP_PERCENT) * _STEP_PERCENT
    said = before.finding.reason if before is not None and before.finding is not None else None
    finding = _finding(declared, share, percent, said)
    if before is not None and (finding.reason if finding else None) == said:
        moved = abs(share * 100 - before.repeated_percent) >= _MOVE_PERCENT
        return before.model_copy(update={"repeated_percent": percent, "finding": finding}) if moved else before
    return ImagesInTraffic(declared=declared, repeated_percent=percent, finding=finding)


def _finding(declared: str, share: float, percent: int, said: str | None) -> Finding | None:
    if declared == Reuse.REPEATED.value:
        if share <= (SINGLE_NO_MORE_SHARE if said == "ImagesDoNotRepeat" else SINGLE_SHARE):
            return Finding(
                severity=Severity.WARNING,
                reason="ImagesDoNotRepeat",
                message="hardly any image came back within the last hour: the cache of image embeddings takes GPU memory "
                "and is not used. Set workload.images.reuse to SingleUse",
                path="spec.workload.images.reuse",
            )
        return None
    if share < (REPEAT_NO_MORE_SHARE if said == "ImagesRepeat" else REPEAT_SHARE):
        return None
    planned = "which is planned like SingleUse" if declared == Reuse.UNKNOWN.value else "so no cache keeps them"
    return Finding(
        severity=Severity.INFO if declared == Reuse.UNKNOWN.value else Severity.WARNING,
        reason="ImagesRepeat",
        message=f"about {percent} % of images came back within the last hour, but workload.images.reuse is {declared}, "
        f"{planned}. Set it to Repeated: the vision tower then encodes an image once",
        path="spec.workload.images.reuse",
    )
