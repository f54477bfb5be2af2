"""``kubectl vlm plan``: plans VLMServices from files, for the cluster's nodes or for nodes from a file."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import yaml

from vlm_api.plan import ServingPlan
from vlm_api.status import VLMService
from vlm_operator.cli.inputs import ClusterObjects, read_nodes, read_services
from vlm_operator.cli.model_files import read_model_files
from vlm_operator.errors import InvalidInput, InvalidInputs
from vlm_operator.facts.nodes.devices_in_use import asking, in_use
from vlm_operator.facts.nodes.node import name_of, node_facts
from vlm_operator.facts.nodes.slices import by_node
from vlm_operator.facts.types import Cluster, ModelFacts
from vlm_operator.facts.volume_claims import claims_in
from vlm_operator.plan.request import requests_of
from vlm_operator.plan.stored import plan_with_manifests
from vlm_operator.sglang.profiles import Family
from vlm_operator.sglang.profiles.load import families


def plan(options: argparse.Namespace) -> int:
    """Prints a plan for every VLMService in the files. Exit code 1 if one of them cannot run."""
    services = read_services(options.filename, options.namespace)
    files = read_model_files(options.model_files) if options.model_files is not None else None
    if files is not None and len({(s.spec.model.uri, s.spec.model.revision) for s in services}) > 1:
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
    plans = _plans(services, objects, image, own_profiles, files)
    _print(options.output, services, plans)
    return 1 if any(p.errors for p in plans) else 0


def _in_namespace(service: VLMService, default: str) -> VLMService:
    """The service with the namespace that ``kubectl apply`` would give it."""
    if service.metadata.get("namespace"):
        return service
    return service.model_copy(update={"metadata": {**service.metadata, "namespace": default}})


def cluster_of(service: VLMService, objects: ClusterObjects) -> Cluster:
    """The cluster facts that the service's plan depends on."""
    resource = service.spec.hardware.resource_name
    slices = by_node(objects.slices)
    return Cluster(
        nodes=tuple(node_facts(node, slices(name_of(node)), resource) for node in objects.nodes),
        in_use=in_use(asking(objects.pods), resource, service.namespace, service.name),
        has_leader_worker_sets=objects.has_leader_worker_sets,
        claims=claims_in(service.namespace, objects.claims),
    )


def _plans(
    services: list[VLMService],
    objects: ClusterObjects,
    runtime_image: str,
    own_profiles: Sequence[Family],
    files: ModelFacts | None,
) -> list[ServingPlan]:
    """One plan per service, in order. Raises InvalidInputs with all errors."""
    plans, lines = [], []
    for service in services:
        try:
            cluster = cluster_of(service, objects)
            plans += [
                plan_with_manifests(
                    request, cluster, runtime_image=runtime_image, inspected=files, families=own_profiles
                )
                for request in requests_of(service)
            ]
        except InvalidInput as error:
            lines.append(f"{service.name}: {error}" if len(services) > 1 else str(error))
    if lines:
        raise InvalidInputs(lines)
    return plans


def _print(output: str, services: list[VLMService], plans: list[ServingPlan]) -> None:
    if output == "json":
        print(json.dumps(_one_or_list(plans), indent=2))
    elif output == "yaml":
        print(_yaml([p.to_api() for p in plans]), end="")
    elif output == "manifests":
        print(_yaml([manifest for p in plans for manifest in p.manifests]), end="")
    else:
        from vlm_operator.cli.console import make_console
        from vlm_operator.cli.plan_table import print_plan

        console = make_console()
        for number, (service, each) in enumerate(zip(services, plans, strict=True)):
            if number:
                console.rule(style="dim")
            print_plan(console, service, each)


def _one_or_list(plans: list[ServingPlan]) -> dict[str, Any]:
    """One plan as is, several as a List, like kubectl."""
    if len(plans) == 1:
        return plans[0].to_api()
    return {"apiVersion": "v1", "kind": "List", "items": [p.to_api() for p in plans]}


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
