"""An operator as a process of its own beside the API server, and waiting for what it does."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from minicluster.ports import free_port

IMAGE = "registry.example/vlm-operator:1"
# What the operator may take for anything that a person waits for.
SOON_SECONDS = 5.0


class Operator:
    """One operator process."""

    def __init__(self, kubeconfig: Path, log: Path, *options: str, namespace: str = "default") -> None:
        self._kubeconfig = kubeconfig
        self._namespace = namespace
        self._log = log
        self._options = options
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, until: str = "watching") -> Operator:
        """Starts it, and waits until ``/readyz`` says so."""
        environment = {**os.environ, "KUBECONFIG": str(self._kubeconfig), "POD_NAMESPACE": self._namespace}
        command = [sys.executable, "-m", "vlm_operator", "--runtime-image", IMAGE]
        command += ["--metrics-address", f"127.0.0.1:{self._port}", *self._options]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        eventually(lambda: until in self.get("/readyz"), seconds=30, what=self.said)
        return self

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Sends a signal and returns the exit code."""
        self._process.send_signal(number)
        return self._process.wait(20)

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def said(self) -> str:
        """Its log."""
        return self._log.read_text()

    def get(self, path: str) -> str:
        """What it answers to HTTP; empty while it does not."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            return str(error.read().decode())
        except OSError:
            return ""

    def metric(self, name: str, label: str = "") -> float:
        """The sum over all label values, or over those with ``label``, such as ``result="error"``."""
        lines = re.findall(rf"^{re.escape(name)}(?:{{(.*)}})? (\S+)$", self.get("/metrics"), re.MULTILINE)
        return sum(float(value) for labels, value in lines if label in labels)


def eventually(
    condition: Callable[[], Any], *, seconds: float = SOON_SECONDS, what: Callable[[], Any] = lambda: ""
) -> Any:
    """The first true value of ``condition``; an exception of it counts as not yet."""
    until = time.monotonic() + seconds
    while True:
        try:
            found = condition()
        except (AssertionError, LookupError, StopIteration):
            found = None
        if found:
            return found
        if time.monotonic() >= until:
            pytest.fail(f"not within {seconds} s: {_said(what)}")
        time.sleep(0.05)


def _said(what: Callable[[], Any]) -> Any:
    try:
        return what()
    except LookupError as error:
        return error


class World:
    """One namespace. What people do goes through kubectl; looking, which is done all the time, through plain HTTP."""

    def __init__(self, kubectl: Any, namespace: str) -> None:
        self._kubectl = kubectl
        self._http = reader(kubectl.kubeconfig)
        self.namespace = namespace

    def __call__(self, *arguments: str, stdin: dict[str, Any] | None = None) -> str:
        return str(self._kubectl("-n", self.namespace, *arguments, stdin=stdin))

    def apply(self, name: str = "vlm", **spec: Any) -> dict[str, Any]:
        """Applies a VLMService as a user does, and returns what the API server made of it."""
        spec.setdefault("model", QWEN)
        manifest = {"apiVersion": "vlmserve.dev/v1alpha1", "kind": "VLMService", "metadata": {"name": name}}
        text = self("apply", "--server-side", "-o", "json", "-f", "-", stdin={**manifest, "spec": spec})
        return dict(json.loads(text))

    def starts(self, name: str = "vlm", **spec: Any) -> None:
        """Applies a VLMService with traffic and waits for its first pods."""
        self.apply(name, **({"workload": TRAFFIC} | spec))
        self.wait_for("False", "Starting", name=name)

    def patch(self, patch: dict[str, Any], name: str = "vlm") -> None:
        """Merges a patch into a VLMService, sooner than kubectl would."""
        group, plural = PATHS["vlms"]
        path = f"/{group}/namespaces/{self.namespace}/{plural}/{name}"
        headers = {"Content-Type": "application/merge-patch+json"}
        self._http.patch(path, content=json.dumps(patch), headers=headers).raise_for_status()

    def get(self, kind: str, name: str = "vlm") -> dict[str, Any]:
        """A live object; LookupError where there is none."""
        group, plural = PATHS[kind]
        answer = self._http.get(f"/{group}/namespaces/{self.namespace}/{plural}/{name}")
        if answer.status_code == 404:
            raise LookupError(f"{kind}/{name}")
        return dict(answer.raise_for_status().json())

    def exists(self, kind: str, name: str = "vlm") -> bool:
        try:
            return bool(self.get(kind, name))
        except LookupError:
            return False

    def condition(self, kind: str = "Ready", name: str = "vlm") -> tuple[str, str, str]:
        """Status, reason and message of a condition; LookupError while the operator has said nothing."""
        conditions = self.get("vlms", name).get("status", {}).get("conditions", [])
        found = next((c for c in conditions if c["type"] == kind), None)
        if found is None:
            raise LookupError(f"{name} has no condition {kind}")
        return found["status"], found["reason"], found["message"]

    def wait_for(
        self, status: str, reason: str, kind: str = "Ready", name: str = "vlm", *, seconds: float = SOON_SECONDS
    ) -> str:
        """Waits for a condition and returns its message."""
        eventually(
            lambda: self.condition(kind, name)[:2] == (status, reason),
            seconds=seconds,
            what=lambda: self.condition(kind, name),
        )
        return self.condition(kind, name)[2]

    def plan_hash(self, name: str = "vlm") -> str:
        return str(self.get("vlms", name)["status"]["plan"]["hash"])

    def status_of(self, kind: str, name: str, **status: Any) -> None:
        """Plays the controller or kubelet that is not here."""
        self("patch", kind, name, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))

    def serving(self, name: str = "vlm", replicas: int = 1) -> None:
        """Plays a Deployment whose pods all serve."""
        generation = self.get("deployment", name)["metadata"]["generation"]
        counts = dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas", "availableReplicas"), replicas)
        self.status_of("deployment", name, observedGeneration=generation, **counts)

    def pod(self, name: str, *, node: str | None = None, plan_hash: str | None = None, **status: Any) -> None:
        """Plays a pod of the service ``vlm``."""
        labels = self.get("deployment")["spec"]["template"]["metadata"]["labels"]
        labels["vlmserve.dev/plan"] = plan_hash or labels["vlmserve.dev/plan"]
        spec = {"containers": [{"name": "main", "image": "x"}], "tolerations": [{"operator": "Exists"}]}
        if node:
            spec["nodeName"] = node
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
        self("create", "-f", "-", stdin=manifest)
        if status:
            self.status_of("pod", name, **status)

    def inspecting_job(self, name: str = "vlm") -> str:
        """The name of the one Job that reads the model of a service, as soon as it is there."""
        return str(eventually(lambda: self.jobs(name)[0]["metadata"]["name"]))

    def jobs(self, name: str = "vlm") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(
            self("get", "jobs", "-l", f"vlmserve.dev/service={name}", "-o", "json")
        )["items"]
        return found

    def answers(self, job: str, said: dict[str, Any] | None = None, **status: Any) -> None:
        """Plays the Job's controller and a kubelet: the Job's pod, which has ended with these last words."""
        if said is not None:
            ended = {"exitCode": 1 if "failure" in said else 0, "reason": "Completed", "message": json.dumps(said)}
            image = {"name": "inspect", "image": "x", "imageID": "x", "ready": False, "restartCount": 0}
            status |= {"phase": "Succeeded", "containerStatuses": [{**image, "state": {"terminated": ended}}]}
        live = self.get("job", job)
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": job,
            "uid": live["metadata"]["uid"],
            "controller": True,
        }
        template = live["spec"]["template"]
        metadata = {"name": f"{job}-0", "labels": template["metadata"]["labels"], "ownerReferences": [owner]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        self("create", "-f", "-", stdin=pod)
        self.status_of("pod", f"{job}-0", **status)

    def versions(self) -> dict[str, str]:
        """The resource version of everything in the namespace that the operator may write."""
        kinds = "vlms,deployments,services,configmaps,networkpolicies,events.events.k8s.io,horizontalpodautoscalers,pdb"
        items = json.loads(self("get", kinds, "-o", "json"))["items"]
        return {f"{i['kind']}/{i['metadata']['name']}": i["metadata"]["resourceVersion"] for i in items}


PATHS = {
    "vlms": ("apis/vlmserve.dev/v1alpha1", "vlmservices"),
    "deployment": ("apis/apps/v1", "deployments"),
    "service": ("api/v1", "services"),
    "configmap": ("api/v1", "configmaps"),
    "job": ("apis/batch/v1", "jobs"),
    "networkpolicy": ("apis/networking.k8s.io/v1", "networkpolicies"),
    "hpa": ("apis/autoscaling/v2", "horizontalpodautoscalers"),
    "pdb": ("apis/policy/v1", "poddisruptionbudgets"),
    "leaderworkerset": ("apis/leaderworkerset.x-k8s.io/v1", "leaderworkersets"),
}


@functools.cache
def reader(kubeconfig: Path) -> httpx.Client:
    """A client with the administrator's certificate."""
    pki = kubeconfig.parent / "pki"
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    server = json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    return httpx.Client(base_url=server, verify=context, timeout=10)


TRAFFIC = {"concurrency": 400, "images": {"width": 512, "height": 512}}
QWEN = {
    "uri": "hf://Qwen/Qwen3-VL-8B-Instruct",
    "architecture": "Qwen3VLForConditionalGeneration",
    "parametersBillion": 8,
}

_PRODUCTS = {
    "h100": ("NVIDIA-H100-80GB-HBM3", 81559, 9, 0, "hopper"),
    "l40s": ("NVIDIA-L40S", 46068, 8, 9, "ada-lovelace"),
    "t4": ("Tesla-T4", 15360, 7, 5, "turing"),
}


def ended(message: str) -> list[dict[str, Any]]:
    """Container statuses of a pod whose engine's container has just ended."""
    terminated = {"exitCode": 1, "reason": "Error", "message": message}
    status = {"name": "main", "image": "x", "imageID": "x", "ready": False, "restartCount": 1}
    return [{**status, "state": {"terminated": terminated}}]


def add_node(kubectl: Any, name: str, product: str, count: int = 8) -> None:
    """A node as GPU feature discovery and the device plugin leave it."""
    gpu, memory, major, minor, family = _PRODUCTS[product]
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": gpu,
        "nvidia.com/gpu.memory": str(memory),
        "nvidia.com/gpu.compute.major": str(major),
        "nvidia.com/gpu.compute.minor": str(minor),
        "nvidia.com/gpu.family": family,
        "nvidia.com/gpu.count": str(count),
        "nvidia.com/gpu.replicas": "1",
    }
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    kubectl("create", "-f", "-", stdin=node)
    resources = {"nvidia.com/gpu": str(count), "cpu": "64", "memory": "1000Gi"}
    status = {"allocatable": resources, "capacity": resources, "conditions": [{"type": "Ready", "status": "True"}]}
    kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    # The API server marks every new node as not ready; the controller that would take it back is not here.
    kubectl("patch", "node", name, "--type=merge", "-p", '{"spec":{"taints":null}}')


def settled(read: Callable[[], Any], seconds: float = 30) -> Any:
    """What is read once it stands still for a second: the API server counts a request a moment after its answer."""
    last, since, deadline = read(), time.monotonic(), time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.2)
        if (now := read()) != last:
            last, since = now, time.monotonic()
        elif time.monotonic() - since > 1:
            return last
    raise AssertionError(f"still changing after {seconds} s, now {last}")


def writes(kubectl: Any) -> dict[str, float]:
    """How many writing requests the API server has had, by resource, as it counts them itself."""
    found: dict[str, float] = {}
    for labels, value in re.findall(
        r"^apiserver_request_total{(.*)} (\S+)$", kubectl("get", "--raw", "/metrics"), re.M
    ):
        said = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if said["verb"] not in ("GET", "LIST", "WATCH", "CONNECT") and said["resource"] in OURS:
            found[said["resource"]] = found.get(said["resource"], 0) + float(value)
    return found


def settled_writes(kubectl: Any) -> dict[str, float]:
    """``writes`` once a second has passed without one: a condition is there before the Event that tells of it."""
    before, last = writes(kubectl), time.monotonic()
    until = last + 30
    while (now := time.monotonic()) < last + 1:
        time.sleep(0.2)
        if (found := writes(kubectl)) != before:
            before, last = found, now
        assert now < until, f"still written to: {found}"
    return before


OURS = {
    "vlmservices",
    "deployments",
    "services",
    "configmaps",
    "jobs",
    "events",
    "horizontalpodautoscalers",
    "poddisruptionbudgets",
    "networkpolicies",
    "pods",
    "nodes",
}
