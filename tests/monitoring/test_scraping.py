"""What Prometheus is told to scrape: both PodMonitors of services give the labels that rules and dashboards go by."""

from __future__ import annotations

import pytest
from chart.rendering import ChartError, Manifest, render_chart
from monitoring.rendered import EVERYTHING, manifests
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.exposition import choose_encoder
from unit.render.samples import plan, service

from vlm_operator.render.objects import objects

MONITORING = {"PodMonitor", "PrometheusRule"}


def monitor_of_services(rendered: list[Manifest]) -> Manifest:
    (found,) = [m for m in rendered if m["kind"] == "PodMonitor" and m["metadata"]["name"].endswith("-services")]
    return found


def test_the_chart_s_and_a_service_s_own_pod_monitor_ask_alike_and_give_the_same_labels_and_names() -> None:
    (own,) = [
        o for o in objects(plan(), {"spec": {}}, service(metrics={"podMonitor": True})) if o["kind"] == "PodMonitor"
    ]
    of_chart = monitor_of_services(list(manifests()))

    def named(monitor: Manifest) -> dict[str, tuple[object, object, object]]:
        endpoints = monitor["spec"]["podMetricsEndpoints"]
        return {e["port"]: (e["relabelings"], e["metricRelabelings"], e.get("tlsConfig")) for e in endpoints}

    assert named(own) == named(of_chart)
    assert named(own).keys() == {"http", "runtime"}


def test_the_engine_s_client_library_still_changes_names_for_prometheus_2() -> None:
    # When this no longer holds, the PodMonitors' metricRelabelings are of no use any more.
    own = CollectorRegistry()
    Gauge("sglang:num_running_reqs", "As the engine names it.", registry=own)
    of_2, of_3 = (
        choose_encoder(f"application/openmetrics-text;version=1.0.0{e}")[0] for e in ("", ";escaping=allow-utf-8")
    )
    assert b"\nsglang_num_running_reqs 0.0" in of_2(own)
    assert b"\nsglang:num_running_reqs 0.0" in of_3(own)


def test_the_chart_s_pod_monitor_looks_where_the_operator_serves() -> None:
    assert monitor_of_services(list(manifests()))["spec"]["namespaceSelector"] == {"any": True}
    some = monitor_of_services(render_chart({**EVERYTHING, "watchNamespaces": ["a", "b"]}))
    assert some["spec"]["namespaceSelector"] == {"matchNames": ["a", "b"]}


def test_a_cluster_without_the_prometheus_operator_gets_none_of_its_kinds() -> None:
    assert not MONITORING & {m["kind"] for m in render_chart()}


def test_a_cluster_with_it_gets_rules_dashboards_and_the_operator_s_own_monitor() -> None:
    versions = [f"monitoring.coreos.com/v1/{kind}" for kind in MONITORING]
    found = render_chart(api_versions=versions)
    assert [m["metadata"]["name"] for m in found if m["kind"] == "PodMonitor"] == ["vlm-operator"]
    assert [m["kind"] for m in found].count("PrometheusRule") == 1
    assert [m for m in found if "grafana_dashboard" in m["metadata"].get("labels", {})]


def test_an_alert_that_is_not_wanted_is_left_out() -> None:
    values = {"monitoring": {"rules": {"enabled": True, "disabled": ["VLMHardwareDrift"]}}}
    (rule,) = [m for m in render_chart(values) if m["kind"] == "PrometheusRule"]
    names = {r.get("alert") for group in rule["spec"]["groups"] for r in group["rules"]}
    assert "VLMHardwareDrift" not in names
    assert "VLMServicesFailing" in names


def test_an_alert_that_is_not_there_cannot_be_left_out() -> None:
    values = {"monitoring": {"rules": {"enabled": True, "disabled": ["VLMHardwareDrifts"]}}}
    with pytest.raises(ChartError, match="no alert VLMHardwareDrifts"):
        render_chart(values)
