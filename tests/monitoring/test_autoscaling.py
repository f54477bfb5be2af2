"""The adapter's rules in docs/autoscaling.md serve the metric that the autoscaler queries for each pod."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from monitoring.known import known
from monitoring.promql import metrics_of
from monitoring.promtool import promtool

from vlm_operator.manifests.workload import IN_FLIGHT_METRIC

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "autoscaling.md").read_text()
BLOCKS = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)]
PLUGIN, ENGINE = (rule for block in BLOCKS if "rules" in block for rule in block["rules"]["custom"])
POD = 'namespace="ml",vlmservice="vlm",endpoint="http"'


def asked(rule: dict[str, Any], group: str) -> str:
    """The adapter's query for a rule if an autoscaler requests the pods a and b."""
    series = rule["seriesQuery"].partition("{")[0]
    values = {"Series": series, "LabelMatchers": 'namespace="ml",pod=~"a|b"', "GroupBy": group}
    query: str = rule["metricsQuery"]
    for name, value in values.items():
        query = query.replace(f"<<.{name}>>", value)
    assert "<<" not in query
    return query


def answers(tmp_path: Path, query: str, series: dict[str, str], expected: dict[str, float]) -> str:
    """The errors of promtool if the query over the series does not give ``expected``: pod -> value."""
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


def test_the_plugin_s_metric_is_served_under_its_name(tmp_path: Path) -> None:
    assert PLUGIN["seriesQuery"].startswith(f"{IN_FLIGHT_METRIC}{{")
    assert "name" not in PLUGIN, "without a name, the metric keeps the name of the series"
    series = {
        f'{IN_FLIGHT_METRIC}{{{POD},pod="{pod}"}}': f"{value}x40" for pod, value in (("a", 3), ("b", 5), ("c", 7))
    }
    assert answers(tmp_path, asked(PLUGIN, "pod"), series, {"a": 3, "b": 5}) == ""


def test_an_engine_without_the_plugin_uses_its_gauges_once_for_all_ranks(tmp_path: Path) -> None:
    assert ENGINE["name"] == {"as": IN_FLIGHT_METRIC}
    series = {
        f'sglang:{name}{{{POD},pod="a",tp_rank="{rank}"}}': f"{value}x40"
        for name, value in (("num_running_reqs", 30), ("num_queue_reqs", 12))
        for rank in (0, 1)
    }
    assert answers(tmp_path, asked(ENGINE, "pod"), series, {"a": 42}) == ""


def test_the_engine_rule_keeps_the_plugin_s_value_of_other_pods(tmp_path: Path) -> None:
    series = {
        f'{IN_FLIGHT_METRIC}{{{POD},pod="a"}}': "9x40",
        **{f'sglang:num_running_reqs{{{POD},pod="{pod}"}}': "3x40" for pod in ("a", "b")},
        **{f'sglang:num_queue_reqs{{{POD},pod="{pod}"}}': "1x40" for pod in ("a", "b")},
    }
    assert answers(tmp_path, asked(ENGINE, "pod"), series, {"a": 9, "b": 4}) == ""


def test_pods_without_series_have_no_value_rather_than_zero(tmp_path: Path) -> None:
    for rule in (PLUGIN, ENGINE):
        assert answers(tmp_path, asked(rule, "pod"), {}, {}) == ""


def test_a_scaler_query_sums_the_pods_of_a_service(tmp_path: Path) -> None:
    (scaled,) = [block for block in BLOCKS if block.get("kind") == "ScaledObject"]
    (trigger,) = scaled["spec"]["triggers"]
    query = trigger["metadata"]["query"]
    assert trigger["metadata"]["ignoreNullValues"] == "false", "pods that are not scraped are not idle"
    series = {
        f'{IN_FLIGHT_METRIC}{{namespace="default",vlmservice="{service}",pod="{service}-{pod}"}}': "4x40"
        for service in ("qwen3-vl", "other")
        for pod in (0, 1)
    }
    assert answers(tmp_path, query, series, {"": 8}) == ""


@pytest.mark.parametrize("rule", [PLUGIN, ENGINE], ids=["plugin", "engine"])
def test_a_rule_queries_exported_metrics(rule: dict[str, Any]) -> None:
    assert metrics_of(asked(rule, "pod")) - known() == set()
