"""Keeping up with a kind: lists, watches, and what goes wrong in between."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from vlm_operator.kube import kinds, reflector
from vlm_operator.kube.client import ApiError, Client, Json
from vlm_operator.kube.kinds import Kind
from vlm_operator.kube.reflector import Reflector


def thing(name: str, version: int) -> Json:
    return {"metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": str(version)}}


class Server:
    """Answers to lists and watches, one after the other; the last of each is repeated."""

    def __init__(self, lists: list[Any], watches: list[Any]) -> None:
        self.lists, self.watches = lists, watches
        self.asked: list[str] = []

    def pages(self, kind: Kind, namespace: str | None = None, **_: Any) -> Iterator[Json]:
        self.asked.append("list")
        answer = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        if isinstance(answer, ApiError):
            raise answer
        yield {"metadata": {"resourceVersion": "10"}, "items": answer}

    def watch(self, kind: Kind, namespace: str | None = None, *, version: str, **_: Any) -> Iterator[Json]:
        self.asked.append(f"watch {version}")
        for answer in self.watches.pop(0) if len(self.watches) > 1 else self.watches[0]:
            if isinstance(answer, ApiError):
                raise answer
            yield answer
        time.sleep(0.01)


class Seen:
    def __init__(self) -> None:
        self.events: list[tuple[str, bool]] = []
        self.kept: list[set[str]] = []

    def update(self, found: Json, *, deleted: bool = False, listed: bool = False) -> None:
        self.events.append((found["metadata"]["name"], deleted))

    def retain(self, namespace: str | None, names: Any, version: str) -> None:
        self.kept.append({name for _, name in names})


def eventually(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def follow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[Reflector, Seen, list[ApiError]]]]:
    for name in ("FIRST_BACKOFF_SECONDS", "LAST_BACKOFF_SECONDS", "MISSING_SECONDS", "REFUSED_SECONDS"):
        monkeypatch.setattr(reflector, name, 0.01)
    started: list[Reflector] = []

    def starting(
        server: Server, kind: Kind = kinds.CONFIG_MAP, patient: bool = False
    ) -> tuple[Reflector, Seen, list[ApiError]]:
        seen, errors = Seen(), list[ApiError]()
        client: Client = server  # type: ignore[assignment]
        started.append(Reflector(client, kind, seen, patient=patient, failed=errors.append))
        started[-1].start()
        return started[-1], seen, errors

    yield starting
    for one in started:
        one.stop()
        one.join(5)
    assert not any(t.is_alive() for t in started), threading.enumerate()


def event(kind: str, found: Json) -> Json:
    return {"type": kind, "object": found}


def test_after_the_list_events_are_followed_from_its_version_and_on_from_the_last(follow):
    server = Server([[thing("a", 1)]], [[event("ADDED", thing("b", 11)), event("DELETED", thing("a", 12))], []])
    one, seen, _ = follow(server)
    eventually(lambda: "watch 12" in server.asked)
    assert one.synced.is_set()
    assert server.asked[:3] == ["list", "watch 10", "watch 12"]
    assert seen.events == [("a", False), ("b", False), ("a", True)]
    assert seen.kept == [{"a"}]


def test_a_bookmark_moves_the_version_and_is_no_news(follow):
    server = Server([[]], [[event("BOOKMARK", {"metadata": {"resourceVersion": "99"}})], []])
    _, seen, _ = follow(server)
    eventually(lambda: "watch 99" in server.asked)
    assert seen.events == []


def test_a_version_that_is_too_old_leads_to_another_list(follow):
    gone = event("ERROR", {"code": 410, "reason": "Expired", "message": "too old"})
    server = Server([[thing("a", 1)], [thing("b", 20)]], [[gone], []])
    _, seen, _ = follow(server)
    eventually(lambda: len(seen.kept) == 2)
    assert seen.kept == [{"a"}, {"b"}]


def test_a_server_that_is_away_is_asked_again_from_the_same_version(follow):
    away = ApiError(0, "NoAnswer", "refused")
    server = Server([[]], [[event("ADDED", thing("a", 11))], [away], [away], []])
    follow(server)
    eventually(lambda: server.asked.count("watch 11") >= 3)
    assert server.asked.count("list") == 1


def test_watches_that_end_at_once_are_asked_for_less_and_less_often(follow, monkeypatch):
    monkeypatch.setattr(reflector, "FIRST_BACKOFF_SECONDS", 0.05)
    monkeypatch.setattr(reflector, "LAST_BACKOFF_SECONDS", 60.0)
    server = Server([[]], [[]])
    follow(server)
    eventually(lambda: "watch 10" in server.asked)
    time.sleep(1.0)
    assert server.asked.count("list") == 1
    assert server.asked.count("watch 10") <= 6, "0.05 s, 0.1 s, 0.2 s, 0.4 s, 0.8 s in between"


def test_watches_that_last_or_bring_news_follow_each_other_at_once(follow, monkeypatch):
    monkeypatch.setattr(reflector, "FIRST_BACKOFF_SECONDS", 60.0)
    monkeypatch.setattr(reflector, "LAST_BACKOFF_SECONDS", 60.0)
    monkeypatch.setattr(reflector, "AT_ONCE_SECONDS", 0.0)
    quiet = Server([[]], [[]])
    follow(quiet)
    eventually(lambda: quiet.asked.count("watch 10") > 3)
    monkeypatch.setattr(reflector, "AT_ONCE_SECONDS", 60.0)
    busy = Server([[]], [[event("ADDED", thing("a", version))] for version in range(11, 15)] + [[]])
    follow(busy)
    eventually(lambda: "watch 14" in busy.asked)


def test_a_kind_that_comes_later_is_found(follow):
    server = Server([ApiError(404, "NotFound", "no"), ApiError(404, "NotFound", "no"), [thing("a", 1)]], [[]])
    one, seen, errors = follow(server, kinds.LEADER_WORKER_SET)
    eventually(one.synced.is_set)
    eventually(lambda: seen.events == [("a", False)])
    assert errors == []


def test_missing_rights_at_the_start_are_an_error_and_later_ones_are_waited_for(follow):
    forbidden = ApiError(403, "Forbidden", "configmaps is forbidden")
    one, _, errors = follow(Server([forbidden], [[]]))
    eventually(lambda: errors == [forbidden])
    one.join(5)
    assert not one.synced.is_set()
    server = Server([[], forbidden, []], [[forbidden], []])
    later, seen, errors = follow(server)
    eventually(lambda: len(seen.kept) == 2)
    assert errors == []
    assert later.is_alive()


def test_where_others_go_on_missing_rights_are_waited_for_from_the_start(follow):
    forbidden = ApiError(403, "Forbidden", "configmaps is forbidden")
    server = Server([forbidden], [[forbidden]])
    one, seen, errors = follow(server, patient=True)
    eventually(lambda: one.refused is forbidden and len(server.asked) > 2)
    assert not one.synced.is_set()
    server.lists = [[thing("a", 1)], forbidden]
    eventually(one.synced.is_set)
    # The rights go again: what was read stays.
    eventually(lambda: one.refused is forbidden)
    assert seen.kept == [{"a"}]
    server.watches, server.lists = [[]], [[]]
    eventually(lambda: one.refused is None)
    assert seen.kept[-1] == set()
    assert errors == []
