"""What the commands read from the cluster. Imports the Kubernetes client, which is slow to load."""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from vlm_api.names import LABEL_COMPONENT, LABEL_SERVICE
from vlm_api.status import VLMService
from vlm_operator.checks.shared_claims import shared_claims
from vlm_operator.cli.inputs import ClusterObjects
from vlm_operator.documents import Document
from vlm_operator.errors import ClusterError, InvalidInput, InvalidInputs
from vlm_operator.kube import kinds
from vlm_operator.kube.client import ApiError, Client, configure, context_namespace
from vlm_operator.manifests.names import ENGINE
from vlm_operator.plan.request import requests_of

# Characters that are safe in an API path. The API server knows which names a VLMService may have.
NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


@dataclass(frozen=True)
class Connection:
    """A cluster and namespace, chosen by kubeconfig and flags."""

    client: Client
    namespace: str
    """From the flag, else from the context."""

    def objects(self) -> ClusterObjects:
        """Nodes, ResourceSlices and running pods. Raises ClusterError."""
        with cluster_errors():
            return ClusterObjects(
                nodes=tuple(self.client.list(kinds.NODE)),
                slices=tuple(
                    self.client.list(kinds.RESOURCE_SLICE) if self.client.serves(kinds.RESOURCE_SLICE) else []
                ),
                pods=tuple(self._running_pods()),
                has_leader_worker_sets=self.client.serves(kinds.LEADER_WORKER_SET),
            )

    def claims(self, services: Iterable[VLMService]) -> Iterator[Document]:
        """PersistentVolumeClaims that several pods of a service share. Unreadable ones are left out; a finding reports it."""
        for namespace, name in sorted({(s.namespace, name) for s in services for name in _shared(s)}):
            with suppress(ApiError):
                claim = self.client.get(kinds.PERSISTENT_VOLUME_CLAIM, namespace, name)
                yield from [claim] if claim is not None else []

    def service(self, name: str) -> Document:
        """A VLMService by name. Raises ClusterError if it does not exist, InvalidInputs if the name is invalid."""
        if not NAME.fullmatch(name):
            raise InvalidInputs([f"NAME: is \"{name}\", but must consist of lower-case letters, digits and '-'"])
        with cluster_errors():
            if not self.client.serves(kinds.VLM_SERVICE):
                raise ClusterError(
                    "the VLMService CRD is not installed in this cluster: install the vlm-operator chart first"
                )
            service = self.client.get(kinds.VLM_SERVICE, self.namespace, name)
        if service is None:
            raise ClusterError(
                f"VLMService {name} not found in namespace {self.namespace}: list all with `kubectl get vlms -A`"
            )
        return service

    def pods(self, name: str) -> list[Document]:
        """The engine pods of a VLMService, sorted by name. Raises ClusterError."""
        with cluster_errors():
            pods = self.client.list(
                kinds.POD, self.namespace, labels=f"{LABEL_SERVICE}={name},{LABEL_COMPONENT}={ENGINE}"
            )
        return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))

    def _running_pods(self) -> list[Document]:
        try:
            return self.client.list(kinds.POD, fields="spec.nodeName!=")
        except ApiError as error:
            if error.status != 403:
                raise
            print("note: no permission to list pods in all namespaces: every GPU counts as free", file=sys.stderr)
            return []


def connect(options: argparse.Namespace) -> Connection:
    """The cluster that kubectl would use. Raises ClusterError without a usable kubeconfig."""
    with cluster_errors():
        configure(options.kubeconfig, options.context)
    namespace = options.namespace or context_namespace(options.kubeconfig, options.context)
    return Connection(Client(), namespace)


@contextmanager
def cluster_errors() -> Iterator[None]:
    """Turns API errors into ClusterError."""
    try:
        yield
    except ApiError as error:
        raise ClusterError(error.message) from error


def _shared(service: VLMService) -> set[str]:
    """Claims that several pods of a pool share."""
    try:
        return {name for request in requests_of(service) for name in shared_claims(request.spec)}
    except InvalidInput:
        return set()  # which is told when the plans are made
