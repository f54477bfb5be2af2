"""A service beside its twin: what is made when, and that nothing is measured that is no twin."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from unit.bench.api import Api
from unit.bench.measurements import LOAD, round_at
from unit.bench.test_twin import in_force, planned, raw
from unit.cli.builders import H100, node
from unit.plan.builders import request_of

from vlm_api.reasons import CONDITIONS
from vlm_api.status import PlanStatus, VLMService
from vlm_bench.commands import cleanup, load_job, measurement
from vlm_bench.commands.measured_service import MeasuredService, Replicas, other_server, replicas_of
from vlm_bench.commands.measurement import Collected, Measurement
from vlm_bench.commands.output import Folder
from vlm_bench.commands.prepared_twin import prepare_twin
from vlm_bench.load.target import Target
from vlm_bench.twins.twin import Change, twin_manifest
from vlm_operator.cli.cluster import Connection
from vlm_operator.cli.inputs import ClusterObjects
from vlm_operator.errors import ClusterError
from vlm_operator.facts.model.lookup import model_facts
from vlm_operator.facts.nodes.node import node_facts
from vlm_operator.facts.types import Cluster
from vlm_operator.kube import kinds
from vlm_operator.kube.client import ApiError
from vlm_operator.plan.make import make_plan

CHANGE = Change("prefill_decode_interval", 0, 22)
REPLICAS = Replicas(1, frozenset({"a"}))
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "engine"}]}}


def subject(replicas: int = 1, **spec: Any) -> MeasuredService:
    service, plan = planned(**spec)
    plan = plan.model_copy(update={"hash": "ab12"})
    target = Target("qwen3-vl", "http://qwen3-vl.team.svc:30000", "/models", "qwen3-vl", settings=("page_size",))
    return MeasuredService(raw(**spec), service, plan, TEMPLATE, target, replicas, REPLICAS)


@dataclass(frozen=True)
class OneNode(Connection):
    """A cluster of one node, with a twin that says about itself what it is told to, the last for ever."""

    devices: int = 8
    statuses: list[Any] = field(default_factory=list)

    def objects(self) -> ClusterObjects:
        return ClusterObjects((node(labels=H100, devices=self.devices),), ())

    def service(self, name: str) -> dict[str, Any]:
        self.client.requests.append("look at the twin")  # type: ignore[attr-defined]
        found = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if isinstance(found, ApiError):
            raise ClusterError(found.message) from found
        return {"status": found}

    def pods(self, name: str) -> list[dict[str, Any]]:
        return []


def one_node(api: Api, devices: int = 8, *statuses: Any) -> OneNode:
    return OneNode(api, "team", devices, [*statuses])  # type: ignore[arg-type]


def twins_plan(change: Change = CHANGE) -> PlanStatus:
    """As the operator makes it."""
    made = twin_manifest(raw(), change, name="qwen3-vl-ab12cd", owner={}, plan=subject().plan)
    return in_force(make_plan(request_of(VLMService.model_validate(made)), one_hopper(), runtime_image="x"))


def one_hopper() -> Cluster:
    return Cluster(nodes=(node_facts(node(labels=H100, devices=8), [], "nvidia.com/gpu"),), in_use={})


def status(ready: int = 0, reason: str = "Starting", plan: PlanStatus | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "conditions": [{"type": "Ready", "status": "True" if ready else "False", "reason": reason, "message": ""}],
        "readyReplicas": ready,
    }
    if plan is not None:
        found["plan"] = {**plan.model_dump(mode="json", by_alias=True), "hash": "cd34"}
    return found


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleanup, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(load_job, "PAUSE_SECONDS", 0.001)


@pytest.fixture
def api() -> Api:
    return Api()


Bench = Callable[..., Measurement]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_page: None) -> Bench:
    """A measurement of a service beside its twin."""
    return partial(measurement_of, monkeypatch, tmp_path)


def measurement_of(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    connection: Connection,
    ours: MeasuredService,
    found: Collected | None = None,
) -> Measurement:
    """What is measured is made up, the rest is real."""
    monkeypatch.setattr(measurement, "measured_service", lambda *_: ours)
    monkeypatch.setattr(measurement, "collect", lambda *_: found or Collected(rounds(), complete=True))
    monkeypatch.setattr(MeasuredService, "change", lambda *_: None)
    options = argparse.Namespace(name="qwen3-vl", rounds=6, start_timeout=5, image=None)
    return Measurement(options, connection, ours, LOAD, [], Folder.create(str(folder / "kept"), "qwen3-vl"), 7)


def rounds() -> list[Any]:
    return [round_at(n, t, 4.0 * (1.2 if t else 1.0) + 0.01 * n) for n in range(1, 7) for t in (0, 1)]


def test_nothing_is_sent_before_all_replicas_of_the_twin_are_ready(
    api: Api, monkeypatch: pytest.MonkeyPatch, bench: Bench
) -> None:
    plan = twins_plan()
    cluster = one_node(api, 8, status(), status(1, plan=plan), status(2, plan=plan), status(3, "Serving", plan))
    made: list[dict[str, Any]] = []
    create = api.create
    monkeypatch.setattr(api, "create", lambda kind, manifest: made.append(manifest) or create(kind, manifest))  # type: ignore[func-returns-value]
    result = bench(cluster, subject(3)).with_twin(CHANGE)
    job, twin = made
    assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (0, 1)
    assert twin["spec"]["replicas"] == 3
    assert twin["metadata"]["ownerReferences"][0]["uid"] == api.create(kinds.JOB, job)["metadata"]["uid"]
    looks = ["look at the twin"] * 4
    waits = "merge Job {'spec': {'parallelism': 0}}"
    # Two waves of eight warm each of the two up, and each of twelve rounds has five.
    deadline = 600 * (2 * 2 + 12 * 5 + 1) + 2 * 60 + 5 + 300
    begins = f"merge Job {{'spec': {{'parallelism': 1, 'activeDeadlineSeconds': {deadline}}}}}"
    assert api.requests[:8] == ["create Job", waits, "create VLMService", *looks, begins]
    assert result.targets == ("qwen3-vl", "prefill_decode_interval=0")
    assert result.comparisons[0].winner == "qwen3-vl"


def test_a_twin_that_the_operator_plans_otherwise_is_removed_before_anything_is_sent(api: Api, bench: Bench) -> None:
    same = subject().plan
    cluster = one_node(api, 8, status(), status(plan=same))
    with pytest.raises(ClusterError, match="is not measured: twin and service both have 22"):
        bench(cluster, subject()).with_twin(CHANGE)
    assert api.objects == {}
    assert not any("'parallelism': 1" in request for request in api.requests)


def test_a_job_whose_command_is_killed_while_the_twin_starts_ends_soon_and_takes_the_twin_with_it(
    api: Api, monkeypatch: pytest.MonkeyPatch, bench: Bench
) -> None:
    made: list[dict[str, Any]] = []
    create = api.create
    monkeypatch.setattr(api, "create", lambda kind, manifest: made.append(manifest) or create(kind, manifest))  # type: ignore[func-returns-value]
    bench(one_node(api, 8, status(1, plan=twins_plan())), subject()).with_twin(CHANGE)
    # Five seconds are what the twin may take to start.
    assert made[0]["spec"]["activeDeadlineSeconds"] == 5 + 300
    assert made[0]["spec"]["ttlSecondsAfterFinished"] == 60


def test_no_twin_is_made_for_a_job_that_is_suspended_since_its_deadline_does_not_run(
    api: Api, monkeypatch: pytest.MonkeyPatch, bench: Bench
) -> None:
    create = api.create
    monkeypatch.setattr(api, "create", lambda *given: {**create(*given), "spec": {"suspend": True}})
    with pytest.raises(ClusterError, match=r"was created suspended, as by Kueue.*exempt Jobs with the label"):
        bench(one_node(api, 8, status()), subject()).with_twin(CHANGE)
    assert api.objects == {}
    assert "create VLMService" not in api.requests


def test_the_twin_of_a_service_with_a_certificate_is_asked_by_https(api: Api) -> None:
    ours = subject(engine={"args": ["--ssl-certfile", "/tls/tls.crt", "--ssl-keyfile", "/tls/tls.key"]})
    twins = prepare_twin(one_node(api), ours, CHANGE, suffix="ab12cd").target
    assert (twins.url, twins.certificate) == ("https://qwen3-vl-ab12cd.team.svc:8000", "/tls/tls.crt")
    assert prepare_twin(one_node(api), subject(), CHANGE, suffix="ab12cd").target.url.startswith("http://")


@pytest.mark.parametrize(
    "reason", ["EngineIgnoredSetting", "DevicesInUse", "PodsRefused", "BadArgument", "Unschedulable"]
)
def test_a_twin_that_waiting_does_not_mend_ends_the_measurement_long_before_the_time_for_its_start(
    reason: str, api: Api, monkeypatch: pytest.MonkeyPatch, bench: Bench
) -> None:
    monkeypatch.setattr(load_job, "OBSTACLE_SECONDS", 0.01)
    cluster = one_node(api, 8, status(), status(reason=reason))
    with pytest.raises(ClusterError, match=f"qwen3-vl-[0-9a-f]+ does not become ready: {reason}: "):
        bench(cluster, subject()).with_twin(CHANGE)
    assert api.objects == {}


@pytest.mark.parametrize("reason", sorted(load_job.UNDER_WAY))
def test_a_twin_that_is_only_just_made_is_waited_for(
    reason: str, api: Api, monkeypatch: pytest.MonkeyPatch, bench: Bench
) -> None:
    assert reason in CONDITIONS
    monkeypatch.setattr(load_job, "OBSTACLE_SECONDS", 0.0)
    plan = twins_plan()
    cluster = one_node(api, 8, {}, *[status(reason=reason)] * 5, status(1, plan=plan))
    assert bench(cluster, subject()).with_twin(CHANGE).complete


def test_who_may_not_patch_jobs_learns_it_before_a_twin_is_made(api: Api, bench: Bench) -> None:
    def refuse(request: str) -> None:
        if request.startswith("merge"):
            raise ApiError(403, "Forbidden", "you may not patch jobs")

    api.before = refuse
    with pytest.raises(ClusterError, match="you may not patch jobs"):
        bench(one_node(api, 8, status()), subject()).with_twin(CHANGE)
    assert api.objects == {}
    assert "create VLMService" not in api.requests


def test_the_plan_that_the_twin_really_got_is_what_is_told(api: Api, bench: Bench) -> None:
    plan = twins_plan()
    settings = [s.model_copy(update={"value": 16}) if s.name == "max_running_requests" else s for s in plan.settings]
    cluster = one_node(api, 8, status(1, plan=plan.model_copy(update={"settings": settings})))
    result = bench(cluster, subject()).with_twin(CHANGE)
    [note] = [note for note in result.notes if "besides" in note]
    ours = next(s.value for s in subject().plan.settings if s.name == "max_running_requests")
    assert note == (
        f"besides prefill_decode_interval qwen3-vl and its twin differ in: max_running_requests: {ours} and 16"
    )


def test_both_are_asked_for_the_setting_that_is_changed_though_the_service_leaves_it_to_the_engine(
    api: Api, monkeypatch: pytest.MonkeyPatch, bench: Bench
) -> None:
    asked: list[tuple[str, ...]] = []
    job = MeasuredService.job

    def record(self: MeasuredService, name: str, targets: Any, *rest: Any, **options: Any) -> dict[str, Any]:
        asked.extend(target.settings for target in targets)
        return job(self, name, targets, *rest, **options)

    monkeypatch.setattr(MeasuredService, "job", record)
    bench(one_node(api, 8, status(1)), subject()).with_twin(CHANGE)
    assert CHANGE.name not in subject().target.settings
    assert all(CHANGE.name in settings for settings in asked)
    assert len(asked) == 2


def test_an_api_server_that_is_away_while_the_twin_starts_ends_nothing(api: Api, bench: Bench) -> None:
    away: Any = ApiError(503, "ServiceUnavailable", "shutting down")
    cluster = one_node(api, 8, status(), away, away, status(1, plan=twins_plan()))
    assert bench(cluster, subject()).with_twin(CHANGE).complete


def test_each_twin_gets_images_that_the_service_has_not_seen(api: Api, bench: Bench) -> None:
    cluster = one_node(api, 8, status(1, plan=twins_plan()))
    measuring = bench(cluster, subject())
    first, second = measuring.with_twin(CHANGE), measuring.with_twin(CHANGE)
    # A warm-up and six rounds of each.
    assert (first.seed, second.seed) == (7, 7 + 2 + 12)


def test_a_result_is_kept_though_the_twin_cannot_be_removed(api: Api, tmp_path: Path, bench: Bench) -> None:
    def refuse(request: str) -> None:
        if request == "delete VLMService":
            raise ApiError(403, "Forbidden", "you may not")

    api.before = refuse
    measuring = bench(one_node(api, 8, status(1, plan=twins_plan())), subject())
    assert measuring.with_twin(CHANGE).complete
    assert (tmp_path / "kept" / "result.json").exists()
    assert "could not be deleted" in measuring.left[0]


def test_a_service_that_was_scaled_between_two_twins_is_not_measured_on(
    api: Api, monkeypatch: pytest.MonkeyPatch, bench: Bench
) -> None:
    measuring = bench(one_node(api, 8, status()), subject(3))
    monkeypatch.setattr(measurement, "measured_service", lambda *_: subject(2))
    with pytest.raises(ClusterError, match="ready replicas: 3, now 2"):
        measuring.with_twin(CHANGE)
    assert api.requests == []


def test_no_winner_is_named_where_replicas_came_or_went_meanwhile(
    api: Api, monkeypatch: pytest.MonkeyPatch, bench: Bench
) -> None:
    measuring = bench(one_node(api, 8, status(1, plan=twins_plan())), subject())
    why = "qwen3-vl had 1 ready replicas at first, and 2 at the end"
    monkeypatch.setattr(MeasuredService, "change", lambda *_: why)
    result = measuring.with_twin(CHANGE)
    [comparison] = result.comparisons
    assert comparison.winner is None
    assert comparison.sentence().startswith(f"no verdict: {why}")
    assert comparison.to_json()["ratios"]["requests/s"]["ratio"] > 1.1


def pod(uid: str, ready: str = "True", **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": uid, "uid": uid, **metadata},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def test_replicas_that_came_went_or_were_replaced_are_noticed() -> None:
    before = replicas_of([pod("a"), pod("b")])
    assert before.change("vlm", replicas_of([pod("b"), pod("a")])) is None
    going = pod("c", deletionTimestamp="now")
    assert before.change("vlm", replicas_of([pod("a"), pod("b"), going])) is None
    why = before.change("vlm", replicas_of([pod("a"), pod("b"), pod("c")]))
    assert why == "vlm had 2 ready replicas at first, and 3 at the end"
    assert "were replaced" in (before.change("vlm", replicas_of([pod("a"), pod("c")])) or "")


def test_a_twin_needs_room_for_as_many_replicas_as_the_service_has(api: Api) -> None:
    with pytest.raises(
        ClusterError, match="it needs 3 pods of 1 devices, as many as the service, and these nodes have room for 2"
    ):
        prepare_twin(one_node(api, 2), subject(3), CHANGE, suffix="ab12cd", replicas=3)
    assert prepare_twin(one_node(api, 3), subject(3), CHANGE, suffix="ab12cd", replicas=3).replicas == 3


def test_a_twin_that_would_be_the_same_is_refused_before_it_is_made(api: Api) -> None:
    ours = subject(engine={"settings": {"prefill_decode_interval": 22}})
    with pytest.raises(ClusterError, match="without your value the plan sets prefill_decode_interval to 22"):
        prepare_twin(one_node(api), ours, Change("prefill_decode_interval", None, 22), suffix="ab12cd")


def test_what_the_operator_read_from_the_models_files_counts_for_the_twin_as_well(api: Api) -> None:
    facts = model_facts(subject().service.spec.model)
    spec = {**raw()["spec"], "model": {"uri": "pvc://models/my-finetune"}}
    service = VLMService.model_validate({**raw(), "spec": spec})
    plan = in_force(make_plan(request_of(service), one_hopper(), runtime_image="x", inspected=facts))
    ours = replace(subject(), raw={**raw(), "spec": spec}, service=service, plan=plan, inspected=facts)
    prepared = prepare_twin(one_node(api), ours, CHANGE, suffix="ab12cd")
    assert (prepared.contrast.others, prepared.contrast.refusal) == ((), None)


def test_where_the_operator_plans_otherwise_than_the_command_its_own_plan_decides(api: Api) -> None:
    ours = subject(engine={"settings": {"prefill_decode_interval": 22}})
    # A measured set of the cluster's own, of which the command knows nothing.
    settings = [
        s.model_copy(update={"value": 7}) if s.name == "max_running_requests" else s for s in ours.plan.settings
    ]
    ours = replace(ours, plan=ours.plan.model_copy(update={"settings": settings}))
    prepared = prepare_twin(one_node(api), ours, Change("prefill_decode_interval", None, 22), suffix="ab12cd")
    assert prepared.contrast.refusal is not None


def test_other_services_with_other_replicas_are_compared_with_a_word_on_it(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vlm_bench.commands.measured_service.measured_service", lambda *_, **__: subject(3))
    other = other_server(one_node(api), subject(1), argparse.Namespace(against="other"))
    assert other.notes[0].startswith("qwen3-vl has 1 ready replicas and other has 3")


def test_replicas_of_a_twin_have_one_address_so_their_counters_are_left_out_with_a_word_on_it(
    api: Api, bench: Bench
) -> None:
    found = Collected([replace(r, counters={"sglang:prompt_tokens_total": 5.0}) for r in rounds()], complete=True)
    cluster = one_node(api, 8, status(2, plan=twins_plan()))
    result = bench(cluster, subject(2), found).with_twin(CHANGE)
    assert (result.counted(0), result.counted(1)) == ({"prompt tokens": 30.0}, {})
    assert "the counters of the twin are left out: its 2 replicas have one address" in result.notes
