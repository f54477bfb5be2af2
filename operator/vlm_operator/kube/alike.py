"""Finds maps that agree, in a time that grows with their number and not with its square: lists come from users."""

import json
from collections.abc import Hashable, Mapping, Sequence
from typing import Any


class Alike:
    """The first of many maps that agrees with another in every name that both have."""

    def __init__(self, maps: Sequence[Mapping[str, Any]]) -> None:
        self._maps = maps
        self._by_names: dict[frozenset[str], list[int]] = {}
        self._tables: dict[tuple[frozenset[str], tuple[str, ...]], dict[Hashable, int]] = {}
        for at, each in enumerate(maps):
            self._by_names.setdefault(frozenset(each), []).append(at)

    def first(self, wanted: Mapping[str, Any]) -> int | None:
        """Its position; None if there is none."""
        found = []
        for names in self._by_names:
            common = tuple(sorted(names & wanted.keys()))
            at = self._table(names, common).get(_values(wanted, common))
            if at is not None:
                found.append(at)
        return min(found, default=None)

    def _table(self, names: frozenset[str], common: tuple[str, ...]) -> dict[Hashable, int]:
        if (names, common) not in self._tables:
            table: dict[Hashable, int] = {}
            for at in self._by_names[names]:
                table.setdefault(_values(self._maps[at], common), at)
            self._tables[names, common] = table
        return self._tables[names, common]


def _values(of: Mapping[str, Any], names: Sequence[str]) -> Hashable:
    return tuple(_hashable(of[name]) for name in names)


def _hashable(value: Any) -> Hashable:
    """A key is text or a number. Of anything else, which the API server refuses, the JSON is compared."""
    return ("", json.dumps(value, sort_keys=True)) if isinstance(value, Mapping | list) else value
