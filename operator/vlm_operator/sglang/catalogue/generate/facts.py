"""What a release does by itself, as far as its source says it in a form that a script can read."""

import ast
import re
from collections.abc import Iterator
from typing import Any, Final

from vlm_operator.sglang.catalogue.generate.source import Source

MODEL_CONFIG: Final = "sglang.srt.configs.model_config"

# Fact -> (file below sglang/srt, text in it). The fact holds for releases whose file has the text.
TEXTS: Final = {
    # Plugins are loaded from the entry points sglang.srt.plugins and sglang.srt.platforms.
    "plugins": ("plugins/__init__.py", "entry_points"),
    # The Qwen3-VL set for large Hopper GPUs (SGLang PR 36411).
    "hopper_set": ("arg_groups/model_overrides/qwen3_vl.py", "cuda_ipc"),
    # The feature pool is subtracted from the KV cache's share.
    "pool_off_kv_cache": ("mem_cache/kv_cache_configurator.py", "mm_runtime_reservation_gb"),
    # By default, the decode graph is not wider than max_running_requests.
    "graph_within_running_limit": ("arg_groups/memory_hook.py", "decode_max_bs_is_default"),
    # Prompts get a higher priority than their answers, and eviction by priority goes by it.
    "answers_evicted_first": ("mem_cache/radix_cache.py", "priority + 1"),
}


def facts(source: Source) -> dict[str, dict[str, Any]]:
    """Fact -> ``{"value": ...}``: True for those of TEXTS, the image's CUDA, and the defaults by device memory."""
    found: dict[str, Any] = {name: True for name, (file, text) in TEXTS.items() if text in source.optional_text(file)}
    found["cuda"] = _cuda(source)
    found["capacity_defaults"] = _capacity_defaults(source)
    return {name: {"value": value} for name, value in found.items()}


def architectures(source: Source, name: str) -> dict[str, dict[str, Any]]:
    """The entries of a list of ``model_config.py``: ``multimodal_model_archs``, or ``mm_disabled_models`` (local there)."""
    tree = source.module(MODEL_CONFIG)
    for node in ast.walk(tree) if tree else ():
        match node:
            case ast.Assign(targets=[ast.Name(id=found)], value=ast.List() as value) if found == name:
                return {entry: {} for entry in source.constant(value, MODEL_CONFIG)}
    raise ValueError(f"{MODEL_CONFIG} has no list {name}: teach vlm_operator.sglang.catalogue.generate where it is")


def _cuda(source: Source) -> str:
    """The CUDA that the wheel requires, which the image of the same release holds."""
    required = re.search(r"^Requires-Dist: cuda-python[=>]=([0-9]+)(?:\.([0-9]+))?", source.metadata, re.MULTILINE)
    if required is None:
        raise ValueError(
            "the wheel does not require cuda-python: teach vlm_operator.sglang.catalogue.generate its CUDA"
        )
    return f"{required[1]}.{required[2] or 0}"


def _capacity_defaults(source: Source) -> list[list[int | None]]:
    """Rows [device memory below this many MiB or None, chunked prefill tokens, decode graph limit with tensor < 4, and
    with tensor >= 4], smallest devices first: the branches over ``gpu_mem``."""
    for module in ("sglang.srt.arg_groups.memory_hook", "sglang.srt.server_args"):
        tree = source.module(module)
        for node in ast.walk(tree) if tree else ():
            if isinstance(node, ast.If) and _limit(source, node, module) is not None:
                return list(_rows(source, node, module))
    raise ValueError("no defaults by gpu_mem: teach vlm_operator.sglang.catalogue.generate where they are")


def _limit(source: Source, node: ast.If, module: str) -> int | None:
    match node.test:
        case ast.Compare(left=ast.Name(id="gpu_mem"), ops=[ast.Lt()], comparators=[limit]):
            mib: int = source.constant(limit, module)
            return mib
    return None


def _rows(source: Source, branch: ast.If, module: str) -> Iterator[list[int | None]]:
    yield _row(_limit(source, branch, module), branch.body)
    match branch.orelse:
        case [ast.If() as following]:
            yield from _rows(source, following, module)
        case other:
            yield _row(None, other)


def _row(limit: int | None, body: list[ast.stmt]) -> list[int | None]:
    numbers: dict[str, list[int]] = {"chunked_prefill_size": [], "max_bs": []}
    for node in (each for statement in body for each in ast.walk(statement)):
        match node:
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Constant(value=int(number))):
                pass
            case ast.keyword(arg=str(name), value=ast.Constant(value=int(number))):
                pass
            case _:
                continue
        numbers["max_bs" if name.endswith("max_bs") else name].append(number)
    (chunk,), graph = numbers["chunked_prefill_size"], numbers["max_bs"]
    return [limit, chunk, graph[0], graph[-1]]
