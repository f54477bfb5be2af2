"""VLMServices that are right and wrong, for both enforcers: the API server's CRD and the types in vlm_api."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

MINIMAL = {"model": {"uri": "hf://Qwen/Qwen3-VL-8B-Instruct"}}


@dataclass(frozen=True)
class Right:
    """A VLMService that must be accepted."""

    sentence: str
    spec: dict[str, Any]
    name: str = "vlm"


@dataclass(frozen=True)
class Wrong:
    """A VLMService that must be refused, with the field and the words that a user needs."""

    sentence: str
    spec: dict[str, Any]
    path: str
    says: str
    """What both enforcers say; empty where each has words of its own (types and bounds)."""
    name: str = "vlm"


def service(case: Right | Wrong) -> dict[str, Any]:
    """The whole manifest: the case's spec merged over a minimal one."""
    return {
        "apiVersion": "vlmserve.dev/v1alpha1",
        "kind": "VLMService",
        "metadata": {"name": case.name},
        "spec": _merged(deepcopy(MINIMAL), case.spec),
    }


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    for key, value in over.items():
        base[key] = _merged(base[key], value) if isinstance(value, dict) and isinstance(base.get(key), dict) else value
    return base


def _model(**fields: Any) -> dict[str, Any]:
    return {"model": fields}


def _env(*variables: dict[str, Any]) -> dict[str, Any]:
    return {"engine": {"env": list(variables)}}


def _main(**fields: Any) -> dict[str, Any]:
    return {"template": {"spec": {"containers": [{"name": "main", **fields}]}}}


MAIN = "spec.template.spec.containers[0]"
NAME_SAYS = "must be a DNS-1035 label of at most 40 characters, since it becomes a host name"
SIZE_SAYS = "must be a size above zero, such as 16Gi, 500Mi or 2G"
URI_SAYS = "must be hf://ORG/NAME or hf://NAME (with spec.model.revision beside it), pvc://CLAIM/PATH, oci://IMAGE or file:///PATH"
STEP_UP_SAYS = "must not have .. in its path"
FLAG_SAYS = "or begin with '-'"
IMAGE_SAYS = "must be an image such as lmsysorg/sglang:v0.5.23"
OBJECT_SAYS = "must be the name of an object"

RIGHT = (
    Right("a model alone", {}),
    Right("a name of 40 characters", {}, name="a" * 40),
    Right("a name of one letter", {}, name="a"),
    Right("a model on the hub without an organisation", _model(uri="hf://gpt2")),
    Right("a model on a claim", _model(uri="pvc://models/qwen3-vl/8b")),
    Right("a model at the root of a claim", _model(uri="pvc://models")),
    Right("a model in an image", _model(uri="oci://registry.example.com/models/qwen3-vl:8b")),
    Right("a model in an image by digest", _model(uri=f"oci://localhost:5000/models/qwen@sha256:{'0' * 64}")),
    Right("a model inside the pod", _model(uri="file:///models/tiny")),
    Right("a path with dots in its names", _model(uri="pvc://models/.cache/..a/b..c/./v1.0/")),
    Right("a served name and a revision with a dash inside", _model(name="qwen-8b", revision="pr-1/x-")),
    Right("an image of a registry with a port", {"engine": {"image": "[::1]:5000/lab/sglang:v0.5.23-cu130"}}),
    Right(
        "a container and an init container with names of their own",
        {"template": {"spec": {"containers": [{"name": "main"}, {"name": "a"}], "initContainers": [{"name": "b"}]}}},
    ),
    Right("a gated model", _model(tokenSecretRef={"name": "hf.tokens", "key": "token_1"}, cacheClaim="models")),
    Right(
        "a served name with a slash", _model(name="Qwen/Qwen3-VL-8B", architecture="Qwen3VLForConditionalGeneration")
    ),
    Right("no replicas", {"replicas": 0}),
    Right("scaling with the default of replicas", {"replicas": 1, "scaling": {"maxReplicas": 4}}),
    Right("scaling between equal bounds", {"scaling": {"minReplicas": 2, "maxReplicas": 2, "targetInFlight": 64}}),
    Right("16 ways over 2 nodes", {"parallelism": {"tensor": 16}, "multinode": {"nodeCount": 2}}),
    Right("2 stages over 2 nodes", {"parallelism": {"pipeline": 2}, "multinode": {"nodeCount": 2}}),
    Right("two engines in one pod", {"parallelism": {"data": 2}}),
    Right(
        "two nodes on the CPU",
        {"hardware": {"device": "cpu"}, "parallelism": {"tensor": 2}, "multinode": {"nodeCount": 2}},
    ),
    Right("a declared image", {"workload": {"images": {"width": 512, "height": 512, "reuse": "Repeated"}}}),
    Right("a compute capability", {"hardware": {"computeCapability": "12.1"}}),
    Right("a resource of MIG slices", {"hardware": {"resourceName": "nvidia.com/mig-3g.40gb"}}),
    Right("a post release", {"engine": {"version": "0.5.12.post1"}}),
    Right("a release candidate with a v", {"engine": {"version": "v0.5.24rc1"}}),
    Right("an image by digest", {"engine": {"image": f"registry.example.com/sglang@sha256:{'0' * 64}"}}),
    Right(
        "settings of every type", {"engine": {"settings": {"a": 1, "b": 0.5, "c": "x", "d": True, "e": [1], "f": {}}}}
    ),
    Right("a variable with an empty value", _env({"name": "SGLANG_A", "value": ""})),
    Right(
        "a variable from a Secret",
        _env({"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}),
    ),
    Right("media domains", {"security": {"allowedMediaDomains": ["images.example.com", "192.0.2.1"]}}),
    Right("a size in gibibytes", {"sharedMemorySize": "16Gi"}),
    Right("a size with a fraction", {"sharedMemorySize": "0.5Gi"}),
    Right("a size in bytes", {"sharedMemorySize": 17179869184}),
    Right("a roll-out that surges", {"rolloutStrategy": {"maxSurge": 1, "maxUnavailable": 0}}),
    Right("a roll-out in percent", {"rolloutStrategy": {"maxSurge": "25%", "maxUnavailable": "100%"}}),
    Right("a template", {"template": {"spec": {"containers": [{"name": "main", "env": [{"name": "A"}]}]}}}),
    Right("a template whose parts are null", {"template": {"metadata": None, "spec": None}}),
    Right("a template that removes fields", {"template": {"spec": {"tolerations": None, "affinity": None}}}),
    Right(
        "a template with merge directives",
        {"template": {"spec": {"volumes": [{"name": "x", "$patch": "delete"}], "nodeSelector": {"a": None}}}},
    ),
    Right("fields that are null count as left out", {"replicas": None, "scaling": None, "workload": {"images": None}}),
)

WRONG = (
    # metadata.name
    Wrong("a name with dots that starts with a digit", {}, "metadata.name", NAME_SAYS, name="3b.qwen2.5-vl"),
    Wrong("a name of 41 characters", {}, "metadata.name", NAME_SAYS, name="a" * 41),
    Wrong("a name that starts with a digit", {}, "metadata.name", NAME_SAYS, name="8b"),
    # rules over several fields
    Wrong(
        "replicas and scaling",
        {"replicas": 2, "scaling": {"maxReplicas": 4}},
        "spec.replicas",
        "replicas and scaling exclude each other: remove one of them",
    ),
    Wrong(
        "bounds of scaling that are crossed",
        {"scaling": {"minReplicas": 5, "maxReplicas": 4}},
        "spec.scaling.minReplicas",
        "minReplicas must not be greater than maxReplicas",
    ),
    Wrong(
        "16 ways over 3 nodes",
        {"parallelism": {"tensor": 16}, "multinode": {"nodeCount": 3}},
        "spec.multinode.nodeCount",
        "parallelism.tensor x parallelism.pipeline is 16, which does not divide over multinode.nodeCount 3",
    ),
    Wrong(
        "data parallelism over nodes",
        {"parallelism": {"tensor": 2, "data": 2}, "multinode": {"nodeCount": 2}},
        "spec.parallelism.data",
        "parallelism.data works inside one node only",
    ),
    Wrong(
        "pipeline stages alone over nodes on the CPU",
        {"hardware": {"device": "cpu"}, "parallelism": {"pipeline": 2}, "multinode": {"nodeCount": 2}},
        "spec.multinode.nodeCount",
        "on the CPU several nodes need parallelism.tensor above 1",
    ),
    Wrong(
        "a width without a height",
        {"workload": {"images": {"width": 512}}},
        "spec.workload.images.width",
        "width and height go together",
    ),
    Wrong(
        "a variable with a value and a source",
        _env({"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}),
        "spec.engine.env[0].valueFrom",
        "value and valueFrom exclude each other",
    ),
    Wrong(
        "a roll-out that may neither add nor remove a pod",
        {"rolloutStrategy": {"maxSurge": 0, "maxUnavailable": "0%"}},
        "spec.rolloutStrategy.maxSurge",
        "maxSurge and maxUnavailable must not both be zero",
    ),
    # forms
    Wrong("a model without a scheme", _model(uri="Qwen/Qwen3-VL-8B-Instruct"), "spec.model.uri", URI_SAYS),
    Wrong("a model with another scheme", _model(uri="s3://bucket/model"), "spec.model.uri", URI_SAYS),
    Wrong("a hub id with three parts", _model(uri="hf://a/b/c"), "spec.model.uri", URI_SAYS),
    Wrong("a file without a leading slash", _model(uri="file://models/tiny"), "spec.model.uri", URI_SAYS),
    Wrong("a line break after the model", _model(uri="hf://Qwen/Qwen3-VL-8B-Instruct\n"), "spec.model.uri", URI_SAYS),
    Wrong("a claim's path that leads upwards", _model(uri="pvc://models/../../etc"), "spec.model.uri", STEP_UP_SAYS),
    Wrong("a file's path that leads upwards", _model(uri="file:///../etc"), "spec.model.uri", STEP_UP_SAYS),
    Wrong("a path that ends upwards", _model(uri="file:///models/.."), "spec.model.uri", STEP_UP_SAYS),
    Wrong("a model's image with a password", _model(uri="oci://u:p@r.example.com/m"), "spec.model.uri", URI_SAYS),
    Wrong("a revision like a flag", _model(revision="--foo"), "spec.model.revision", FLAG_SAYS),
    Wrong("a served name like a flag", _model(name="--bar"), "spec.model.name", FLAG_SAYS),
    Wrong("a revision with a space", _model(revision="my branch"), "spec.model.revision", "must not have spaces"),
    Wrong("a served name with a colon", _model(name="qwen:8b"), "spec.model.name", "must not have spaces or colons"),
    Wrong("an architecture with a dot", _model(architecture="a.B"), "spec.model.architecture", "must be a class name"),
    Wrong("a claim in capitals", _model(cacheClaim="Models"), "spec.model.cacheClaim", OBJECT_SAYS),
    Wrong(
        "a Secret's key with a slash",
        _model(tokenSecretRef={"name": "hf", "key": "a/b"}),
        "spec.model.tokenSecretRef.key",
        "must be a key of a Secret",
    ),
    Wrong(
        "a Secret with a bad name",
        {"security": {"apiKeySecretRef": {"name": "a_b", "key": "k"}}},
        "spec.security.apiKeySecretRef.name",
        OBJECT_SAYS,
    ),
    Wrong(
        "a compute capability without a dot",
        {"hardware": {"computeCapability": "90"}},
        "spec.hardware.computeCapability",
        "must be two numbers with a dot",
    ),
    Wrong(
        "a resource without a domain",
        {"hardware": {"resourceName": "gpu"}},
        "spec.hardware.resourceName",
        "must be an extended resource with its domain",
    ),
    Wrong(
        "a product with a space",
        {"hardware": {"products": ["NVIDIA H100"]}},
        "spec.hardware.products[0]",
        "must not have spaces",
    ),
    Wrong(
        "a RuntimeClass in capitals",
        {"hardware": {"runtimeClassName": "NVIDIA"}},
        "spec.hardware.runtimeClassName",
        OBJECT_SAYS,
    ),
    Wrong("a version that is a word", {"engine": {"version": "latest"}}, "spec.engine.version", "must be a version"),
    Wrong("an image with a space", {"engine": {"image": "a b"}}, "spec.engine.image", IMAGE_SAYS),
    Wrong("an image with a scheme", {"engine": {"image": "https://r.example.com/a"}}, "spec.engine.image", IMAGE_SAYS),
    Wrong("an image with a password", {"engine": {"image": "u:p@r.example.com/a"}}, "spec.engine.image", IMAGE_SAYS),
    Wrong(
        "a variable's name with a space", _env({"name": "A B"}), "spec.engine.env[0].name", "must be a variable's name"
    ),
    Wrong(
        "a media domain with a scheme",
        {"security": {"allowedMediaDomains": ["https://images.example.com"]}},
        "spec.security.allowedMediaDomains[0]",
        "must be a host name",
    ),
    Wrong("a size in gigabytes as people say them", {"sharedMemorySize": "20GB"}, "spec.sharedMemorySize", SIZE_SAYS),
    Wrong("a size with a space", {"sharedMemorySize": "16 Gi"}, "spec.sharedMemorySize", SIZE_SAYS),
    Wrong("an empty size", {"sharedMemorySize": ""}, "spec.sharedMemorySize", SIZE_SAYS),
    Wrong("a size of nothing", {"sharedMemorySize": "0Gi"}, "spec.sharedMemorySize", SIZE_SAYS),
    Wrong("a negative size", {"sharedMemorySize": -1}, "spec.sharedMemorySize", SIZE_SAYS),
    Wrong("a size in thousandths of a byte", {"sharedMemorySize": "400m"}, "spec.sharedMemorySize", SIZE_SAYS),
    Wrong(
        "a surge that is a number in quotes",
        {"rolloutStrategy": {"maxSurge": "1"}},
        "spec.rolloutStrategy.maxSurge",
        "must be a whole number from 0 to 1000, or a percentage",
    ),
    Wrong(
        "more unavailable than there are",
        {"rolloutStrategy": {"maxUnavailable": "101%"}},
        "spec.rolloutStrategy.maxUnavailable",
        "must be a whole number from 0 to 1000, or a percentage up to 100%",
    ),
    # types, bounds and words
    Wrong("no model", {"model": None}, "spec.model", ""),
    Wrong("a model without a place", _model(uri=None), "spec.model.uri", ""),
    Wrong("a number in quotes", {"replicas": "2"}, "spec.replicas", ""),
    Wrong("a fraction of a replica", {"replicas": 1.5}, "spec.replicas", ""),
    Wrong("a truth in quotes", {"suspend": "true"}, "spec.suspend", ""),
    Wrong("a truth in place of a size", {"sharedMemorySize": True}, "spec.sharedMemorySize", ""),
    Wrong("a fraction in place of a size", {"sharedMemorySize": 1.5}, "spec.sharedMemorySize", ""),
    Wrong("Off without quotes", {"engine": {"tuning": False}}, "spec.engine.tuning", ""),
    Wrong("a number as a version", {"engine": {"version": 0.5}}, "spec.engine.version", ""),
    Wrong("a number as a variable's value", _env({"name": "A", "value": 1}), "spec.engine.env[0].value", ""),
    Wrong("one argument that is no list", {"engine": {"args": "--log-requests"}}, "spec.engine.args", ""),
    Wrong("a template that is a text", {"template": "x"}, "spec.template", ""),
    Wrong("negative replicas", {"replicas": -1}, "spec.replicas", ""),
    Wrong("too many replicas", {"replicas": 1001}, "spec.replicas", ""),
    Wrong("no request at all", {"workload": {"concurrency": 0}}, "spec.workload.concurrency", ""),
    Wrong("a model without parameters", _model(parametersBillion=0), "spec.model.parametersBillion", ""),
    Wrong("no tensor parallelism", {"parallelism": {"tensor": 0}}, "spec.parallelism.tensor", ""),
    Wrong("no node", {"multinode": {"nodeCount": 0}}, "spec.multinode.nodeCount", ""),
    Wrong("an unknown reuse", {"workload": {"images": {"reuse": "single"}}}, "spec.workload.images.reuse", ""),
    Wrong("an unknown device", {"hardware": {"device": "gpu"}}, "spec.hardware.device", ""),
    Wrong("an empty served name", _model(name=""), "spec.model.name", ""),
    Wrong("too long a place", _model(uri="file:///" + "a" * 1024), "spec.model.uri", ""),
    Wrong("a variable twice", _env({"name": "A", "value": "1"}, {"name": "A", "value": "2"}), "spec.engine.env", ""),
    Wrong("a product twice", {"hardware": {"products": ["a", "a"]}}, "spec.hardware.products", ""),
    Wrong(
        "more products than anybody has",
        {"hardware": {"products": [f"p{i}" for i in range(33)]}},
        "spec.hardware.products",
        "",
    ),
    Wrong(
        "more settings than there are",
        {"engine": {"settings": {f"s{i}": i for i in range(129)}}},
        "spec.engine.settings",
        "",
    ),
    # the template's shape
    Wrong(
        "two containers of one name",
        {"template": {"spec": {"containers": [{"name": "main"}, {"name": "a"}, {"name": "a"}]}}},
        "spec.template.spec.containers[2]",
        "",
    ),
    Wrong(
        "two init containers of one name",
        {"template": {"spec": {"initContainers": [{"name": "a"}, {"name": "a"}]}}},
        "spec.template.spec.initContainers[1]",
        "",
    ),
    Wrong(
        "two volumes of one name",
        {"template": {"spec": {"volumes": [{"name": "a"}, {"name": "a"}]}}},
        "spec.template.spec.volumes[1]",
        "",
    ),
    Wrong("labels in a list", {"template": {"metadata": {"labels": ["a"]}}}, "spec.template.metadata.labels", ""),
    Wrong(
        "a label that is a number",
        {"template": {"metadata": {"labels": {"a": 1}}}},
        "spec.template.metadata.labels.a",
        "",
    ),
    Wrong(
        "containers that are a text",
        {"template": {"spec": {"containers": "main"}}},
        "spec.template.spec.containers",
        "",
    ),
    Wrong("engine arguments in the template that are a text", _main(args="--x"), f"{MAIN}.args", ""),
    Wrong("an engine argument in the template that is a number", _main(args=[1]), f"{MAIN}.args[0]", ""),
    Wrong("a container's variables in a text", _main(env="A=1"), f"{MAIN}.env", ""),
    Wrong("a container's variable without a name", _main(env=[{"value": "1"}]), f"{MAIN}.env[0].name", ""),
    Wrong(
        "a container's variable that is a number", _main(env=[{"name": "A", "value": 1}]), f"{MAIN}.env[0].value", ""
    ),
    Wrong(
        "a container without a name",
        {"template": {"spec": {"containers": [{"image": "x"}]}}},
        "spec.template.spec.containers[0].name",
        "",
    ),
    Wrong(
        "a toleration that is a text",
        {"template": {"spec": {"tolerations": ["a"]}}},
        "spec.template.spec.tolerations[0]",
        "",
    ),
    Wrong(
        "a node selector that is a list",
        {"template": {"spec": {"nodeSelector": []}}},
        "spec.template.spec.nodeSelector",
        "",
    ),
    # fields that do not exist
    Wrong("a misspelt field", {"workload": {"concurency": 8}}, "spec.workload.concurency", "unknown field"),
    Wrong("a field at the wrong depth", {"concurrency": 8}, "spec.concurrency", "unknown field"),
    Wrong("a misspelt field in a list", _env({"name": "A", "valeu": "1"}), "spec.engine.env[0].valeu", "unknown field"),
)
