"""The adapter's rules in docs/autoscaling.md give the autoscaler, for each pod, the number that it asks for by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from monitoring.known import known
from monitoring.promql import metrics_of
from monitoring.promtool import promtool

from vlm_operator.render.objects import IN_FLIGHT_METRIC

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "autoscaling.md").read_text()
BLOCKS = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)]
PLUGIN, ENGINE = (rule for block in BLOCKS if "rules" in block for rule in block["rules"]["custom"])
POD = 'namespace="ml",vlmservice="vlm",endpoint="http"'


def asked(rule: dict[str, Any], group: str) -> str:
    """The query that the adapter makes of a rule when an autoscaler asks for the pods a and b, as its templates say."""
    series = rule["seriesQuery"].partition("{")[0]
    values = {"Series": series, "LabelMatchers": 'namespace="ml",pod=~"a|b"', "GroupBy": group}
    query: str = rule["metricsQuery"]
    for name, value in values.items():
        query = query.replace(f"<<.{name}>>", value)
    assert "<<" not in query
    return query


def answers(tmp_path: Path, query: str, series: dict[str, str], expected: dict[str, float]) -> str:
    """What promtool finds wrong with the expectation: pod -> value, of the query over the series."""
    samples = [{"labels": f'{{pod="{pod}"}}' if pod else "{}", "value": value} for pod, value in expected.items()]
    test = {
        "interval": "15s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": query, "eval_time": "5m", "exp_samples": samples}],
    }
    path = tmp_path / "test.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [], "evaluation_interval": "15s", "tests": [test]}))
    done = promtool("test", "rules", str(path))
    return done.stdout + done.stderr if done.returncode else ""


def test_the_pods_own_metric_is_served_under_its_name(tmp_path: Path) -> None:
    assert PLUGIN["seriesQuery"].startswith(f"{IN_FLIGHT_METRIC}{{")
    assert "name" not in PLUGIN, "without a name the series' own is used"
    series = {
        f'{IN_FLIGHT_METRIC}{{{POD},pod="{pod}"}}': f"{value}x40" for pod, value in (("a", 3), ("b", 5), ("c", 7))
    }
    assert answers(tmp_path, asked(PLUGIN, "pod"), series, {"a": 3, "b": 5}) == ""


def test_an_engine_without_it_is_counted_by_its_own_gauges_once_for_all_ranks(tmp_path: Path) -> None:
    assert ENGINE["name"] == {"as": IN_FLIGHT_METRIC}
    series = {
        f'sglang:{name}{{{POD},pod="a",tp_rank="{rank}"}}': f"{value}x40"
        for name, value in (("num_running_reqs", 30), ("num_queue_reqs", 12))
        for rank in (0, 1)
    }
    assert answers(tmp_path, asked(ENGINE, "pod"), series, {"a": 42}) == ""


def test_a_rule_for_engines_without_it_leaves_the_others_their_own_number(tmp_path: Path) -> None:
    series = {
        f'{IN_FLIGHT_METRIC}{{{POD},pod="a"}}': "9x40",
        **{f'sglang:num_running_reqs{{{POD},pod="{pod}"}}': "3x40" for pod in ("a", "b")},
        **{f'sglang:num_queue_reqs{{{POD},pod="{pod}"}}': "1x40" for pod in ("a", "b")},
    }
    assert answers(tmp_path, asked(ENGINE, "pod"), series, {"a": 9, "b": 4}) == ""


def test_pods_of_which_nothing_is_known_have_no_value_rather_than_none_in_flight(tmp_path: Path) -> None:
    for rule in (PLUGIN, ENGINE):
        assert answers(tmp_path, asked(rule, "pod"), {}, {}) == ""


def test_a_scaler_by_query_asks_for_the_sum_of_a_service(tmp_path: Path) -> None:
    (scaled,) = [block for block in BLOCKS if block.get("kind") == "ScaledObject"]
    (trigger,) = scaled["spec"]["triggers"]
    query = trigger["metadata"]["query"]
    assert trigger["metadata"]["ignoreNullValues"] == "false", "pods that are not scraped are no idle pods"
    series = {
        f'{IN_FLIGHT_METRIC}{{namespace="default",vlmservice="{service}",pod="{service}-{pod}"}}': "4x40"
        for service in ("qwen3-vl", "other")
        for pod in (0, 1)
    }
    assert answers(tmp_path, query, series, {"": 8}) == ""


@pytest.mark.parametrize("rule", [PLUGIN, ENGINE], ids=["plugin", "engine"])
def test_a_rule_asks_for_metrics_that_are_exported(rule: dict[str, Any]) -> None:
    assert metrics_of(asked(rule, "pod")) - known() == set()
