"""The environment variables that SGLang reads: those declared in ``environ.py`` with their types, and those that its
modules name in quotation marks."""

import ast
import re
from typing import Any, Final

from vlm_operator.sglang.catalogue.generate.source import NotConstant, Source

ENVIRON: Final = "sglang.srt.environ"
_TYPES: Final = {"Int": "int", "Bool": "bool", "Float": "float", "JSON": "json"}
_DECLARED: Final = re.compile(r"Env(Int|Bool|Float|Str|Tuple|JSON)\w*")
_READ: Final = re.compile(r"""["'](SGL(?:ANG)?_[A-Z0-9_]*[A-Z0-9])["']""")
_READ_TYPED: Final = re.compile(r"""get_(bool|int|float)_env_var\(\s*["'](SGL(?:ANG)?_[A-Z0-9_]+)["']""")
# What runs in a serving pod. Tests, benchmarks and image generation have variables of their own.
_FOLDERS: Final = ("sglang/srt/", "sglang/cli/", "sglang/kernels/", "sglang/jit_kernel/", "sglang/launch_server.py")


def variables(source: Source) -> dict[str, dict[str, Any]]:
    """Variable -> type and, where it is a literal, default."""
    found: dict[str, dict[str, Any]] = {}
    for folder in _FOLDERS:
        for name in source.files(folder):
            text = source.text(name)
            for variable in _READ.findall(text):
                found.setdefault(variable, {"type": "str"})
            for kind, variable in _READ_TYPED.findall(text):
                found[variable] = {"type": kind}
    found |= _declared(source)
    return found


def _declared(source: Source) -> dict[str, dict[str, Any]]:
    tree = source.module(ENVIRON)
    found: dict[str, dict[str, Any]] = {}
    for cls in tree.body if tree else ():
        if not isinstance(cls, ast.ClassDef) or cls.name != "Envs":
            continue
        for line in cls.body:
            match line:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=kind), args=arguments)):
                    if declared := _DECLARED.fullmatch(kind):
                        found[name] = {"type": _TYPES.get(declared[1], "str")} | _default(source, arguments)
    return found


def _default(source: Source, arguments: list[ast.expr]) -> dict[str, Any]:
    try:
        return {"default": source.constant(arguments[0] if arguments else None, ENVIRON)}
    except NotConstant:
        return {}
