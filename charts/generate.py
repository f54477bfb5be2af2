"""Generates the chart's dashboards (Grafana JSON) and its README.md from dashboards.yaml and values.yaml: ``make chart``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

FOLDER: Final = Path(__file__).resolve().parent
CHART: Final = FOLDER / "vlm-operator"
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS, WIDTH, HEIGHT = 3, 8, 8
VARIABLES: Final = {
    "namespace": "label_values(vlm_runtime_ready, namespace)",
    "vlmservice": 'label_values(vlm_runtime_ready{namespace="$namespace"}, vlmservice)',
}
Json = dict[str, Any]


def dashboards(source: str) -> Iterator[tuple[str, Json]]:
    """(file name, Grafana dashboard) for each entry of dashboards.yaml."""
    for described in yaml.safe_load(source):
        yield f"{described['file']}.json", dashboard(described)


def dashboard(described: Mapping[str, Any]) -> Json:
    """A Grafana dashboard with three panels per line."""
    panels: list[Json] = []
    y = 0
    for row in described["rows"]:
        panels.append({"id": len(panels) + 1, "type": "row", "title": row["title"], "collapsed": False, "panels": []})
        panels[-1]["gridPos"] = {"x": 0, "y": y, "w": COLUMNS * WIDTH, "h": 1}
        y += 1
        for position, entry in enumerate(row["panels"]):
            place = {"x": position % COLUMNS * WIDTH, "y": y + position // COLUMNS * HEIGHT, "w": WIDTH, "h": HEIGHT}
            panels.append({"id": len(panels) + 1, "gridPos": place, **panel(entry)})
        y += -(-len(row["panels"]) // COLUMNS) * HEIGHT
    return {
        "uid": f"vlm-{described['file']}",
        "title": described["title"],
        "tags": ["vlm-operator"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [datasource(), *(variable(name) for name in described["variables"])]},
        "annotations": {"list": []},
        "links": [
            {"type": "dashboards", "title": "VLM", "tags": ["vlm-operator"], "asDropdown": True, "includeVars": True}
        ],
        "panels": panels,
    }


def panel(entry: Mapping[str, Any]) -> Json:
    """A Grafana panel. Its description says if it needs a GPU and when it is empty."""
    kind = entry.get("kind", "timeseries")
    what = entry["what"]
    if needs := entry.get("needs"):
        what += f" Needs a {needs}."
    if when := entry.get("empty_while"):
        what += f" Empty while {when}."
    result: Json = {
        "type": kind,
        "title": entry["title"],
        "description": what,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": {"unit": entry["unit"]}, "overrides": []},
        "targets": [target(letter, query, kind) for letter, query in zip("ABCDEF", entry["queries"], strict=False)],
    }
    if kind == "timeseries":
        result["fieldConfig"]["defaults"] |= {"min": 0, "custom": {"fillOpacity": 10, "showPoints": "never"}}
        result["options"] = {"tooltip": {"mode": "multi"}, "legend": {"displayMode": "list", "placement": "bottom"}}
    return result


def target(letter: str, query: Mapping[str, str], kind: str) -> Json:
    """A query of a panel; tables show current values only."""
    query_json = {"refId": letter, "datasource": DATASOURCE, "expr": query["expr"], "legendFormat": query["legend"]}
    return query_json | ({"instant": True, "format": "table"} if kind == "table" else {"range": True})


def datasource() -> Json:
    """The variable for the data source."""
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "current": {}}


def variable(name: str) -> Json:
    """A variable for a label's value."""
    query = {"query": VARIABLES[name], "refId": name}
    return {
        "name": name, "label": name, "type": "query", "datasource": DATASOURCE, "query": query, "refresh": 2, "sort": 1,
    }  # fmt: skip


@dataclass(frozen=True)
class Value:
    """A value in values.yaml: dotted name, default as written, and the comment above it."""

    name: str
    default: str
    comment: str


def values(text: str) -> Iterator[Value]:
    """Every value with a default, and the comment directly above it."""
    comment: list[str] = []
    path: list[str] = []
    for line in text.splitlines()[1:]:
        if not line.strip():
            comment = []
            continue
        if note := re.match(r"\s*# (.*)", line):
            comment.append(note[1])
            continue
        key = re.match(r"( *)([A-Za-z]+):(?: (.*))?$", line)
        if key is None:
            raise ValueError(f"values.yaml: cannot parse {line!r}")
        path = [*path[: len(key[1]) // 2], key[2]]
        if key[3] is not None:
            yield Value(".".join(path), key[3], " ".join(comment))
        comment = []


def readme(text: str, metadata: Mapping[str, Any]) -> str:
    """The chart's README. Raises ValueError for a value without a comment."""
    rows = []
    for value in values(text):
        if not value.comment:
            raise ValueError(f"values.yaml: {value.name} has no comment")
        comment = value.comment.replace("|", "\\|")
        rows.append(f"| `{value.name}` | `{value.default}` | {comment} |")
    return "\n".join(
        [
            f"# {metadata['name']}",
            "",
            metadata["description"],
            "See [Install](../../docs/install.md). `make chart` generates this list of values from `values.yaml`.",
            "",
            f"Requires Kubernetes {metadata['kubeVersion'].removeprefix('>=').removesuffix('-0')} or newer.",
            "",
            "| value | default | description |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def files() -> dict[Path, str]:
    """Everything that is generated."""
    metadata = yaml.safe_load((CHART / "Chart.yaml").read_text())
    result = {CHART / "README.md": readme((CHART / "values.yaml").read_text(), metadata)}
    for name, content in dashboards((FOLDER / "dashboards.yaml").read_text()):
        result[CHART / "files" / "dashboards" / name] = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    return result


if __name__ == "__main__":
    for path, content in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
