"""What is measured, read from the cluster: a service with its stored plan, and the server that it is compared with."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vlm_api.names import PLAN_KEY, POD_TEMPLATE_KEY
from vlm_api.status import PlanStatus, VLMService
from vlm_bench.commands.cleanup import patiently
from vlm_bench.load.job_manifest import bench_job
from vlm_bench.load.schedule import Load, Run
from vlm_bench.load.target import Target, certificate_of, checked_url, secret_reference, service_url, tokenizer_of
from vlm_operator.cli.cluster import Connection, cluster_errors
from vlm_operator.cli.service import read
from vlm_operator.controller.status.pods import PodView, view
from vlm_operator.documents import Document
from vlm_operator.errors import ClusterError
from vlm_operator.facts.model.inspected import from_api
from vlm_operator.facts.types import ModelFacts
from vlm_operator.kube import kinds
from vlm_operator.kube.ownership import is_owned, owner_reference
from vlm_operator.manifests.names import plan_name


@dataclass(frozen=True)
class Replicas:
    """The pods of a service that answer requests, at one time."""

    ready: int
    uids: frozenset[str]
    """Those that are ready or will be."""

    def change(self, name: str, now: Replicas) -> str | None:
        """Why a measurement since then mixes different pods; None if they are the same."""
        if self.ready != now.ready:
            return f"{name} had {self.ready} ready replicas at first, and {now.ready} at the end"
        if self.uids != now.uids:
            return f"pods of {name} were replaced during the measurement"
        return None


def replicas_of(pods: Iterable[Document]) -> Replicas:
    """Of these pods of a service."""
    views = [pod for pod in map(view, pods) if pod.leader and not pod.deleting]
    return Replicas(sum(pod.ready for pod in views), frozenset(pod.uid for pod in views))


def ready_pods(connection: Connection, name: str) -> list[PodView]:
    """The pods that answer requests: of a group over several nodes, the leader. Raises ClusterError."""
    return [pod for pod in map(view, connection.pods(name)) if pod.ready and pod.leader]


@dataclass(frozen=True)
class MeasuredService:
    """A running service, with all that a Job beside it needs."""

    raw: Document
    service: VLMService
    plan: PlanStatus
    template: Document
    target: Target
    ready_replicas: int
    replicas: Replicas
    inspected: ModelFacts | None = None
    """What the operator read from the model's own files."""

    def planned(self) -> dict[str, Any]:
        """The settings that the plan passes to the engine."""
        return {s.name: s.value for s in self.plan.settings if s.applied}

    def job(self, name: str, targets: Sequence[Target], runs: Sequence[Run], load: Load, **options: Any) -> Document:
        """The Job that sends the load; ``options`` as in ``bench_job``. Raises InvalidInput for too many runs."""
        return bench_job(
            self.template,
            name=name,
            namespace=self.raw["metadata"]["namespace"],
            service=self.service.name,
            owner=owner_reference(self.raw),
            targets=targets,
            runs=runs,
            load=load,
            **options,
        )

    def change(self, connection: Connection) -> str | None:
        """Why a measurement since then mixes different pods; None if they are the same. Raises ClusterError."""
        now = replicas_of(patiently(lambda: connection.pods(self.service.name)))
        return self.replicas.change(self.service.name, now)

    def restarts(self, connection: Connection) -> int:
        """How often the engine's containers were restarted until now."""
        return sum(pod.restarts for pod in map(view, connection.pods(self.service.name)))

    def restarts_since(self, connection: Connection, before: int, seconds: float) -> int:
        """How often since ``before``; waits at most so long for the first restart."""
        deadline = time.monotonic() + seconds
        while (count := max(self.restarts(connection) - before, 0)) == 0 and time.monotonic() < deadline:
            time.sleep(1)
        return count


def measured_service(connection: Connection, name: str, label: str | None = None) -> MeasuredService:
    """The service of that name; ``label`` is its name in tables. Raises ClusterError if it is not ready."""
    raw = connection.service(name)
    service, status = read(raw)
    if service.spec.pools:
        raise ClusterError(
            f"{name} has pools, which share one address, so a measurement would mix them: create a VLMService with the fields "
            "of one pool, and measure that"
        )
    ready = {c.type: c for c in status.conditions}.get("Ready") if status is not None else None
    if status is None or status.plan is None or not status.plan.hash or ready is None or ready.status.value != "True":
        why = f"{ready.reason}: {ready.message}" if ready is not None else "the operator has not reconciled it yet"
        raise ClusterError(f"{name} is not ready, so it cannot be measured: {why}")
    config_map = plan_name(name, status.plan.hash)
    with cluster_errors():
        stored = connection.client.get(kinds.CONFIG_MAP, connection.namespace, config_map)
    if stored is None:
        raise ClusterError(f"the ConfigMap {config_map} does not exist: restart the operator, which creates it")
    if not is_owned(stored, raw["metadata"]["uid"]):
        # Its pod template would run with the rights of whoever measures.
        raise ClusterError(f"the ConfigMap {config_map} is not {name}'s: delete it, and the operator creates its own")
    args = json.loads(stored["data"][PLAN_KEY])["engine"]["args"]
    certificate = certificate_of(args)
    pods = connection.pods(name)
    replicas = replicas_of(pods)
    target = Target(
        name=label or name,
        url=service_url(name, connection.namespace, certificate),
        tokenizer=tokenizer_of(args),
        model=service.spec.model.name or name,
        key=service.spec.security.api_key_secret_ref,
        pods=tuple(pod.address for pod in map(view, pods) if pod.ready and pod.leader and pod.address),
        settings=tuple(s.name for s in status.plan.settings if s.applied),
        certificate=certificate,
    )
    facts = status.model.facts if status.model is not None else None
    return MeasuredService(
        raw,
        service,
        status.plan,
        json.loads(stored["data"][POD_TEMPLATE_KEY]),
        target,
        # The status may lag behind the pods.
        replicas.ready or status.ready_replicas or 1,
        replicas,
        inspected=None if facts is None else from_api(facts, service.spec.model.uri),
    )


@dataclass(frozen=True)
class Other:
    """The server that a service is compared with."""

    target: Target
    notes: tuple[str, ...]
    """About the pair."""
    measured: MeasuredService | None = None
    """If it is a service of this cluster."""


def other_server(connection: Connection, subject: MeasuredService, options: argparse.Namespace) -> Other:
    """The server of --against. Raises InvalidInput and ClusterError."""
    text: str = options.against
    if "://" in text:
        url = checked_url(text)
        key = secret_reference(options.against_key) if options.against_key else None
        return Other(Target(url, url, subject.target.tokenizer, options.against_model, key, unknown=True), ())
    name = subject.service.name
    other = measured_service(connection, text, label=f"{text} again" if text == name else None)
    notes = []
    if other.service.spec.model.uri != subject.service.spec.model.uri:
        notes.append(f"the models differ: {subject.service.spec.model.uri} and {other.service.spec.model.uri}")
    if other.ready_replicas != subject.ready_replicas:
        notes.append(
            f"{name} has {subject.ready_replicas} ready replicas and {text} has {other.ready_replicas}: the ratio compares "
            "services, not settings; both get the same concurrency"
        )
    # One processor makes the load of both: the other's files need not be in the load's pod.
    return Other(replace(other.target, tokenizer=subject.target.tokenizer), tuple(notes), other)
