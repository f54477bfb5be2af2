"""What kopf does not tell: services that went while its watch was broken, and those that it never saw."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from vlm_operator.controller import services
from vlm_operator.controller.cache import Store
from vlm_operator.controller.queue import Key
from vlm_operator.controller.services import Services, WatchFailed
from vlm_operator.kube import kinds
from vlm_operator.kube.client import ApiError


def vlm(name: str, uid: str, version: int = 1) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ml", "uid": uid, "resourceVersion": str(version)}, "spec": {}}


class Identities:
    """The API server: uids by namespace."""

    def __init__(self, **there: set[str]) -> None:
        self.there = there
        self.away = False

    def uids(self, kind: kinds.Kind, namespace: str | None = None) -> set[str]:
        assert kind is kinds.VLM_SERVICE
        if self.away:
            raise ApiError(0, "NoAnswer", "the API server did not answer")
        return set().union(*self.there.values()) if namespace is None else self.there.get(namespace, set())


@pytest.fixture
def woken() -> list[str]:
    return []


@pytest.fixture
def store(woken: list[str]) -> Store:
    return Store(kinds.VLM_SERVICE, lambda key, cause: woken.append(key.name))


def watched(server: Identities, store: Store, *namespaces: str) -> Services:
    return Services(server, store, namespaces)  # type: ignore[arg-type]


def test_a_service_that_went_unseen_is_forgotten_and_reconciled_once_more(store: Store, woken: list[str]):
    for found in (vlm("stays", "1"), vlm("went", "2")):
        store.see(found)
    woken.clear()
    assert watched(Identities(ml={"1"}), store).compare() == set()
    assert store.keys() == [Key("ml", "stays")]
    assert woken == ["went"]


def test_one_that_was_made_anew_under_the_same_name_stays(store: Store):
    store.see(vlm("again", "1"))
    server = Identities(ml={"2"})
    uids = server.uids

    def meanwhile(kind: kinds.Kind, namespace: str | None = None) -> set[str]:
        store.see(vlm("again", "2", 2))
        return uids(kind, namespace)

    server.uids = meanwhile  # type: ignore[method-assign]
    assert watched(server, store).compare() == set()
    assert store.identities() == [(Key("ml", "again"), "again", "2")]


def test_only_the_namespaces_that_are_served_are_compared(store: Store):
    store.see(vlm("mine", "1"))
    assert watched(Identities(ml={"1"}, other={"9"}), store, "ml").compare() == set()


def test_a_service_that_no_event_tells_of_ends_the_operator(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(services, "SHOW_SECONDS", 1.0)
    watch = watched(Identities(ml={"1"}), store)
    hidden = watch.compare()
    assert hidden == {"1"}
    with pytest.raises(WatchFailed, match="1 VLMServices are there, but no event tells of them"):
        asyncio.run(watch._wait_for(hidden))
    store.see(vlm("late", "1"))
    asyncio.run(watch._wait_for(hidden))


def test_an_api_server_that_is_away_makes_nothing_gone(store: Store):
    store.see(vlm("stays", "1"))
    server = Identities(ml={"1"})
    server.away = True
    with pytest.raises(ApiError):
        watched(server, store).compare()
    assert store.keys() == [Key("ml", "stays")]


def test_kopf_writes_nothing():
    found = services.settings()
    assert not found.posting.enabled
    assert found.peering.standalone
    assert found.scanning.disabled
