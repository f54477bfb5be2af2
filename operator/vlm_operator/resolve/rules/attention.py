"""Which attention backends the engine will use for what is left to it: SGLang 0.5.23's own order of decisions."""

from __future__ import annotations

from collections.abc import Iterator

from vlm_api.plan import Setting
from vlm_operator.errors import InvalidInput
from vlm_operator.resolve.context import Context, Declared, left


def base_backend(context: Context, declared: Declared) -> Iterator[Setting]:
    """The base attention backend stays the engine's: nothing was measured that says otherwise."""
    if context.cuda and context.family is not None:
        yield left(
            "attention_backend", "engine.attention_backend", "left to the engine, which chooses by compute capability"
        )


def consistent(context: Context, declared: Declared) -> Iterator[Setting]:
    """Raises InvalidInput for a base backend that the engine would replace, since prefill and decode both name another or
    since it does not read such a cache."""
    choices = context.choices
    base, prefill, decode = (choices.settings.get(f"{p}attention_backend") for p in ("", "prefill_", "decode_"))
    if base and prefill and decode and prefill.value == decode.value != base.value:
        raise InvalidInput(
            base.path,
            f"attention_backend {base.value} is never used, since prefill and decode are both {prefill.value} "
            f"({prefill.path}, {decode.path}): remove it",
        )
    cache = choices.settings.get("kv_cache_dtype")
    if base and cache and base.value == "fa3" and cache.value == "fp8_e5m2":
        raise InvalidInput(
            base.path,
            f"attention_backend fa3 reads no {cache.value} ({cache.path}), and the engine would take triton instead: remove it, "
            "or take kv_cache_dtype fp8_e4m3",
        )
    yield from ()


# What speculative decoding with a tree of drafts is not left to (model_override_base.py, get_default_attn_backend).
_ONE_DRAFT_ONLY = ("fa3", "trtllm_mha")


def _default(context: Context, declared: Declared, major: int) -> str | None:
    """The family's backend on GPUs of that compute capability, or what stands in for it beside speculative decoding."""
    assert context.family is not None
    backend = context.family.attention_backend.get(str(major))
    width, algorithm = declared.value("speculative_eagle_topk"), declared.value("speculative_algorithm")
    tree = width is not None and (int(width) != 1 or declared.value("page_size") not in (None, 1))
    # On Blackwell the width has to be said; that of DFLASH is always 1.
    unsaid = backend == "trtllm_mha" and width is None and algorithm is not None and str(algorithm).upper() != "DFLASH"
    return "flashinfer" if backend in _ONE_DRAFT_ONLY and (tree or unsaid) else backend


def expected_backends(context: Context, declared: Declared, overridden: bool) -> dict[str, str]:
    """Base and decode backend as the engine will choose them; a name that is not known is left out.

    ``overridden``: the engine applies its own Hopper set, which fills in a decode backend.
    """
    assert context.gpu is not None
    assert context.gpu.compute_capability is not None
    capability = context.gpu.compute_capability
    base = declared.value("attention_backend")
    decode = declared.value("decode_attention_backend")
    prefill = declared.value("prefill_attention_backend")
    if overridden and base is None and decode is None:
        decode = "flashinfer"
    if base is None and declared.value("enable_deterministic_inference"):
        base = "flashinfer" if capability.major in (10, 12) else "fa3"
    if prefill is not None and prefill == decode:
        base = prefill
    if base is None and context.family is not None:
        base = _default(context, declared, capability.major)
    if base == "fa3" and declared.value("kv_cache_dtype") == "fp8_e5m2":
        base = (
            "triton"  # of fp8, fa3 reads fp8_e4m3 alone (arg_groups/overrides.py, _attention_backend_fa3_fp8_fallback)
        )
    found = {"attention_backend": base, "decode_attention_backend": decode or base}
    return {name: backend for name, backend in found.items() if backend is not None}
