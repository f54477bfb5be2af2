"""A twin: the same service with one setting changed, for as long as it is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

import yaml

from vlm_api.plan import ServingPlan, Setting, Source
from vlm_api.status import PlanStatus, VLMService
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

    @property
    def label(self) -> str:
        """As tables call the twin."""
        return f"without {self.name}" if self.value is None else f"{self.name}={word(self.value)}"


def word(value: Any) -> str:
    """A setting's value as manifests have it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_set(text: str) -> tuple[str, Any]:
    """``NAME=VALUE`` with the value as YAML reads it. Raises InvalidInput."""
    name, sign, value = text.partition("=")
    if not name or not sign or not value:
        raise InvalidInput("--set", f"{text!r} is no setting: write NAME=VALUE with SGLang's own name")
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise InvalidInput("--set", f"{value!r} is no value: {str(error).splitlines()[0]}") from error


def setting_change(service: VLMService, plan: PlanStatus, name: str, value: Any) -> Change:
    """The change to another value. Raises InvalidInput where it changes nothing."""
    found = _find(plan, name)
    planned = found.value if found is not None and found.applied else None
    if planned is not None and planned == value:
        raise InvalidInput("--set", f"{name} is {word(value)} in {service.name} already: choose another value")
    return Change(name, value, planned)


def without_change(service: VLMService, plan: PlanStatus, name: str) -> Change:
    """The change that leaves a setting out. Raises InvalidInput where that cannot be, with the reason."""
    found = _find(plan, name)
    if found is None or not found.applied:
        applied = ", ".join(s.name for s in plan.settings if s.applied) or "none"
        raise InvalidInput("--without", f"{service.name} does not set {name}; it sets: {applied}")
    if why := NO_WITHOUT.get(name):
        raise InvalidInput("--without", f"{name} cannot be left out: {why}; compare with a value: --set {name}=VALUE")
    if found.source is Source.USER:
        if name not in service.spec.engine.settings:
            raise InvalidInput(
                "--without",
                f"{name} is set in engine.args, engine.env or the template: compare with --set {name}=VALUE",
            )
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


def twin_manifest(raw: Mapping[str, Any], change: Change | None, *, name: str, owner: Mapping[str, Any]) -> Manifest:
    """The twin, owned by the Job that measures it, so that it goes when the Job goes. ``raw`` is the live service.

    ``change`` None: the same settings.
    """
    spec: Manifest = deepcopy(dict(raw["spec"]))
    for field in ("scaling", "metrics", "suspend"):
        spec.pop(field, None)
    spec["replicas"] = 1
    # Clients know the model by one name, whichever of both answers.
    spec["model"] = {**spec["model"], "name": spec["model"].get("name") or raw["metadata"]["name"]}
    engine = spec["engine"] = dict(spec.get("engine") or {})
    settings = engine["settings"] = dict(engine.get("settings") or {})
    if change is not None and change.value is None:
        settings.pop(change.name, None)
    elif change is not None:
        settings[change.name] = change.value
    metadata = {
        "name": name,
        "namespace": raw["metadata"]["namespace"],
        "labels": {LABEL_MEASURED: raw["metadata"]["name"]},
        "ownerReferences": [dict(owner)],
    }
    return {"apiVersion": raw["apiVersion"], "kind": raw["kind"], "metadata": metadata, "spec": spec}


def refusal(plan: ServingPlan) -> str | None:
    """Why the twin cannot run now; None where it can."""
    if plan.errors:
        return "; ".join(f.message for f in plan.findings if f.severity.value == "Error")
    waits = [f.message for f in plan.findings if f.reason in ("DevicesInUse", "TooFewNodes")]
    if waits:
        return waits[0]
    if plan.hardware.device != "cpu" and not plan.hardware.nodes:
        return "no node offers a GPU on which it could run"
    return None


def differences(first: Sequence[Setting], second: Sequence[Setting]) -> list[tuple[str, Any, Any]]:
    """Settings that two plans pass with different values: name, first, second. None: left to the engine."""

    def applied(settings: Sequence[Setting]) -> dict[str, Any]:
        return {s.name: s.value for s in settings if s.applied}

    one, two = applied(first), applied(second)
    return [(name, one.get(name), two.get(name)) for name in sorted({*one, *two}) if one.get(name) != two.get(name)]
