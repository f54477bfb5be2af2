"""Keeps a measurement's summary in the service's status."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Final

from vlm_api.status import Benchmark
from vlm_operator.cli.bench_targets import Measured
from vlm_operator.cli.cluster import Connection
from vlm_operator.kube import kinds
from vlm_operator.kube.client import ApiError
from vlm_operator.measure.result import Result

# The operator writes the whole status and keeps this part of what it read before. What it read before this was written
# it may write once more, so the summary is looked for again after a while.
SETTLED_SECONDS: Final = 2.0
TRIES: Final = 3


def remember(connection: Connection, subject: Measured, result: Result) -> str | None:
    """Writes ``status.benchmark``. Why it could not be written; None where it was, or where nothing was measured."""
    found = summary(subject.plan.hash, result, datetime.now(timezone.utc))
    if found is None:
        return None
    wanted = found.to_api()
    # Of the service that was measured, not of one that was made anew under its name meanwhile.
    patch = [
        {"op": "test", "path": "/metadata/uid", "value": subject.raw["metadata"]["uid"]},
        {"op": "add", "path": "/status/benchmark", "value": wanted},
    ]
    name, namespace = subject.service.name, connection.namespace
    try:
        for _ in range(TRIES):
            connection.client.json_patch(kinds.VLM_SERVICE, namespace, name, patch, subresource="status")
            time.sleep(SETTLED_SECONDS)
            live = connection.client.get(kinds.VLM_SERVICE, namespace, name) or {}
            if ((live.get("status") or {}).get("benchmark") or {}).get("time") == wanted["time"]:
                return None
    except ApiError as error:
        return f"the summary is not in the status of {name}: {error.message}"
    return f"the summary is not in the status of {name}: is its CRD older than this command?"


def summary(plan_hash: str, result: Result, now: datetime) -> Benchmark | None:
    """Of the service itself; of a curve, where it answered most requests a second without losing one, since what fails costs
    no time."""
    own = [each for each in result.summaries if each.target == 0]
    if not own:
        return None
    best = max(own, key=lambda each: (not each.failures, each.requests_per_second))
    return Benchmark.model_validate(
        {key: value for key, value in best.to_json().items() if key != "errors"}
        | {"time": now.strftime("%Y-%m-%dT%H:%M:%SZ"), "planHash": plan_hash}
    )
