"""Events and objects: what is written, how often, and what is left alone."""

import copy
from typing import Any

import pytest
from unit.controller.fakes import FakeClient
from unit.manifests.samples import plan, sealed, service
from unit.plan.builders import request_of

from vlm_api.plan import PlanResources
from vlm_operator import manifests as render
from vlm_operator.kube import apply, events
from vlm_operator.kube.apply import Applier
from vlm_operator.kube.client import ApiError
from vlm_operator.kube.events import Recorder
from vlm_operator.kube.ownership import owner_reference
from vlm_operator.kube.status import StatusWriter

RAW: dict[str, Any] = {"metadata": {"name": "vlm", "namespace": "default", "uid": "u", "resourceVersion": "1"}}


def manifests(pods: int = 1, **spec: Any) -> list[dict[str, Any]]:
    of = service(**spec)
    finished, template = sealed(plan(resources=PlanResources(devices_per_pod=1, pods=pods)), of)
    return render.objects([render.Pool(finished, template, request_of(of))], owner_reference(RAW))


def test_an_event_is_written_once_and_not_again_soon():
    client = FakeClient()
    recorder = Recorder(client, "me")
    for _ in range(50):
        recorder.record(RAW, "Warning", "Evicted", "it failed")
    assert [verb for verb, _ in client.calls] == ["create"]


def test_an_operator_that_comes_back_counts_the_event_that_the_one_before_wrote():
    client = FakeClient()
    Recorder(client, "me").record(RAW, "Warning", "Evicted", "it failed")
    Recorder(client, "me").record(RAW, "Warning", "Evicted", "it failed")
    (event,) = client.objects.values()
    assert event["series"]["count"] == 2


def test_an_event_that_the_api_server_has_forgotten_is_told_anew_and_counted_from_one(monkeypatch):
    monkeypatch.setattr(events, "QUIET_SECONDS", 0.0)
    client = FakeClient()
    recorder = Recorder(client, "me")

    def tell() -> dict[str, Any]:
        recorder.record(RAW, "Warning", "Evicted", "it failed")
        (event,) = client.objects.values()
        return event

    tell()
    assert tell()["series"]["count"] == 2
    client.objects.clear()
    assert "series" not in tell()
    assert tell()["series"]["count"] == 2


def test_other_reasons_notes_and_services_are_other_events():
    client = FakeClient()
    recorder = Recorder(client, "me")
    recorder.record(RAW, "Normal", "A", "x")
    recorder.record(RAW, "Normal", "A", "y")
    recorder.record(RAW, "Normal", "B", "x")
    recorder.record({"metadata": {**RAW["metadata"], "uid": "v"}}, "Normal", "A", "x")
    assert len(client.objects) == 4


def test_a_whole_number_that_the_api_server_shortens_is_no_lost_status(caplog):
    class Shortens(FakeClient):
        def json_patch(self, kind: Any, namespace: str, name: str, patch: Any, *, subresource: str) -> dict[str, Any]:
            self.calls.append(("json_patch", name))
            return {**RAW, "status": {"benchmark": {"ttftP95Milliseconds": 171}}}

    client = Shortens()
    writer = StatusWriter(client)  # type: ignore[arg-type]
    wanted = {"benchmark": {"ttftP95Milliseconds": 171.0}}
    assert writer.write(RAW, wanted)
    assert not caplog.records
    assert not writer.write({**RAW, "status": {"benchmark": {"ttftP95Milliseconds": 171}}}, wanted)
    assert len(client.calls) == 1


class OlderCRD(FakeClient):
    """An API server that drops fields of the status that its CRD does not know."""

    def json_patch(self, kind: Any, namespace: str, name: str, patch: Any, *, subresource: str) -> dict[str, Any]:
        self.calls.append(("json_patch", name))
        return {**RAW, "status": {"known": patch[-1]["value"]["known"]}}


def test_a_status_that_an_older_crd_keeps_in_part_is_written_once_and_again_when_it_says_something_else():
    client = OlderCRD()
    writer = StatusWriter(client)  # type: ignore[arg-type]
    live = {**RAW, "status": {"known": 1}}
    assert writer.write(RAW, {"known": 1, "new": "a"})
    assert not writer.write(live, {"known": 1, "new": "a"})
    assert writer.write(live, {"known": 1, "new": "b"})
    assert not writer.write(live, {"known": 1, "new": "b"})
    made_anew = {**live, "metadata": {**RAW["metadata"], "uid": "v"}}
    assert writer.write(made_anew, {"known": 1, "new": "b"}), "another object of that name"


def test_nothing_is_kept_of_a_service_that_is_gone():
    writer = StatusWriter(OlderCRD())  # type: ignore[arg-type]
    writer.write(RAW, {"known": 1, "new": "a"})
    assert writer._accepted
    writer.forget("default", "vlm")
    assert not writer._accepted


@pytest.mark.parametrize("note", ["x" * 1025, "x" * 5000, "ü" * 600, "x" + "😀" * 256])
def test_long_notes_are_cut_where_the_api_server_would_refuse_them(note):
    client = FakeClient()
    Recorder(client, "me").record(RAW, "Normal", "A", note)
    (event,) = client.objects.values()
    assert 1018 < len(event["note"].encode()) <= 1024
    assert event["note"].endswith("…")


def test_a_note_of_exactly_the_bound_is_whole_and_control_characters_are_written_out():
    client = FakeClient()
    Recorder(client, "me").record(RAW, "Normal", "A", "x" * 1024)
    Recorder(client, "me").record(RAW, "Normal", "A", "a\x1b]52;c")
    assert sorted(event["note"] for event in client.objects.values()) == ["a\\x1b]52;c", "x" * 1024]


def test_what_is_remembered_of_events_has_a_bound(monkeypatch):
    monkeypatch.setattr(events, "REMEMBERED", 3)
    recorder = Recorder(FakeClient(), "me")
    for number in range(9):
        recorder.record(RAW, "Normal", "A", str(number))
    assert len(recorder._recorded) == 3


def test_an_event_that_cannot_be_written_stops_nothing():
    client = FakeClient()
    client.broken = ApiError(403, "Forbidden", "no")
    Recorder(client, "me").record(RAW, "Normal", "A", "x")


def test_all_objects_are_made_in_order_and_none_by_force():
    client = FakeClient()
    done = Applier(client).apply(manifests(), [], "u")
    assert [verb for verb, _ in client.calls] == ["create", "create", "create", "apply"]
    assert [t.split("/")[0] for t in done.created] == ["Service", "NetworkPolicy", "ConfigMap", "Deployment"]


@pytest.mark.parametrize("kind", ["Service", "NetworkPolicy", "Deployment"])
def test_an_object_of_somebody_else_is_left_alone_and_nothing_more_is_written(kind):
    client, wanted = FakeClient(), manifests()
    (name,) = (m["metadata"]["name"] for m in wanted if m["kind"] == kind)
    foreign = client.add({"kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": {"selector": {}}})
    before, applier = copy.deepcopy(foreign), Applier(client)
    done = applier.apply(wanted, [], "u")
    assert done.taken == {f"{kind}/{name}": None}
    assert client.objects[kind, "default", name] == before
    assert not {"Deployment/vlm"} & set(done.created)
    client.calls.clear()
    assert applier.apply(wanted, [], "u").taken == done.taken
    assert client.calls == [], "read first, from the second time on"
    del client.objects[kind, "default", name]
    assert f"{kind}/{name}" in applier.apply(wanted, list(client.objects.values()), "u").created


def test_an_object_of_ours_that_was_not_seen_yet_is_applied():
    client, wanted = FakeClient(), manifests()
    Applier(client).apply(wanted, [], "u")
    client.calls.clear()
    done = Applier(client).apply(wanted, [], "u")
    assert ("force", "Service/vlm") in client.calls
    assert "Service/vlm" not in done.created
    assert done.taken == {}


def test_an_object_of_a_service_of_the_same_name_that_is_gone_is_not_ours():
    client = FakeClient()
    old = {**owner_reference(RAW), "uid": "older"}
    client.add({"kind": "Service", "metadata": {"name": "vlm", "namespace": "default", "ownerReferences": [old]}})
    assert Applier(client).apply(manifests(), [], "u").taken == {"Service/vlm": ("VLMService", "vlm")}


def test_a_kind_that_the_cluster_lacks_is_left_out_and_named():
    client = FakeClient()
    client.missing = {"PodMonitor"}
    done = Applier(client).apply(manifests(metrics={"podMonitor": True}), [], "u")
    assert done.absent == ["PodMonitor"]
    assert len(done.created) == 4


def test_a_plan_whose_explanation_changed_is_made_anew_since_its_config_map_cannot_be_changed():
    client = FakeClient()
    wanted = manifests()
    Applier(client).apply(wanted, [], "u")
    client.calls.clear()
    live = list(client.objects.values())
    changed = [{**m, "data": {**m["data"], "plan.json": "{}"}} for m in wanted if m["kind"] == "ConfigMap"]
    Applier(client).apply(changed, live, "u")
    assert [verb for verb, _ in client.calls] == ["delete", "create"]


def older(manifest: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """A workload as it was before pools had labels."""
    found: dict[str, Any] = copy.deepcopy(manifest)
    spec = found["spec"]
    template = spec.get("template") or spec["leaderWorkerTemplate"]["workerTemplate"]
    for labels in (template["metadata"]["labels"], spec.get("selector", {}).get("matchLabels", {})):
        for label in ("vlmserve.dev/pool", "vlmserve.dev/role"):
            labels.pop(label, None)
    found["metadata"] |= metadata
    return found


@pytest.mark.parametrize("pods", [1, 2])
def test_a_workload_whose_pods_lack_the_labels_of_a_pool_is_replaced_with_the_reason(pods):
    client = FakeClient()
    wanted = manifests(pods=pods)[-1:]
    client.add(older(wanted[0]))
    done = Applier(client).apply(wanted, list(client.objects.values()), "u")
    (workload,) = client.objects.values()
    assert [verb for verb, _ in client.calls] == ["delete", "apply"]
    assert done.replaced.keys() == {f"{workload['kind']}/{workload['metadata']['name']}"}
    assert "vlmserve.dev/pool and vlmserve.dev/role" in next(iter(done.replaced.values()))
    assert (done.created, done.changed, done.deleting) == ([], [], [])
    client.calls.clear()
    assert not Applier(client).apply(wanted, [workload], "u").replaced


def test_a_workload_whose_deletion_takes_a_while_is_waited_for():
    client = FakeClient()
    applier, wanted = Applier(client), manifests()[-1:]
    client.add(older(wanted[0], finalizers=["example.com/slow"]))
    done = applier.apply(wanted, list(client.objects.values()), "u")
    assert (list(done.replaced), done.deleting) == (["Deployment/vlm"], ["Deployment/vlm"])
    done = applier.apply(wanted, list(client.objects.values()), "u")
    assert (list(done.replaced), done.deleting) == ([], ["Deployment/vlm"])
    assert [verb for verb, _ in client.calls] == ["delete"]
    client.objects.clear()
    assert applier.apply(wanted, [], "u").created == ["Deployment/vlm"]


def test_replicas_that_an_autoscaler_has_set_survive_the_replacement():
    client = FakeClient()
    wanted = [m for m in manifests(scaling={"maxReplicas": 9}) if m["kind"] == "Deployment"]
    live = older(wanted[0])
    live["spec"]["replicas"] = 7
    client.add(live)
    done = Applier(client).apply(wanted, list(client.objects.values()), "u")
    assert [verb for verb, _ in client.calls] == ["delete", "apply", "apply"]
    assert done.live[0]["spec"]["replicas"] == 7


def test_a_refused_edit_leaves_the_workload_whatever_the_refusal_says():
    class Refuses(FakeClient):
        def apply(self, *_: Any, **__: Any) -> dict[str, Any]:
            raise ApiError(422, "Invalid", 'nodeSelector: Invalid value: "field is immutable"')

    for pods in (1, 2):
        client, wanted = Refuses(), manifests(pods)[-1:]
        client.add({**wanted[0], "spec": {**wanted[0]["spec"], "replicas": 4}})
        with pytest.raises(ApiError, match="immutable"):
            Applier(client).apply(wanted, list(client.objects.values()), "u")
        assert client.calls == []


class Webhook(FakeClient):
    """An admission webhook changes the selector of every Deployment."""

    def __init__(self, added: dict[str, str]) -> None:
        super().__init__()
        self.added = added

    def add(self, manifest: dict[str, Any]) -> dict[str, Any]:
        if manifest["kind"] == "Deployment":
            manifest["spec"]["selector"]["matchLabels"] |= self.added
        return super().add(manifest)


@pytest.mark.parametrize("added", [{"team": "x"}, {"vlmserve.dev/pool": "x"}], ids=["a label more", "another value"])
def test_a_selector_that_a_webhook_changes_does_not_replace_the_workload_without_end(added):
    client = Webhook(added)
    applier, wanted = Applier(client), copy.deepcopy(manifests()[-1:])
    applier.apply(wanted, [], "u")
    live = copy.deepcopy(list(client.objects.values()))
    for _ in range(3):
        if "team" in added:
            assert not applier.apply(wanted, live, "u").replaced
        else:
            with pytest.raises(ApiError, match="admission webhook"):
                applier.apply(wanted, live, "u")
    assert "delete" not in [verb for verb, _ in client.calls]


@pytest.mark.parametrize("owner", [None, {"kind": "Other", "name": "o", "uid": "9", "controller": True}])
def test_a_deployment_that_is_no_longer_ours_is_not_applied_to_and_nothing_else_is_written(owner):
    client, wanted = FakeClient(), manifests()
    detached = copy.deepcopy(wanted[-1])
    detached["metadata"] |= {"labels": {}, "ownerReferences": [owner] if owner else []}
    client.add(detached)
    done = Applier(client).apply(wanted, [], "u")
    assert done.taken == {"Deployment/vlm": owner and ("Other", "o")}
    assert client.calls == []


def test_an_object_whose_managed_fields_were_cleared_meanwhile_is_retried():
    client, (wanted, *_) = FakeClient(), manifests()
    client.add(copy.deepcopy(wanted))
    stale = copy.deepcopy(client.objects[wanted["kind"], "default", wanted["metadata"]["name"]])
    stale["metadata"]["managedFields"] = [{"manager": "vlm-operator", "operation": "Update", "fieldsV1": {}}]
    wanted["metadata"]["labels"]["example.com/new"] = "x"
    with pytest.raises(ApiError) as refused:
        Applier(client).apply([wanted], [stale], "u")
    assert refused.value.status == 409


def test_an_apply_that_changed_nothing_is_not_sent_again():
    client = FakeClient()
    applier = Applier(client)
    wanted = [m for m in manifests() if m["kind"] == "Service"]
    applier.apply(wanted, [], "u")
    client.calls.clear()
    for _ in range(5):
        # The fake server keeps no managedFields, so nothing can be known from the live object.
        applier.apply(wanted, list(client.objects.values()), "u")
    assert [verb for verb, _ in client.calls] == ["force"]


def test_what_is_as_wanted_is_compared_again_only_if_it_or_the_manifest_has_changed(monkeypatch):
    compared: list[str] = []

    def satisfied(wanted: dict[str, Any], live: dict[str, Any]) -> bool:
        compared.append(live["metadata"]["resourceVersion"])
        return True

    monkeypatch.setattr(apply, "satisfied", satisfied)
    applier, (wanted, *_) = Applier(FakeClient()), manifests()
    live = copy.deepcopy(wanted)
    live["metadata"] |= {"uid": "one", "resourceVersion": "1"}
    for _ in range(3):
        applier.apply([wanted], [live], "u")
    assert compared == ["1"]
    live["metadata"]["resourceVersion"] = "2"
    applier.apply([wanted], [live], "u")
    wanted["metadata"]["labels"]["example.com/new"] = "x"
    applier.apply([wanted], [live], "u")
    assert compared == ["1", "2", "2"]


def test_what_is_remembered_of_objects_has_a_bound_since_nobody_tells_that_one_is_gone(monkeypatch):
    monkeypatch.setattr(apply, "REMEMBERED", 3)
    client = FakeClient()
    applier = Applier(client)
    for number in range(9):
        raw = {"metadata": {**RAW["metadata"], "name": f"vlm-{number}"}}
        of = service(f"vlm-{number}")
        finished, template = sealed(plan(f"vlm-{number}"), of)
        wanted = [
            m
            for m in render.objects([render.Pool(finished, template, request_of(of))], owner_reference(raw))
            if m["kind"] == "Service"
        ]
        applier.apply(wanted, [], "u")
        applier.apply(wanted, [o for o in client.objects.values() if o["metadata"]["name"] == of.name], "u")
    assert len(applier._no_ops) == 3
