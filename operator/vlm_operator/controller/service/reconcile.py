"""One reconcile: gather what exists, choose plans, act, observe and report, and come again in time."""

import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from vlm_api import reasons
from vlm_api.status import VLMServiceStatus
from vlm_operator import manifests as render
from vlm_operator.controller.run.cache import Cache
from vlm_operator.controller.run.inventory import Inventory
from vlm_operator.controller.run.queue import Key
from vlm_operator.controller.service.act import Result, act
from vlm_operator.controller.service.choose import Choices, Chooser, unplanned
from vlm_operator.controller.service.gather import WORKLOADS, LiveService, gather, parse_status
from vlm_operator.controller.service.observe import Observer
from vlm_operator.controller.service.reports import Reports
from vlm_operator.controller.service.requeue import requeue_after
from vlm_operator.controller.status.conclude import at_fault, conclude
from vlm_operator.controller.status.events import Event, events_for
from vlm_operator.controller.status.observation import Problem
from vlm_operator.kube import kinds
from vlm_operator.kube.apply import Applied, Applier
from vlm_operator.kube.client import ApiError, deadline
from vlm_operator.kube.events import Recorder
from vlm_operator.kube.status import StatusWriter

log = logging.getLogger(__name__)

# Consecutive transient errors until the status reports them: 1 s + 2 s + 4 s, longer than a leader election of etcd.
REPORTED_AFTER_ERRORS: Final = 4
# A worker is not held up for longer by one service, however slow the API server is.
RECONCILE_SECONDS: Final = 60.0
# What came of it is told even then.
PUBLISH_SECONDS: Final = 20.0


@dataclass(frozen=True)
class Outcome:
    """The result of a reconcile. ``again_after_seconds`` is None if the service is gone."""

    again_after_seconds: float | None
    status: VLMServiceStatus | None = None


@dataclass
class Reconciler:
    """What a reconcile works with. Its parts may be used by several threads, each for another service."""

    cache: Cache
    chooser: Chooser
    applier: Applier
    recorder: Recorder
    status: StatusWriter
    inventory: Inventory
    reports: Reports
    site: render.Site = render.USUAL_SITE
    errors: dict[Key, int] = field(default_factory=dict)
    """Consecutive transient errors of the API server, by service."""
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)

    def __post_init__(self) -> None:
        self.observer = Observer(self.inventory)

    def __call__(self, key: Key) -> Outcome:
        """Reconciles one service. Raises ApiError for what a retry may fix; what lasts is in the status, as is a fault of the
        operator's own, before it is raised."""
        try:
            with deadline(RECONCILE_SECONDS):
                return self._reconcile(key)
        except ApiError:
            raise
        except Exception as error:
            self._admit(key, error)
            raise

    def _reconcile(self, key: Key) -> Outcome:
        live = gather(self.cache, self.reports, key)
        if live is None:
            return Outcome(None)
        choices = self._choose(live)
        result = self._act(live, choices)
        now = self._now()
        observation = self.observer.observe(live, choices, result, now)
        status = conclude(live.service, observation, live.previous, now)
        with deadline(PUBLISH_SECONDS):
            self._publish(live, result.applied, status)
        return Outcome(requeue_after(observation, live, {choice.job for choice in choices.pools}), status)

    def _admit(self, key: Key, error: Exception) -> None:
        """Without this, the status would go on saying what was true of an older generation. Raises ApiError."""
        raw = self.cache.service(key)
        if raw is None or raw["metadata"].get("deletionTimestamp"):
            return
        previous, place = parse_status(raw), traceback.extract_tb(error.__traceback__)[-1]
        where = f"{type(error).__name__} in {Path(place.filename).name}, line {place.lineno}"
        status = at_fault(previous, raw["metadata"].get("generation"), where, self._now())
        self.status.write(raw, status.to_api())
        for event in events_for(previous, status):
            self.recorder.record(raw, *event)

    def _now(self) -> str:
        return self.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self.reports.forget(key)
        self.observer.forget(key)
        self.errors.pop(key, None)
        self.status.forget(key.namespace, key.name)

    def _choose(self, live: LiveService) -> Choices:
        try:
            return self.chooser.choose(live)
        except ApiError as error:
            self.raise_if_transient(live.key, error)
            return unplanned(live, _problem(error, "a request that planning needs"))

    def _act(self, live: LiveService, choices: Choices) -> Result:
        awaited = {choice.job for choice in choices.pools}
        try:
            result = act(self.applier, live, choices, self.site)
            if choices.problem is None:
                self.chooser.inspector.tidy(j for j in live.jobs if j["metadata"]["name"] not in awaited)
                self.errors.pop(live.key, None)
        except ApiError as error:
            self.raise_if_transient(live.key, error)
            log.warning("%s: %s", live.key.name, error.message)
            # If nothing was to be applied, the status reports what is wrong with the spec or with planning.
            applying = any(choice.applicable or choice.inspecting for choice in choices.pools)
            return Result(
                workloads={p.name: p.workload for p in live.pools if p.workload is not None},
                problem=_problem(error, "an object") if applying else None,
            )
        return result

    def raise_if_transient(self, key: Key, error: ApiError) -> None:
        """Raises the error if a retry may fix it, until it has come too often. Returns if the request itself was rejected."""
        if error.refused or error.status == 0:
            self.errors.pop(key, None)
        if error.status == 0:
            raise error  # the API server is unreachable, so the status cannot be written either
        if not error.refused:
            self.errors[key] = self.errors.get(key, 0) + 1
            if self.errors[key] < REPORTED_AFTER_ERRORS:
                raise error

    def _publish(self, live: LiveService, applied: Applied, status: VLMServiceStatus) -> None:
        events = list(events_for(live.previous, status))
        created = [title for title in applied.created if title.startswith(tuple(f"{kind}/" for kind in WORKLOADS))]
        if created:
            # One event with what follows from it: each costs the API server as much as another object.
            merges = bool(events) and events[0][0] == "Normal"
            kind, reason, note = events.pop(0) if merges else ("Normal", reasons.CREATED, "")
            events.insert(0, Event(kind, reason, "; ".join(filter(None, (f"created {', '.join(created)}", note)))))
        for kind in applied.absent:
            if kind != kinds.LEADER_WORKER_SET.kind:
                note = f"the cluster does not serve {kind}: install its controller, or remove it from the spec"
                self.recorder.record(live.raw, "Warning", reasons.KIND_MISSING, note)
        for workload, why in applied.replaced.items():
            note = f"{workload} is deleted and created again, with all its pods: {why}"
            self.recorder.record(live.raw, "Normal", reasons.WORKLOAD_REPLACED, note)
        for verb in ("created", "changed", "replaced", "deleted"):
            if titles := getattr(applied, verb):
                log.info("%s %s", verb, ", ".join(titles), extra={"service": live.key.name})
        self.status.write(live.raw, status.to_api())
        for event in events:
            self.recorder.record(live.raw, *event)


def _problem(error: ApiError, what: str) -> Problem:
    if error.refused:
        return Problem(reasons.NOT_APPLIED, f"the API server rejected {what}: {error.message}")
    return Problem(reasons.NOT_APPLIED, f"the API server keeps failing on {what}, retrying: {error.message}")
