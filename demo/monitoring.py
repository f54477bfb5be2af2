"""A real Prometheus that scrapes what the chart's PodMonitors say, with the chart's rules; and what its dashboards show."""

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
# A minute has to be enough to see something.
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
    """A panel of a dashboard, with its queries ready to be asked."""

    dashboard: str
    title: str
    queries: tuple[str, ...]
    needs_gpu: bool
    may_be_empty: bool


def manifests(cluster: Cluster) -> list[Json]:
    """The chart with everything of monitoring turned on; objects that this cluster has no controller for."""
    command = [cluster.helm_program, "template", RELEASE, CHART, f"--namespace={NAMESPACE}", "--values=-"]
    text = run(command, what="rendering the chart", stdin=yaml.safe_dump(EVERYTHING))
    return [found for found in yaml.safe_load_all(text) if found]


def start(cluster: Cluster) -> str:
    """Prometheus on this machine, with the cluster's pods as its targets. Returns its URL."""
    found = manifests(cluster)
    (rules,) = [m for m in found if m["kind"] == "PrometheusRule"]
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "rules.yaml").write_text(yaml.safe_dump(rules["spec"]))
    (FOLDER / "prometheus.yaml").write_text(yaml.safe_dump(configuration(found)))
    find_targets(cluster)
    said = run([*SCRIPT, "prometheus", FOLDER / "prometheus.yaml"], what="starting Prometheus")
    address = re.search(r"Prometheus: (\S+)", said)
    if address is None:
        raise DemoError(f"Prometheus did not say where it is: {said}")
    return address[1]


def find_targets(cluster: Cluster) -> None:
    """Tells Prometheus, which watches the file, of the pods that are there now."""
    found = targets(cluster.get("pods,nodes", "--all-namespaces")["items"])
    passing = FOLDER / "targets.new"
    passing.write_text(json.dumps(found))
    passing.replace(FOLDER / "targets.json")


def targets(objects: list[Json]) -> list[Json]:
    """Every port of every pod, with the labels that Prometheus' own discovery of pods gives: Debian builds it without."""
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
    """``__meta_`` labels of one port of a pod, as far as PodMonitors use them."""
    metadata = pod["metadata"]
    found = {
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
        found[f"pod_label_{meta(label)}"] = value
        found[f"pod_labelpresent_{meta(label)}"] = "true"
    return {f"__meta_kubernetes_{name}": value for name, value in found.items()}


def configuration(found: list[Json]) -> Json:
    """What the Prometheus operator makes of PodMonitors, as far as ours use it."""
    return {
        "global": {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            scrape_config(monitor, number)
            for monitor in found
            if monitor["kind"] == "PodMonitor"
            for number in range(len(monitor["spec"]["podMetricsEndpoints"]))
        ],
    }


def scrape_config(monitor: Mapping[str, Any], number: int) -> Json:
    """One endpoint of a PodMonitor. Simulated nodes' pods only look as if they ran, so they are no targets."""
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
    """A PodMonitor's relabeling as Prometheus writes it."""
    return {re.sub(r"[A-Z]", lambda upper: f"_{upper[0].lower()}", name): value for name, value in rule.items()}


def meta(label: str) -> str:
    """A label's name as Prometheus' service discovery writes it."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", label)


def panels(found: list[Json], namespace: str, service: str) -> Iterator[Panel]:
    """All panels of all dashboards, for one service."""
    texts = [
        text for m in found if "grafana_dashboard" in m["metadata"].get("labels", {}) for text in m["data"].values()
    ]
    for dashboard in map(json.loads, texts):
        for panel in dashboard["panels"]:
            if panel["type"] != "row":
                asked = (t["expr"] for t in panel["targets"])
                yield Panel(
                    dashboard["title"],
                    panel["title"],
                    tuple(filled_in(query, namespace, service) for query in asked),
                    "Needs a GPU." in panel["description"],
                    "Empty while " in panel["description"],
                )


def filled_in(query: str, namespace: str, service: str) -> str:
    """The query as Grafana sends it."""
    for variable, value in (("__rate_interval", RATE_INTERVAL), ("namespace", namespace), ("vlmservice", service)):
        query = query.replace(f"${variable}", value)
    return query


def answer(url: str, query: str) -> list[Json]:
    """Series that Prometheus has for the query now. DemoError where it refuses it or does not answer."""
    address = f"{url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(address, timeout=30) as response:
            found: list[Json] = json.load(response)["data"]["result"]
    except urllib.error.HTTPError as error:
        raise DemoError(f"Prometheus refuses {query}: {error.read().decode(errors='replace')[:300]}") from error
    except OSError as error:
        raise DemoError(f"Prometheus does not answer at {url}: {error}") from error
    # A quantile of nothing is NaN, which a panel shows as nothing.
    return [series for series in found if series["value"][1] != "NaN"]


def without_data(url: str, asked: list[Panel]) -> list[str]:
    """Panels of which a query has no data now, though it needs no GPU and its emptiness is no good sign."""
    return [
        f"{panel.dashboard}, {panel.title}: {query}"
        for panel in asked
        if not panel.needs_gpu and not panel.may_be_empty
        for query in panel.queries
        if not answer(url, query)
    ]


def until_all_have_data(url: str, asked: list[Panel], seconds: float) -> list[str]:
    """Waits until every such panel shows something; what is still empty then."""
    deadline = time.monotonic() + seconds
    while (empty := without_data(url, asked)) and time.monotonic() < deadline:
        time.sleep(2)
    return empty


@contextmanager
def traffic(base: str, model: str, api_key: str = "") -> Iterator[None]:
    """One question after the other while the block runs, so that there is something to be seen."""
    stop = threading.Event()

    def go_on() -> None:
        # An image that was seen before is in the engine's caches, and the vision tower has nothing to do.
        for shade in itertools.cycle(range(256)):
            if stop.is_set():
                return
            try:
                ask(base, model, "What is this?", lambda text: None, max_tokens=16, api_key=api_key, shade=shade)
            except DemoError:
                stop.wait(1)

    asking = threading.Thread(target=go_on, daemon=True)
    asking.start()
    try:
        yield
    finally:
        stop.set()
        asking.join(120)
