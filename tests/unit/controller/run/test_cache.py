"""What is kept of the cluster: fed by lists and events in any order, and by the answers to writes."""

from typing import Any

import pytest

from vlm_operator.controller.run.cache import Cache, Store
from vlm_operator.controller.run.queue import Cause, Key
from vlm_operator.kube import kinds

KEY = Key("default", "vlm")


def deployment(version: int, uid: str = "u", name: str = "vlm", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "uid": uid, "resourceVersion": str(version)}
    metadata["labels"] = {"vlmserve.dev/service": "vlm"}  # type: ignore[assignment]
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, **more}


@pytest.fixture
def woken() -> list[Key]:
    return []


@pytest.fixture
def store(woken: list[Key]) -> Store:
    return Store(kinds.DEPLOYMENT, lambda key, cause: woken.append(key))


def versions(store: Store) -> list[str]:
    return [o["metadata"]["resourceVersion"] for o in store.of(KEY)]


def test_an_event_is_kept_and_wakes_the_service_once(store, woken):
    store.update(deployment(1))
    store.update(deployment(1))
    assert versions(store) == ["1"]
    assert woken == [KEY]


def test_the_answer_to_a_write_of_our_own_is_kept_and_its_event_wakes_nobody(store, woken):
    store.put(deployment(5))
    store.update(deployment(5))
    assert versions(store) == ["5"]
    assert woken == []


def test_what_we_wrote_ourselves_is_known_also_where_its_news_was_faster(store):
    store.update(deployment(5))
    assert not store.wrote(Cause("u", "5"))
    store.put(deployment(5))
    assert store.wrote(Cause("u", "5"))
    assert not store.wrote(Cause("u", "6"))


def test_only_an_event_of_the_service_itself_is_marked_as_such():
    causes: list[Cause] = []
    for kind in (kinds.VLM_SERVICE, kinds.DEPLOYMENT):
        Store(kind, lambda key, cause: causes.append(cause)).update(deployment(5))
    assert [cause.of_service for cause in causes] == [True, False]


def test_old_news_does_not_undo_what_was_written_since(store, woken):
    store.put(deployment(5))
    store.update(deployment(4))
    assert versions(store) == ["5"]
    store.update(deployment(6))
    assert versions(store) == ["6"]
    assert woken == [KEY]


def test_an_answer_that_is_slower_than_the_deletion_brings_nothing_back(store):
    store.update(deployment(6, uid="a"), deleted=True)
    store.put(deployment(5, uid="a"))
    assert versions(store) == []
    store.update(deployment(7, uid="b"))
    assert versions(store) == ["7"]


def test_a_deletion_of_the_one_before_leaves_the_one_of_the_same_name(store):
    store.update(deployment(7, uid="b"))
    store.update(deployment(6, uid="a"), deleted=True)
    assert versions(store) == ["7"]


def test_what_a_list_no_longer_has_is_gone_and_wakes_its_service(store, woken):
    store.update(deployment(1), listed=True)
    store.update(deployment(2, uid="o", name="other"), listed=True)
    woken.clear()
    store.retain("elsewhere", set(), "9")
    assert len(store.of(KEY)) == 2
    store.retain(None, {("default", "vlm")}, "9")
    assert versions(store) == ["1"]
    assert woken == [KEY]


def test_a_list_overrules_versions_that_go_back_as_after_a_restored_backup(store, woken):
    store.update(deployment(900))
    store.update(deployment(3), listed=True)
    assert versions(store) == ["3"]


def test_objects_without_our_label_are_not_kept(store, woken):
    foreign = deployment(1)
    foreign["metadata"]["labels"] = {}
    store.update(foreign)
    assert store.keys() == []
    assert woken == []


def quarantined(version: int, **more: Any) -> dict[str, Any]:
    found = deployment(version, **more)
    found["metadata"]["labels"] = {"vlmserve.dev/service": "debug"}
    return found


OTHER = Key("default", "debug")


@pytest.mark.parametrize("listed", [False, True], ids=["by an event", "by a list"])
def test_an_object_whose_label_names_another_service_now_moves_there_and_wakes_both(store, woken, listed):
    store.update(deployment(1))
    woken.clear()
    store.update(quarantined(2), listed=listed)
    assert store.of(KEY) == []
    assert len(store.of(OTHER)) == 1
    assert sorted(woken) == [OTHER, KEY]
    store.retain(None, {("default", "vlm")}, "9")
    assert store.keys() == [OTHER]
    store.update(quarantined(3), deleted=True)
    assert store.keys() == []


def test_old_news_does_not_move_an_object_back(store, woken):
    store.update(quarantined(5))
    woken.clear()
    store.update(deployment(4))
    assert store.keys() == [OTHER]
    assert woken == []


def test_an_object_that_was_moved_by_a_write_of_our_own_wakes_the_service_that_it_left(store, woken):
    store.update(quarantined(5))
    woken.clear()
    store.put(deployment(6))
    assert store.keys() == [KEY]
    assert woken == [OTHER]


def test_what_a_service_owns_stays_with_it_whatever_its_label_says(store):
    owner = {"apiVersion": "vlmserve.dev/v1alpha1", "kind": "VLMService", "name": "vlm", "uid": "s", "controller": True}
    store.update(deployment(1))
    owned = quarantined(2)
    owned["metadata"]["ownerReferences"] = [owner]
    store.update(owned)
    assert store.keys() == [KEY]
    (kept,) = store.of(KEY)
    assert kept["metadata"]["labels"] == {"vlmserve.dev/service": "debug"}
    owned["metadata"]["ownerReferences"] = [{**owner, "apiVersion": "elsewhere.dev/v1"}]
    owned["metadata"]["resourceVersion"] = "3"
    store.update(owned)
    assert store.keys() == [OTHER]


def test_an_object_that_loses_its_label_is_gone_and_comes_back_with_it(store, woken):
    store.update(deployment(1))
    # The API server tells a watch by label of a deletion, with the object as it was and the version of the change.
    store.update(deployment(2), deleted=True)
    assert store.keys() == []
    store.update(deployment(3))
    assert versions(store) == ["3"]
    bare = deployment(4)
    bare["metadata"]["labels"] = {}
    woken.clear()
    store.update(bare)
    assert store.keys() == []
    assert woken == [KEY]


def test_news_that_a_label_is_gone_is_no_news_once_it_is_back(store, woken):
    store.update(deployment(1))
    store.put(deployment(3))
    store.update(deployment(2), deleted=True)
    assert versions(store) == ["3"]
    assert woken == [KEY]


def test_what_a_list_lacked_may_be_seen_again_with_a_later_version_only(store):
    store.update(deployment(1))
    store.retain(None, set(), "5")
    store.put(deployment(4))
    assert versions(store) == []
    store.update(deployment(6))
    assert versions(store) == ["6"]


def test_a_hidden_namespace_looks_empty_and_is_the_same_once_it_is_shown(store, woken):
    store.update(deployment(1), listed=True)
    woken.clear()
    store.hide("default")
    assert (store.of(KEY), store.keys()) == ([], [])
    store.show("default")
    assert (len(store.of(KEY)), store.keys()) == (1, [KEY])
    assert len(woken) == 2


def test_of_pods_only_the_state_is_kept_and_of_managed_fields_only_ours():
    cache = Cache()
    pod = deployment(1, spec={"nodeName": "n", "containers": [{"name": "main"}]}, status={"phase": "Running"})
    cache.store(kinds.POD).update({**pod, "apiVersion": "v1", "kind": "Pod"})
    (kept,) = cache.of(KEY, [kinds.POD])
    assert kept["spec"] == {"nodeName": "n"}
    assert kept["status"] == {"phase": "Running"}
    live = deployment(1, spec={"replicas": 1})
    scaled = {"manager": "hpa", "subresource": "scale"}
    live["metadata"]["managedFields"] = [{"manager": "vlm-operator"}, {"manager": "kubectl"}, scaled]
    cache.put(live)
    (kept,) = cache.of(KEY, [kinds.DEPLOYMENT])
    assert kept["metadata"]["managedFields"] == [{"manager": "vlm-operator"}, scaled]
    cache.put({"apiVersion": "v1", "kind": "Event", "metadata": {}})


def test_of_a_services_managed_fields_what_tells_a_number_of_replicas_is_kept():
    cache = Cache()
    found = deployment(1) | {"apiVersion": "vlmserve.dev/v1alpha1", "kind": "VLMService"}
    created = {"f:spec": {"f:replicas": {}, "f:model": {"f:uri": {}}, "f:workload": {}}}
    found["metadata"]["managedFields"] = [
        {"manager": "helm", "operation": "Update", "fieldsV1": created},
        {"manager": "other", "operation": "Apply", "fieldsV1": {"f:metadata": {}}},
    ]
    cache.store(kinds.VLM_SERVICE).update(found)
    (kept,) = cache.service(KEY)["metadata"]["managedFields"]
    assert kept == {"operation": "Update", "fieldsV1": {"f:spec": {"f:replicas": {}, "f:model": {}}}}


def test_a_service_is_found_by_its_own_name():
    cache = Cache()
    service = deployment(1) | {"apiVersion": "vlmserve.dev/v1alpha1", "kind": "VLMService"}
    service["metadata"]["labels"] = {}
    cache.store(kinds.VLM_SERVICE).update(service)
    assert cache.services() == [KEY]
    assert cache.service(KEY) is not None
    assert cache.service(Key("default", "other")) is None
