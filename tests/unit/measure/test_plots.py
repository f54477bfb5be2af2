"""Plots that a page may hold: what stands on their axes."""

from __future__ import annotations

import re
from html import unescape
from itertools import pairwise

import pytest
from unit.measure.rounds import result, round_at

from vlm_operator.measure.plots import ratio_plot, rounds_plot, shares_plot


def ticks(svg: str) -> list[float]:
    """The numbers below the axis, from left to right."""
    axis = svg[svg.index('id="matplotlib.axis_1"') : svg.index('id="matplotlib.axis_2"')]
    return [float(text) for text in re.findall(r">([0-9.]+)</text>", axis)]


def test_ratios_far_apart_are_drawn_so_that_half_is_as_far_from_one_as_twice() -> None:
    found = ticks(ratio_plot([("requests/s", 0.23, 0.12, 0.83), ("TPOT p50", 18.0, 4.5, 35.9)], "ratio"))
    assert {0.2, 0.5, 1, 2, 5, 10, 20} <= set(found)


def test_ratios_near_one_are_drawn_on_a_plain_axis() -> None:
    found = ticks(ratio_plot([("requests/s", 1.05, 0.98, 1.12)], "ratio"))
    steps = {round(b - a, 6) for a, b in pairwise(found)}
    assert len(found) >= 3
    assert len(steps) == 1


@pytest.mark.parametrize("name", ["a=$\\frac$", "chat_template=$x_{", "{'a': '$b$'}", "$"])
def test_a_label_is_drawn_as_it_is_written(name: str) -> None:
    told = [round_at(n, t, 4.0) for n in (1, 2) for t in (0, 1)]
    for drawn in (
        rounds_plot(result(told, "ours", name)),
        ratio_plot([(name, 1.05, 0.98, 1.12)], name),
        shares_plot({name: {name: 1.0}}, [name], name),
    ):
        assert f">{name}</text>" in unescape(drawn)
