"""After how many seconds a service is reconciled again without an event. Pure."""

from collections.abc import Container
from typing import Final

from vlm_api.reasons import UNWATCHED
from vlm_operator.controller.service.gather import LiveService
from vlm_operator.controller.service.inspect_model import RETRY_SECONDS
from vlm_operator.controller.service.observe import DEBOUNCE_SECONDS
from vlm_operator.controller.service.reports import STARTING_SECONDS
from vlm_operator.controller.status.observation import Observation, PoolObservation

# Everything comes by events; this is for a lost one.
RESYNC_SECONDS: Final = 600.0
# What no event announces: an installed kind, a freed name, a right, a claim.
POLL_SECONDS: Final = 30.0
# The age of a pull is part of the status.
PULLING_SECONDS: Final = 15.0
# A Job that ends sends an event; one whose pod never starts does not.
INSPECTING_SECONDS: Final = 10.0
# A Job is deleted once the status has its answer.
TIDY_SECONDS: Final = 0.5


def requeue_after(observation: Observation, live: LiveService, awaited: Container[str | None]) -> float:
    """The shortest wait that anything asks for. ``awaited`` are the Jobs whose answers this reconcile has used; it has deleted
    the others, or waits for something else before it does."""
    waits = [RESYNC_SECONDS, *(seconds for pool in observation.pools for seconds in _waits(pool))]
    if live.reports_unsettled:
        waits.append(STARTING_SECONDS)
    undecided = any(pool.inspecting is not None or pool.problem is not None for pool in observation.pools)
    answered = [j["metadata"] for j in live.jobs if j["metadata"]["name"] in awaited]
    if not undecided and any(not job.get("deletionTimestamp") for job in answered):
        waits.append(TIDY_SECONDS)
    return min(waits)


def _waits(pool: PoolObservation) -> list[float]:
    failed = pool.inspection is not None and pool.inspection.failure is not None
    # All other errors go away with the spec, the model or a node, each of which has events; planning again costs reads.
    blocked = pool.plan is not None and any(error.reason in UNWATCHED for error in pool.plan.errors)
    asked = {
        STARTING_SECONDS: any(p.running and not p.ready and not p.deleting for p in pool.pods),
        PULLING_SECONDS: any(p.pulling for p in pool.pods),
        # The queue may be a tenth early.
        DEBOUNCE_SECONDS * 1.2: pool.debouncing,
        INSPECTING_SECONDS: pool.inspecting is not None,
        RETRY_SECONDS: failed,
        POLL_SECONDS: pool.problem is not None or blocked,
    }
    return [seconds for seconds, is_asked in asked.items() if is_asked]
