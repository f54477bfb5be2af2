"""Whose turn it is: namespaces take turns, and what is dear never has all workers, so that one tenant does not stop others."""

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

Item = TypeVar("Item", bound=Hashable)


# Namespaces whose last turn is remembered. The oldest go first.
REMEMBERED: Final = 4096


class _Lane(NamedTuple):
    namespace: str
    dear: bool


class _Head(NamedTuple):
    """The first item of a lane, in the order in which lanes come."""

    routine: bool
    turn: int
    number: int
    lane: _Lane


class Turns(Generic[Item]):
    """Items that wait and items that are worked on. Not safe for threads.

    Of the namespaces with the fewest items under work, those with news go before those with routine only, then in turns.
    """

    def __init__(self, dear_at_once: int) -> None:
        """``dear_at_once``: how many dear items may be worked on at the same time."""
        self._most: Final = dear_at_once
        self._waiting: dict[_Lane, list[tuple[bool, int, Item]]] = {}
        self._heads: dict[bool, list[_Head]] = {False: [], True: []}
        """Heaps of the lanes' first items, dear or not, and of some that are no longer the first."""
        self._working: dict[Item, _Lane] = {}
        self._in_work: Counter[str] = Counter()
        self._dear = 0
        self._turn: dict[str, int] = {}
        """Namespace -> when it last had a turn, oldest first."""
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def put(self, item: Item, namespace: str, *, routine: bool, dear: bool) -> None:
        """``routine`` items go last in their namespace, others in the order in which they came."""
        lane, entry = _Lane(namespace, dear), (routine, next(self._numbers), item)
        waiting = self._waiting.setdefault(lane, [])
        heapq.heappush(waiting, entry)
        if waiting[0] is entry:
            self._offer(lane)

    def take(self, is_due: Callable[[Item], bool]) -> Item | None:
        """The next item, if one may be worked on now; those that are no longer due are dropped. ``end`` must follow."""
        while (lane := self._next()) is not None:
            _, _, item = heapq.heappop(self._waiting[lane])
            due = is_due(item)
            if due:
                self._begin(item, lane)
            self._offer_all(lane.namespace)
            if due:
                return item
        return None

    def end(self, item: Item) -> None:
        """Work on it has ended."""
        lane = self._working.pop(item)
        self._in_work[lane.namespace] -= 1
        if not self._in_work[lane.namespace]:
            del self._in_work[lane.namespace]
        self._dear -= lane.dear

    def _begin(self, item: Item, lane: _Lane) -> None:
        self._working[item] = lane
        self._in_work[lane.namespace] += 1
        self._dear += lane.dear
        self._turn.pop(lane.namespace, None)
        self._turn[lane.namespace] = next(self._numbers)
        if len(self._turn) > REMEMBERED:
            oldest = next(iter(self._turn))
            del self._turn[oldest]
            self._offer_all(oldest)

    def _offer_all(self, namespace: str) -> None:
        """After a turn of theirs, since it is part of their order."""
        for dear in (False, True):
            self._offer(_Lane(namespace, dear))

    def _offer(self, lane: _Lane) -> None:
        if not self._waiting.get(lane):
            self._waiting.pop(lane, None)
        else:
            heapq.heappush(self._heads[lane.dear], self._head(lane))

    def _head(self, lane: _Lane) -> _Head:
        routine, number, _ = self._waiting[lane][0]
        return _Head(routine, self._turn.get(lane.namespace, 0), number, lane)

    def _next(self) -> _Lane | None:
        heads = [self._heads[False], *([self._heads[True]] if self._dear < self._most else [])]
        found = [head for heap in heads for head in self._candidates(heap)]
        best = min(found, key=lambda head: (self._in_work[head.lane.namespace], head), default=None)
        return None if best is None else best.lane

    def _candidates(self, heap: list[_Head]) -> list[_Head]:
        """The first lane of a namespace that nobody works for, and those before it, of which there are as many as workers."""
        found: list[_Head] = []
        while heap:
            head = heapq.heappop(heap)
            if head.lane not in self._waiting or head != self._head(head.lane):
                continue
            found.append(head)
            if head.lane.namespace not in self._in_work:
                break
        for head in found:
            heapq.heappush(heap, head)
        return found
