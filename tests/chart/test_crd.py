"""The CRD in the chart."""

import yaml
from chart.rendering import CHART, REPOSITORY, only, render_chart

SOURCE = REPOSITORY / "crds" / "vlmservices.vlmserve.dev.yaml"
COPY = CHART / "files" / SOURCE.name


def test_the_chart_s_file_is_up_to_date() -> None:
    assert COPY.read_text() == SOURCE.read_text(), "run `make crds`"


def test_helm_does_not_change_the_schema() -> None:
    rendered = only(render_chart(), "CustomResourceDefinition")
    assert rendered["spec"] == yaml.safe_load(SOURCE.read_text())["spec"]


def test_the_crd_is_kept_after_uninstall() -> None:
    annotations = only(render_chart(), "CustomResourceDefinition")["metadata"]["annotations"]
    source = yaml.safe_load(SOURCE.read_text())["metadata"].get("annotations", {})
    assert annotations == {**source, "helm.sh/resource-policy": "keep"}


def test_the_crd_can_be_installed_separately() -> None:
    kinds = [manifest["kind"] for manifest in render_chart({"crds": {"install": False}})]
    assert "CustomResourceDefinition" not in kinds
    assert "Deployment" in kinds
