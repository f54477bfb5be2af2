"""What checks and rules may yield, by their annotations."""

import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, get_type_hints

import pytest

from vlm_api.plan import Finding, Setting
from vlm_operator.checks import CHECKS, INPUT_CHECKS, SIZE_CHECKS
from vlm_operator.checks.types import CheckInput
from vlm_operator.errors import InvalidInput
from vlm_operator.sglang.context import Context, Declared
from vlm_operator.sglang.rules.pipeline import TUNED, USER

CONTENTS: list[tuple[Callable[..., Any], list[type], type]] = [
    *((check, [CheckInput], Finding) for check in CHECKS),
    *((check, [CheckInput], InvalidInput) for check in SIZE_CHECKS),
    *((check, [Context, Declared], InvalidInput) for check in INPUT_CHECKS),
    *((rule, [Context, Declared], Setting) for rule in USER + TUNED),
]


@pytest.mark.parametrize(
    ("function", "takes", "yields"), CONTENTS, ids=[f"{f.__module__}.{f.__name__}" for f, *_ in CONTENTS]
)
def test_checks_yield_findings_and_rules_yield_settings(function, takes, yields):
    hints = get_type_hints(function)
    assert hints.pop("return") == Iterator[yields]
    assert list(hints.values()) == takes


@pytest.mark.parametrize("name", sorted({function.__module__ for function, *_ in CONTENTS}))
def test_no_check_or_rule_is_left_out(name):
    listed = [function for function, *_ in CONTENTS]
    for function in vars(sys.modules[name]).values():
        if not isinstance(function, FunctionType) or function.__module__ != name or function.__name__.startswith("_"):
            continue
        *takes, yields = get_type_hints(function).values()
        signatures = [(expected, Iterator[value]) for _, expected, value in CONTENTS]
        assert function in listed or (takes, yields) not in signatures, function.__name__
