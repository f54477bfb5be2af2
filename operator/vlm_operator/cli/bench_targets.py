"""What is measured, read from the cluster: a service with its stored plan, and what it is compared with."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, replace
from typing import Any

from vlm_api.names import PLAN_KEY, POD_TEMPLATE_KEY
from vlm_api.status import PlanStatus, VLMService
from vlm_operator.cli.cluster import Connection, asking
from vlm_operator.cli.errors import ClusterError
from vlm_operator.cli.live import read
from vlm_operator.cli.temporary import patiently
from vlm_operator.documents import Document
from vlm_operator.facts.inspected import from_api
from vlm_operator.facts.types import ModelFacts
from vlm_operator.kube import kinds
from vlm_operator.measure import pods
from vlm_operator.measure.target import Target, certificate_of, checked_url, secret_reference, service_url, tokenizer_of
from vlm_operator.render.names import plan_name


@dataclass(frozen=True)
class Standing:
    """Who answers for a service at one time."""

    ready: int
    pods: frozenset[str]
    """Identities of the pods that answer, or did."""

    def changed(self, name: str, now: Standing) -> str | None:
        """Why what was measured in between is no one thing; None where nothing was changed."""
        if self.ready != now.ready:
            return f"{self.ready} replicas of {name} answered at first, and {now.ready} at the end"
        if self.pods != now.pods:
            return f"pods of {name} were replaced meanwhile"
        return None


def standing(pods_now: list[Document]) -> Standing:
    """Of these pods of a service."""
    leading = [pod for pod in pods_now if leads(pod) and not pod["metadata"].get("deletionTimestamp")]
    return Standing(
        sum(1 for pod in leading if is_ready(pod)), frozenset(str(pod["metadata"].get("uid")) for pod in leading)
    )


@dataclass(frozen=True)
class Measured:
    """A service that runs, with all that a Job beside it needs."""

    raw: Document
    service: VLMService
    plan: PlanStatus
    template: Document
    target: Target
    replicas: int
    """Those that answer."""
    standing: Standing
    inspected: ModelFacts | None = None
    """What the operator read from the model's own files."""

    def planned(self) -> dict[str, Any]:
        """The settings that the plan passes to the engine."""
        return {s.name: s.value for s in self.plan.settings if s.applied}

    def changed(self, connection: Connection) -> str | None:
        """Why what was measured since then is no one thing; None where nothing was changed. Raises ClusterError."""
        now = standing(patiently(lambda: connection.pods(self.service.name)))
        return self.standing.changed(self.service.name, now)

    def restarts(self, connection: Connection) -> int:
        """How often containers of its pods were started anew until now."""
        return sum(pods.restarts(pod) for pod in connection.pods(self.service.name))

    def restarted(self, connection: Connection, before: int, seconds: float) -> int:
        """How often since ``before``; where it did not yet, it is looked again for so many seconds."""
        deadline = time.monotonic() + seconds
        while (found := max(self.restarts(connection) - before, 0)) == 0 and time.monotonic() < deadline:
            time.sleep(1)
        return found


def measured(connection: Connection, name: str, label: str | None = None) -> Measured:
    """The service of that name. Raises ClusterError where it does not serve."""
    raw = connection.service(name)
    service, status = read(raw)
    ready = {c.type: c for c in status.conditions}.get("Ready") if status is not None else None
    if status is None or status.plan is None or not status.plan.hash or ready is None or ready.status.value != "True":
        why = f"{ready.reason}: {ready.message}" if ready is not None else "the operator has not looked at it yet"
        raise ClusterError(f"{name} does not serve, so there is nothing to measure: {why}")
    with asking():
        stored = connection.client.get(kinds.CONFIG_MAP, connection.namespace, plan_name(name, status.plan.hash))
    if stored is None:
        raise ClusterError(
            f"the ConfigMap {plan_name(name, status.plan.hash)} is gone: restart the operator, which makes it"
        )
    data = stored["data"]
    plan = json.loads(data[PLAN_KEY])
    pods_now = connection.pods(name)
    addresses = tuple(
        address
        for pod in pods_now
        if (address := (pod.get("status") or {}).get("podIP")) and is_ready(pod) and leads(pod)
    )
    certificate = certificate_of(plan["engine"]["args"])
    target = Target(
        name=label or name,
        url=service_url(name, connection.namespace, certificate),
        tokenizer=tokenizer_of(plan["engine"]["args"]),
        model=service.spec.model.name or name,
        key=service.spec.security.api_key_secret_ref,
        pods=addresses,
        settings=tuple(s.name for s in status.plan.settings if s.applied),
        certificate=certificate,
    )
    template = json.loads(data[POD_TEMPLATE_KEY])
    facts = status.model.facts if status.model is not None else None
    stands = standing(pods_now)
    # The status may be a moment behind the pods.
    replicas = stands.ready or status.ready_replicas or 1
    return Measured(
        raw, service, status.plan, template, target, replicas, stands,
        inspected=None if facts is None else from_api(facts, service.spec.model.uri),
    )  # fmt: skip


def leads(pod: Document) -> bool:
    """Whether the pod answers requests: of a group over several nodes, only the leader does."""
    labels = pod["metadata"].get("labels") or {}
    return bool(labels.get("leaderworkerset.sigs.k8s.io/worker-index", "0") == "0")


def is_ready(pod: Document) -> bool:
    """Whether a pod answers."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


@dataclass(frozen=True)
class Other:
    """The server that a service is compared with."""

    target: Target
    notes: tuple[str, ...]
    """What a person should know about the pair."""
    measured: Measured | None = None
    """Where it is a service of this cluster."""


def against(connection: Connection, subject: Measured, options: argparse.Namespace) -> Other:
    """Raises InvalidInput and ClusterError."""
    text: str = options.against
    if "://" in text:
        target = Target(
            name=checked_url(text),
            url=checked_url(text),
            tokenizer=subject.target.tokenizer,
            model=options.against_model,
            key=secret_reference(options.against_key) if options.against_key else None,
            unknown=True,
        )
        return Other(target, ())
    name = subject.service.name
    other = measured(connection, text, label=f"{text} again" if text == name else None)
    notes = []
    if other.service.spec.model.uri != subject.service.spec.model.uri:
        notes.append(f"the models differ: {subject.service.spec.model.uri} and {other.service.spec.model.uri}")
    if other.replicas != subject.replicas:
        notes.append(
            f"{name} has {subject.replicas} ready replicas and {text} has {other.replicas}: the ratio is of services, not of "
            "settings; both get the same requests at once"
        )
    # One processor makes the load of both: the other's files need not be there.
    return Other(replace(other.target, tokenizer=subject.target.tokenizer), tuple(notes), other)
