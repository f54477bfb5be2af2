"""A real Prometheus with the chart's rules and a fake of every exporter: each panel shows data.

tests/e2e checks the panels that need no GPU with a real engine, runtime and operator.
"""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
import yaml
from chart.rendering import only
from demo import monitoring
from monitoring import exporters
from monitoring.rendered import manifests

from minicluster.ports import LOOPBACK, free_port

SECONDS = 90.0


def pod(name: str, namespace: str, labels: dict[str, str], ports: dict[str, int]) -> dict[str, Any]:
    container = {"name": "main", "ports": [{"name": key, "containerPort": port} for key, port in ports.items()]}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"nodeName": "a", "containers": [container]},
        "status": {"podIP": LOOPBACK, "phase": "Running"},
    }


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("prometheus")
    rendered = list(manifests())
    selected = only(rendered, "Deployment")["spec"]["template"]["metadata"]["labels"]
    with ExitStack() as stack:
        engine, runtime, operator = (
            stack.enter_context(exporters.served(make()))
            for make in (exporters.engine, exporters.runtime, exporters.operator)
        )
        service = {"vlmserve.dev/service": "vlm", "vlmserve.dev/plan": "0123456789"}
        pods = [
            pod("vlm-0", "ml", service, {"http": engine, "runtime": runtime}),
            pod("operator-0", "vlm-system", selected, {"http": operator}),
        ]
        (folder / "rules.yaml").write_text(yaml.safe_dump(only(rendered, "PrometheusRule")["spec"]))
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(monitoring.configuration(rendered)))
        (folder / "targets.json").write_text(json.dumps(monitoring.targets(pods)))
        url = f"http://{LOOPBACK}:{free_port()}"
        command = ["prometheus", f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data"]
        command += [f"--web.listen-address={url.removeprefix('http://')}", "--log.level=warn"]
        process = stack.enter_context(subprocess.Popen(command))
        try:
            yield url
        finally:
            process.kill()


def until(url: str, query: str) -> list[dict[str, Any]]:
    """The first result that is not empty. Waits until Prometheus has started."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            found = monitoring.answer(url, query)
        except monitoring.DemoError:
            found = []
        if found or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


def test_every_target_of_the_pod_monitors_is_scraped_with_its_service_s_labels(prometheus: str) -> None:
    assert until(prometheus, "count(up) == 3")
    found = {s["metric"]["endpoint"]: s["metric"] for s in until(prometheus, 'up{vlmservice="vlm"} == 1')}
    assert found.keys() == {"http", "runtime"}
    assert {(m["namespace"], m["pod"], m["vlmplan"]) for m in found.values()} == {("ml", "vlm-0", "0123456789")}


def test_every_panel_shows_data_if_every_metric_is_exported(prometheus: str) -> None:
    assert until(prometheus, "up == 1")
    asked = list(monitoring.panels(list(manifests()), "ml", "vlm"))
    everywhere = [replace(panel, needs_gpu=False) for panel in asked]
    assert sum(panel.needs_gpu for panel in asked) > 8
    assert monitoring.until_all_have_data(prometheus, everywhere, SECONDS) == []
