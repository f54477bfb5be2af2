"""Random trouble for an operator with many services, and what is left of them afterwards.

    python benchmarks/chaos.py [--services 50] [--steps 200] [--seed 1]

Each step changes a spec, scales, deletes or edits a child, deletes and makes a service anew, flips a node's labels, cordons
or removes a node, kills the operator, or stops the API server for a moment. At the end an operator that has seen nothing of
it is started: it must find nothing to write. Every object must belong to a service that is there, and the pods' templates of
services whose specs nobody changed must be what they were.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from control_plane import (
    DEPLOYMENTS,
    LABEL,
    SERVICES,
    Api,
    add_nodes,
    install,
    node,
    server_pid,
    service,
    still,
    together,
    writes,
)
from reconcile import Operator

from minicluster.errors import ClusterError
from minicluster.local import apiserver

CORE = "/api/v1/namespaces/default"
NODES = 12
OWNED = {
    "Deployment": DEPLOYMENTS,
    "Service": f"{CORE}/services",
    "ConfigMap": f"{CORE}/configmaps",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
    "ControllerRevision": "/apis/apps/v1/namespaces/default/controllerrevisions",
}


@dataclass
class Result:
    """What is left."""

    steps: dict[str, int] = field(default_factory=dict)
    written_by_a_fresh_operator: dict[str, int] = field(default_factory=dict)
    orphans: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    """Unchanged services whose pods' template is another one."""
    unfinished: list[str] = field(default_factory=list)
    """Services whose status is not about their present spec."""

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.written_by_a_fresh_operator or self.orphans or self.replaced or self.unfinished)


class Chaos:
    """One run."""

    def __init__(self, api: Api, operator: Operator, names: list[str], seed: int, server_pid: int) -> None:
        self._api, self._operator, self._names, self._server_pid = api, operator, names, server_pid
        self._random = random.Random(seed)
        self.changed: set[str] = set()
        self._gone_nodes: set[int] = set()

    def step(self) -> str:
        """Does one thing and returns its name."""
        chosen = self._random.choice(
            [
                self.change, self.change, self.three_changes, self.scale, self.delete_child, self.delete_child,
                self.edit_child, self.anew, self.flip_label, self.timestamp, self.cordon, self.node_goes_or_comes,
                self.kill_operator, self.pause_server,
            ]
        )  # fmt: skip
        chosen()
        return chosen.__name__

    def _some(self, changing: bool = False) -> str:
        # Half of all services are never changed, so that there is something to compare.
        half = len(self._names) // 2
        name = self._random.choice(self._names[:half] if changing else self._names)
        if changing:
            self.changed.add(name)
        return name

    def change(self) -> None:
        concurrency = self._random.choice([8, 64, 200, 400])
        self._api.merge(f"{SERVICES}/{self._some(True)}", {"spec": {"workload": {"concurrency": concurrency}}})

    def three_changes(self) -> None:
        name = self._some(True)
        for concurrency in (16, 32, self._random.choice([48, 64])):
            self._api.merge(f"{SERVICES}/{name}", {"spec": {"workload": {"concurrency": concurrency}}})

    def scale(self) -> None:
        self._api.merge(f"{SERVICES}/{self._some()}", {"spec": {"replicas": self._random.randint(0, 4)}})

    def delete_child(self) -> None:
        path = self._random.choice([OWNED["Deployment"], OWNED["Service"], OWNED["NetworkPolicy"]])
        self._delete(f"{path}/{self._child(path)}")

    def edit_child(self) -> None:
        name = self._child(DEPLOYMENTS)
        patch = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1}}, "replicas": 9}}
        self._patch(f"{DEPLOYMENTS}/{name}", patch)

    def anew(self) -> None:
        name = self._some(True)
        self._delete(f"{SERVICES}/{name}")
        self._api("POST", SERVICES, service(name, concurrency=self._random.choice([8, 64])))

    def flip_label(self) -> None:
        index = self._random.randrange(NODES)
        product = self._random.choice(["NVIDIA-H100-80GB-HBM3", "NVIDIA-L40S", None])
        self._patch(f"/api/v1/nodes/node-{index}", {"metadata": {"labels": {"nvidia.com/gpu.product": product}}})

    def timestamp(self) -> None:
        stamp = {"metadata": {"labels": {"nvidia.com/gfd.timestamp": str(self._random.random())}}}
        for index in set(range(NODES)) - self._gone_nodes:
            self._patch(f"/api/v1/nodes/node-{index}", stamp)

    def cordon(self) -> None:
        index = self._random.randrange(NODES)
        self._patch(f"/api/v1/nodes/node-{index}", {"spec": {"unschedulable": self._random.random() < 0.5}})

    def node_goes_or_comes(self) -> None:
        if self._gone_nodes and self._random.random() < 0.5:
            index = self._gone_nodes.pop()
            self._api("POST", "/api/v1/nodes", node(index))
            self._api.merge(f"/api/v1/nodes/node-{index}", {"spec": {"taints": None}})
            return
        index = self._random.randrange(NODES)
        if index not in self._gone_nodes:
            self._delete(f"/api/v1/nodes/node-{index}")
            self._gone_nodes.add(index)

    def kill_operator(self) -> None:
        self._operator.stop()
        time.sleep(self._random.random() / 2)
        self._operator.start()

    def pause_server(self) -> None:
        """The API server answers nobody for a moment, and connections stay open."""
        os.kill(self._server_pid, signal.SIGSTOP)
        time.sleep(self._random.random() * 2)
        os.kill(self._server_pid, signal.SIGCONT)

    def _child(self, path: str) -> str:
        there = [o["metadata"]["name"] for o in self._api("GET", f"{path}?labelSelector={LABEL}")["items"]]
        return str(self._random.choice(sorted(there))) if there else "none"

    def _delete(self, path: str) -> None:
        unless_gone(partial(self._api, "DELETE", path))

    def _patch(self, path: str, patch: dict[str, Any]) -> None:
        unless_gone(partial(self._api.merge, path, patch))


def unless_gone(call: Callable[[], Any]) -> None:
    """Calls. That the object is gone (404), or is another one of that name by now (409), is no error."""
    try:
        call()
    except OSError as error:
        if not any(f": {status} " in str(error) for status in (404, 409)):
            raise


def templates(api: Api) -> dict[str, str]:
    """The pods' template of each Deployment, as text."""
    found = api("GET", f"{DEPLOYMENTS}?labelSelector={LABEL}")["items"]
    return {d["metadata"]["name"]: json.dumps(d["spec"]["template"], sort_keys=True) for d in found}


def play_pods(api: Api, names: list[str]) -> None:
    """A pod on a node for each service: from then on its plan stays."""

    def pod(index: int) -> None:
        live = api("GET", f"{DEPLOYMENTS}/{names[index]}")
        labels = live["spec"]["template"]["metadata"]["labels"]
        where = {"nodeName": f"node-{index % NODES}", "tolerations": [{"operator": "Exists"}]}
        spec = {"containers": [{"name": "main", "image": "x"}], **where}
        metadata = {"name": f"{names[index]}-0", "labels": labels}
        api("POST", f"{CORE}/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    together(pod, range(len(names)))


def collect(api: Api) -> bool:
    """What a garbage collector does, which does not run here: objects whose owner is gone go. Returns whether any did."""
    uids = {s["metadata"]["uid"] for s in api("GET", SERVICES)["items"]}
    gone = [
        (f"{path}/{o['metadata']['name']}", {"preconditions": {"uid": o["metadata"]["uid"]}})
        for path in OWNED.values()
        for o in api("GET", f"{path}?labelSelector={LABEL}")["items"]
        if not {r["uid"] for r in o["metadata"].get("ownerReferences") or []} & uids
    ]
    for path, only in gone:
        # The operator removes old plans itself, and may make another object of that name at any moment.
        unless_gone(partial(api, "DELETE", path, only))
    return bool(gone)


def look(api: Api, result: Result) -> None:
    """Orphans, and services that nobody has seen to."""
    services = {s["metadata"]["name"]: s for s in api("GET", SERVICES)["items"]}
    uids = {s["metadata"]["uid"] for s in services.values()}
    for kind, path in OWNED.items():
        for found in api("GET", f"{path}?labelSelector={LABEL}")["items"]:
            owners = {o["uid"] for o in found["metadata"].get("ownerReferences") or []}
            if not owners <= uids or not owners:
                result.orphans.append(f"{kind}/{found['metadata']['name']}")
    for name, found in services.items():
        status = found.get("status") or {}
        ready = next((c["reason"] for c in status.get("conditions") or [] if c["type"] == "Ready"), None)
        if status.get("observedGeneration") != found["metadata"]["generation"] or ready == "NameTaken":
            result.unfinished.append(name)


def run(folder: Path, services: int, steps: int, seed: int, say: Callable[[str], None] = lambda text: None) -> Result:
    """All of it, with an API server and an operator of its own."""
    result = Result()
    with apiserver(folder) as server:
        api = Api(server.url, folder / "pki")
        install(api)
        add_nodes(api, NODES)
        operator = Operator(server.kubeconfig, folder / "operator.log", "--no-leader-election")
        try:
            names = [f"vlm-{n}" for n in range(services)]
            together(lambda name: api("POST", SERVICES, service(name)), names)
            still(operator.counts, 2, 120)
            play_pods(api, names)
            still(operator.counts, 2, 120)
            before = templates(api)
            chaos = Chaos(api, operator, names, seed, server_pid(folder))
            for number in range(steps):
                done = chaos.step()
                result.steps[done] = result.steps.get(done, 0) + 1
                say(f"{number + 1}: {done}")
                if number % 10 == 9:
                    collect(api)
            still(operator.counts, 4, 180)
            while collect(api):
                still(operator.counts, 2, 180)
            operator.stop()
            counted = api.requests()
            operator.start()
            still(operator.counts, 3, 120)
            result.written_by_a_fresh_operator = writes(counted, api.requests())
            look(api, result)
            after = templates(api)
            same = [n for n in names if n not in chaos.changed]
            result.replaced = [n for n in same if after.get(n) != before[n]]
        finally:
            operator.stop()
    return result


def main() -> int:
    """Runs it and says what is left."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--services", type=int, default=50)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left running
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = run(
                Path(folder), options.services, options.steps, options.seed, lambda text: print(text, file=sys.stderr)
            )
        except (ClusterError, TimeoutError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    print(f"seed {options.seed}: {sum(result.steps.values())} steps in {time.monotonic() - started:.0f} s")
    print(", ".join(f"{n} x {step}" for step, n in sorted(result.steps.items())))
    for name in ("written_by_a_fresh_operator", "orphans", "replaced", "unfinished"):
        print(f"{name.replace('_', ' ')}: {getattr(result, name) or 'none'}")
    return 0 if result.good else 1


if __name__ == "__main__":
    sys.exit(main())
