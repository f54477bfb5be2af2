"""The demo's Prometheus: a configuration that Prometheus takes, and what becomes of a dashboard's queries."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from demo import monitoring
from monitoring.promtool import promtool
from monitoring.rendered import manifests


def test_prometheus_takes_what_the_pod_monitors_become(tmp_path: Path) -> None:
    made = monitoring.configuration(list(manifests()))
    assert [job["job_name"].rpartition("/")[0] for job in made["scrape_configs"]] == [
        "vlm-system/vlm-operator",
        "vlm-system/vlm-operator-services",
        "vlm-system/vlm-operator-services",
    ]
    (tmp_path / "rules.yaml").write_text("groups: []\n")
    (tmp_path / "targets.json").write_text("[]")
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(made))
    done = promtool("check", "config", str(tmp_path / "prometheus.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_port_of_a_pod_is_a_target_with_the_labels_of_kubernetes_discovery() -> None:
    pod = {
        "kind": "Pod",
        "metadata": {"namespace": "ml", "name": "vlm-0", "labels": {"vlmserve.dev/service": "vlm"}},
        "spec": {
            "nodeName": "a",
            "containers": [{"name": "main", "ports": [{"name": "http", "containerPort": 8000}, {"containerPort": 1}]}],
        },
        "status": {"podIP": "10.0.0.1", "phase": "Running"},
    }
    node = {"kind": "Node", "metadata": {"name": "a", "annotations": {"kwok.x-k8s.io/node": "fake"}}}
    first, second = monitoring.targets([pod, node, {**pod, "status": {"phase": "Pending"}}])
    assert (first["targets"], second["targets"]) == (["10.0.0.1:8000"], ["10.0.0.1:1"])
    found = {name.removeprefix("__meta_kubernetes_"): value for name, value in first["labels"].items()}
    assert found["pod_container_port_name"] == "http"
    assert found["pod_label_vlmserve_dev_service"] == "vlm"
    assert found["node_annotation_kwok_x_k8s_io_node"] == "fake"


def test_a_query_is_asked_for_one_service_as_grafana_would() -> None:
    query = 'rate(a{namespace="$namespace",vlmservice="$vlmservice"}[$__rate_interval])'
    assert monitoring.filled_in(query, "ml", "vlm") == 'rate(a{namespace="ml",vlmservice="vlm"}[1m])'


def test_a_panel_is_told_when_one_of_its_queries_has_no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    has_data = {"a"}
    monkeypatch.setattr(monitoring, "answer", lambda url, query: [{"value": [0, "1"]}] if query in has_data else [])

    def panel(**changes: Any) -> monitoring.Panel:
        return monitoring.Panel(**{"dashboard": "D", "title": "T", "queries": ("a", "b"), "needs_gpu": False,
                                   "may_be_empty": False, **changes})  # fmt: skip

    assert monitoring.without_data("", [panel()]) == ["D, T: b"]
    assert monitoring.without_data("", [panel(needs_gpu=True), panel(may_be_empty=True)]) == []
    assert monitoring.without_data("", [panel(queries=("a",))]) == []


def test_a_quantile_of_nothing_is_no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    class Answer:
        def __enter__(self) -> "Answer":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def read(self, *_: object) -> bytes:
            return json.dumps({"data": {"result": [{"value": [0, "NaN"]}, {"value": [0, "2"]}]}}).encode()

    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: Answer())
    assert monitoring.answer("http://p", "a") == [{"value": [0, "2"]}]
