"""VLMServices that are right and wrong, for both enforcers: the API server's CRD and the types in vlm_api."""

import re
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
    says: str = ""
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


def wrong(sentence: str, path: str, value: Any, says: str = "") -> Wrong:
    """A case whose spec is wrong at one place below ``spec``, which holds this value."""
    spec = value
    for part in reversed(re.findall(r"[^.\[\]]+", path)):
        spec = [spec] if part == "0" else {part: spec}
    return Wrong(sentence, spec, f"spec.{path}", says)


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
NAME_SAYS = "must be a DNS-1035 label of at most 40 characters, because it becomes a host name"
SIZE_SAYS = "must be a size above zero, such as 16Gi, 500Mi or 2G"
URI_SAYS = "must be hf://ORG/NAME or hf://NAME (revision in spec.model.revision), pvc://CLAIM/PATH, oci://IMAGE or file:///PATH"
STEP_UP_SAYS = "must not contain .. in its path"
FLAG_SAYS = "or begin with '-'"
IMAGE_SAYS = "must be an image such as registry.example.com/sglang:v1.2.3"
OBJECT_SAYS = "must be an object's name"

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
    Right("an image of a registry with a port", {"engine": {"image": "[::1]:5000/lab/sglang:v1.2.3-cu130"}}),
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
        "a variable from a Secret", _env({"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}})
    ),
    Right("declared videos", {"workload": {"videos": {"seconds": 10, "width": 640, "height": 360, "perRequest": 2}}}),
    Right("media domains", {"security": {"allowedMediaDomains": ["images.example.com", "192.0.2.1"]}}),
    Right("a size in gibibytes", {"sharedMemorySize": "16Gi"}),
    Right("a size with a fraction", {"sharedMemorySize": "0.5Gi"}),
    Right("a size in bytes", {"sharedMemorySize": 17179869184}),
    Right("a roll-out that surges", {"rolloutStrategy": {"maxSurge": 1, "maxUnavailable": 0}}),
    Right("a roll-out in percent", {"rolloutStrategy": {"maxSurge": "25%", "maxUnavailable": "100%"}}),
    Right("a template", {"template": {"spec": {"containers": [{"name": "main", "env": [{"name": "A"}]}]}}}),
    Right("a template with 2,000 variables", _main(env=[{"name": f"V{i}", "value": "x"} for i in range(2000)])),
    Right("a template whose parts are null", {"template": {"metadata": None, "spec": None}}),
    Right("a template that removes fields", {"template": {"spec": {"tolerations": None, "affinity": None}}}),
    Right(
        "a template with merge directives",
        {"template": {"spec": {"volumes": [{"name": "x", "$patch": "delete"}], "nodeSelector": {"a": None}}}},
    ),
    Right("pools", {"pools": [{"name": "main", "replicas": 2}, {"name": "l40s", "scaling": {"maxReplicas": 4}}]}),
    Right("no pools", {"pools": []}),
    Right("a router with all defaults", {"router": {}}),
    Right(
        "weights of pools behind a router",
        {"router": {"affinity": "Image"}, "pools": [{"name": "a", "weight": 9}, {"name": "b", "weight": 0}]},
    ),
    Right(
        "a pool that says one field of many",
        {"pools": [{"name": "a", "parallelism": {"tensor": 2}, "model": {"name": "m"}}]},
    ),
    Right("eight pools", {"pools": [{"name": f"p{number}"} for number in range(8)]}),
    Right("a service and a pool with 40 characters together", {"pools": [{"name": "p" * 12}]}, name="a" * 28),
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
        "replicas and scaling are mutually exclusive: remove one of them",
    ),
    Wrong(
        "replicas beside pools",
        {"replicas": 2, "pools": [{"name": "main"}]},
        "spec.pools",
        "with pools, each pool has replicas or scaling of its own: move them into spec.pools",
    ),
    Wrong(
        "scaling beside pools",
        {"scaling": {"maxReplicas": 2}, "pools": [{"name": "main"}]},
        "spec.pools",
        "with pools, each pool has replicas or scaling of its own: move them into spec.pools",
    ),
    Wrong(
        "replicas and scaling of a pool",
        {"pools": [{"name": "main", "replicas": 1, "scaling": {"maxReplicas": 4}}]},
        "spec.pools[0].replicas",
        "replicas and scaling are mutually exclusive: remove one of them",
    ),
    Wrong(
        "a weight without a router",
        {"pools": [{"name": "a", "weight": 1}]},
        "spec.pools",
        "a weight needs a router: set spec.router, or remove the weights",
    ),
    Wrong(
        "a weight of one pool alone",
        {"router": {}, "pools": [{"name": "a", "weight": 1}, {"name": "b"}]},
        "spec.pools",
        "weights must stand in all pools or in none: add those that are missing, or remove all",
    ),
    Wrong(
        "no pool with a weight",
        {"router": {}, "pools": [{"name": "a", "weight": 0}]},
        "spec.pools",
        "at least one pool must have a weight above 0, or no request is answered",
    ),
    Wrong("an affinity that does not exist", {"router": {"affinity": "Cookie"}}, "spec.router.affinity"),
    Wrong("a load factor below 100", {"router": {"loadFactorPercent": 99}}, "spec.router.loadFactorPercent"),
    Wrong("two pools of one name", {"pools": [{"name": "a"}, {"name": "a"}]}, "spec.pools"),
    Wrong("a pool without a name", {"pools": [{"replicas": 1}]}, "spec.pools[0].name"),
    Wrong(
        "a pool whose name others of our objects have",
        {"pools": [{"name": "router"}]},
        "spec.pools[0].name",
        "router, group, plan, vlm, inspect are names of the operator's own objects: choose another name",
    ),
    Wrong("a pool's name of 13 characters", {"pools": [{"name": "p" * 13}]}, "spec.pools[0].name"),
    Wrong("nine pools", {"pools": [{"name": f"p{number}"} for number in range(9)]}, "spec.pools"),
    Wrong(
        "a service and a pool with 41 characters together",
        {"pools": [{"name": "p" * 12}, {"name": "main"}]},
        "spec.pools",
        "the names of the service and of a pool must have at most 40 characters together, but the service has 29 and its "
        "longest pool 12: shorten one of them",
        name="a" * 29,
    ),
    Wrong(
        "a pool's field that is out of bounds",
        {"pools": [{"name": "a", "parallelism": {"tensor": 0}}]},
        "spec.pools[0].parallelism.tensor",
    ),
    Wrong(
        "a pool's model that is no model",
        {"pools": [{"name": "a", "model": {"uri": "Qwen/Qwen3-VL"}}]},
        "spec.pools[0].model.uri",
        "must be hf://ORG/NAME or hf://NAME (revision in spec.model.revision), pvc://CLAIM/PATH, oci://IMAGE or file:///PATH",
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
        "parallelism.tensor x parallelism.pipeline is 16, which is not a multiple of multinode.nodeCount 3",
    ),
    Wrong(
        "data parallelism over nodes",
        {"parallelism": {"tensor": 2, "data": 2}, "multinode": {"nodeCount": 2}},
        "spec.parallelism.data",
        "parallelism.data requires one node per replica",
    ),
    Wrong(
        "pipeline stages alone over nodes on the CPU",
        {"hardware": {"device": "cpu"}, "parallelism": {"pipeline": 2}, "multinode": {"nodeCount": 2}},
        "spec.multinode.nodeCount",
        "several CPU nodes require parallelism.tensor above 1",
    ),
    wrong("a width without a height", "workload.images.width", 512, "width and height must be set together"),
    Wrong(
        "a variable with a value and a source",
        _env({"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}),
        "spec.engine.env[0].valueFrom",
        "value and valueFrom are mutually exclusive",
    ),
    Wrong(
        "a roll-out that may neither add nor remove a pod",
        {"rolloutStrategy": {"maxSurge": 0, "maxUnavailable": "0%"}},
        "spec.rolloutStrategy.maxSurge",
        "maxSurge and maxUnavailable must not both be zero",
    ),
    # forms
    wrong("a model without a scheme", "model.uri", "Qwen/Qwen3-VL-8B-Instruct", URI_SAYS),
    wrong("a model with another scheme", "model.uri", "s3://bucket/model", URI_SAYS),
    wrong("a hub id with three parts", "model.uri", "hf://a/b/c", URI_SAYS),
    wrong("a file without a leading slash", "model.uri", "file://models/tiny", URI_SAYS),
    wrong("a line break after the model", "model.uri", "hf://Qwen/Qwen3-VL-8B-Instruct\n", URI_SAYS),
    wrong("a claim's path that leads upwards", "model.uri", "pvc://models/../../etc", STEP_UP_SAYS),
    wrong("a file's path that leads upwards", "model.uri", "file:///../etc", STEP_UP_SAYS),
    wrong("a path that ends upwards", "model.uri", "file:///models/..", STEP_UP_SAYS),
    wrong("a model's image with a password", "model.uri", "oci://u:p@r.example.com/m", URI_SAYS),
    wrong("a revision like a flag", "model.revision", "--foo", FLAG_SAYS),
    wrong("a served name like a flag", "model.name", "--bar", FLAG_SAYS),
    wrong("a revision with a space", "model.revision", "my branch", "must not contain spaces"),
    wrong("a served name with a colon", "model.name", "qwen:8b", "must not contain spaces or colons"),
    wrong("an architecture with a dot", "model.architecture", "a.B", "must be a class name"),
    wrong("a claim in capitals", "model.cacheClaim", "Models", OBJECT_SAYS),
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
    wrong(
        "a compute capability without a dot",
        "hardware.computeCapability",
        "90",
        "must be two numbers separated by a dot",
    ),
    wrong(
        "a resource without a domain", "hardware.resourceName", "gpu", "must be an extended resource with its domain"
    ),
    wrong("a product with a space", "hardware.products[0]", "NVIDIA H100", "must not contain spaces"),
    wrong("a RuntimeClass in capitals", "hardware.runtimeClassName", "NVIDIA", OBJECT_SAYS),
    wrong("a version that is a word", "engine.version", "latest", "must be an SGLang version"),
    wrong("a long word behind a version", "engine.version", "1.2.3" + "a" * 50 + "-", "must be an SGLang version"),
    wrong("an image with a space", "engine.image", "a b", IMAGE_SAYS),
    wrong("an image with a scheme", "engine.image", "https://r.example.com/a", IMAGE_SAYS),
    wrong("an image with a password", "engine.image", "u:p@r.example.com/a", IMAGE_SAYS),
    wrong("a variable's name with a space", "engine.env[0].name", "A B", "must be a variable's name"),
    wrong(
        "a media domain with a scheme",
        "security.allowedMediaDomains[0]",
        "https://images.example.com",
        "must be a host name",
    ),
    wrong("a size in gigabytes as people say them", "sharedMemorySize", "20GB", SIZE_SAYS),
    wrong("a size with a space", "sharedMemorySize", "16 Gi", SIZE_SAYS),
    wrong("an empty size", "sharedMemorySize", "", SIZE_SAYS),
    wrong("a size of nothing", "sharedMemorySize", "0Gi", SIZE_SAYS),
    wrong("a negative size", "sharedMemorySize", -1, SIZE_SAYS),
    wrong("a size in thousandths of a byte", "sharedMemorySize", "400m", SIZE_SAYS),
    wrong(
        "a surge that is a number in quotes",
        "rolloutStrategy.maxSurge",
        "1",
        "must be a whole number from 0 to 1000, or a percentage",
    ),
    wrong(
        "more unavailable than there are",
        "rolloutStrategy.maxUnavailable",
        "101%",
        "must be a whole number from 0 to 1000, or a percentage up to 100%",
    ),
    # types, bounds and words
    wrong("no model", "model", None),
    wrong("a model without a place", "model.uri", None),
    wrong("a number in quotes", "replicas", "2"),
    wrong("a fraction of a replica", "replicas", 1.5),
    wrong("a truth in quotes", "suspend", "true"),
    wrong("a truth in place of a size", "sharedMemorySize", True),
    wrong("a fraction in place of a size", "sharedMemorySize", 1.5),
    wrong("Off without quotes", "engine.tuning", False),
    wrong("a number as a version", "engine.version", 0.5),
    Wrong("a number as a variable's value", _env({"name": "A", "value": 1}), "spec.engine.env[0].value"),
    wrong("one argument that is no list", "engine.args", "--log-requests"),
    wrong("a template that is a text", "template", "x"),
    wrong("negative replicas", "replicas", -1),
    wrong("too many replicas", "replicas", 1001),
    wrong("no request at all", "workload.concurrency", 0),
    wrong("a model without parameters", "model.parametersBillion", 0),
    wrong("no tensor parallelism", "parallelism.tensor", 0),
    wrong("no node", "multinode.nodeCount", 0),
    Wrong(
        "a video of no length",
        {"workload": {"videos": {"seconds": 0, "width": 640, "height": 360}}},
        "spec.workload.videos.seconds",
    ),
    wrong("an unknown reuse", "workload.images.reuse", "single"),
    wrong("an unknown device", "hardware.device", "gpu"),
    wrong("an empty served name", "model.name", ""),
    Wrong("too long a place", _model(uri="file:///" + "a" * 1024), "spec.model.uri"),
    wrong("a variable twice", "engine.env", [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
    wrong("a product twice", "hardware.products", ["a", "a"]),
    Wrong(
        "more products than anybody has",
        {"hardware": {"products": [f"p{i}" for i in range(33)]}},
        "spec.hardware.products",
    ),
    Wrong(
        "more settings than there are",
        {"engine": {"settings": {f"s{i}": i for i in range(129)}}},
        "spec.engine.settings",
    ),
    # the template's shape
    Wrong(
        "two containers of one name",
        {"template": {"spec": {"containers": [{"name": "main"}, {"name": "a"}, {"name": "a"}]}}},
        "spec.template.spec.containers[2]",
    ),
    Wrong(
        "two init containers of one name",
        {"template": {"spec": {"initContainers": [{"name": "a"}, {"name": "a"}]}}},
        "spec.template.spec.initContainers[1]",
    ),
    Wrong(
        "two volumes of one name",
        {"template": {"spec": {"volumes": [{"name": "a"}, {"name": "a"}]}}},
        "spec.template.spec.volumes[1]",
    ),
    wrong("labels in a list", "template.metadata.labels", ["a"]),
    wrong("a label that is a number", "template.metadata.labels.a", 1),
    wrong("containers that are a text", "template.spec.containers", "main"),
    Wrong("engine arguments in the template that are a text", _main(args="--x"), f"{MAIN}.args"),
    Wrong("an engine argument in the template that is a number", _main(args=[1]), f"{MAIN}.args[0]"),
    Wrong("a container's variables in a text", _main(env="A=1"), f"{MAIN}.env"),
    Wrong("a container's variable without a name", _main(env=[{"value": "1"}]), f"{MAIN}.env[0].name"),
    Wrong("a container's variable that is a number", _main(env=[{"name": "A", "value": 1}]), f"{MAIN}.env[0].value"),
    Wrong(
        "a container without a name",
        {"template": {"spec": {"containers": [{"image": "x"}]}}},
        "spec.template.spec.containers[0].name",
    ),
    wrong("a toleration that is a text", "template.spec.tolerations[0]", "a"),
    Wrong(
        "more variables than any pod has",
        _main(env=[{"name": f"V{i}"} for i in range(4097)]),
        f"{MAIN}.env",
        "at most 4096",
    ),
    Wrong("more words than any command has", _main(args=["x"] * 1025), f"{MAIN}.args", "at most 1024"),
    Wrong("a variable's name of a page", _main(env=[{"name": "V" * 4097}]), f"{MAIN}.env[0].name", "4096"),
    Wrong(
        "more labels than any pod has",
        {"template": {"metadata": {"labels": {f"l{i}": "" for i in range(257)}}}},
        "spec.template.metadata.labels",
        "at most 256",
    ),
    Wrong(
        "more volumes than any pod has",
        {"template": {"spec": {"volumes": [{"name": f"v{i}"} for i in range(257)]}}},
        "spec.template.spec.volumes",
        "at most 256",
    ),
    wrong("a node selector that is a list", "template.spec.nodeSelector", []),
    # fields that do not exist
    wrong("a misspelt field", "workload.concurency", 8, "unknown field"),
    wrong("a field at the wrong depth", "concurrency", 8, "unknown field"),
    Wrong("a misspelt field in a list", _env({"name": "A", "valeu": "1"}), "spec.engine.env[0].valeu", "unknown field"),
)
