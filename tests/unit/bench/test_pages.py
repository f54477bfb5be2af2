"""The reports: pages stand alone, give the verdict first, and show what was measured; so does the terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from rich.console import Console
from unit.bench.measurements import result, round_at
from unit.bench.test_result import CURVE, curve
from unit.bench.test_trace import H100, decode

from vlm_bench.commands.output import show
from vlm_bench.reports import plots
from vlm_bench.reports.bench_report import bench_page, bench_report, settings_report
from vlm_bench.reports.page import Part, Table, page
from vlm_bench.reports.plots import ratio_plot, rounds_plot, shares_plot
from vlm_bench.reports.profile_report import profile_page, stage_report
from vlm_bench.statistics.result import Result
from vlm_bench.traces.gemms import Gemm
from vlm_bench.traces.stages import DECODE, Stage, stages_of
from vlm_bench.twins.twin import Change

PLOTS = ("rounds_plot", "curve_plot", "ratio_plot", "shares_plot")


@pytest.fixture
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matplotlib is slow."""
    for name in PLOTS:
        monkeypatch.setattr(plots, name, lambda *_: "<svg></svg>")


class Page(HTMLParser):
    """Text, tags that load something, and whether tags are closed in their order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.loads, self.open = "", [], []  # type: ignore[var-annotated]
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.loads += [
            v for name, v in attributes if name in ("src", "href", "xlink:href") and v and not v.startswith("#")
        ]
        assert tag not in ("script", "link", "img", "iframe")

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in ("meta", "br"):
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def compared(*names: str) -> Result:
    return result([round_at(n, t, 4.0 * (1 + t) + 0.01 * n) for n in range(1, 7) for t in (0, 1)], *names)


def printed(parts: Iterable[Part]) -> str:
    console = Console(file=(file := io.StringIO()), width=160)
    show(console, parts)
    return file.getvalue()


def test_a_page_has_its_verdict_and_plots_and_loads_nothing() -> None:
    made = bench_page([compared("ours", "theirs")])
    found = Page(made)
    assert found.loads == []
    assert re.search(r"ours answers 99\.\d% more requests/s than theirs", found.text)
    assert made.count("<svg") == 2
    assert "kubectl vlm bench qwen3-vl" in found.text
    assert "url(" not in re.sub(r"url\(#\w+\)", "", made)
    # The same data gives the same plot.
    assert rounds_plot(compared("ours", "theirs")) in made


def test_names_cannot_break_out_of_the_page(no_plots: None) -> None:
    made = bench_page([compared("ours", "http://x/<script>alert(1)</script>&y")])
    assert "<script" not in made
    Page(made)


def test_a_curve_shows_its_knee() -> None:
    points = result(curve((1, 40, 900), (8, 8, 1500), (64, 2, 2400), (400, 1.9, 14_000)), load=CURVE)
    assert "the knee is at concurrency 64" in Page(bench_page([points])).text
    assert ">knee<" in plots.curve_plot(points)
    [row] = [line for line in printed(bench_report(points)).splitlines() if line.endswith("knee")]
    assert row.split()[:3] == ["qwen3-vl", "64", "20.00"]


def test_each_setting_is_a_row_with_its_effect_in_one_plot_of_all(no_plots: None) -> None:
    results = [replace(compared("vlm", f"{name}=0"), change=Change(name, 0, 22)) for name in ("a", "b")]
    rows = [line.split() for line in printed(settings_report(results, ["c: why"])).splitlines()]
    for name in ("a", "b"):
        assert any(row[:3] == [name, "22", "0"] and row[-1] == "helps" for row in rows)
    assert ["not", "measured:", "c:", "why"] in rows
    made = bench_page(results)
    assert "Worth of each setting" in Page(made).text
    assert made.count("<svg") == 5


def test_the_terminal_names_what_the_engine_uses_and_the_verdict_near_the_end() -> None:
    text = printed(bench_report(replace(compared("ours", "theirs"), notes=("a note",))))
    assert "ours reported no settings" in text
    assert text.index("ours answers") > text.index("OUTPUT TOKENS/S")
    assert text.index("Note: a note") > text.index("ours answers")


@pytest.mark.parametrize(
    ("gemm", "limit"),
    [
        (Gemm("g", 1, 1.0, m=8), "bandwidth"),
        # 400 rows allow up to 400 operations per byte, but need not reach them.
        (Gemm("g", 1, 1.0, m=400), "unknown"),
        (Gemm("g", 1, 1.0), "unknown"),
        (Gemm("g", 1, 1.0, 4096, 4096, 4096), "arithmetic"),
    ],
)
def test_a_profile_says_what_limits_a_gemm_if_it_is_known(gemm: Gemm, limit: str, no_plots: None) -> None:
    stage = Stage("decode", stages_of(decode().events, H100)[DECODE])
    vars(stage)["gemms"] = [gemm]
    [row] = [line for line in printed(stage_report("vlm", stage)).splitlines() if line.split()[:1] == ["g"]]
    assert row.rstrip().endswith(limit)
    made = profile_page("vlm", [stage], "kubectl vlm profile vlm", [], ["trace.json.gz"])
    assert re.search(rf"<td>g</td>.*<td[^>]*>{limit}</td></tr>", made)
    assert "kubectl vlm profile vlm" in Page(made).text


def test_columns_of_numbers_are_aligned_to_the_right() -> None:
    table = Table(("name", "ms", "span", "shape"), [("a", "1,234.5", "0.9 to 1.1", "8×64"), ("b", "-", "-", "-")])
    assert table.is_number() == [False, True, True, False]
    assert re.findall(r'<th( class="number")?>(\w+)', page("", [table], "")) == [
        ("", "name"), (' class="number"', "ms"), (' class="number"', "span"), ("", "shape"),
    ]  # fmt: skip


def ticks(svg: str) -> list[float]:
    """The numbers below the axis, from left to right."""
    axis = svg[svg.index('id="matplotlib.axis_1"') : svg.index('id="matplotlib.axis_2"')]
    return [float(text) for text in re.findall(r">([0-9.]+)</text>", axis)]


def test_ratios_far_apart_have_a_logarithmic_axis_and_others_a_plain_one() -> None:
    far = ticks(ratio_plot([("requests/s", 0.23, 0.12, 0.83), ("TPOT p50", 18.0, 4.5, 35.9)], "ratio"))
    assert {0.2, 0.5, 1, 2, 5, 10, 20} <= set(far)
    near = ticks(ratio_plot([("requests/s", 1.05, 0.98, 1.12)], "ratio"))
    assert len(near) >= 3
    assert len({round(b - a, 6) for a, b in pairwise(near)}) == 1


def test_a_label_is_drawn_as_it_is_written() -> None:
    name = "{'a=$\\frac$': '$x_{'}"
    for drawn in (ratio_plot([(name, 1.05, 0.98, 1.12)], name), shares_plot({name: {name: 1.0}}, [name], name)):
        assert f">{name}</text>" in unescape(drawn)
