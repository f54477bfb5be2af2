"""Events and objects: what is written, how often, and what is left alone."""

from __future__ import annotations

from typing import Any

from unit.controller.fakes import FakeClient
from unit.render.samples import plan, sealed, service

from vlm_operator import render
from vlm_operator.kube import apply, events
from vlm_operator.kube.apply import Applier
from vlm_operator.kube.client import ApiError
from vlm_operator.kube.events import MEMORY, Recorder
from vlm_operator.kube.ownership import owner_reference
from vlm_operator.kube.status import StatusWriter

RAW: dict[str, Any] = {"metadata": {"name": "vlm", "namespace": "default", "uid": "u", "resourceVersion": "1"}}


def manifests(**spec: Any) -> list[dict[str, Any]]:
    of = service(**spec)
    finished, template = sealed(plan(), of)
    return render.objects(finished, template, of, owner_reference(RAW))


def test_an_event_is_written_once_and_not_again_soon():
    client = FakeClient()
    recorder = Recorder(client, "me")
    for _ in range(50):
        recorder.tell(RAW, "Warning", "PodFailed", "it failed")
    assert [verb for verb, _ in client.calls] == ["create"]


def test_an_operator_that_comes_back_counts_the_event_that_the_one_before_wrote():
    client = FakeClient()
    Recorder(client, "me").tell(RAW, "Warning", "PodFailed", "it failed")
    Recorder(client, "me").tell(RAW, "Warning", "PodFailed", "it failed")
    (event,) = client.objects.values()
    assert event["series"]["count"] == 2


def test_an_event_that_the_api_server_has_forgotten_is_told_anew_and_counted_from_one(monkeypatch):
    monkeypatch.setattr(events, "QUIET_SECONDS", 0.0)
    client = FakeClient()
    recorder = Recorder(client, "me")

    def tell() -> dict[str, Any]:
        recorder.tell(RAW, "Warning", "PodFailed", "it failed")
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
    recorder.tell(RAW, "Normal", "A", "x")
    recorder.tell(RAW, "Normal", "A", "y")
    recorder.tell(RAW, "Normal", "B", "x")
    recorder.tell({"metadata": {**RAW["metadata"], "uid": "v"}}, "Normal", "A", "x")
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


def test_long_notes_are_cut_where_the_api_server_would_refuse_them():
    client = FakeClient()
    Recorder(client, "me").tell(RAW, "Normal", "A", "x" * 5000)
    (event,) = client.objects.values()
    assert len(event["note"]) == 1024


def test_what_is_remembered_of_events_has_a_bound():
    recorder = Recorder(FakeClient(), "me")
    for number in range(MEMORY + 10):
        recorder.tell(RAW, "Normal", "A", str(number))
    assert len(recorder._told) == MEMORY


def test_an_event_that_cannot_be_written_stops_nothing():
    client = FakeClient()
    client.broken = ApiError(403, "Forbidden", "no")
    Recorder(client, "me").tell(RAW, "Normal", "A", "x")


def test_all_objects_are_made_in_order_and_none_by_force():
    client = FakeClient()
    done = Applier(client).apply(manifests(), [], "u")
    assert [verb for verb, _ in client.calls] == ["apply"] * 4
    assert [t.split("/")[0] for t in done.created] == ["ConfigMap", "NetworkPolicy", "Service", "Deployment"]


def test_with_one_name_taken_nothing_is_written():
    client = FakeClient()
    client.add({"kind": "Deployment", "metadata": {"name": "vlm", "namespace": "default"}})
    done = Applier(client).apply(manifests(), [], "u")
    assert done.taken == {"Deployment/vlm": None}
    assert client.calls == []


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
    changed = [{**m, "data": {**m["data"], "plan.json": "{}"}} if m["kind"] == "ConfigMap" else m for m in wanted]
    Applier(client).apply(changed[:1], live, "u")
    assert [verb for verb, _ in client.calls] == ["delete", "apply"]


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


def test_what_is_remembered_of_objects_has_a_bound_since_nobody_tells_that_one_is_gone(monkeypatch):
    monkeypatch.setattr(apply, "NO_OPS", 3)
    client = FakeClient()
    applier = Applier(client)
    for number in range(9):
        raw = {"metadata": {**RAW["metadata"], "name": f"vlm-{number}"}}
        of = service(f"vlm-{number}")
        finished, template = sealed(plan(f"vlm-{number}"), of)
        wanted = [m for m in render.objects(finished, template, of, owner_reference(raw)) if m["kind"] == "Service"]
        applier.apply(wanted, [], "u")
        applier.apply(wanted, [o for o in client.objects.values() if o["metadata"]["name"] == of.name], "u")
    assert len(applier._no_ops) == 3
