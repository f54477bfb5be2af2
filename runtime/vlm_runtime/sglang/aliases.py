"""Values that the engine reports under another name, and yet uses as planned. Pure.

SGLang replaces older names by newer ones before it reports its settings, sorts values without an order, and completes
partial configurations. None of that is a setting that was ignored.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

# Of SGLang 0.5.9 to 0.5.23: server_args.py, since 0.5.19 in arg_groups (serving_hook.py, pd_disaggregation_hook.py).
# None: the engine reports a field without a value.
_BACKENDS: Final[Mapping[str, tuple[str | None, ...]]] = {
    "compressed": ("dsv4",),
    "tokenspeed_mla": ("cutedsl_mla", "trtllm_mla"),
}
_UNQUANTIZED: Final[Mapping[str, tuple[str | None, ...]]] = {"unquant": (None,)}
_NEWER: Final[Mapping[str, Mapping[str, tuple[str | None, ...]]]] = {
    "attention_backend": _BACKENDS,
    "decode_attention_backend": _BACKENDS,
    "prefill_attention_backend": _BACKENDS,
    "speculative_draft_attention_backend": _BACKENDS,
    "disaggregation_transfer_backend": {"mooncake_tcp": ("mooncake",)},
    "quantization": _UNQUANTIZED,
    "speculative_draft_model_quantization": _UNQUANTIZED,
    # speculative_hook.py; drafts of Gemma 4 have an algorithm of their own.
    "speculative_algorithm": {"NEXTN": ("EAGLE", "FROZEN_KV_MTP"), "EAGLE": ("FROZEN_KV_MTP",)},
    "tool_call_parser": {"qwen25": ("qwen",), "glm45": ("glm",)},
}


class OlderFlag(NamedTuple):
    """A flag that the engine turns into the value of a newer field, and reports as False."""

    field: str
    is_on: Callable[[Any], bool]
    """Whether the newer field's value has the flag's effect."""


OLDER_FLAGS: Final[Mapping[str, OlderFlag]] = {
    "enable_flashinfer_allreduce_fusion": OlderFlag(
        "flashinfer_allreduce_fusion_backend", lambda backend: backend is not None
    ),
    "keep_mm_feature_on_device": OlderFlag("mm_feature_transport", lambda transport: transport == "cuda_ipc"),
}
_CASE_INSENSITIVE: Final = frozenset({"speculative_algorithm"})
_HOSTS: Final = frozenset({"allowed_media_domains"})


def are_equivalent(name: str, planned: Any, effective: Any) -> bool:
    """Whether two values of a setting mean the same to the engine. JSON comes parsed, not as text."""
    if isinstance(planned, Mapping) and isinstance(effective, Mapping):
        return _is_part(planned, effective)
    if name in _HOSTS and isinstance(planned, list) and isinstance(effective, list):
        return set(map(_host, planned)) == set(map(_host, effective))
    if name in _CASE_INSENSITIVE and isinstance(planned, str):
        planned = planned.upper()
    newer = _NEWER.get(name, {}).get(planned, ()) if isinstance(planned, str) else ()
    return bool(planned == effective) or effective in newer


def _is_part(part: Mapping[str, Any], whole: Mapping[str, Any]) -> bool:
    return all(
        _is_part(value, whole[key])
        if isinstance(value, Mapping) and isinstance(whole.get(key), Mapping)
        else key in whole and value == whole[key]
        for key, value in part.items()
    )


def _host(value: Any) -> str:
    return str(value).strip().rstrip(".").lower()
