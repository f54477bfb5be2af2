"""What the GPUs of a plan cannot run: choices of the user and of the checkpoint, held against the release's facts.

Read in the engine's source for each release and not run on GPUs (``catalogue/generate/capabilities.py``). A GPU whose
compute capability is unknown refuses nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from vlm_api.reasons import FindingReason
from vlm_operator.facts.types import ComputeCapability, ModelFacts
from vlm_operator.sglang.catalogue.releases import known
from vlm_operator.sglang.context import Context, Declared

_PHASES = ("prefill", "decode")


@dataclass(frozen=True)
class Refusal:
    """Why the engine would end on these GPUs."""

    reason: FindingReason
    path: str
    clause: str
    """What they do not run."""
    step: str


def refusals(context: Context, declared: Declared) -> Iterator[Refusal]:
    """Everything that the engine's release is known to refuse on the context's GPUs."""
    gpu = context.gpu
    if not context.cuda or gpu is None or gpu.compute_capability is None:
        return
    least = ComputeCapability.parse(context.engine.facts["least_capability"])
    if gpu.compute_capability < least:
        yield Refusal(
            FindingReason.GPU_TOO_OLD,
            "spec.hardware",
            f"{context.engine_name()} runs on compute capability {least} or newer only, whatever its image",
            "use other GPUs",
        )
        return
    yield from _quantization(context, declared, gpu.compute_capability)
    yield from _attention(context, declared, gpu.compute_capability)
    yield from _vision_attention(context, declared, gpu.compute_capability)


def runs_fp8(context: Context, declared: Declared) -> bool:
    """Whether nothing is known against weights in fp8 on the context's GPUs."""
    if context.gpu is None or context.gpu.compute_capability is None:
        return True
    quantised = replace(context, model=replace(context.model, quantization="fp8"))
    return next(_method(quantised, "fp8", "", declared, context.gpu.compute_capability), None) is None


# --- quantization --------------------------------------------------------------------------------------------------


def _quantization(context: Context, declared: Declared, has: ComputeCapability) -> Iterator[Refusal]:
    chosen, stored = context.choices.settings.get("quantization"), context.model.quantization
    if chosen is not None and chosen.value is not None:
        yield from _method(context, str(chosen.value), chosen.path, declared, has)
    elif stored is not None:
        yield from _method(context, stored, "spec.model.uri", declared, has)


def _method(context: Context, method: str, path: str, declared: Declared, has: ComputeCapability) -> Iterator[Refusal]:
    """The method's own least capability, and that of its experts."""
    # The engine runs AWQ and GPTQ checkpoints by one of two methods, whichever the GPU has.
    names = [name for name in (method, f"{method}_marlin") if name in context.engine.quantization]
    # A checkpoint's method is replaced by the engine; a name that the user wrote is not.
    names = names[:1] if path != "spec.model.uri" else names
    step = "use other GPUs, or another checkpoint" if path == "spec.model.uri" else "remove it, or use other GPUs"
    least = min((ComputeCapability.parse(context.engine.quantization[name]) for name in names), default=None)
    if least is not None and has < least:
        clause = f"quantization {method} needs compute capability {least} or newer in {context.engine_name()}"
        yield Refusal(FindingReason.GPU_LACKS_QUANTIZATION, path, clause, step)
        return
    experts = known()["fp8_experts"]
    least = ComputeCapability.parse(experts["least"])
    runner = declared.value("moe_runner_backend")
    if has_experts(context.model) and method in experts["methods"] and runner in experts["runners"] and has < least:
        clause = f"mixtures of experts in fp8 need compute capability {least} or newer: their kernels (Triton) have no fp8 below"
        yield Refusal(FindingReason.GPU_LACKS_QUANTIZATION, path, clause, step)


def has_experts(model: ModelFacts) -> bool:
    """Whether the model is known to be a mixture of experts."""
    return bool(model.experts or model.expert_size) or "Moe" in (model.architecture or "")


# --- attention -----------------------------------------------------------------------------------------------------


def _attention(context: Context, declared: Declared, has: ComputeCapability) -> Iterator[Refusal]:
    """Each backend that the user chose, for the phases in which it is used."""
    settings = context.choices.settings
    own = {phase: settings.get(f"{phase}_attention_backend") for phase in _PHASES}
    for name in ("attention_backend", *(f"{phase}_attention_backend" for phase in _PHASES)):
        choice = settings.get(name)
        facts = context.engine.attention.get(str(choice.value)) if choice is not None else None
        if choice is None or facts is None:
            continue
        base = name == "attention_backend"
        phases = [p for p in _PHASES if (own[p] is None if base else name.startswith(p))]
        allowed = [facts[p] for p in phases if p in facts]
        if context.model.latent and "mla" in facts:
            allowed.append(facts["mla"])
        wrong = next((majors for majors in allowed if has.major not in majors), None)
        if phases and wrong is not None:
            latent = " with latent attention (MLA)" if wrong is facts.get("mla") else ""
            yield _backend(context, choice.path, f"{name} {choice.value}", wrong, latent)


def _vision_attention(context: Context, declared: Declared, has: ComputeCapability) -> Iterator[Refusal]:
    """The vision encoder's backend: what the release checks, and what its kernels are compiled for."""
    choice = context.choices.settings.get("mm_attention_backend")
    if choice is None:
        return
    checked = context.engine.attention.get(str(choice.value), {}).get("vision")
    compiled = known()["vision_kernels"]["majors"].get(str(choice.value))
    allowed = [majors for majors in (checked, compiled) if majors is not None]
    if any(has.major not in majors for majors in allowed):
        both = [major for major in allowed[0] if all(major in majors for majors in allowed)]
        yield _backend(context, choice.path, f"mm_attention_backend {choice.value}", both, "")


def _backend(context: Context, path: str, what: str, majors: list[int], suffix: str) -> Refusal:
    listed = [f"{major}.x" for major in majors]
    words = " and ".join([", ".join(listed[:-1]), listed[-1]] if listed[1:] else listed)
    clause = f"{what} runs on compute capability {words} only{suffix} in {context.engine_name()}"
    return Refusal(FindingReason.GPU_LACKS_ATTENTION, path, clause, "remove it, or use other GPUs")
