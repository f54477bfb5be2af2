"""Several namespaces: one that cannot be read holds up no other."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from unit.controller.fakes import until

from vlm_operator.controller.run.cache import Cache
from vlm_operator.controller.run.inventory import Inventory
from vlm_operator.controller.run.services import WatchFailed
from vlm_operator.controller.run.watch import Reflectors
from vlm_operator.kube import kinds, reflector
from vlm_operator.kube.client import ApiError, Json
from vlm_operator.kube.kinds import Kind


class Server:
    """An empty cluster, of which something may be forbidden: (namespace, kind)."""

    def __init__(self, *forbidden: tuple[str | None, Kind]) -> None:
        self.forbidden = set(forbidden)

    def pages(self, kind: Kind, namespace: str | None = None, **_: Any) -> Iterator[Json]:
        if (namespace, kind) in self.forbidden:
            raise ApiError(403, "Forbidden", f"{kind.plural} is forbidden in {namespace}")
        yield {"metadata": {"resourceVersion": "1"}, "items": []}

    def watch(self, kind: Kind, namespace: str | None = None, **_: Any) -> Iterator[Json]:
        raise ApiError(0, "NoAnswer", "quiet")


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(reflector, "REFUSED_SECONDS", 0.01)
    started: list[Reflectors] = []

    def starting(server: Server, namespaces: Sequence[str]) -> Reflectors:
        started.append(Reflectors(server, Cache(), Inventory(), namespaces))  # type: ignore[arg-type]
        started[-1].start()
        return started[-1]

    yield starting
    for one in started:
        one.stop()


def test_a_namespace_that_is_refused_holds_up_no_other_and_is_read_once_its_rights_are_back(reading):
    server = Server(("gone", kinds.POD), ("gone", kinds.DEPLOYMENT))
    reflectors = reading(server, ["ml", "gone"])
    asyncio.run(asyncio.wait_for(reflectors.synced(), 20))
    assert reflectors.refusal("ml") is None
    assert "is forbidden in gone" in reflectors.refusal("gone")
    server.forbidden.discard(("gone", kinds.POD))
    server.forbidden.discard(("gone", kinds.DEPLOYMENT))
    asyncio.run(until(lambda: reflectors.refusal("gone") is None))


@pytest.mark.parametrize(
    ("namespaces", "forbidden"),
    [([], (None, kinds.POD)), (["ml"], ("ml", kinds.POD)), (["ml", "other"], (None, kinds.NODE))],
    ids=["of the cluster", "of the only namespace", "of what all namespaces need"],
)
def test_missing_rights_without_which_nothing_can_be_served_are_an_error(reading, namespaces, forbidden):
    reflectors = reading(Server(forbidden), namespaces)
    with pytest.raises(WatchFailed, match="is forbidden"):
        asyncio.run(asyncio.wait_for(reflectors.synced(), 20))
