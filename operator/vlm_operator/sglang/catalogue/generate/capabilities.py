"""Which GPUs a release refuses: its own least compute capability, that of each quantization method, and the major
capabilities that each attention backend is held to."""

import ast
import re
from collections.abc import Iterator
from typing import Any, Final

from vlm_operator.sglang.catalogue.generate.source import Source

_QUANTIZATION: Final = "sglang.srt.layers.quantization"
_LOADERS: Final = ("model_executor/model_runner_components/load_model_utils.py", "model_executor/model_runner.py")
_ATTENTION_CHECKS: Final = (
    "sglang.srt.server_args", "sglang.srt.arg_groups.attention_hook", "sglang.srt.arg_groups.overrides",
)  # fmt: skip
_REGISTRY: Final = "sglang.srt.layers.attention.attention_registry"
_VISION: Final = "sglang.srt.layers.attention.vision"
_MAJORS: Final = range(7, 14)
_CHOICES: Final = frozenset(
    {
        "attention_backend",
        "prefill_attention_backend",
        "decode_attention_backend",
        "prefill_backend",
        "decode_backend",
        "backend",
    }
)


def engine_least(source: Source) -> str:
    """The capability below which the engine ends by itself."""
    for name in _LOADERS:
        if found := re.search(r"SGLang only supports sm(\d+)(\d) and above", source.optional_text(name)):
            return f"{found[1]}.{found[2]}"
    raise ValueError("no least GPU: teach vlm_operator.sglang.catalogue.generate where the engine checks it")


# --- quantization --------------------------------------------------------------------------------------------------


def quantization(source: Source) -> dict[str, dict[str, Any]]:
    """Method -> the least capability on CUDA that its ``get_min_capability`` returns."""
    tree, found = source.module(_QUANTIZATION), {}
    for name, cls in _methods(tree) if tree else ():
        least = _least(source, cls, _QUANTIZATION, name)
        if least is not None:
            found[name] = {"least": f"{least // 10}.{least % 10}"}
    if "fp8" not in found:
        raise ValueError("no quantization methods: teach vlm_operator.sglang.catalogue.generate where they are")
    return found


def _methods(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(method, class) of the table of methods; of what is added to it, the part that CUDA has."""
    for node in tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id="BASE_QUANTIZATION_METHODS"), value=ast.Dict() as table):
                yield from _entries(table)
            case ast.If(test=test, body=body) if "is_cuda" in ast.unparse(test):
                for each in (n for statement in body for n in ast.walk(statement) if isinstance(n, ast.Dict)):
                    yield from _entries(each)


def _entries(table: ast.Dict) -> Iterator[tuple[str, str]]:
    for key, value in zip(table.keys, table.values, strict=True):
        match key, value:
            case ast.Constant(value=str(name)), ast.Name(id=cls):
                yield name, cls


def _least(source: Source, cls: str, module: str, method: str) -> int | None:
    """What ``cls.get_min_capability`` returns; the class is followed through imports and to its base."""
    tree = source.module(module)
    for node in tree.body if tree else ():
        match node:
            case ast.ImportFrom(module=str(origin), names=names, level=level):
                for alias in names:
                    if (alias.asname or alias.name) == cls:
                        return _least(source, alias.name, _absolute(source, module, origin, level), method)
            case ast.ClassDef(name=found, bases=bases, body=body) if found == cls:
                for line in body:
                    if isinstance(line, ast.FunctionDef) and line.name == "get_min_capability":
                        return _returned(source, _last(line.body), module, method)
                parents = (_least(source, base.id, module, method) for base in bases if isinstance(base, ast.Name))
                return next((each for each in parents if each is not None), None)
    return None


def _absolute(source: Source, module: str, origin: str, level: int) -> str:
    if not level:
        return origin
    package = module.split(".")
    if not source.optional_text("/".join([*package[2:], "__init__.py"])):
        level += 1
    return ".".join([*package[: len(package) - level + 1], origin])


def _last(body: list[ast.stmt]) -> ast.expr | None:
    """What the last statement returns; of two branches the second, since the first is for other hardware."""
    match body[-1]:
        case ast.Return(value=value):
            return value
        case ast.If(orelse=[_, *_] as orelse):
            return _last(orelse)
    return None


def _returned(source: Source, value: ast.expr | None, module: str, method: str) -> int | None:
    match value:
        case ast.Constant(value=int(least)):
            return least
        case ast.IfExp(test=ast.Attribute(attr=attribute), body=body, orelse=orelse) if attribute.startswith("use_"):
            return _returned(source, body if attribute == f"use_{method}" else orelse, module, method)
        case ast.IfExp(test=ast.UnaryOp(op=ast.Not()), body=body):  # not on MUSA
            return _returned(source, body, module, method)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=cls), attr="get_min_capability")):
            return _least(source, cls, module, method)
    return None


# --- attention -----------------------------------------------------------------------------------------------------


def attention(source: Source) -> dict[str, dict[str, Any]]:
    """Backend -> the major capabilities that it is held to: for ``prefill`` and ``decode``, in both with latent attention
    (``mla``), and in the vision encoder (``vision``). What the engine does not check is not there."""
    named, found = _named(source), dict[str, dict[str, Any]]()
    for module in _ATTENTION_CHECKS:
        tree = source.module(module)
        for backend, phases, majors in _checks(tree, named) if tree else ():
            found.setdefault(backend, {}).update(dict.fromkeys(phases, majors))
    found.setdefault("fa3", {}).update(_asserted(source))
    vision = source.module(_VISION)
    for backend, _, majors in _checks(vision, named) if vision else ():
        found.setdefault(backend, {})["vision"] = majors
    if missing := {"fa3", "trtllm_mha", "trtllm_mla"} - {name for name, spans in found.items() if "decode" in spans}:
        raise ValueError(
            f"no capabilities of {', '.join(sorted(missing))}: teach vlm_operator.sglang.catalogue.generate where they are"
        )
    return found


def _named(source: Source) -> dict[str, list[int]]:
    """``sm100`` or ``blackwell`` -> the major capabilities that ``is_sm100_supported`` means."""
    found: dict[str, list[int]] = {}
    module = "sglang.srt.utils.common"
    tree = source.module(module)
    for node in tree.body if tree else ():
        if isinstance(node, ast.Assign):
            for keyword in (n for n in ast.walk(node.value) if isinstance(n, ast.keyword)):
                if keyword.arg == "device_capability_majors":
                    majors = list(source.constant(keyword.value, module))
                    found |= {_platform(t.id): majors for t in node.targets if isinstance(t, ast.Name)}
    return found


def _platform(name: str) -> str:
    return name.removeprefix("is_").removesuffix("_supported")


def _checks(tree: ast.AST, named: dict[str, list[int]]) -> Iterator[tuple[str, list[str], list[int]]]:
    """(backend, phases, majors) of each ``if`` that raises unless, or if, the platform is one of those named."""
    for function in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
        yield from _raising(function.body, [], named)


def _raising(
    body: list[ast.stmt], outer: list[ast.expr], named: dict[str, list[int]]
) -> Iterator[tuple[str, list[str], list[int]]]:
    for index, node in enumerate(body):
        if not isinstance(node, ast.If):
            continue
        if isinstance(node.body[0], ast.Raise):
            yield from _check(node.test, outer, named)
        elif _chosen(node.test) and isinstance(node.test, ast.UnaryOp) and isinstance(node.body[-1], ast.Return):
            yield from _raising(body[index + 1 :], [*outer, node.test], named)
        elif _chosen(node.test):
            yield from _raising(node.body, [*outer, node.test], named)


def _check(
    test: ast.expr, outer: list[ast.expr], named: dict[str, list[int]]
) -> Iterator[tuple[str, list[str], list[int]]]:
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    platform = [part for part in parts if (majors := _majors(part, named)) is not None]
    if len(platform) != 1 or len(parts) > 2:
        return
    majors = _majors(platform[0], named)
    assert majors is not None
    if not isinstance(platform[0], ast.UnaryOp):
        majors = [major for major in _MAJORS if major not in majors]
    where = [part for part in parts if part is not platform[0]] or outer[-1:]
    for words in where:
        backends = {n.value for n in ast.walk(words) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        phases = [phase for phase in ("prefill", "decode") if any(name.startswith(phase) for name in _chosen(words))]
        if len(backends) == 1 and _chosen(words):
            yield backends.pop(), phases or ["prefill", "decode"], majors


def _chosen(test: ast.expr) -> set[str]:
    """The fields of attention backends that a test is about; empty if it is about anything else as well."""
    names = {
        n.attr if isinstance(n, ast.Attribute) else n.id
        for n in ast.walk(test)
        if isinstance(n, ast.Attribute | ast.Name)
    }
    names -= {"self", "view", "cfg"}
    return names if names <= _CHOICES else set()


def _majors(test: ast.expr, named: dict[str, list[int]]) -> list[int] | None:
    """The majors that a test of the platform alone names; None for any other test."""
    inner = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else test
    found: set[int] = set()
    for part in inner.values if isinstance(inner, ast.BoolOp) and isinstance(inner.op, ast.Or) else [inner]:
        call = part.func if isinstance(part, ast.Call) else part
        name = call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "")
        if not name.startswith("is_") or _platform(name) not in named:
            return None
        found.update(named[_platform(name)])
    return sorted(found)


def _asserted(source: Source) -> dict[str, list[int]]:
    """FlashAttention 3 is held to its capabilities by an assertion where it is made."""
    tree = source.module(_REGISTRY)
    for function in tree.body if tree else ():
        if isinstance(function, ast.FunctionDef) and function.name == "create_flashattention_v3_backend":
            test = next(n.test for n in ast.walk(function) if isinstance(n, ast.Assert))
            either = test.values if isinstance(test, ast.BoolOp) else [test]
            texts = [ast.unparse(part) for part in either]
            majors = {int(found[1]): text for text in texts if (found := re.search(r"== (\d+)", text))}
            plain, latent = sorted(majors), sorted(m for m, text in majors.items() if "not runner.use_mla" not in text)
            return {"prefill": plain, "decode": plain, "mla": latent}
    return {}
