"""The source in a wheel, and the values of constants in it, without running it."""

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from zipfile import ZipFile


class NotConstant(Exception):
    """The expression has no value that the source alone determines."""


class Source:
    """The Python modules of one wheel, or of a folder into which one was unpacked."""

    def __init__(self, wheel: Path) -> None:
        self._wheel = wheel
        self._zip = ZipFile(wheel) if wheel.is_file() else None
        self._names = frozenset(
            self._zip.namelist()
            if self._zip
            else (str(p.relative_to(wheel)) for p in wheel.glob("sglang*/**/*") if p.is_file())
        )
        self.module = lru_cache(maxsize=None)(self._module)

    @property
    def metadata(self) -> str:
        """The wheel's METADATA."""
        return self.text(next(n for n in self._names if n.startswith("sglang-") and n.endswith(".dist-info/METADATA")))

    @property
    def version(self) -> str:
        """The version in the wheel's metadata."""
        return next(line[9:].strip() for line in self.metadata.splitlines() if line.startswith("Version: "))

    def files(self, prefix: str) -> Iterator[str]:
        """Paths of Python files below ``prefix``, sorted."""
        return (name for name in sorted(self._names) if name.startswith(prefix) and name.endswith(".py"))

    def text(self, name: str) -> str:
        """One file."""
        data = self._zip.read(name) if self._zip else (self._wheel / name).read_bytes()
        return data.decode("utf-8")

    def optional_text(self, name: str) -> str:
        """One file below ``sglang/srt``; empty if this release does not have it."""
        path = f"sglang/srt/{name}"
        return self.text(path) if path in self._names else ""

    def _module(self, dotted: str) -> ast.Module | None:
        path = dotted.replace(".", "/")
        for name in (f"{path}.py", f"{path}/__init__.py"):
            if name in self._names:
                return ast.parse(self.text(name), name)
        return None

    def constant(self, node: ast.expr | None, module: str, local: Mapping[str, ast.expr] | None = None) -> Any:
        """The value of an expression in ``module``: literals, names of module constants (followed through imports),
        sums and comprehensions of them that only copy. Raises NotConstant for anything else."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
                values = []
                for element in elements:
                    if isinstance(element, ast.Starred):
                        values += self.constant(element.value, module, local)
                    else:
                        values.append(self.constant(element, module, local))
                return values
            case ast.Dict(keys=keys, values=values):
                return {
                    self.constant(k, module, local): self.constant(v, module, local)
                    for k, v in zip(keys, values, strict=True)
                }
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.constant(operand, module, local)
            case ast.BinOp(left=left, op=op, right=right):
                return _arithmetic(op, self.constant(left, module, local), self.constant(right, module, local))
            case ast.Name(id=name):
                if local and name in local:
                    return self.constant(local[name], module, {k: v for k, v in local.items() if k != name})
                return self._named(name, module)
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                return self._attribute(owner, name, module)
            case ast.Call(func=ast.Name(id="list" | "tuple" | "set" | "sorted" | "frozenset"), args=[inner]):
                values = self.constant(inner, module, local)
                if isinstance(values, list | tuple | dict):
                    return list(values)
            case ast.Call(func=ast.Attribute(value=inner, attr="keys"), args=[]):
                return list(self.constant(inner, module, local))
            case ast.Call(func=ast.Name(id=function), args=[], keywords=[]):
                return self._returned(function, module)
            case ast.Call(
                func=ast.Attribute(attr="field"),
                keywords=[ast.keyword(arg="default_factory", value=ast.Name(id="list"))],
            ):
                return []
        raise NotConstant(ast.dump(node)[:80] if node else "nothing")

    def _named(self, name: str, module: str) -> Any:
        tree = self.module(module)
        for statement in tree.body if tree else ():
            match statement:
                case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                    return self.constant(value, module)
                case ast.AnnAssign(target=ast.Name(id=target), value=value) if target == name:
                    return self.constant(value, module)
                case ast.ImportFrom(module=str(origin), names=names, level=0):
                    for alias in names:
                        if (alias.asname or alias.name) == name and origin.startswith("sglang"):
                            return self._named(alias.name, origin)
        raise NotConstant(f"{module}.{name}")

    def _attribute(self, owner: str, name: str, module: str) -> Any:
        """A class attribute, such as a field's default."""
        tree = self.module(module)
        for statement in tree.body if tree else ():
            match statement:
                case ast.ClassDef(name=found, body=body) if found == owner:
                    for line in body:
                        match line:
                            case ast.AnnAssign(target=ast.Name(id=target), value=value) if target == name and value:
                                return self.constant(value, module)
                            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                                return self.constant(value, module)
                case ast.ImportFrom(module=str(origin), names=names, level=0):
                    for alias in names:
                        if (alias.asname or alias.name) == owner and origin.startswith("sglang"):
                            return self._attribute(alias.name, name, origin)
        raise NotConstant(f"{owner}.{name}")

    def _returned(self, function: str, module: str) -> Any:
        """What a function without parameters gives back in its last statement, where that is a constant."""
        tree = self.module(module)
        for statement in tree.body if tree else ():
            match statement:
                case ast.FunctionDef(name=found, body=[*before, ast.Return(value=value)]) if found == function:
                    for line in before:
                        match line, value:
                            case ast.ImportFrom(module=str(origin), names=[ast.alias(name=name)]), ast.Call(
                                args=[ast.Name(id=used)]
                            ) if used == name:
                                return list(self._named(name, origin))
                    return self.constant(value, module)
        raise NotConstant(f"{module}.{function}()")


def _arithmetic(op: ast.operator, left: Any, right: Any) -> Any:
    if isinstance(op, ast.Add):
        return left + right
    if isinstance(op, ast.Mult):
        return left * right
    raise NotConstant(type(op).__name__)
