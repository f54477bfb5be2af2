"""Scrape configuration: both PodMonitors of services set the labels that rules and dashboards use."""

import pytest
from chart.rendering import ChartError, Manifest, render_chart
from monitoring.rendered import EVERYTHING, manifests
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.exposition import choose_encoder

from vlm_operator.manifests.monitor import pod_monitor

MONITORING = {"PodMonitor", "PrometheusRule"}


def monitor_of_services(rendered: list[Manifest]) -> Manifest:
    (found,) = [m for m in rendered if m["kind"] == "PodMonitor" and m["metadata"]["name"].endswith("-services")]
    return found


def test_the_chart_s_and_a_service_s_own_pod_monitor_have_the_same_endpoints() -> None:
    own = pod_monitor("vlm")
    of_chart = monitor_of_services(list(manifests()))

    def named(monitor: Manifest) -> dict[str, tuple[object, object, object]]:
        endpoints = monitor["spec"]["podMetricsEndpoints"]
        return {e["port"]: (e["relabelings"], e["metricRelabelings"], e.get("tlsConfig")) for e in endpoints}

    assert named(own) == named(of_chart)
    assert named(own).keys() == {"http", "runtime"}


def test_the_engine_s_client_library_still_renames_metrics_for_prometheus_2() -> None:
    # If this fails, the PodMonitors' metricRelabelings are no longer needed.
    own = CollectorRegistry()
    Gauge("sglang:num_running_reqs", "As the engine names it.", registry=own)
    of_2, of_3 = (
        choose_encoder(f"application/openmetrics-text;version=1.0.0{e}")[0] for e in ("", ";escaping=allow-utf-8")
    )
    assert b"\nsglang_num_running_reqs 0.0" in of_2(own)
    assert b"\nsglang:num_running_reqs 0.0" in of_3(own)


def test_the_chart_s_pod_monitor_selects_the_watched_namespaces() -> None:
    assert monitor_of_services(list(manifests()))["spec"]["namespaceSelector"] == {"any": True}
    some = monitor_of_services(render_chart({**EVERYTHING, "watchNamespaces": ["a", "b"]}))
    assert some["spec"]["namespaceSelector"] == {"matchNames": ["a", "b"]}


def test_without_the_prometheus_operator_none_of_its_kinds_are_rendered() -> None:
    assert not MONITORING & {m["kind"] for m in render_chart()}


def test_with_the_prometheus_operator_rules_dashboards_and_the_monitor_are_rendered() -> None:
    versions = [f"monitoring.coreos.com/v1/{kind}" for kind in MONITORING]
    found = render_chart(api_versions=versions)
    assert [m["metadata"]["name"] for m in found if m["kind"] == "PodMonitor"] == ["vlm-operator"]
    assert [m["kind"] for m in found].count("PrometheusRule") == 1
    assert [m for m in found if "grafana_dashboard" in m["metadata"].get("labels", {})]


def test_a_disabled_alert_is_omitted() -> None:
    values = {"monitoring": {"rules": {"enabled": True, "disabled": ["VLMHardwareDrift"]}}}
    (rule,) = [m for m in render_chart(values) if m["kind"] == "PrometheusRule"]
    names = {r.get("alert") for group in rule["spec"]["groups"] for r in group["rules"]}
    assert "VLMHardwareDrift" not in names
    assert "VLMServicesFailing" in names


def test_disabling_an_unknown_alert_is_an_error() -> None:
    values = {"monitoring": {"rules": {"enabled": True, "disabled": ["VLMHardwareDrifts"]}}}
    with pytest.raises(ChartError, match="unknown alert VLMHardwareDrifts"):
        render_chart(values)
