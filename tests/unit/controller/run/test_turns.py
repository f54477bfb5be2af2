"""In which order services are worked on: no tenant makes another wait for all of its own."""

import random
from collections import Counter

from vlm_operator.controller.run import turns
from vlm_operator.controller.run.queue import Key
from vlm_operator.controller.run.turns import Turns


def take(of: Turns[Key]) -> Key | None:
    return of.take(lambda key: True)


def put(of: Turns[Key], namespace: str, *names: str, routine: bool = False, dear: bool = False) -> None:
    for name in names:
        of.put(Key(namespace, name), namespace, routine=routine, dear=dear)


def test_one_namespace_keeps_the_order_in_which_its_services_came_with_routine_last():
    of: Turns[Key] = Turns(2)
    put(of, "a", "1", routine=True)
    put(of, "a", "2", "3")
    put(of, "a", "4", routine=True)
    assert len(of) == 4
    assert [take(of).name for _ in range(4)] == ["2", "3", "1", "4"]
    assert (take(of), len(of)) == (None, 0)


def test_a_namespace_with_one_service_does_not_wait_for_all_of_another():
    of: Turns[Key] = Turns(2)
    put(of, "crowd", *map(str, range(100)))
    first = take(of)
    put(of, "b", "one")
    put(of, "c", "one")
    assert {take(of).namespace for _ in range(2)} == {"b", "c"}
    of.end(first)
    assert take(of).namespace == "crowd"


def test_namespaces_take_turns_also_if_one_always_has_news():
    of: Turns[Key] = Turns(2)
    put(of, "b", "1", "2", "3")
    seen = []
    for number in range(6):
        put(of, "busy", f"n{number}")
        taken = take(of)
        seen.append(taken.namespace)
        of.end(taken)
    assert Counter(seen) == {"b": 3, "busy": 3}


def test_news_go_before_routine_of_other_namespaces_that_have_as_many_workers():
    of: Turns[Key] = Turns(2)
    put(of, "a", "1", routine=True)
    put(of, "b", "1")
    assert take(of).namespace == "b"
    put(of, "b", "2")
    assert take(of).namespace == "a", "b has a worker already"


def test_dear_services_never_have_all_workers_whatever_their_namespaces():
    of: Turns[Key] = Turns(2)
    for namespace in "abcd":
        put(of, namespace, "dear", dear=True)
    busy = [take(of), take(of)]
    assert take(of) is None
    put(of, "e", "cheap")
    assert take(of).name == "cheap"
    of.end(busy[0])
    assert take(of).name == "dear"


def test_what_is_no_longer_due_is_dropped_and_its_work_goes_on():
    of: Turns[Key] = Turns(2)
    put(of, "a", "1", "1", "2")
    one = take(of)
    assert of.take(lambda key: key != one).name == "2"
    of.end(one)


def test_whatever_comes_all_is_taken_once_and_little_is_kept(monkeypatch):
    monkeypatch.setattr(turns, "REMEMBERED", 5)
    chance, of, taken, working = random.Random(0), Turns[Key](2), [], []
    for number in range(3000):
        if number < 1000:
            put(of, chance.choice("abcdefgh"), str(number), routine=chance.random() < 0.5, dear=chance.random() < 0.3)
        if len(working) < 4 and (key := take(of)) is not None:
            working.append(key)
            taken.append(key.name)
        if working and chance.random() < 0.7:
            of.end(working.pop(chance.randrange(len(working))))
    assert sorted(taken, key=int) == [str(n) for n in range(1000)]
    for key in working:
        of.end(key)
    assert (len(of), of._waiting, of._working, of._dear, len(of._turn)) == (0, {}, {}, 0, 5)
    assert not of._in_work
    take(of)
    assert of._heads == {False: [], True: []}
