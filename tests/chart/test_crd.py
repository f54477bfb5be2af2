"""The CRD that the chart brings."""

from __future__ import annotations

import yaml
from chart.rendering import CHART, REPOSITORY, only, render_chart

SOURCE = REPOSITORY / "crds" / "vlmservices.vlmserve.dev.yaml"
COPY = CHART / "files" / SOURCE.name


def test_the_chart_s_file_is_the_generated_one() -> None:
    assert COPY.read_text() == SOURCE.read_text(), "run `make crds`"


def test_helm_changes_nothing_in_the_schema() -> None:
    rendered = only(render_chart(), "CustomResourceDefinition")
    assert rendered["spec"] == yaml.safe_load(SOURCE.read_text())["spec"]


def test_the_crd_outlives_the_release() -> None:
    annotations = only(render_chart(), "CustomResourceDefinition")["metadata"]["annotations"]
    source = yaml.safe_load(SOURCE.read_text())["metadata"].get("annotations", {})
    assert annotations == {**source, "helm.sh/resource-policy": "keep"}


def test_someone_else_may_bring_the_crd() -> None:
    kinds = [manifest["kind"] for manifest in render_chart({"crds": {"install": False}})]
    assert "CustomResourceDefinition" not in kinds
    assert "Deployment" in kinds
