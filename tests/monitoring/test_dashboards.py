"""Every dashboard is up to date, queries only existing metrics, and has valid queries and descriptions."""

import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from monitoring.known import known
from monitoring.promql import metrics_of
from monitoring.promtool import promtool
from monitoring.rendered import dashboards

REPOSITORY = Path(__file__).resolve().parents[2]
NEEDS_A_GPU = ("vlm_runtime_gpu_", "vlmserve_feature_pool_", "vlmservice:feature_pool_")


def generate() -> ModuleType:
    spec = spec_from_file_location("chart_generate", REPOSITORY / "charts" / "generate.py")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def panels() -> Iterator[Any]:
    for name, dashboard in dashboards().items():
        for panel in dashboard["panels"]:
            if panel["type"] != "row":
                yield pytest.param(panel, id=f"{name}: {panel['title']}")


def filled_in(query: str) -> str:
    """The query as Grafana sends it."""
    return query.replace("$__rate_interval", "5m").replace("$namespace", "ml").replace("$vlmservice", "vlm")


def test_the_generated_files_of_the_chart_are_up_to_date() -> None:
    outdated = [str(path) for path, content in generate().files().items() if path.read_text() != content]
    assert not outdated, "run `make chart`"


def test_a_value_without_a_comment_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"a\.b has no comment"):
        generate().readme("#\na:\n  b: 1\n", {"name": "", "description": "", "kubeVersion": ""})


def test_there_is_a_dashboard_for_a_service_a_fleet_and_the_operator() -> None:
    assert {d["uid"] for d in dashboards().values()} == {"vlm-service", "vlm-fleet", "vlm-operator"}


@pytest.mark.parametrize("panel", list(panels()))
def test_a_panel_queries_exported_metrics(panel: dict[str, Any]) -> None:
    assert panel["targets"]
    for target in panel["targets"]:
        asked = metrics_of(filled_in(target["expr"]))
        assert asked
        assert asked - known() == set()


@pytest.mark.parametrize("panel", list(panels()))
def test_a_panel_has_a_description_that_states_whether_it_needs_a_gpu(panel: dict[str, Any]) -> None:
    asked = {name for target in panel["targets"] for name in metrics_of(filled_in(target["expr"]))}
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert ("Needs a GPU." in panel["description"]) == any(name.startswith(NEEDS_A_GPU) for name in asked)


def test_every_query_is_valid(tmp_path: Path) -> None:
    queries = {filled_in(t["expr"]) for d in dashboards().values() for p in d["panels"] for t in p.get("targets", [])}
    rules = [{"record": f"query_{number}", "expr": query} for number, query in enumerate(sorted(queries))]
    assert len(rules) > 50
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    done = promtool("check", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_panels_do_not_overlap() -> None:
    for name, dashboard in dashboards().items():
        taken: dict[tuple[int, int], str] = {}
        for panel in dashboard["panels"]:
            place = panel["gridPos"]
            for x in range(place["x"], place["x"] + place["w"]):
                for y in range(place["y"], place["y"] + place["h"]):
                    assert taken.setdefault((x, y), panel["title"]) == panel["title"], f"{name}: {panel['title']}"
