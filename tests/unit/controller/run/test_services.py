"""kopf's watch of VLMServices, and the check for what kopf does not report."""

import asyncio
import http.server
import itertools
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from unit.controller.fakes import served, until

from vlm_operator.controller.run import services
from vlm_operator.controller.run.cache import Store
from vlm_operator.controller.run.queue import Key
from vlm_operator.controller.run.services import SILENT_CHECKS, Intake, Services, WatchFailed, run_kopf
from vlm_operator.kube import kinds
from vlm_operator.kube.client import ApiError

GROUP = "/apis/vlmserve.dev/v1alpha1"
RESOURCE = {"name": "vlmservices", "singularName": "vlmservice", "kind": "VLMService", "namespaced": True}
CORE = {"name": "namespaces", "singularName": "", "kind": "Namespace", "namespaced": False, "verbs": ["list", "watch"]}
VERSION = {"groupVersion": "vlmserve.dev/v1alpha1", "version": "v1alpha1"}


def vlm(name: str, uid: str = "", version: int = 1, namespace: str = "ml") -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "uid": uid or name, "resourceVersion": str(version)}
    return {"apiVersion": "vlmserve.dev/v1alpha1", "kind": "VLMService", "metadata": metadata, "spec": {}}


class Server(http.server.BaseHTTPRequestHandler):
    """An API server with one VLMService in each list and one in each watch. ``state`` is shared with the test."""

    protocol_version = "HTTP/1.1"
    state: dict[str, Any]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path.endswith("/vlmservices"):
            self.state["requests"].append(path)
            if any(f"/{namespace}/" in path for namespace in self.state["forbidden"]):
                self._answer({"kind": "Status", "code": 403, "message": "forbidden"}, 403)
            elif "watch=true" in self.path:
                self._stream(path)
            else:
                self._answer({"metadata": {"resourceVersion": "7"}, "items": [vlm("listed", namespace=_of(path))]})
        else:
            group = {"name": "vlmserve.dev", "versions": [VERSION], "preferredVersion": VERSION}
            known: dict[str, Any] = {
                "/api": {"versions": ["v1"]},
                "/api/v1": {"resources": [CORE]},
                "/apis": {"groups": [group]},
                GROUP: {"resources": [{**RESOURCE, "verbs": ["list", "watch", "get"]}]},
            }
            self._answer(known.get(path, {}))

    def _answer(self, body: dict[str, Any], status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, path: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        for event in [{"type": "ADDED", "object": vlm("added", namespace=_of(path))}, *self.state["last"]]:
            self.wfile.write(json.dumps(event).encode() + b"\n")
            self.wfile.flush()
        self.state["ending"].wait(30)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Not into the test's output."""


def _of(path: str) -> str:
    return path.split("/")[-2] if "/namespaces/" in path else "ml"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    state = {"requests": [], "forbidden": set(), "last": [], "ending": threading.Event()}
    monkeypatch.setattr(Server, "state", state, raising=False)
    monkeypatch.setattr(services, "LAST_BACKOFF_SECONDS", 0.05)
    monkeypatch.setattr("kubernetes.config.load_incluster_config", lambda: None)
    with served(Server, monkeypatch, retries=None):
        yield state
        state["ending"].set()


class Kopf:
    """One run of kopf: its events as (type, namespace, name), and whether it has started and ended."""

    def __init__(self, *namespaces: str) -> None:
        self.events: set[tuple[str | None, str, str]] = set()
        self.steps: list[str] = []
        self.stop = asyncio.Event()
        self.task = asyncio.create_task(
            run_kopf(namespaces, self.stop, on_start=self._start, on_event=self._event, on_end=self._end)
        )

    async def _start(self) -> None:
        self.steps.append("start")

    async def _end(self) -> None:
        self.steps.append("end")
        self.stop.set()

    def _event(self, event: Any) -> None:
        metadata = event["object"]["metadata"]
        self.events.add((event["type"], metadata["namespace"], metadata["name"]))


@pytest.mark.parametrize("namespaces", [[], ["ml", "other"]], ids=["all", "two"])
def test_kopf_reports_what_exists_and_what_comes_between_start_and_end(server, namespaces):
    async def watch() -> list[str]:
        kopf = Kopf(*namespaces)
        wanted = itertools.product([(None, "listed"), ("ADDED", "added")], namespaces or ["ml"])
        expected = {(kind, ns, name) for (kind, name), ns in wanted}
        await until(lambda: expected <= kopf.events)
        kopf.stop.set()
        await kopf.task
        return kopf.steps

    assert asyncio.run(watch()) == ["start", "end"]
    paths = [f"{GROUP}/namespaces/{ns}/vlmservices" for ns in namespaces] or [f"{GROUP}/vlmservices"]
    assert set(server["requests"]) == set(paths)


def test_a_namespace_that_is_forbidden_stops_no_other_and_is_watched_once_it_is_allowed(server):
    async def watch() -> None:
        server["forbidden"].add("gone")
        kopf = Kopf("ml", "gone")
        gone = f"{GROUP}/namespaces/gone/vlmservices"
        await until(lambda: ("ADDED", "ml", "added") in kopf.events and gone in server["requests"])
        assert not kopf.task.done()
        server["forbidden"].clear()
        await until(lambda: ("ADDED", "gone", "added") in kopf.events)
        kopf.stop.set()
        await kopf.task

    asyncio.run(watch())


def test_kopf_never_gives_up_on_errors_that_may_pass():
    delays = list(itertools.islice(iter(services.settings().networking.error_backoffs), 1000))
    assert len(delays) == 1000
    assert max(delays) <= 12


def test_a_watch_that_cannot_continue_ends_kopf_in_order(server):
    server["last"] = [
        {"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcdserver: leader changed"}}
    ]

    async def watch() -> list[str]:
        kopf = Kopf()
        with pytest.raises(WatchFailed, match="leader changed"):
            await asyncio.wait_for(kopf.task, 30)
        return kopf.steps

    assert asyncio.run(watch()) == ["start", "end"]


def test_kopf_writes_nothing():
    chosen = services.settings()
    assert not chosen.posting.enabled
    assert chosen.peering.standalone
    assert chosen.scanning.disabled


class Existing:
    """The API server: uids by namespace."""

    def __init__(self, **existing: set[str]) -> None:
        self.existing = existing
        self.error: dict[str | None, ApiError] = {}
        self.lists = 0

    def count(self, kind: kinds.Kind, namespace: str | None = None) -> int:
        assert kind is kinds.VLM_SERVICE
        if namespace in self.error:
            raise self.error[namespace]
        return len(self._of(namespace))

    def uids(self, kind: kinds.Kind, namespace: str | None = None) -> set[str]:
        self.lists += 1
        return self._of(namespace)

    def _of(self, namespace: str | None) -> set[str]:
        return set().union(*self.existing.values()) if namespace is None else self.existing.get(namespace, set())


class Others:
    """The other watches: namespaces that cannot be read, and why."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}

    def refusal(self, namespace: str) -> str | None:
        return self.refused.get(namespace)


@pytest.fixture
def woken() -> list[str]:
    return []


@pytest.fixture
def store(woken: list[str]) -> Store:
    return Store(kinds.VLM_SERVICE, lambda key, cause: woken.append(key.name))


def checking(server: Existing, store: Store, *namespaces: str, others: Others | None = None) -> Services:
    return Services(server, store, namespaces, others or Others())  # type: ignore[arg-type]


def test_a_service_that_was_deleted_unnoticed_is_forgotten_and_reconciled_once_more(store: Store, woken: list[str]):
    for found in (vlm("stays"), vlm("goes")):
        store.update(found)
    woken.clear()
    server = Existing(ml={"stays"})
    checking(server, store).check()
    assert store.keys() == [Key("ml", "stays")]
    assert woken == ["goes"]
    server.existing["ml"].clear()
    checking(server, store).check()
    assert store.keys() == [], "the last one, after which kopf lists nothing"


def test_while_the_numbers_agree_nothing_is_listed(store: Store):
    store.update(vlm("stays"))
    server = Existing(ml={"stays"})
    checking(server, store).check()
    assert server.lists == 0


def test_one_that_was_created_again_under_the_same_name_stays(store: Store):
    store.update(vlm("again", "1"))
    store.update(vlm("goes"))
    server = Existing(ml={"2"})
    uids = server.uids

    def meanwhile(kind: kinds.Kind, namespace: str | None = None) -> set[str]:
        store.update(vlm("again", "2", 2))
        return uids(kind, namespace)

    server.uids = meanwhile  # type: ignore[method-assign]
    checking(server, store).check()
    assert store.identities() == [(Key("ml", "again"), "2")]


def test_only_the_namespaces_that_are_served_are_compared(store: Store):
    store.update(vlm("mine"))
    server = Existing(ml={"mine"}, other={"9"})
    checking(server, store, "ml").check()
    assert server.lists == 0


def test_services_that_kopf_never_reports_end_the_operator(store: Store):
    check = checking(Existing(ml={"1"}), store).check
    for _ in range(SILENT_CHECKS - 1):
        check()
    with pytest.raises(WatchFailed, match="kopf reports none of 1 VLMServices"):
        check()
    store.update(vlm("late", "1"))
    check()


def test_an_api_server_that_is_away_deletes_nothing(store: Store):
    store.update(vlm("stays"))
    server = Existing(ml=set())
    server.error[None] = ApiError(0, "NoAnswer", "the API server did not answer")
    with pytest.raises(ApiError):
        checking(server, store).check()
    assert store.keys() == [Key("ml", "stays")]


@pytest.mark.parametrize("of", ["services", "pods"])
def test_a_namespace_of_several_that_cannot_be_read_is_hidden_and_logged_once(store: Store, woken, caplog, of):
    store.update(vlm("mine"))
    store.update(vlm("theirs", namespace="gone"))
    server, others = Existing(ml={"mine"}, gone={"theirs"}), Others()
    check = checking(server, store, "ml", "gone", others=others).check
    check()
    woken.clear()
    if of == "pods":
        others.refused["gone"] = "it is forbidden"
    else:
        server.error["gone"] = ApiError(403, "Forbidden", "it is forbidden")
    for _ in range(3):
        check()
    assert store.keys() == [Key("ml", "mine")]
    assert store.of(Key("gone", "theirs")) == []
    assert woken == ["theirs"]
    assert [r.message for r in caplog.records] == [
        "namespace gone is not served until it can be read (retrying): it is forbidden"
    ]
    others.refused.clear()
    server.error.clear()
    check()
    assert store.keys() == [Key("gone", "theirs"), Key("ml", "mine")]
    assert woken == ["theirs"] * 2
    assert [r.message for r in caplog.records[1:]] == ["namespace gone can be read again and is served"]


def test_missing_rights_of_all_namespaces_are_an_error(store: Store):
    server = Existing(ml={"1"})
    server.error = {ns: ApiError(403, "Forbidden", f"forbidden in {ns}") for ns in ("ml", "gone", None)}
    with pytest.raises(WatchFailed, match="forbidden in gone; forbidden in ml"):
        checking(server, store, "ml", "gone").check()
    for only in ([], ["ml"]):
        with pytest.raises(ApiError, match="forbidden"):
            checking(server, store, *only).check()


class Slow:
    """A store that takes each object only when it may, and notes the thread that brings it."""

    def __init__(self) -> None:
        self.may = threading.Semaphore(0)
        self.taken: list[tuple[str, str, bool, bool]] = []
        self.threads: set[str] = set()

    def update(self, found: Any, *, deleted: bool = False, listed: bool = False) -> None:
        if threading.current_thread().name == "services":
            self.may.acquire()
        metadata = found["metadata"]
        self.taken.append((metadata["name"], metadata["resourceVersion"], deleted, listed))
        self.threads.add(threading.current_thread().name)
        if metadata["name"] == "broken":
            raise ValueError("a bug")


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def intake(slow: Slow) -> Iterator[Intake]:
    taking = Intake(slow)  # type: ignore[arg-type]
    taking.start()
    put(taking, "ADDED", "first")
    asyncio.run(until(lambda: taking._working_on is not None))
    yield taking
    taking.stop()
    slow.may.release(1000)
    taking.join(10)
    assert not taking.is_alive()


def put(intake: Intake, kind: str | None, name: str, version: int = 1) -> None:
    intake.put({"type": kind, "object": vlm(name, name, version)})


def test_only_the_newest_object_of_each_service_waits_for_the_store_and_no_deletion_is_lost(intake: Intake, slow: Slow):
    for version in range(1, 100):
        put(intake, "MODIFIED", "a", version)
    put(intake, None, "b", 3)
    put(intake, "MODIFIED", "b", 4)
    put(intake, "MODIFIED", "broken")
    put(intake, "ADDED", "gone", 5)
    put(intake, "DELETED", "gone", 6)
    put(intake, None, "gone", 5)
    assert not slow.taken
    slow.may.release(1000)
    asyncio.run(until(lambda: len(slow.taken) == 5))
    assert slow.taken[1:] == [
        ("a", "99", False, False),
        ("b", "4", False, True),
        ("broken", "1", False, False),
        ("gone", "6", True, False),
    ]
    assert slow.threads == {"services"}


def test_once_many_wait_the_caller_works_too_but_never_overtakes(intake: Intake, slow: Slow, monkeypatch):
    monkeypatch.setattr(services, "WAITING_OBJECTS", 2)
    for name in ("a", "b", "c"):
        put(intake, "ADDED", name)
    assert [name for name, *_ in slow.taken] == ["c"]
    put(intake, "MODIFIED", "a", 2)
    put(intake, "MODIFIED", "c", 2)
    put(intake, "MODIFIED", "first", 2)
    assert [taken[:2] for taken in slow.taken] == [("c", "1"), ("c", "2")]
    slow.may.release(1000)
    asyncio.run(until(lambda: len(slow.taken) == 6))
    assert [taken[:2] for taken in slow.taken[2:]] == [("first", "1"), ("a", "2"), ("b", "1"), ("first", "2")]
