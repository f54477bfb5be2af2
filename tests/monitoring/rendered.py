"""The chart's objects for Prometheus and Grafana."""

import json
from functools import cache
from typing import Any

from chart.rendering import Manifest, only, render_chart

from minicluster import build
from minicluster.paths import tool

EVERYTHING: dict[str, Any] = {
    "metrics": {"podMonitor": {"enabled": True}},
    "monitoring": {
        "services": {"podMonitor": {"enabled": True}},
        "rules": {"enabled": True},
        "dashboards": {"enabled": True},
    },
}


@cache
def manifests() -> tuple[Manifest, ...]:
    """All objects of the chart with all monitoring enabled."""
    if not tool("helm").is_file():
        build.build(["helm"])
    return tuple(render_chart(EVERYTHING))


def groups() -> list[dict[str, Any]]:
    """The groups of the PrometheusRule."""
    return only(list(manifests()), "PrometheusRule")["spec"]["groups"]


def rules() -> list[dict[str, Any]]:
    """Every rule, with ``record`` or ``alert``."""
    return [rule for group in groups() for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    """Name -> alert."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def recorded() -> set[str]:
    """Names of the recording rules."""
    return {rule["record"] for rule in rules() if "record" in rule}


def dashboards() -> dict[str, dict[str, Any]]:
    """File name -> dashboard."""
    found = [m for m in manifests() if m["kind"] == "ConfigMap" and "grafana_dashboard" in m["metadata"]["labels"]]
    return {name: json.loads(text) for config_map in found for name, text in config_map["data"].items()}
