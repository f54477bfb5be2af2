"""The metrics in a PromQL query."""

import re

_WORDS = {
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "and",
    "or",
    "unless",
    "bool",
    "offset",
    "inf",
    "nan",
}
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"')
_LABELS = re.compile(r"\{[^{}]*\}")
_RANGES = re.compile(r"\[[^\[\]]*\]")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)")
_NAME = re.compile(r"(?<![\w:.])[a-zA-Z_:][a-zA-Z0-9_:]*")


def metrics_of(query: str) -> set[str]:
    """Names of the metrics in the query, with histogram suffixes."""
    for part in (_STRINGS, _LABELS, _RANGES, _GROUPING):
        query = part.sub(" ", query)
    found = set()
    for name in _NAME.finditer(query):
        is_function = query[name.end() :].lstrip().startswith("(")
        if name[0].lower() not in _WORDS and not is_function:
            found.add(name[0])
    return found
