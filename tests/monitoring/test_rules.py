"""The chart's alerts and recording rules, run by promtool over series of an hour."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from monitoring.known import known
from monitoring.promql import metrics_of
from monitoring.promtool import promtool
from monitoring.rendered import alerts, groups, recorded, rules
from monitoring.rule_cases import AVAILABLE, CASES, WANTED, Case, services

from vlm_api.reasons import FAILURES

RUNBOOKS = Path(__file__).resolve().parents[2] / "docs" / "runbooks"
MINUTES = 60


@pytest.fixture(scope="module")
def rule_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rules") / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": groups()}))
    return path


def run(folder: Path, tests: list[dict[str, Any]]) -> str:
    """The errors of ``promtool test rules``; empty if all tests pass."""
    path = folder / "tests.yaml"
    path.write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}))
    done: subprocess.CompletedProcess[str] = promtool("test", "rules", str(path))
    return done.stdout + done.stderr if done.returncode else ""


def firing(alert: str, labels: dict[str, str]) -> str:
    matchers = ",".join(f'{name}="{value}"' for name, value in {"alertname": alert, **labels}.items())
    return f'count(ALERTS{{alertstate="firing",{matchers}}}) or vector(0)'


def as_test(case: Case, fires: int | None = None) -> dict[str, Any]:
    expected = {"labels": "{}", "value": case.fires if fires is None else fires}
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
        "promql_expr_test": [
            {
                "expr": firing(case.alert, case.labels),
                "eval_time": f"{case.minutes}m",
                "exp_samples": [expected],
            }
        ],
    }


def test_the_rules_are_valid(rule_file: Path) -> None:
    done = promtool("check", "rules", str(rule_file))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("case", CASES, ids=[f"{c.alert}: {c.what}" for c in CASES])
def test_an_alert_fires_only_when_expected(rule_file: Path, case: Case) -> None:
    assert run(rule_file.parent, [as_test(case)]) == ""


def test_a_wrong_expectation_fails(rule_file: Path) -> None:
    assert "FAILED" in run(rule_file.parent, [as_test(CASES[0], fires=0)])


def test_every_alert_has_a_firing_and_a_quiet_case() -> None:
    assert {c.alert for c in CASES if c.fires} == set(alerts())
    assert {c.alert for c in CASES if not c.fires} == set(alerts())


def test_no_alert_fires_without_data(rule_file: Path) -> None:
    quiet = [{"expr": "count(ALERTS) or vector(0)", "eval_time": f"{m}m", "exp_samples": [{"labels": "{}", "value": 0}]}
             for m in range(0, MINUTES, 5)]  # fmt: skip
    assert run(rule_file.parent, [{"interval": "1m", "input_series": [], "promql_expr_test": quiet}]) == ""


def test_an_outage_fires_throughout_fourteen_hours(rule_file: Path) -> None:
    series = {WANTED: "1x900", AVAILABLE: "1x20 0x880"}
    test = as_test(Case("VLMServiceDown", "", series, 1))
    (asked,) = test["promql_expr_test"]
    test["promql_expr_test"] = [{**asked, "eval_time": f"{minute}m"} for minute in range(25, 900, 5)]
    assert run(rule_file.parent, [test]) == ""


def test_an_alert_of_one_service_does_not_name_another(rule_file: Path) -> None:
    case = next(c for c in CASES if c.alert == "VLMQueueGrowing" and c.fires)
    both = {**case.series, **{k.replace('"vlm"', '"other"'): "1x60" for k in case.series}}
    test = as_test(Case(case.alert, "", both, 0, labels={"vlmservice": "other"}))
    test["promql_expr_test"] += as_test(Case(case.alert, "", both, 1, labels={"vlmservice": "vlm"}))["promql_expr_test"]
    assert run(rule_file.parent, [test]) == ""


@pytest.mark.parametrize("rule", rules(), ids=[rule.get("alert") or rule["record"] for rule in rules()])
def test_a_rule_queries_exported_metrics(rule: dict[str, Any]) -> None:
    asked = metrics_of(rule["expr"])
    assert asked or rule["expr"].startswith("vector(")
    assert asked - known() == set()


@pytest.mark.parametrize("alert", alerts().values(), ids=list(alerts()))
def test_an_alert_has_a_severity_and_annotations(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert {"summary", "description", "runbook_url"} == set(alert["annotations"])
    assert alert["annotations"]["runbook_url"] == f"docs/runbooks/{alert['alert']}.md"


@pytest.mark.parametrize("alert", alerts().values(), ids=list(alerts()))
def test_an_alert_has_the_labels_that_its_annotations_use(alert: dict[str, Any], rule_file: Path) -> None:
    used = set(re.findall(r"\$labels\.(\w+)", "".join(alert["annotations"].values())))
    case = next(c for c in CASES if c.alert == alert["alert"] and c.fires)
    test = as_test(case)
    there = ",".join(f'{label}!=""' for label in sorted(used))
    test["promql_expr_test"][0]["expr"] = f'count(ALERTS{{alertname="{alert["alert"]}",{there}}}) or vector(0)'
    assert run(rule_file.parent, [test]) == ""


def test_every_failure_reason_fires_an_alert(rule_file: Path) -> None:
    series = {services("Ready", "False", reason): "1x60" for reason in FAILURES}
    tests = [as_test(Case("VLMServicesFailing", "", series, 1, labels={"reason": reason})) for reason in FAILURES]
    assert run(rule_file.parent, tests) == ""


@pytest.mark.parametrize("alert", list(alerts()))
def test_an_alert_has_a_runbook_with_checks_and_fixes(alert: str) -> None:
    page = (RUNBOOKS / f"{alert}.md").read_text()
    assert page.startswith(f"# {alert}\n")
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == ["Check", "Fix"]


def test_every_runbook_has_an_alert() -> None:
    assert {path.stem for path in RUNBOOKS.glob("VLM*.md")} == set(alerts())


def test_recorded_names_state_level_metric_and_operation() -> None:
    for name in recorded():
        assert re.fullmatch(r"vlmservice:[a-z_]+:(sum|max|rate5m|p95_5m|ratio5m)|vlm:[a-z_]+_seconds", name), name
