"""What kopf does not tell: services that went while its watch was broken, and those that it never saw."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from unit.controller.fakes import until

from vlm_operator.controller import kopf_thread, services
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
        self.forbidden: set[str | None] = set()

    def uids(self, kind: kinds.Kind, namespace: str | None = None) -> set[str]:
        assert kind is kinds.VLM_SERVICE
        if self.away:
            raise ApiError(0, "NoAnswer", "the API server did not answer")
        if namespace in self.forbidden:
            raise ApiError(403, "Forbidden", f"vlmservices is forbidden in {namespace}")
        return set().union(*self.there.values()) if namespace is None else self.there.get(namespace, set())


@pytest.fixture
def woken() -> list[str]:
    return []


@pytest.fixture
def store(woken: list[str]) -> Store:
    return Store(kinds.VLM_SERVICE, lambda key, cause: woken.append(key.name))


class Read:
    """What services are made of: namespaces that cannot be read, and why."""

    def __init__(self, **refused: str) -> None:
        self.refused = refused

    def settled(self) -> bool:
        return True

    def refusal(self, namespace: str) -> str | None:
        return self.refused.get(namespace)


def watched(server: Identities, store: Store, *namespaces: str, reading: Read | None = None) -> Services:
    return Services(server, store, namespaces, reading or Read())  # type: ignore[arg-type]


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


def test_thousands_of_services_are_asked_for_once_while_kopf_shows_them(store: Store):
    server, asked = Identities(ml={str(n) for n in range(10)}), list[str | None]()
    uids = server.uids

    def counted(kind: kinds.Kind, namespace: str | None = None) -> set[str]:
        asked.append(namespace)
        return uids(kind, namespace)

    server.uids = counted  # type: ignore[method-assign]
    watch = watched(server, store)

    async def shown_one_by_one() -> None:
        watch.started.set()
        waiting = asyncio.create_task(watch.synced())
        for number in range(10):
            assert not waiting.done()
            store.see(vlm(f"vlm-{number}", str(number)))
            await asyncio.sleep(0.05)
        await asyncio.wait_for(waiting, 20)

    asyncio.run(shown_one_by_one())
    assert len(asked) == 1


def test_a_service_that_goes_while_kopf_shows_the_others_is_not_waited_for(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(services, "LOOK_SECONDS", 0.01)
    server = Identities(ml={"stays", "goes"})
    watch = watched(server, store)

    async def one_goes() -> None:
        watch.started.set()
        waiting = asyncio.create_task(watch.synced())
        store.see(vlm("stays", "stays"))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        server.there["ml"] = {"stays"}
        await asyncio.wait_for(waiting, 20)

    asyncio.run(one_goes())


def test_an_api_server_that_is_away_makes_nothing_gone(store: Store):
    store.see(vlm("stays", "1"))
    server = Identities(ml={"1"})
    server.away = True
    with pytest.raises(ApiError):
        watched(server, store).compare()
    assert store.keys() == [Key("ml", "stays")]


def test_of_several_namespaces_one_that_is_refused_is_empty_and_told_once(store: Store, caplog):
    store.see(vlm("mine", "1"))
    store.see({**vlm("theirs", "2"), "metadata": {**vlm("theirs", "2")["metadata"], "namespace": "gone"}})
    server, reading = Identities(ml={"1"}, gone={"2"}), Read()
    watch = watched(server, store, "ml", "gone", reading=reading)
    assert watch.compare() == set()
    server.forbidden.add("gone")
    for _ in range(3):
        assert watch.compare() == set()
    assert store.keys() == [Key("ml", "mine")]
    assert [r.message for r in caplog.records] == [
        "namespace gone is not served until it can be read; it is tried again and again: vlmservices is forbidden in gone"
    ]
    # The services may be listed again, but not yet what they are made of.
    server.forbidden.clear()
    reading.refused["gone"] = "pods is forbidden"
    watch.compare()
    assert len(caplog.records) == 1
    reading.refused.clear()
    assert watch.compare() == {"2"}
    assert [r.message for r in caplog.records[1:]] == ["namespace gone can be read again and is served"]


def test_where_all_namespaces_are_refused_the_operator_ends(store: Store):
    server = Identities(ml={"1"})
    server.forbidden = {"ml", "gone", None}
    with pytest.raises(WatchFailed, match="vlmservices is forbidden in gone; vlmservices is forbidden in ml"):
        watched(server, store, "ml", "gone").compare()
    for only in ([], ["ml"]):
        with pytest.raises(ApiError, match="forbidden"):
            watched(server, store, *only).compare()


class Kopf:
    """kopf's place: shows nothing, and ends as it is told to."""

    made: list[Kopf]

    def __init__(self, namespaces: Any, changed: Any) -> None:
        self.namespaces = list(namespaces)
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        Kopf.made.append(self)

    def start(self) -> None:
        pass

    async def end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


@pytest.fixture
def kopf(monkeypatch: pytest.MonkeyPatch) -> type[Kopf]:
    monkeypatch.setattr(services, "KopfThread", Kopf)
    monkeypatch.setattr(services, "COMPARE_SOON_SECONDS", 0.01)
    monkeypatch.setattr(services, "COMPARE_SEVERAL_SECONDS", 0.01)
    monkeypatch.setattr(services, "AWAY_SECONDS", 0.01)
    monkeypatch.setattr(Kopf, "made", [], raising=False)
    return Kopf


def test_other_namespaces_are_watched_on_while_one_is_away_and_it_is_again_when_it_is_back(store: Store, kopf):
    server = Identities(ml=set(), other=set())
    server.forbidden.add("other")

    async def run() -> None:
        stop = asyncio.Event()
        running = asyncio.create_task(watched(server, store, "ml", "other").run(stop))
        await until(lambda: kopf.made)
        server.forbidden.clear()
        await until(lambda: len(kopf.made) == 2)
        server.forbidden.add("ml")
        await until(lambda: len(kopf.made) == 3)
        stop.set()
        await running

    asyncio.run(run())
    assert [k.namespaces for k in kopf.made] == [["ml"], ["ml", "other"], ["other"]]
    assert all(k.ended.done() for k in kopf.made)


def test_a_watch_that_breaks_begins_anew_but_not_where_it_just_began(store: Store, kopf, monkeypatch, caplog):
    monkeypatch.setattr(services, "LASTING_SECONDS", 0.0)
    server = Identities(ml=set())

    async def run() -> None:
        running = asyncio.create_task(watched(server, store).run(asyncio.Event()))
        await until(lambda: kopf.made)
        server.away = True
        kopf.made[0].ended.set_exception(RuntimeError("Error in the watch-stream: etcd has a new leader"))
        await asyncio.sleep(0.05)
        assert len(kopf.made) == 1, "there is nobody to watch"
        server.away = False
        await until(lambda: len(kopf.made) == 2)
        monkeypatch.setattr(services, "LASTING_SECONDS", 1000.0)
        kopf.made[1].ended.set_exception(RuntimeError("again"))
        await running

    with pytest.raises(WatchFailed, match="the watch for VLMServices has failed: again"):
        asyncio.run(run())
    assert "etcd has a new leader; it begins anew" in caplog.text


def test_a_watch_that_ends_for_want_of_rights_ends_the_operator(store: Store, kopf, monkeypatch):
    monkeypatch.setattr(services, "LASTING_SECONDS", 0.0)
    server = Identities(ml=set())

    async def run() -> None:
        running = asyncio.create_task(watched(server, store).run(asyncio.Event()))
        await until(lambda: kopf.made)
        server.forbidden.add(None)
        kopf.made[0].ended.set_exception(RuntimeError("vlmservices is forbidden"))
        await running

    with pytest.raises(WatchFailed, match="vlmservices is forbidden"):
        asyncio.run(run())


def test_kopf_writes_nothing():
    found = kopf_thread.settings()
    assert not found.posting.enabled
    assert found.peering.standalone
    assert found.scanning.disabled
