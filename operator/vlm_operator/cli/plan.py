"""``kubectl vlm plan``: plans VLMServices from files, for the cluster's nodes or for nodes from a file."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any, NamedTuple

import yaml

from vlm_api.names import API_VERSION
from vlm_api.plan import RouterPlan, ServingPlan
from vlm_api.status import VLMService
from vlm_operator.cli.inputs import ClusterObjects, read_nodes, read_services
from vlm_operator.cli.model_files import read_model_files
from vlm_operator.errors import InvalidInput, InvalidInputs
from vlm_operator.facts.nodes.devices_in_use import asking, in_use
from vlm_operator.facts.nodes.node import name_of, node_facts
from vlm_operator.facts.nodes.slices import by_node
from vlm_operator.facts.types import Cluster, ModelFacts
from vlm_operator.facts.volume_claims import claims_in
from vlm_operator.plan.request import PoolRequest, requests_of
from vlm_operator.plan.stored import plans_with_manifests
from vlm_operator.sglang.profiles import Family
from vlm_operator.sglang.profiles.load import families


def plan(options: argparse.Namespace) -> int:
    """Prints a plan for every VLMService in the files. Exit code 1 if one of them cannot run."""
    services = read_services(options.filename, options.namespace)
    files = read_model_files(options.model_files) if options.model_files is not None else None
    if files is not None and len(_models(services)) > 1:
        raise InvalidInputs(["--model-files: is one model's folder, and the files have several: plan them one by one"])
    try:
        own_profiles = families(options.profiles)
    except InvalidInput as error:
        raise InvalidInputs([str(error)]) from error
    if options.nodes is not None:
        objects = read_nodes(options.nodes)
    else:
        from vlm_operator.cli.cluster import connect

        connection = connect(options)
        services = [_in_namespace(service, connection.namespace) for service in services]
        objects = replace(connection.objects(), claims=tuple(connection.claims(services)))
    image = options.runtime_image or f"vlm-operator:{version('vlm-operator')}"
    planned = _plans(services, objects, image, own_profiles, files)
    if options.pool is not None:
        planned = _of_pool(planned, options.pool)
    _print(options.output, planned)
    refused = any(plan.errors for each in planned for plan in each.plans)
    return 1 if refused or any(each.router.errors for each in planned if each.router is not None) else 0


def _models(services: list[VLMService]) -> set[tuple[str, str | None]]:
    try:
        models = [request.spec.model for service in services for request in requests_of(service)]
    except InvalidInput:
        return set()  # which is told when the plans are made
    return {(model.uri, model.revision) for model in models}


def _in_namespace(service: VLMService, default: str) -> VLMService:
    """The service with the namespace that ``kubectl apply`` would give it."""
    if service.metadata.get("namespace"):
        return service
    return service.model_copy(update={"metadata": {**service.metadata, "namespace": default}})


def cluster_of(request: PoolRequest, objects: ClusterObjects) -> Cluster:
    """The cluster facts that the pool's plan depends on."""
    resource = request.spec.hardware.resource_name
    slices = by_node(objects.slices)
    return Cluster(
        nodes=tuple(node_facts(node, slices(name_of(node)), resource) for node in objects.nodes),
        in_use=in_use(asking(objects.pods), resource, request.namespace, request.service, request.pool),
        has_leader_worker_sets=objects.has_leader_worker_sets,
        claims=claims_in(request.namespace, objects.claims),
    )


class Planned(NamedTuple):
    """A service and the plans of its pools."""

    service: VLMService
    requests: tuple[PoolRequest, ...]
    plans: list[ServingPlan]
    router: RouterPlan | None = None


def _plans(
    services: list[VLMService],
    objects: ClusterObjects,
    runtime_image: str,
    own_profiles: Sequence[Family],
    files: ModelFacts | None,
) -> list[Planned]:
    """The plans of each service, in order. Raises InvalidInputs with all errors."""
    planned, lines = [], []
    for service in services:
        try:
            requests = requests_of(service)
            plans, router = plans_with_manifests(
                requests,
                lambda request: cluster_of(request, objects),
                runtime_image=runtime_image,
                inspected=files,
                families=own_profiles,
            )
            planned.append(Planned(service, requests, plans, router))
        except InvalidInput as error:
            lines.append(f"{service.name}: {error}" if len(services) > 1 else str(error))
    if lines:
        raise InvalidInputs(lines)
    return planned


def _of_pool(planned: list[Planned], pool: str) -> list[Planned]:
    """The same with the plans of one pool. Raises InvalidInputs for a service that has no such pool."""
    kept, lines = [], []
    for service, requests, plans, router in planned:
        pairs = [(r, p) for r, p in zip(requests, plans, strict=True) if r.pool == pool]
        if not pairs:
            lines.append(
                f"--pool: {service.name} has no pool {pool}: choose one of {', '.join(r.pool for r in requests)}"
            )
        kept.append(Planned(service, tuple(r for r, _ in pairs), [p for _, p in pairs], router))
    if lines:
        raise InvalidInputs(lines)
    return kept


def _print(output: str, planned: list[Planned]) -> None:
    if output == "json":
        print(json.dumps(_one_or_list([_document(each) for each in planned]), indent=2))
    elif output == "yaml":
        print(_yaml([_document(each) for each in planned]), end="")
    elif output == "manifests":
        print(_yaml([manifest for each in planned for p in each.plans for manifest in p.manifests]), end="")
    else:
        from vlm_operator.cli.console import make_console
        from vlm_operator.cli.plan_table import print_plan, print_router

        console = make_console()
        tables = [
            (of_pool(each.service, request), plan)
            for each in planned
            for request, plan in zip(each.requests, each.plans, strict=True)
        ]
        for number, (service, plan) in enumerate(tables):
            if number:
                console.rule(style="dim")
            print_plan(console, service, plan, pool=plan.pool if len(tables) > 1 else None)
        for each in planned:
            if each.router is not None:
                console.rule(style="dim")
                print_router(console, each.service, each.router)


def of_pool(service: VLMService, request: PoolRequest) -> VLMService:
    """The service as if it had this pool alone."""
    return service.model_copy(update={"spec": request.spec})


def _document(planned: Planned) -> dict[str, Any]:
    """A service's plan, or its pools' plans in one document."""
    if not planned.service.spec.pools and planned.router is None:
        return planned.plans[0].to_api()
    document = {"apiVersion": API_VERSION, "kind": "ServingPlanList", "items": [p.to_api() for p in planned.plans]}
    if planned.router is None:
        return {**document, "findings": []}
    router = planned.router.to_api()
    return {**document, "findings": router.pop("findings", []), "router": router}


def _one_or_list(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """One document as is, several as a List, like kubectl."""
    if len(documents) == 1:
        return documents[0]
    return {"apiVersion": "v1", "kind": "List", "items": documents}


class _Dumper(yaml.SafeDumper):
    """Multi-line strings as blocks, and no anchors."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def _yaml(documents: list[dict[str, Any]]) -> str:
    return yaml.dump_all(
        documents, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True, explicit_start=len(documents) > 1
    )
