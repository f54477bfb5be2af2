"""kopf's part: events of everything that a service depends on, each only putting a key into the queue.

There are event handlers only. Handlers of any other kind would make kopf write annotations and finalizers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import kopf

from vlm_api.names import FIELD_MANAGER, LABEL_SERVICE
from vlm_operator.controller.inventory import Inventory
from vlm_operator.controller.queue import Key, WorkQueue
from vlm_operator.kube import kinds
from vlm_operator.kube.kinds import Kind

# Nodes come and go in crowds.
NODE_DEBOUNCE_SECONDS: Final = 0.1
# Objects of ours that every cluster has, and pods; found by label.
OWNED: Final = (*kinds.OWNED, kinds.JOB, kinds.POD)
OPTIONAL: Final = (kinds.LEADER_WORKER_SET, kinds.POD_MONITOR)


class WatchFailed(Exception):
    """kopf has given up. It logs the details itself."""


class Services:
    """The keys of all services that are there, since a change of a node may concern any of them."""

    def __init__(self) -> None:
        self._keys: set[Key] = set()

    def see(self, key: Key, *, deleted: bool) -> None:
        """One event of a VLMService."""
        if deleted:
            self._keys.discard(key)
        else:
            self._keys.add(key)

    def __iter__(self) -> Any:
        return iter(sorted(self._keys))


def handlers(
    queue: WorkQueue, inventory: Inventory, services: Services, serves: Callable[[Kind], bool]
) -> kopf.OperatorRegistry:
    """kopf's registry with all handlers. ``serves`` says which optional kinds the cluster has."""
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry, id="login")(kopf.login_via_client)

    async def service_changed(event: Mapping[str, Any], namespace: str | None, name: str | None, **_: Any) -> None:
        key = Key(str(namespace), str(name))
        services.see(key, deleted=event["type"] == "DELETED")
        queue.add(key)

    async def owned_changed(labels: Mapping[str, str], namespace: str | None, **_: Any) -> None:
        if service := labels.get(LABEL_SERVICE):
            queue.add(Key(str(namespace), service))

    async def node_changed(event: Mapping[str, Any], **_: Any) -> None:
        if inventory.see_node(event["object"], deleted=event["type"] == "DELETED"):
            _all_again(queue, services)

    async def slice_changed(event: Mapping[str, Any], **_: Any) -> None:
        if inventory.see_slice(event["object"], deleted=event["type"] == "DELETED"):
            _all_again(queue, services)

    _on(registry, kinds.VLM_SERVICE, service_changed)
    _on(registry, kinds.NODE, node_changed)
    if serves(kinds.RESOURCE_SLICE):
        _on(registry, kinds.RESOURCE_SLICE, slice_changed)
    for kind in (*OWNED, *(k for k in OPTIONAL if serves(k))):
        _on(registry, kind, owned_changed)
    return registry


def settings() -> kopf.OperatorSettings:
    """kopf without everything that writes, and with time-outs."""
    found = kopf.OperatorSettings()
    found.posting.enabled = False
    found.peering.standalone = True
    # Without it kopf would need to list and watch CRDs and namespaces.
    found.scanning.disabled = True
    found.networking.request_timeout = 30
    found.networking.connect_timeout = 10
    found.watching.connect_timeout = 10
    for kind in (*OWNED, *OPTIONAL):
        found.watching.label_selectors[kind.group, kind.version, kind.plural] = LABEL_SERVICE
    return found


def _on(registry: kopf.OperatorRegistry, kind: Kind, handler: Callable[..., Any]) -> None:
    name = f"{handler.__name__}.{kind.plural}"
    kopf.on.event(kind.group, kind.version, kind.plural, registry=registry, id=name)(handler)


def _all_again(queue: WorkQueue, services: Services) -> None:
    for key in services:
        queue.add(key, NODE_DEBOUNCE_SECONDS)


async def run(
    registry: kopf.OperatorRegistry, namespaces: Collection[str], stop: asyncio.Event, started: asyncio.Event
) -> None:
    """Watches until ``stop`` is set. Raises WatchFailed where a watch fails for good, such as for want of rights."""
    try:
        await kopf.operator(
            registry=registry,
            settings=settings(),
            clusterwide=not namespaces,
            namespaces=list(namespaces),
            standalone=True,
            # Otherwise kopf asks for the user's name, which an id without an entry in /etc/passwd does not have.
            identity=FIELD_MANAGER,  # type: ignore[arg-type]  # a NewType of str that kopf does not export
            stop_flag=stop,
            ready_flag=started,
        )
    except Exception as error:
        raise WatchFailed(f"a watch has failed: {error}") from error
