"""A twin: the same service with one setting changed, for as long as it is measured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

import yaml

from vlm_api.engine import Engine
from vlm_api.names import MAIN_CONTAINER
from vlm_api.plan import Setting, Source
from vlm_api.spec import VLMServiceSpec
from vlm_api.status import PlanStatus, VLMService
from vlm_operator.engines.arguments import parse
from vlm_operator.engines.catalogue import Release, known
from vlm_operator.engines.selection import select_engine
from vlm_operator.errors import InvalidInput
from vlm_operator.measure.job import LABEL_MEASURED
from vlm_operator.render.names import Manifest

NAME_LENGTH: Final = 40

# What a setting is where nobody sets it and no measured set applies. Said in full to the twin, since an engine that
# brings the set itself (SGLang 0.5.20 and later on large Hopper GPUs) would choose the measured value again when it is
# left unset. Source: server_args and memory_hook of SGLang 0.5.23.
UNTUNED: Final[Mapping[str, Any]] = {
    "SGLANG_MM_FEATURE_CACHE_MB": 1024,
    "SGLANG_VLM_CACHE_SIZE_MB": 100,
    "cuda_graph_max_bs_decode": 256,
    "decode_attention_backend": "fa3",
    "mm_feature_transport": "cpu",
    "prefill_decode_interval": 0,
    "radix_eviction_policy": "lru",
}
# Where leaving out is no answer: what would have to be compared then is not "without" but another value.
NO_WITHOUT: Final[Mapping[str, str]] = {
    "max_running_requests": "without it the engine takes thousands, for which no memory was planned",
    "mm_preprocess_cache_size_mb": "0 is what the engine takes by itself for this family",
    "max_total_tokens": "without it the engine takes the whole host's memory on the CPU",
    "ssl_certfile": "the engine starts with a certificate and its key, or with neither",
    "ssl_keyfile": "the engine starts with a certificate and its key, or with neither",
    "sleep_on_idle": "without it the one that waits for its turn keeps a core busy, which weighs on the other",
    "TORCHDYNAMO_DISABLE": "without it the engine does not start where the image has no C++ compiler",
}


@dataclass(frozen=True)
class Change:
    """One setting of the twin. ``value`` None: the user's own setting is taken out of the spec."""

    name: str
    value: Any
    planned: Any
    """What the service itself has; None where it sets nothing."""
    follows: Any = None
    """What the twin's plan has where the user's own setting is taken out; None: it leaves that to the engine."""

    @property
    def measured(self) -> Any:
        """What the twin has; None: the engine's own."""
        return self.follows if self.value is None else self.value

    @property
    def label(self) -> str:
        """As tables call the twin."""
        return f"without {self.name}" if self.measured is None else f"{self.name}={word(self.measured)}"


def word(value: Any) -> str:
    """A setting's value as manifests have it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_set(text: str) -> tuple[str, Any]:
    """``NAME=VALUE`` with the value as YAML reads it. Raises InvalidInput."""
    name, sign, value = text.partition("=")
    if not name or not sign or not value:
        raise InvalidInput("--set", f"{text!r} is no setting: write NAME=VALUE with SGLang's own name")
    try:
        read = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise InvalidInput("--set", f"{value!r} is no value: {str(error).splitlines()[0]}") from error
    if read is None:
        raise InvalidInput("--set", f"{value!r} is no value: write one, or leave the setting out with --without {name}")
    return name, read


def setting_change(service: VLMService, plan: PlanStatus, name: str, value: Any) -> Change:
    """The change to another value. Raises InvalidInput where it changes nothing."""
    name = _canonical(name, _release(service.spec.engine))
    found = _find(plan, name)
    planned = found.value if found is not None and found.applied else None
    if planned is not None and planned == value:
        raise InvalidInput("--set", f"{name} is {word(value)} in {service.name} already: choose another value")
    return Change(name, value, planned)


def without_change(service: VLMService, plan: PlanStatus, name: str) -> Change:
    """The change that leaves a setting out. Raises InvalidInput where that cannot be, with the reason."""
    name = _canonical(name, _release(service.spec.engine))
    found = _find(plan, name)
    if found is None or not found.applied:
        applied = ", ".join(s.name for s in plan.settings if s.applied) or "none"
        raise InvalidInput("--without", f"{service.name} does not set {name}; it sets: {applied}")
    if why := NO_WITHOUT.get(name):
        raise InvalidInput("--without", f"{name} cannot be left out: {why}; compare with a value: --set {name}=VALUE")
    if found.source is Source.USER:
        return Change(name, None, found.value)
    if name not in UNTUNED:
        raise InvalidInput("--without", f"what {name} would be otherwise is not known: compare with --set {name}=VALUE")
    if UNTUNED[name] == found.value:
        raise InvalidInput(
            "--without", f"{name} is {found.value}, which the engine takes anyway: try --set {name}=VALUE"
        )
    return Change(name, UNTUNED[name], found.value)


def each_change(service: VLMService, plan: PlanStatus) -> tuple[list[Change], list[str]]:
    """A change for each applied setting, and the reasons why others have none."""
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
    """The twin, owned by the Job that measures it, so that it goes when the Job goes. ``raw`` is the live service.

    ``change`` None: the same settings. ``plan`` is the one in force: the twin gets its image, and waits for its kind of
    GPU, whatever the operator would choose for a new service today.
    """
    spec: Manifest = deepcopy(dict(raw["spec"]))
    for field in ("scaling", "metrics", "suspend"):
        spec.pop(field, None)
    spec["replicas"] = replicas
    # Clients know the model by one name, whichever of both answers.
    spec["model"] = {**spec["model"], "name": spec["model"].get("name") or raw["metadata"]["name"]}
    engine = spec["engine"] = dict(spec.get("engine") or {})
    if change is not None:
        _take_out(spec, change.name)
        if change.value is not None:
            engine["settings"][change.name] = change.value
    if plan is not None:
        _hold(spec, plan)
    metadata = {
        "name": name,
        "namespace": raw["metadata"]["namespace"],
        "labels": {LABEL_MEASURED: raw["metadata"]["name"]},
        "ownerReferences": [dict(owner)],
    }
    return {"apiVersion": raw["apiVersion"], "kind": raw["kind"], "metadata": metadata, "spec": spec}


def _hold(spec: Manifest, plan: PlanStatus) -> None:
    """To the image and the product of the plan."""
    if plan.engine is not None:
        spec["engine"].setdefault("image", plan.engine.image)
    product = plan.hardware.product if plan.hardware is not None else None
    # A product that no label can name is none that nodes could be asked for.
    if product and not re.search(r"\s", product):
        spec["hardware"] = {**(spec.get("hardware") or {}), "products": [product]}


def _take_out(spec: Manifest, name: str) -> None:
    """Takes a setting out of every place in which a user can say it, and leaves the rest as it is."""
    engine = spec["engine"]
    release = _release(VLMServiceSpec.model_validate(spec).engine)
    said = dict(engine.get("settings") or {})
    engine["settings"] = {key: value for key, value in said.items() if _canonical(key, release) != name}
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
    """The name in plans: a setting that was renamed has its newer name also where this version knows the older one."""
    renamed = known()["renamed"].get(name)
    field, _ = release.spellings.get("--" + name.replace("_", "-"), (None, None))
    return str(renamed) if field is not None and field.name == renamed else name
