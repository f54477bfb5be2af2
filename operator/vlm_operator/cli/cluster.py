"""What the commands read from the cluster. Imports the Kubernetes client, which takes a while to load."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from vlm_api.names import LABEL_COMPONENT, LABEL_SERVICE
from vlm_api.status import VLMService
from vlm_operator.cli.errors import ClusterError, InvalidInputs
from vlm_operator.cli.inputs import ClusterObjects
from vlm_operator.documents import Document
from vlm_operator.kube import kinds
from vlm_operator.kube.client import ApiError, Client, configure, context_namespace
from vlm_operator.render.names import ENGINE
from vlm_operator.resolve.claims import shared_claims

# What a path to an object may end with. Which names a VLMService may have, the API server knows.
NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


@dataclass(frozen=True)
class Connection:
    """A cluster, as the user's kubeconfig and flags name it."""

    client: Client
    namespace: str
    """What the flag says, else the context's."""

    def objects(self) -> ClusterObjects:
        """Nodes, devices and the pods that use them. Raises ClusterError."""
        with asking():
            return ClusterObjects(
                nodes=tuple(self.client.list(kinds.NODE)),
                slices=tuple(
                    self.client.list(kinds.RESOURCE_SLICE) if self.client.serves(kinds.RESOURCE_SLICE) else []
                ),
                pods=tuple(self._running_pods()),
                has_leader_worker_sets=self.client.serves(kinds.LEADER_WORKER_SET),
            )

    def claims(self, services: Iterable[VLMService]) -> Iterator[Document]:
        """PersistentVolumeClaims that several pods of a service share. Those that cannot be read are left out: a plan is
        made without them, and says so."""
        for namespace, name in sorted({(s.namespace, name) for s in services for name in shared_claims(s.spec)}):
            with suppress(ApiError):
                found = self.client.get(kinds.PERSISTENT_VOLUME_CLAIM, namespace, name)
                yield from [found] if found is not None else []

    def service(self, name: str) -> Document:
        """The VLMService of that name. Raises ClusterError where there is none, InvalidInputs where none can have it."""
        if not NAME.fullmatch(name):
            raise InvalidInputs([f"NAME: is \"{name}\", but a VLMService has lower-case letters, digits and '-' in it"])
        with asking():
            if not self.client.serves(kinds.VLM_SERVICE):
                raise ClusterError("the cluster does not know VLMServices: install the operator's chart first")
            found = self.client.get(kinds.VLM_SERVICE, self.namespace, name)
        if found is None:
            raise ClusterError(
                f"there is no VLMService {name} in namespace {self.namespace}: `kubectl get vlms -A` lists all of them"
            )
        return found

    def pods(self, name: str) -> list[Document]:
        """The engine's pods of a VLMService, by name. Raises ClusterError."""
        with asking():
            found = self.client.list(
                kinds.POD, self.namespace, labels=f"{LABEL_SERVICE}={name},{LABEL_COMPONENT}={ENGINE}"
            )
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def _running_pods(self) -> list[Document]:
        try:
            return self.client.list(kinds.POD, fields="spec.nodeName!=")
        except ApiError as error:
            if error.status != 403:
                raise
            print("note: the pods of other namespaces cannot be seen: every device counts as free", file=sys.stderr)
            return []


def connect(options: argparse.Namespace) -> Connection:
    """The cluster that kubectl would speak to. Raises ClusterError where no kubeconfig can be used."""
    with asking():
        configure(options.kubeconfig, options.context)
    namespace = options.namespace or context_namespace(options.kubeconfig, options.context)
    return Connection(Client(), namespace)


@contextmanager
def asking() -> Iterator[None]:
    """What the API server refuses ends the command with its words."""
    try:
        yield
    except ApiError as error:
        raise ClusterError(error.message) from error
