"""The pages: they stand alone, say the verdict first, and show what was measured."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from unit.measure.rounds import result, round_at
from unit.measure.test_result import CURVE, curve
from unit.measure.test_trace import H100, decode

from vlm_operator.measure import plots
from vlm_operator.measure.profile_report import profile_report
from vlm_operator.measure.report import NO_PLOTS, bench_report, table
from vlm_operator.measure.stages import DECODE, stages_of
from vlm_operator.measure.timeline import Stage
from vlm_operator.measure.twin import Change


class Page(HTMLParser):
    """Text, tags that load something, and whether tags are closed in their order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.loads, self.open = "", [], []  # type: ignore[var-annotated]
        self.feed(page)
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


def compared(*names: str) -> list[str]:
    rounds = [round_at(n, t, 4.0 * (1 + t) + 0.01 * n) for n in range(1, 7) for t in (0, 1)]
    return [bench_report([result(rounds, *names)])]


def test_a_comparison_says_its_verdict_and_stands_alone() -> None:
    [page] = compared("ours", "theirs")
    found = Page(page)
    assert found.loads == []
    assert re.search(r"ours answers 99\.\d% more requests/s than theirs", found.text)
    assert page.count("<svg") == 2
    assert "kubectl vlm bench qwen3-vl" in found.text
    assert "url(" not in re.sub(r"url\(#\w+\)", "", page)


def test_names_cannot_break_out_of_the_page() -> None:
    [page] = compared("ours", "http://x/<script>alert(1)</script>&y")
    assert "<script" not in page
    Page(page)


def test_a_curve_shows_its_knee() -> None:
    page = bench_report([result(curve((1, 40, 900), (8, 8, 1500), (64, 2, 2400), (400, 1.9, 14_000)), load=CURVE)])
    assert "the knee is at 64 at once" in Page(page).text
    assert ">knee<" in page


def test_what_each_setting_is_worth_is_one_plot_of_all() -> None:
    rounds = [round_at(n, t, 4.0 * (1 + t) + 0.01 * n) for n in range(1, 7) for t in (0, 1)]
    one = replace(result(rounds, "ours", "a=0"), change=Change("a_setting", 0, 22))
    other = replace(result(rounds, "ours", "b=lru"), change=Change("b_setting", "lru", "priority"))
    page = bench_report([one, other])
    first = page[: page.index("</svg>")]
    assert "What each setting is worth" in first
    assert "a_setting" in first
    assert "b_setting" in first
    Page(page)


def test_failures_are_said_first() -> None:
    page = bench_report([result([round_at(1, 0, 4.0, failed=30)], complete=False)])
    assert Page(page).text.index("30 of 40 requests") < Page(page).text.index("Throughput")


def test_a_profile_shows_kinds_of_work_and_gemms_that_memory_holds_up() -> None:
    stage = Stage("decode", stages_of(decode().events, H100)[DECODE])
    page = profile_report("qwen3-vl", [stage], "kubectl vlm profile qwen3-vl", [], ["trace.json.gz"])
    found = Page(page)
    assert "72% of the kernels' time is GEMMs" in found.text
    assert "M=8 (batch size)" in found.text
    assert page.count("<svg") == 1


def test_the_same_measurement_makes_the_same_page() -> None:
    assert compared("ours", "theirs") == compared("ours", "theirs")


def test_without_matplotlib_the_tables_stay_and_the_page_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "available", lambda: False)
    [page] = compared("ours", "theirs")
    assert NO_PLOTS in Page(page).text.replace("&#x27;", "'")
    assert "<svg" not in page
    assert "requests/s" in page


def test_columns_of_numbers_are_told_from_texts() -> None:
    made = table(["name", "ms", "span", "shape"], [("a", "1,234.5", "0.9 to 1.1", "8×64"), ("b", "-", "-", "-")])
    assert re.findall(r"<th( class=text)?>(\w+)", made) == [
        (" class=text", "name"), ("", "ms"), ("", "span"), (" class=text", "shape"),
    ]  # fmt: skip
