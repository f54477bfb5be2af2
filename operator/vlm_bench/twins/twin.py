"""A twin: the same service with one setting changed, for as long as it is measured."""

import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

import yaml

from vlm_api.engine import Engine
from vlm_api.names import LABEL_MEASURED, MAIN_CONTAINER
from vlm_api.plan import Setting, Source
from vlm_api.spec import VLMServiceSpec
from vlm_api.status import PlanStatus, VLMService
from vlm_operator.errors import InvalidInput
from vlm_operator.manifests.names import Manifest
from vlm_operator.sglang.catalogue.engine_image import select_engine
from vlm_operator.sglang.catalogue.releases import Release, known
from vlm_operator.sglang.choices.arguments import parse

NAME_LENGTH: Final = 40

# The value of a setting that nobody sets and no profile covers. The twin gets it explicitly, since an engine that has the
# profile built in (SGLang 0.5.20 and later on large Hopper GPUs) would choose the measured value again. Source: server_args
# and memory_hook of SGLang 0.5.23.
UNTUNED: Final[Mapping[str, Any]] = {
    "SGLANG_MM_FEATURE_CACHE_MB": 1024,
    "SGLANG_VLM_CACHE_SIZE_MB": 100,
    "cuda_graph_max_bs_decode": 256,
    "decode_attention_backend": "fa3",
    "mm_feature_transport": "cpu",
    "prefill_decode_interval": 0,
    "radix_eviction_policy": "lru",
}
# Settings that cannot be left out, with the reason: compare with another value instead.
NO_WITHOUT: Final[Mapping[str, str]] = {
    "max_running_requests": "without it the engine allows thousands, for which no memory was planned",
    "mm_preprocess_cache_size_mb": "0 is the engine's own value for this family",
    "max_total_tokens": "without it the engine takes all memory of the host on the CPU",
    "ssl_certfile": "the engine starts with a certificate and its key, or with neither",
    "ssl_keyfile": "the engine starts with a certificate and its key, or with neither",
    "sleep_on_idle": "without it the idle server keeps a core busy, which slows the other",
    "TORCHDYNAMO_DISABLE": "without it the engine does not start in an image without a C++ compiler",
}


@dataclass(frozen=True)
class Change:
    """One setting of the twin. ``value`` None: the user's setting is removed from the spec."""

    name: str
    value: Any
    planned: Any
    """The service's value; None if it sets none."""
    follows: Any = None
    """The value in the twin's plan if the user's setting is removed; None: the engine's default."""

    @property
    def measured(self) -> Any:
        """The twin's value; None: the engine's default."""
        return self.follows if self.value is None else self.value

    @property
    def label(self) -> str:
        """The twin's name in tables."""
        return f"without {self.name}" if self.measured is None else f"{self.name}={word(self.measured)}"


def word(value: Any) -> str:
    """A setting's value as in a manifest."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_set(text: str) -> tuple[str, Any]:
    """``NAME=VALUE`` with the value as YAML reads it. Raises InvalidInput."""
    name, sign, value = text.partition("=")
    if not name or not sign or not value:
        raise InvalidInput("--set", f"{text!r} is not a setting: write NAME=VALUE with SGLang's own name")
    try:
        read = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise InvalidInput(
            "--set", f"{value!r} is not a YAML value ({str(error).splitlines()[0]}): quote it"
        ) from error
    if read is None:
        raise InvalidInput(
            "--set", f"{value!r} is not a value: write one, or leave the setting out with --without {name}"
        )
    return name, read


def setting_change(service: VLMService, plan: PlanStatus, name: str, value: Any) -> Change:
    """The change to another value. Raises InvalidInput if the service has that value already."""
    name = _canonical(name, _release(service.spec.engine))
    found = _find(plan, name)
    planned = found.value if found is not None and found.applied else None
    if planned is not None and planned == value:
        raise InvalidInput("--set", f"{name} is {word(value)} in {service.name} already: choose another value")
    return Change(name, value, planned)


def without_change(service: VLMService, plan: PlanStatus, name: str) -> Change:
    """The change that leaves a setting out. Raises InvalidInput with the reason if that is impossible."""
    name = _canonical(name, _release(service.spec.engine))
    found = _find(plan, name)
    if found is None or not found.applied:
        applied = ", ".join(s.name for s in plan.settings if s.applied) or "none"
        raise InvalidInput("--without", f"{service.name} does not set {name}: choose one that it sets ({applied})")
    if why := NO_WITHOUT.get(name):
        raise InvalidInput("--without", f"{name} cannot be left out: {why}; compare with a value: --set {name}=VALUE")
    if found.source is Source.USER:
        return Change(name, None, found.value)
    if name not in UNTUNED:
        raise InvalidInput(
            "--without", f"the value of {name} without tuning is not known: compare with --set {name}=VALUE"
        )
    if UNTUNED[name] == found.value:
        raise InvalidInput(
            "--without", f"{name} is {found.value}, the engine's own value: compare with --set {name}=VALUE"
        )
    return Change(name, UNTUNED[name], found.value)


def each_change(service: VLMService, plan: PlanStatus) -> tuple[list[Change], list[str]]:
    """A change for each applied setting that can be left out, and the reasons why the others cannot."""
    changes, passed = [], []
    for setting in plan.settings:
        if setting.applied:
            try:
                changes.append(without_change(service, plan, setting.name))
            except InvalidInput as error:
                passed.append(error.message)
    return changes, passed


def _find(plan: PlanStatus, name: str) -> Setting | None:
    return next((s for s in plan.settings if s.name == name), None)


def twin_name(service: str, suffix: str) -> str:
    """A name for the twin, short enough for a VLMService."""
    return f"{service[: NAME_LENGTH - len(suffix) - 1].rstrip('-')}-{suffix}"


def twin_manifest(
    raw: Mapping[str, Any],
    change: Change | None,
    *,
    name: str,
    owner: Mapping[str, Any],
    replicas: int = 1,
    plan: PlanStatus | None = None,
) -> Manifest:
    """The twin, owned by the Job that measures it, so that it is deleted with it. ``raw`` is the live service.

    ``change`` None: the same settings. ``plan`` is the service's: the twin gets its image, and waits for its GPU product,
    whatever the operator would choose for a new service today.
    """
    spec: Manifest = deepcopy(dict(raw["spec"]))
    for field in ("scaling", "metrics", "suspend"):
        spec.pop(field, None)
    spec["replicas"] = replicas
    # Requests to both carry the same name of the model.
    spec["model"] = {**spec["model"], "name": spec["model"].get("name") or raw["metadata"]["name"]}
    engine = spec["engine"] = dict(spec.get("engine") or {})
    if change is not None:
        _remove(spec, change.name)
        if change.value is not None:
            engine["settings"][change.name] = change.value
    if plan is not None:
        _pin(spec, plan)
    metadata = {
        "name": name,
        "namespace": raw["metadata"]["namespace"],
        "labels": {LABEL_MEASURED: raw["metadata"]["name"]},
        "ownerReferences": [dict(owner)],
    }
    return {"apiVersion": raw["apiVersion"], "kind": raw["kind"], "metadata": metadata, "spec": spec}


def _pin(spec: Manifest, plan: PlanStatus) -> None:
    """Pins the image and the GPU product of the plan."""
    if plan.engine is not None:
        spec["engine"].setdefault("image", plan.engine.image)
    product = plan.hardware.product if plan.hardware is not None else None
    # A product with spaces cannot be a label's value, so no node could match it.
    if product and not re.search(r"\s", product):
        spec["hardware"] = {**(spec.get("hardware") or {}), "products": [product]}


def _remove(spec: Manifest, name: str) -> None:
    """Removes a setting from every place in which a user can set it, and leaves the rest as it is."""
    engine = spec["engine"]
    release = _release(VLMServiceSpec.model_validate(spec).engine)
    settings = dict(engine.get("settings") or {})
    engine["settings"] = {key: value for key, value in settings.items() if _canonical(key, release) != name}
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or []
    for place in (engine, *(c for c in containers if c.get("name") == MAIN_CONTAINER)):
        if place.get("args"):
            arguments = parse(place["args"], release, "spec.engine.args")
            place["args"] = [w for a in arguments if a.field is None or a.field.name != name for w in a.words]
        if place.get("env"):
            place["env"] = [variable for variable in place["env"] if variable.get("name") != name]


def _release(engine: Engine) -> Release:
    return select_engine(engine)[0]


def _canonical(name: str, release: Release) -> str:
    """The name in plans: a renamed setting has its newer name even if this version has the older one."""
    renamed = known()["renamed"].get(name)
    field, _ = release.spellings.get("--" + name.replace("_", "-"), (None, None))
    return str(renamed) if field is not None and field.name == renamed else name
