"""The chart's values: their validation and their effect."""

import json
from pathlib import Path
from typing import Any

import pytest
import tomllib
import yaml
from chart.rendering import CHART, REPOSITORY, ChartError, helm, only, render_chart

from vlm_operator.manifests.network.site import parse_site
from vlm_operator.sglang.profiles.load import families

DIGEST = "sha256:" + "0" * 64


def container(values: dict[str, Any] | None = None) -> dict[str, Any]:
    pod = only(render_chart(values), "Deployment")["spec"]["template"]["spec"]
    assert len(pod["containers"]) == 1
    return pod["containers"][0]


def environment(values: dict[str, Any] | None = None) -> dict[str, Any]:
    return {variable["name"]: variable.get("value") for variable in container(values)["env"]}


@pytest.mark.parametrize(
    ("values", "named"),
    [
        pytest.param({"replicas": 2}, "replicas", id="a value of other charts"),
        pytest.param({"image": {"repo": "x"}}, "repo", id="a misspelt nested value"),
        pytest.param({"crds": {"enabled": False}}, "enabled", id="another chart's switch for CRDs"),
        pytest.param({"metrics": {"podMonitor": {"enable": True}}}, "enable", id="a misspelt value two levels down"),
        pytest.param({"watchNamespaces": "default"}, "watchNamespaces", id="a string instead of a list"),
        pytest.param({"watchNamespaces": ["Team_A"]}, "watchNamespaces", id="an invalid namespace name"),
        pytest.param({"image": {"repository": "r/x:v1"}}, "repository", id="a tag inside the repository"),
        pytest.param({"image": {"repository": "r/x", "digest": "abc"}}, "digest", id="a digest without its algorithm"),
        pytest.param({"profiles": {"ours": "family: ours"}}, "ours", id="a string instead of a family"),
        pytest.param({"profiles": {"ours": {"family": "ours"}}}, "architectures", id="a family without its models"),
        pytest.param({"profiles": {"Our Set": {}}}, "profiles", id="an invalid file name"),
        pytest.param(
            {"services": {"networkPolicy": {"extraEgress": [{}]}}},
            "extraEgress",
            id="a rule that would allow all egress",
        ),
        pytest.param(
            {"services": {"networkPolicy": {"extraEgress": [{"to": [{"ipBlock": {"cidr": "10.20.0.1"}}]}]}}},
            "cidr",
            id="an address without its prefix length",
        ),
        pytest.param({"services": {"networkPolicy": {"egress": []}}}, "egress", id="a misspelt list of rules"),
        pytest.param({"replicaCount": "two"}, "replicaCount", id="a string instead of a number"),
    ],
)
def test_an_invalid_value_is_rejected_by_name(values: dict[str, Any], named: str) -> None:
    with pytest.raises(ChartError, match=named):
        render_chart(values)


def test_the_schema_lists_exactly_the_values() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert paths_of_schema(schema) - {"global", "resources.claims"} == paths_of_values(values, schema)


def paths_of_schema(schema: dict[str, Any], prefix: str = "") -> set[str]:
    """Dotted names of all values in the schema; free-form maps and lists end a path."""
    found = set()
    for name, part in schema["properties"].items():
        assert part.get("type") != "object" or "properties" not in part or part["additionalProperties"] is False, name
        found |= paths_of_schema(part, f"{prefix}{name}.") if "properties" in part else {prefix + name}
    return found


def paths_of_values(values: dict[str, Any], schema: dict[str, Any], prefix: str = "") -> set[str]:
    found = set()
    for name, value in values.items():
        part = schema["properties"].get(name, {})
        found |= paths_of_values(value, part, f"{prefix}{name}.") if "properties" in part else {prefix + name}
    return found


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        pytest.param({}, "registry.test/vlm-operator:0.1.0", id="no tag: the chart's own version"),
        pytest.param({"tag": "dev"}, "registry.test/vlm-operator:dev", id="a tag"),
        pytest.param({"digest": DIGEST}, f"registry.test/vlm-operator@{DIGEST}", id="a digest"),
        pytest.param({"tag": "dev", "digest": DIGEST}, f"registry.test/vlm-operator@{DIGEST}", id="a digest wins"),
    ],
)
def test_the_operator_and_its_pods_use_the_configured_image(image: dict[str, str], reference: str) -> None:
    values = {"image": {"repository": "registry.test/vlm-operator", **image}}
    assert container(values)["image"] == reference
    assert environment(values)["VLM_OPERATOR_IMAGE"] == reference


def test_a_registry_port_is_not_parsed_as_a_tag() -> None:
    values = {"image": {"repository": "localhost:5000/team/vlm-operator", "tag": "a"}}
    assert container(values)["image"] == "localhost:5000/team/vlm-operator:a"


def test_without_an_image_the_error_says_how_to_get_one() -> None:
    with pytest.raises(ChartError, match=r"image\.repository: no image .* the Dockerfile.*\(docs/install\.md\)"):
        render_chart({"image": {"repository": ""}})


def test_custom_families_are_mounted_and_read_unchanged_by_the_operator(tmp_path: Path) -> None:
    shipped = yaml.safe_load((REPOSITORY / "operator/vlm_operator/sglang/profiles/qwen3_vl.yaml").read_text())
    manifests = render_chart({"profiles": {"ours": shipped}})
    config_map, pod = only(manifests, "ConfigMap"), only(manifests, "Deployment")["spec"]["template"]["spec"]
    (mount,) = [m for m in pod["containers"][0]["volumeMounts"] if m["name"] == "profiles"]
    (volume,) = [v for v in pod["volumes"] if v["name"] == "profiles"]
    assert volume["configMap"]["name"] == config_map["metadata"]["name"]
    assert environment({"profiles": {"ours": shipped}})["VLM_OPERATOR_PROFILES"] == mount["mountPath"]
    for name, text in config_map["data"].items():
        (tmp_path / name).write_text(text)
    assert sorted(config_map["data"]) == ["ours.yaml"]
    # Helm writes large numbers as 1.6777216e+07.
    read = {family.family: family for family in families(str(tmp_path))}
    assert read == {family.family: family for family in families(None)}


def test_a_changed_family_restarts_the_operator_and_no_family_adds_no_objects() -> None:
    def annotations(**profiles: Any) -> Any:
        return only(render_chart({"profiles": profiles}), "Deployment")["spec"]["template"]["metadata"].get(
            "annotations"
        )

    family = {"family": "ours", "architectures": ["A"], "images": {"patch_size": 14}}
    assert annotations() is None
    assert annotations(ours=family) != annotations(ours={**family, "architectures": ["B"]})
    assert not [m for m in render_chart() if m["kind"] == "ConfigMap"]


def test_the_operator_reads_the_egress_rules_unchanged() -> None:
    rules = [{"to": [{"ipBlock": {"cidr": "10.1.2.0/24"}}], "ports": [{"port": 443}]}]
    variables = environment({"services": {"networkPolicy": {"extraEgress": rules}}})
    assert parse_site(True, variables["VLM_OPERATOR_EXTRA_EGRESS"]).extra_egress == tuple(rules)
    assert "VLM_OPERATOR_NETWORK_POLICIES" not in variables


def test_disabled_network_policies_reach_the_operator() -> None:
    assert environment({"services": {"networkPolicy": {"enabled": False}}})["VLM_OPERATOR_NETWORK_POLICIES"] == "false"


def test_chart_and_project_have_the_same_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    assert chart["version"] == chart["appVersion"] == project


def test_helm_lint_reports_only_the_missing_icon() -> None:
    output = helm("lint", str(CHART), "--strict", values={"image": {"repository": "registry.test/vlm-operator"}})
    assert [line for line in output.splitlines() if line.startswith("[")] == ["[INFO] Chart.yaml: icon is recommended"]


def test_the_pod_monitor_selects_the_operator_s_pods() -> None:
    manifests = render_chart({"metrics": {"podMonitor": {"enabled": True, "labels": {"release": "prometheus"}}}})
    monitor, pod = only(manifests, "PodMonitor"), only(manifests, "Deployment")["spec"]["template"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    names = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
    assert {endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]} <= names


def test_the_metrics_service_selects_the_operator_s_pods() -> None:
    manifests = render_chart()
    service, pod = only(manifests, "Service"), only(manifests, "Deployment")["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()


def test_a_long_release_name_gives_valid_object_names() -> None:
    for manifest in render_chart(name="a-rather-long-release-name-that-a-pipeline-made-up-01"):
        if manifest["kind"] != "CustomResourceDefinition":
            assert len(manifest["metadata"]["name"]) <= 63 + len("-lease")
            assert manifest["kind"] != "Service" or len(manifest["metadata"]["name"]) <= 63
