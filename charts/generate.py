"""Writes what the chart holds twice: dashboards as Grafana's JSON, and README.md from the comments in values.yaml.

``make chart`` runs it; a test says when its output is out of date.
"""

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
    """(file name, Grafana's dashboard) for each entry of dashboards.yaml."""
    for described in yaml.safe_load(source):
        yield f"{described['file']}.json", dashboard(described)


def dashboard(described: Mapping[str, Any]) -> Json:
    """Rows one below the other, panels three abreast."""
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
    """One panel. Its description says what it needs, and whether it is good that it is empty."""
    kind = entry.get("kind", "timeseries")
    what = entry["what"]
    if needs := entry.get("needs"):
        what += f" Needs a {needs}."
    if when := entry.get("empty_while"):
        what += f" Empty while {when}."
    made: Json = {
        "type": kind,
        "title": entry["title"],
        "description": what,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": {"unit": entry["unit"]}, "overrides": []},
        "targets": [target(letter, query, kind) for letter, query in zip("ABCDEF", entry["queries"], strict=False)],
    }
    if kind == "timeseries":
        made["fieldConfig"]["defaults"] |= {"min": 0, "custom": {"fillOpacity": 10, "showPoints": "never"}}
        made["options"] = {"tooltip": {"mode": "multi"}, "legend": {"displayMode": "list", "placement": "bottom"}}
    return made


def target(letter: str, query: Mapping[str, str], kind: str) -> Json:
    """One query of a panel; a table shows the present only."""
    made = {"refId": letter, "datasource": DATASOURCE, "expr": query["expr"], "legendFormat": query["legend"]}
    return made | ({"instant": True, "format": "table"} if kind == "table" else {"range": True})


def datasource() -> Json:
    """The choice of a Prometheus."""
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "current": {}}


def variable(name: str) -> Json:
    """A choice of one label's value."""
    query = {"query": VARIABLES[name], "refId": name}
    return {
        "name": name, "label": name, "type": "query", "datasource": DATASOURCE, "query": query, "refresh": 2, "sort": 1,
    }  # fmt: skip


@dataclass(frozen=True)
class Value:
    """One value of values.yaml: its dotted name, its default as it is written, and the comment above it."""

    name: str
    default: str
    comment: str


def values(text: str) -> Iterator[Value]:
    """Every value that has a default, with the comment right above it."""
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
            raise ValueError(f"values.yaml: cannot be read: {line!r}")
        path = [*path[: len(key[1]) // 2], key[2]]
        if key[3] is not None:
            yield Value(".".join(path), key[3], " ".join(comment))
        comment = []


def readme(text: str, metadata: Mapping[str, Any]) -> str:
    """The chart's page. Raises ValueError where a value has no comment."""
    rows = []
    for value in values(text):
        if not value.comment:
            raise ValueError(f"values.yaml: {value.name} has no comment")
        shown = value.comment.replace("|", "\\|")
        rows.append(f"| `{value.name}` | `{value.default}` | {shown} |")
    return "\n".join(
        [
            f"# {metadata['name']}",
            "",
            metadata["description"],
            "[Installing](../../docs/install.md) tells how; this page lists every value. It is made from `values.yaml`",
            "by `make chart`.",
            "",
            f"Needs Kubernetes {metadata['kubeVersion'].removeprefix('>=').removesuffix('-0')} or newer.",
            "",
            "| value | default | what |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def files() -> dict[Path, str]:
    """Everything that is generated."""
    metadata = yaml.safe_load((CHART / "Chart.yaml").read_text())
    made = {CHART / "README.md": readme((CHART / "values.yaml").read_text(), metadata)}
    for name, content in dashboards((FOLDER / "dashboards.yaml").read_text()):
        made[CHART / "files" / "dashboards" / name] = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    return made


if __name__ == "__main__":
    for path, content in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
