"""``kubectl vlm plan``: from files, or files and the cluster, to plans on standard output."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import yaml

from vlm_api.plan import ServingPlan
from vlm_api.status import VLMService
from vlm_operator.cli.errors import InvalidInputs
from vlm_operator.cli.inputs import ClusterObjects, read_nodes, read_services
from vlm_operator.errors import InvalidInput
from vlm_operator.facts.claims import claims_in
from vlm_operator.facts.nodes import name_of, node_facts
from vlm_operator.facts.slices import by_node
from vlm_operator.facts.usage import asking, in_use
from vlm_operator.families import families
from vlm_operator.planning import Cluster, plan_with_manifests
from vlm_operator.profiles import Family


def plan(options: argparse.Namespace) -> int:
    """Plans every VLMService in the files. Exit code 1 when one of them cannot be run."""
    services = read_services(options.filename, options.namespace)
    try:
        own = families(options.profiles)
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
    plans = _plans(services, objects, image, own)
    _print(options.output, services, plans)
    return 1 if any(p.errors for p in plans) else 0


def _in_namespace(service: VLMService, default: str) -> VLMService:
    """The service where ``kubectl apply`` would put it."""
    if service.metadata.get("namespace"):
        return service
    return service.model_copy(update={"metadata": {**service.metadata, "namespace": default}})


def cluster_of(service: VLMService, objects: ClusterObjects) -> Cluster:
    """What the service's plan may know of these nodes."""
    resource = service.spec.hardware.resource_name
    slices = by_node(objects.slices)
    return Cluster(
        nodes=tuple(node_facts(node, slices(name_of(node)), resource) for node in objects.nodes),
        in_use=in_use(asking(objects.pods), resource, service.namespace, service.name),
        has_leader_worker_sets=objects.has_leader_worker_sets,
        claims=claims_in(service.namespace, objects.claims),
    )


def _plans(
    services: list[VLMService], objects: ClusterObjects, runtime_image: str, own: Sequence[Family]
) -> list[ServingPlan]:
    """The plans, in the services' order. Raises InvalidInputs with what is wrong in any of them."""
    plans, lines = [], []
    for service in services:
        try:
            cluster = cluster_of(service, objects)
            plans.append(plan_with_manifests(service, cluster, runtime_image=runtime_image, families=own))
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
        from vlm_operator.cli.table import print_plan

        console = make_console()
        for number, (service, each) in enumerate(zip(services, plans, strict=True)):
            if number:
                console.rule(style="dim")
            print_plan(console, service, each)


def _one_or_list(plans: list[ServingPlan]) -> dict[str, Any]:
    """One plan as it is, several as a List, as kubectl does it."""
    if len(plans) == 1:
        return plans[0].to_api()
    return {"apiVersion": "v1", "kind": "List", "items": [p.to_api() for p in plans]}


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks, and no anchors."""

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
