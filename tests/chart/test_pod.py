"""The operator's pod."""

from typing import Any

from chart.rendering import only, render_chart


def pod(values: dict[str, Any] | None = None) -> dict[str, Any]:
    return only(render_chart(values), "Deployment")["spec"]["template"]["spec"]


def test_only_tmp_is_writable_and_has_a_size_limit() -> None:
    spec = pod()
    container = spec["containers"][0]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/tmp"]
    assert spec["volumes"][0]["emptyDir"]["sizeLimit"]


def test_a_new_pod_starts_before_the_old_one_stops() -> None:
    strategy = only(render_chart(), "Deployment")["spec"]["strategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def test_probes_use_a_port_of_the_pod() -> None:
    container = pod()["containers"][0]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": 8080}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}


def test_the_pod_has_a_memory_limit_and_no_cpu_limit() -> None:
    resources = pod()["containers"][0]["resources"]
    assert resources["requests"].keys() == {"cpu", "memory"}
    assert resources["limits"].keys() == {"memory"}


def test_scheduling_values_are_set_on_the_pod() -> None:
    options = {
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "priorityClassName": "system-cluster-critical",
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
        ],
    }
    spec = pod(options)
    assert {name: spec[name] for name in options} == options
