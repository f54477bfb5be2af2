"""The fields of ``ServerArgs`` and their command-line flags, in the two ways in which SGLang has declared them:
``parser.add_argument`` calls, and since 0.5.14 annotations ``A[type, Arg(...)]`` of the fields themselves."""

import ast
from collections.abc import Iterator, Mapping
from typing import Any, Final

from vlm_operator.sglang.catalogue.generate.source import NotConstant, Source

SERVER_ARGS: Final = "sglang.srt.server_args"
_FIELDS: Final = "sglang/srt/arg_groups/fields/"
_TYPES: Final = {
    "str": "str",
    "int": "int",
    "float": "float",
    "bool": "bool",
    "nullable_str": "str",
    "human_readable_int": "size",
}
_JSON_PARSERS: Final = frozenset({"loads", "json_list_type", "parse_cuda_graph_config_arg"})

Record = dict[str, Any]


def fields(source: Source) -> dict[str, Record]:
    """Field name -> its flag, type, choices, default and other spellings, for every field that the command line sets."""
    found: dict[str, Record] = {}
    modules = [SERVER_ARGS, *(name[:-3].replace("/", ".") for name in source.files(_FIELDS))]
    for module in modules:
        for name, record in _annotated(source, module):
            found[name] = record
    declared = _declared(source)
    for name, record in _registered(source):
        # Before 0.5.14 the first spelling of a flag may be no field: --tensor-parallel-size sets tp_size.
        names = [name, *(spelling.lstrip("-").replace("-", "_") for spelling in record.get("aliases", ()))]
        _add(found, next((each for each in names if each in declared), name), record)
    return found


def _declared(source: Source) -> frozenset[str]:
    """Names of the fields in the body of ``ServerArgs`` itself."""
    tree = source.module(SERVER_ARGS)
    classes = [c for c in (tree.body if tree else ()) if isinstance(c, ast.ClassDef) and c.name == "ServerArgs"]
    lines = [line for cls in classes for line in cls.body if isinstance(line, ast.AnnAssign)]
    return frozenset(line.target.id for line in lines if isinstance(line.target, ast.Name))


def _add(found: dict[str, Record], name: str, record: Record) -> None:
    """Deprecated flags that set a known field become other spellings of it."""
    if name not in found:
        found[name] = record
    elif "deprecated" in found[name] and "deprecated" not in record:
        found[name] = {**record, "also": [*record.get("also", []), {k: found[name][k] for k in ("flag", "deprecated")}]}
    else:
        spelling = {key: record[key] for key in ("flag", "deprecated", "sets", "argument") if key in record}
        found[name].setdefault("also", []).append(spelling)


# --- annotations --------------------------------------------------------------------------------------------------


def _annotated(source: Source, module: str) -> Iterator[tuple[str, Record]]:
    tree = source.module(module)
    for cls in tree.body if tree else ():
        if not isinstance(cls, ast.ClassDef):
            continue
        for line in cls.body:
            match line:
                case ast.AnnAssign(
                    target=ast.Name(id=name),
                    annotation=ast.Subscript(
                        value=ast.Name(id="A" | "Annotated"), slice=ast.Tuple(elts=[kind, *metadata])
                    ),
                    value=value,
                ):
                    arg = next((m for m in metadata if isinstance(m, ast.Call) and _last(m.func) == "Arg"), None)
                    if arg is None and not any(
                        isinstance(m, ast.Constant | ast.JoinedStr | ast.BinOp) for m in metadata
                    ):
                        continue
                    options = {k.arg: k.value for k in arg.keywords if k.arg} if arg else {}
                    if not _is_true(options.get("no_cli")):
                        yield name, _annotation_record(source, module, name, kind, options, value)


def _annotation_record(
    source: Source, module: str, name: str, kind: ast.expr, options: Mapping[str, ast.expr], value: ast.expr | None
) -> Record:
    spelt = options.get("cli_name")
    flag = str(source.constant(spelt, module)) if spelt else "--" + name.replace("_", "-")
    record: Record = {"flag": flag}
    inner = _without_optional(kind)
    literal = inner.slice if isinstance(inner, ast.Subscript) and _last(inner.value) == "Literal" else None
    if _last(options.get("action")) == "BooleanOptionalAction":
        record |= {"type": "bool", "negative": _negative(flag)}
    elif _last(options.get("action")) == "LoRAPathAction":
        record |= {"type": "str", "many": "*"}
    elif literal is not None:
        values = literal.elts if isinstance(literal, ast.Tuple) else [literal]
        choices = [v for v in (source.constant(value, module) for value in values) if v is not None]
        record |= {"type": type(choices[0]).__name__, "choices": choices}
    elif isinstance(inner, ast.Subscript) and _last(inner.value) in ("List", "list") and "type_parser" not in options:
        record |= {"type": _TYPES.get(_last(inner.slice), "str"), "many": "+"}
    elif "type_parser" in options:
        record["type"] = _parser_type(options["type_parser"])
    else:
        record["type"] = _TYPES.get(_last(inner), "str")
    _options(record, source, module, options, {})
    if value is not None:
        _default(record, source, module, value)
    return record


def _without_optional(kind: ast.expr) -> ast.expr:
    match kind:
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            return inner
        case ast.BinOp(left=inner, op=ast.BitOr(), right=ast.Constant(value=None)):
            return inner
    return kind


# --- add_argument calls -------------------------------------------------------------------------------------------


def _registered(source: Source) -> Iterator[tuple[str, Record]]:
    tree = source.module(SERVER_ARGS)
    methods = [
        line
        for cls in (tree.body if tree else ())
        if isinstance(cls, ast.ClassDef) and cls.name == "ServerArgs"
        for line in cls.body
        if isinstance(line, ast.FunctionDef) and line.name == "add_cli_args"
    ]
    for method in methods:
        local: dict[str, ast.expr] = {}
        for node in ast.walk(method):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    local[name] = value
        calls = [n for n in ast.walk(method) if isinstance(n, ast.Call) and _last(n.func) == "add_argument"]
        for call in sorted(calls, key=lambda node: node.lineno):
            yield _registered_record(source, call, local)


def _registered_record(source: Source, call: ast.Call, local: Mapping[str, ast.expr]) -> tuple[str, Record]:
    spellings = [str(source.constant(argument, SERVER_ARGS)) for argument in call.args]
    options = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    flag = spellings[0]
    name = (
        str(source.constant(options["dest"], SERVER_ARGS)) if "dest" in options else flag.lstrip("-").replace("-", "_")
    )
    record: Record = {"flag": flag}
    if spellings[1:]:
        record["aliases"] = spellings[1:]
    match options.get("action"):
        case ast.Constant(value="store_true"):
            record["type"] = "bool"
        case None:
            record["type"] = _parser_type(options["type"]) if "type" in options else "str"
        case action:
            _action(record, source, _last(action), options)
    _options(record, source, SERVER_ARGS, options, local)
    if "default" in options:
        _default(record, source, SERVER_ARGS, options["default"])
    return name, record


def _action(record: Record, source: Source, action: str, options: Mapping[str, ast.expr]) -> None:
    new = _string(source, options.get("new_flag"))
    match action:
        case "BooleanOptionalAction":
            record |= {"type": "bool", "negative": _negative(record["flag"])}
        case "LoRAPathAction":
            record |= {"type": "str", "many": "*"}
        case "DeprecatedAction":
            # With a message the engine stops there; without one it warns and does nothing.
            record |= {"type": "bool", "refused" if "error_message" in options else "ignored": True}
        case "DeprecatedStoreTrueAction":
            record |= {"type": "bool", "deprecated": new}
        case "DeprecatedStoreConstAction":
            record |= {"type": "bool", "deprecated": new, "sets": source.constant(options["const_value"], SERVER_ARGS)}
            if "nargs" in options:  # a flag with one accepted value, which became a plain one
                record["argument"] = True
        case "DeprecatedAliasStoreAction":
            record |= {"type": _parser_type(options["type"]) if "type" in options else "str", "deprecated": new}
        case _:
            raise ValueError(
                f"{record['flag']}: unknown action {action}; teach vlm_operator.sglang.catalogue.generate what it does"
            )


# --- both ---------------------------------------------------------------------------------------------------------


def _options(
    record: Record, source: Source, module: str, options: Mapping[str, ast.expr], local: Mapping[str, ast.expr]
) -> None:
    if "aliases" in options:
        record["aliases"] = source.constant(options["aliases"], module)
    if "nargs" in options and (many := source.constant(options["nargs"], module)) in ("+", "*", "?"):
        record["many"] = many
    if "choices" in options:
        try:
            values = source.constant(options["choices"], module, local)
        except NotConstant:  # made at run time, from a registry: not checked
            return
        record["choices"] = sorted(values, key=str)


def _default(record: Record, source: Source, module: str, value: ast.expr) -> None:
    try:
        default = source.constant(value, module)
    except NotConstant:
        return
    record["default"] = default


def _parser_type(node: ast.expr) -> str:
    name = _last(node)
    return "json" if name in _JSON_PARSERS else _TYPES.get(name, "str")


def _string(source: Source, node: ast.expr | None) -> str:
    try:
        return str(source.constant(node, SERVER_ARGS))
    except NotConstant:
        return ""


def _negative(flag: str) -> str:
    return "--no-" + flag.removeprefix("--")


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _last(node: ast.expr | None) -> str:
    """The last word of a dotted name: ``argparse.BooleanOptionalAction`` -> ``BooleanOptionalAction``."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Constant(value=str(name)):
            return name
        case ast.Subscript(value=value):
            return _last(value)
    return ""
