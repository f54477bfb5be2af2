"""Objects of a service on the real API server: created once, changed to what is wanted, and never somebody else's."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client as kubernetes_client
from unit.kube.test_writers import RAW, manifests

from vlm_operator.kube.apply import Applied, Applier
from vlm_operator.kube.client import ApiError, Client, configure
from vlm_operator.kube.kinds import DEPLOYMENT, kind_of

KINDS = ("NetworkPolicy", "Service", "ConfigMap", "Deployment")


@pytest.fixture
def requests() -> list[str]:
    return []


@pytest.fixture
def client(api_server: Any, requests: list[str]) -> Iterator[Client]:
    configure(str(api_server.kubeconfig))
    yield Client(lambda verb, status, seconds: requests.append(verb))
    kubernetes_client.Configuration.set_default(None)


@pytest.fixture
def wanted(namespace: str) -> list[dict[str, Any]]:
    found = copy.deepcopy(manifests())
    for manifest in found:
        manifest["metadata"]["namespace"] = namespace
    return found


def read(client: Client, manifest: dict[str, Any]) -> dict[str, Any]:
    metadata = manifest["metadata"]
    found = client.get(kind_of(manifest), metadata["namespace"], metadata["name"])
    assert found is not None
    return found


def apply(client: Client, wanted: list[dict[str, Any]]) -> Applied:
    return Applier(client).apply(wanted, [read(client, m) for m in wanted], RAW["metadata"]["uid"])


def test_a_new_service_costs_one_request_for_each_object_and_a_read_and_then_none(client, requests, wanted):
    done = Applier(client).apply(wanted, [], RAW["metadata"]["uid"])
    assert len(done.created) == len(wanted) == len(requests) - requests.count("get")
    assert requests.count("get") == 1, "of the workload's name"
    before = [read(client, m)["metadata"]["resourceVersion"] for m in wanted]
    requests.clear()
    apply(client, wanted)
    assert set(requests) == {"get"}
    assert [read(client, m)["metadata"]["resourceVersion"] for m in wanted] == before


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_longer_wanted_of_a_created_object_is_removed_once(client, requests, wanted, kind):
    (manifest,) = (m for m in wanted if m["kind"] == kind)
    manifest["metadata"]["labels"]["example.com/old"] = "x"
    Applier(client).apply([manifest], [], RAW["metadata"]["uid"])
    somebody = {"metadata": {"labels": {"example.com/theirs": "y"}}}
    client.merge(
        kind_of(manifest), manifest["metadata"]["namespace"], manifest["metadata"]["name"], somebody, manager="x"
    )
    del manifest["metadata"]["labels"]["example.com/old"]
    assert apply(client, [manifest]).changed == [f"{kind}/{manifest['metadata']['name']}"]
    labels = read(client, manifest)["metadata"]["labels"]
    assert labels == {**manifest["metadata"]["labels"], "example.com/theirs": "y"}
    requests.clear()
    assert apply(client, [manifest]).changed == []
    assert set(requests) == {"get"}


FOREIGN: dict[str, dict[str, Any]] = {
    "Service": {"spec": {"ports": [{"port": 80}]}},
    "NetworkPolicy": {"spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}},
    "Deployment": {
        "spec": {
            "selector": {"matchLabels": {"app": "x"}},
            "template": {
                "metadata": {"labels": {"app": "x"}},
                "spec": {"containers": [{"name": "other", "image": "x"}]},
            },
        }
    },
}


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("tracked", [True, False], ids=["with managed fields", "without"])
def test_an_object_of_somebody_else_stays_as_it_is(client, wanted, kind, tracked):
    (manifest,) = (m for m in wanted if m["kind"] == kind)
    metadata = {k: manifest["metadata"][k] for k in ("name", "namespace")}
    client.create(
        kind_of(manifest), {"apiVersion": manifest["apiVersion"], "kind": kind, "metadata": metadata, **FOREIGN[kind]}
    )
    if not tracked:
        client.merge(kind_of(manifest), metadata["namespace"], metadata["name"], {"metadata": {"managedFields": [{}]}})
    before = read(client, manifest)
    done = Applier(client).apply(wanted, [], RAW["metadata"]["uid"])
    assert done.taken == {f"{kind}/{metadata['name']}": None}
    assert "Deployment/vlm" not in done.created
    assert read(client, manifest) == before


def deployment(wanted: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = (m for m in wanted if m["kind"] == "Deployment")
    return found


def test_a_detached_deployment_is_not_taken_over_and_nothing_else_is_written(client, wanted):
    detached = copy.deepcopy(deployment(wanted))
    Applier(client).apply([detached], [], RAW["metadata"]["uid"])
    metadata = detached["metadata"]
    change = {"metadata": {"ownerReferences": None, "labels": None}}
    client.merge(kind_of(detached), metadata["namespace"], metadata["name"], change, manager="person")
    before = read(client, detached)
    done = Applier(client).apply(wanted, [], RAW["metadata"]["uid"])
    assert (done.created, done.taken) == ([], {"Deployment/vlm": None})
    assert read(client, detached) == before


def test_a_deployment_that_appears_after_its_name_was_read_is_not_joined(client, wanted):
    foreign = copy.deepcopy(deployment(wanted))
    del foreign["metadata"]["ownerReferences"], foreign["metadata"]["labels"]
    look = client.get

    def get_then_lose_the_name(kind: Any, *name: str) -> Any:
        live = look(kind, *name)
        if live is None and kind is DEPLOYMENT:
            client.create(kind, foreign)
        return live

    client.get = get_then_lose_the_name
    done = Applier(client).apply(wanted, [], RAW["metadata"]["uid"])
    assert done.taken == {"Deployment/vlm": None}
    assert [e["operation"] for e in read(client, foreign)["metadata"]["managedFields"]] == ["Update"]


def test_a_refusal_that_repeats_a_user_s_words_leaves_the_deployment(client, wanted):
    Applier(client).apply(wanted, [], RAW["metadata"]["uid"])
    before = read(client, deployment(wanted))
    deployment(wanted)["spec"]["template"]["spec"]["nodeSelector"] = {"a": "field is immutable"}
    with pytest.raises(ApiError, match="field is immutable"):
        apply(client, wanted)
    assert read(client, before) == before


def test_a_change_between_read_and_claim_is_a_conflict(client, wanted):
    (service,) = (m for m in wanted if m["kind"] == "Service")
    Applier(client).apply([service], [], RAW["metadata"]["uid"])
    live = read(client, service)

    class Late(Client):
        def get(self, *args: Any) -> Any:
            found = super().get(*args)
            self.merge(kind_of(service), args[1], args[2], {"metadata": {"labels": {"x": "y"}}}, manager="x")
            return found

    service["metadata"]["labels"]["example.com/new"] = "z"
    with pytest.raises(ApiError) as refused:
        Applier(Late()).apply([service], [live], RAW["metadata"]["uid"])
    assert refused.value.status == 409
