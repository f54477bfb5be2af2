"""Names that Kubernetes derives from ours: none is too long, and no two services need the same one."""

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError
from unit.manifests.samples import plan, sealed, service
from unit.plan.builders import request_of

from vlm_api.plan import PlanResources
from vlm_operator import manifests as render
from vlm_operator.manifests import names
from vlm_operator.manifests.revision import revision_name
from vlm_operator.plan.digest import spec_digest

LONGEST = "a" * 40
# Host names, names of Services and values of labels.
LABEL_LENGTH = 63
# As Kubernetes makes them: of a pod template ten characters, of a StatefulSet's revision at most ten, of a pod five.
TEMPLATE_HASH, REVISION_HASH, RANDOM = "6d4cf56db6", "4b5c6d7f89", "x2k9v"
# More replicas and pods of a group than anybody has.
MANY_GROUPS, MANY_PODS = 9_999, 99
OWNER = {"apiVersion": "vlmserve.dev/v1alpha1", "kind": "VLMService", "name": "any", "uid": "u", "controller": True}

Name = tuple[str, str]


def made_for(name: str, pods: int) -> list[dict[str, Any]]:
    of = service(name, scaling={"maxReplicas": 2}, metrics={"podMonitor": True})
    hardware = plan().hardware.model_copy(update={"claims": True})
    finished, template = sealed(
        plan(name, hardware=hardware, resources=PlanResources(devices_per_pod=8, pods=pods)), of
    )
    made = render.objects([render.Pool(finished, template, request_of(of))], OWNER)
    revision = {"kind": "ControllerRevision", "metadata": {"name": revision_name(name, spec_digest(of.spec))}}
    return [*made, render.inspection_job(request_of(of), "image", OWNER), revision]


def names_of(name: str, pods: int) -> Iterator[Name]:
    """Kind and name of everything that a service is made of, and of what controllers make of that."""
    for manifest in made_for(name, pods):
        kind, own = manifest["kind"], manifest["metadata"]["name"]
        yield kind, own
        if kind == "Deployment":
            yield "ReplicaSet", f"{own}-{TEMPLATE_HASH}"
            yield "Pod", f"{own}-{TEMPLATE_HASH}-{RANDOM}"
        if kind == "Job":
            yield "Pod", f"{own}-"[: LABEL_LENGTH - len(RANDOM)] + RANDOM  # names with a random end are cut
        if kind == "LeaderWorkerSet":
            yield "Service", own
            yield "StatefulSet", own
            for number in (0, MANY_GROUPS):
                yield "StatefulSet", f"{own}-{number}"
                yield "Pod", f"{own}-{number}"
                yield "Pod", f"{own}-{number}-{MANY_PODS}"


def values_of_labels(name: str, pods: int) -> Iterator[str]:
    for manifest in made_for(name, pods):
        yield from manifest["metadata"].get("labels", {}).values()
        yield from manifest.get("spec", {}).get("template", {}).get("metadata", {}).get("labels", {}).values()
    for kind, own in names_of(name, pods):
        if kind == "Job":
            yield own  # batch.kubernetes.io/job-name
        if kind == "StatefulSet":
            yield f"{own}-{REVISION_HASH}"  # controller-revision-hash, without which no pod is made
        if kind in ("LeaderWorkerSet", "Pod"):
            yield own  # leaderworkerset.sigs.k8s.io/name, statefulset.kubernetes.io/pod-name


@pytest.mark.parametrize("pods", [1, 2])
def test_the_longest_name_leaves_room_for_what_kubernetes_adds(pods: int):
    hosts = [own for kind, own in names_of(LONGEST, pods) if kind in ("Pod", "Service", "Job", "LeaderWorkerSet")]
    assert max(len(own) for own in hosts) <= LABEL_LENGTH
    assert all(re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", own) for own in hosts)
    values = list(values_of_labels(LONGEST, pods))
    assert max(len(value) for value in values) <= LABEL_LENGTH
    assert LONGEST in values


def test_a_longer_name_is_refused_with_the_limit():
    with pytest.raises(ValidationError, match="40 characters"):
        service(LONGEST + "a")


def services_alike() -> list[str]:
    """A name, and it with every end that we or Kubernetes add to names."""
    parts = {own.removeprefix("a-") for pods in (1, 2) for _, own in names_of("a", pods) if own.startswith("a-")}
    return ["a", *sorted(f"a-{part}" for part in parts if len(part) <= 38)]


def test_two_services_need_the_same_name_only_if_one_is_named_like_the_other_s_group():
    wanted = {name: {pods: set(names_of(name, pods)) for pods in (1, 2)} for name in services_alike()}
    assert len(wanted) > 10
    shared = {
        (one, other, *found)
        for one, other in itertools.permutations(wanted, 2)
        for ours, theirs in itertools.product((1, 2), (1, 2))
        for found in wanted[one][ours] & wanted[other][theirs]
    }
    # Whichever comes second reports NameTaken.
    group = names.group_name("a")
    assert shared == {("a", group, "Service", group), (group, "a", "Service", group)}
