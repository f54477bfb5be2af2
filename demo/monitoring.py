"""A real Prometheus with the chart's PodMonitors and rules, and the values of the chart's dashboards."""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import yaml

from demo.commands import STATE, Cluster, run
from demo.machine import SCRIPT
from demo.question import ask
from demo.screen import DemoError
from demo.services import CHART, NAMESPACE, RELEASE

FOLDER: Final = STATE / "monitoring"
# Short, so that a minute is enough to see data.
INTERVAL: Final = "5s"
RATE_INTERVAL: Final = "1m"
EVERYTHING: Final = {
    "image": {"repository": "not.used/here"},
    "metrics": {"podMonitor": {"enabled": True}},
    "monitoring": {
        "services": {"podMonitor": {"enabled": True}},
        "rules": {"enabled": True},
        "dashboards": {"enabled": True},
    },
}
Json = dict[str, Any]


@dataclass(frozen=True)
class Panel:
    """A panel of a dashboard with its queries."""

    dashboard: str
    title: str
    queries: tuple[str, ...]
    needs_gpu: bool
    may_be_empty: bool


def manifests(cluster: Cluster) -> list[Json]:
    """The chart's objects with all monitoring enabled."""
    command = [cluster.helm_program, "template", RELEASE, CHART, f"--namespace={NAMESPACE}", "--values=-"]
    text = run(command, what="rendering the chart", stdin=yaml.safe_dump(EVERYTHING))
    return [document for document in yaml.safe_load_all(text) if document]


def start(cluster: Cluster) -> str:
    """Starts Prometheus on this machine with the cluster's pods as targets. Returns its URL."""
    objects = manifests(cluster)
    (rules,) = [m for m in objects if m["kind"] == "PrometheusRule"]
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "rules.yaml").write_text(yaml.safe_dump(rules["spec"]))
    (FOLDER / "prometheus.yaml").write_text(yaml.safe_dump(configuration(objects)))
    find_targets(cluster)
    output = run([*SCRIPT, "prometheus", FOLDER / "prometheus.yaml"], what="starting Prometheus")
    address = re.search(r"Prometheus: (\S+)", output)
    if address is None:
        raise DemoError(f"Prometheus did not print its address: {output}")
    return address[1]


def find_targets(cluster: Cluster) -> None:
    """Writes the current pods to the targets file, which Prometheus watches."""
    current = targets(cluster.get("pods,nodes", "--all-namespaces")["items"])
    new = FOLDER / "targets.new"
    new.write_text(json.dumps(current))
    new.replace(FOLDER / "targets.json")


def targets(objects: list[Json]) -> list[Json]:
    """Every port of every pod with the labels of Prometheus' pod discovery, which Debian's build lacks."""
    nodes = {o["metadata"]["name"]: o["metadata"].get("annotations", {}) for o in objects if o["kind"] == "Node"}
    return [
        {
            "targets": [f"{pod['status']['podIP']}:{port['containerPort']}"],
            "labels": labels_of(pod, container, port, nodes),
        }
        for pod in objects
        if pod["kind"] == "Pod" and pod["status"].get("podIP") and "deletionTimestamp" not in pod["metadata"]
        for container in pod["spec"]["containers"]
        for port in container.get("ports", [])
    ]


def labels_of(pod: Json, container: Json, port: Json, nodes: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The ``__meta_`` labels of a pod's port that PodMonitors use."""
    metadata = pod["metadata"]
    labels = {
        "namespace": metadata["namespace"],
        "pod_name": metadata["name"],
        "pod_phase": pod["status"]["phase"],
        "pod_container_name": container["name"],
        "pod_container_port_name": port.get("name", ""),
        "node_annotation_kwok_x_k8s_io_node": nodes.get(pod["spec"].get("nodeName", ""), {}).get(
            "kwok.x-k8s.io/node", ""
        ),
    }
    for label, value in metadata.get("labels", {}).items():
        labels[f"pod_label_{meta(label)}"] = value
        labels[f"pod_labelpresent_{meta(label)}"] = "true"
    return {f"__meta_kubernetes_{name}": value for name, value in labels.items()}


def configuration(objects: list[Json]) -> Json:
    """The Prometheus configuration that the Prometheus Operator generates from our PodMonitors."""
    return {
        "global": {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            scrape_config(monitor, number)
            for monitor in objects
            if monitor["kind"] == "PodMonitor"
            for number in range(len(monitor["spec"]["podMetricsEndpoints"]))
        ],
    }


def scrape_config(monitor: Mapping[str, Any], number: int) -> Json:
    """One endpoint of a PodMonitor, without the pods of simulated nodes."""
    spec, metadata = monitor["spec"], monitor["metadata"]
    endpoint = spec["podMetricsEndpoints"][number]
    where = spec.get("namespaceSelector", {"matchNames": [metadata["namespace"]]})
    pod = "__meta_kubernetes_pod"
    rules: list[Json] = [
        {
            "action": "drop",
            "source_labels": ["__meta_kubernetes_node_annotation_kwok_x_k8s_io_node"],
            "regex": "fake",
        },
        {"action": "drop", "source_labels": [f"{pod}_phase"], "regex": "Pending|Succeeded|Failed"},
        {"action": "keep", "source_labels": [f"{pod}_container_port_name"], "regex": endpoint["port"]},
        *(
            {"action": "keep", "source_labels": [f"{pod}_label_{meta(label)}"], "regex": value}
            for label, value in spec["selector"].get("matchLabels", {}).items()
        ),
        *(
            {"action": "keep", "source_labels": [f"{pod}_labelpresent_{meta(e['key'])}"], "regex": "true"}
            for e in spec["selector"].get("matchExpressions", [])
            if e["operator"] == "Exists"
        ),
        {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
        {"source_labels": [f"{pod}_name"], "target_label": "pod"},
        {"source_labels": [f"{pod}_container_name"], "target_label": "container"},
        {"target_label": "endpoint", "replacement": endpoint["port"]},
        *map(relabeling, endpoint.get("relabelings", [])),
    ]
    if not where.get("any"):
        names = "|".join(where["matchNames"])
        rules.append({"action": "keep", "source_labels": ["__meta_kubernetes_namespace"], "regex": names})
    return {
        "job_name": f"{metadata['namespace']}/{metadata['name']}/{number}",
        "metrics_path": endpoint["path"],
        "file_sd_configs": [{"files": ["targets.json"]}],
        "relabel_configs": rules,
        "metric_relabel_configs": [relabeling(rule) for rule in endpoint.get("metricRelabelings", [])],
    }


def relabeling(rule: Mapping[str, Any]) -> Json:
    """A PodMonitor's relabeling in Prometheus' format."""
    return {re.sub(r"[A-Z]", lambda upper: f"_{upper[0].lower()}", name): value for name, value in rule.items()}


def meta(label: str) -> str:
    """A label's name in Prometheus' service discovery."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", label)


def panels(objects: list[Json], namespace: str, service: str) -> Iterator[Panel]:
    """All panels of all dashboards, for one service."""
    texts = [
        text for m in objects if "grafana_dashboard" in m["metadata"].get("labels", {}) for text in m["data"].values()
    ]
    for dashboard in map(json.loads, texts):
        for panel in dashboard["panels"]:
            if panel["type"] != "row":
                queries = (t["expr"] for t in panel["targets"])
                yield Panel(
                    dashboard["title"],
                    panel["title"],
                    tuple(filled_in(query, namespace, service) for query in queries),
                    "Needs a GPU." in panel["description"],
                    "Empty while " in panel["description"],
                )


def filled_in(query: str, namespace: str, service: str) -> str:
    """The query with Grafana's variables replaced."""
    for variable, value in (("__rate_interval", RATE_INTERVAL), ("namespace", namespace), ("vlmservice", service)):
        query = query.replace(f"${variable}", value)
    return query


def answer(url: str, query: str) -> list[Json]:
    """The current series of a query. Raises DemoError if Prometheus refuses it or does not respond."""
    address = f"{url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(address, timeout=30) as response:
            result: list[Json] = json.load(response)["data"]["result"]
    except urllib.error.HTTPError as error:
        raise DemoError(f"Prometheus refuses {query}: {error.read().decode(errors='replace')[:300]}") from error
    except OSError as error:
        raise DemoError(f"Prometheus does not respond at {url}: {error}") from error
    # A quantile without data is NaN; panels show nothing for it.
    return [series for series in result if series["value"][1] != "NaN"]


def without_data(url: str, asked: list[Panel]) -> list[str]:
    """Queries without data, of panels that need no GPU and should not be empty."""
    return [
        f"{panel.dashboard}, {panel.title}: {query}"
        for panel in asked
        if not panel.needs_gpu and not panel.may_be_empty
        for query in panel.queries
        if not answer(url, query)
    ]


def until_all_have_data(url: str, asked: list[Panel], seconds: float) -> list[str]:
    """Waits until every such panel has data. Returns the queries that are still empty."""
    deadline = time.monotonic() + seconds
    while (empty := without_data(url, asked)) and time.monotonic() < deadline:
        time.sleep(2)
    return empty


@contextmanager
def traffic(base: str, model: str, api_key: str = "") -> Iterator[None]:
    """Sends one request after the other while the block runs."""
    stop = threading.Event()

    def send() -> None:
        # A repeated image would come from the engine's caches and bypass the vision encoder.
        for shade in itertools.cycle(range(256)):
            if stop.is_set():
                return
            try:
                ask(base, model, "What is this?", lambda text: None, max_tokens=16, api_key=api_key, shade=shade)
            except DemoError:
                stop.wait(1)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(120)
