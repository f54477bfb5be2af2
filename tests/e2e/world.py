"""One namespace of the real cluster as its users see it: kubectl, conditions, pods, and what explains a failure."""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from minicluster import kube
from minicluster.paths import KUBECONFIG, tool
from minicluster.shell import Argument, attempt

Json = dict[str, Any]
Found = TypeVar("Found")

OPERATOR_NAMESPACE, OPERATOR = "vlm-system", "vlm-operator"
# How long a person waits for what needs no engine: a condition, a pod, an object that is made again.
SOON_SECONDS = 15.0
# An engine starts in 40 to 75 s on two free cores; another program beside it may double that.
START_SECONDS = 240.0


def eventually(
    look: Callable[[], Found | None], what: str, *, seconds: float = SOON_SECONDS, pause: float = 0.25
) -> Found:
    """The first true value of ``look``; fails with ``what`` was waited for, and what was seen last."""
    deadline = time.monotonic() + seconds
    while True:
        if found := look():
            return found
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s; seen last: {found!r}"
        time.sleep(pause)


class World:
    """``world("get", "pods")`` runs kubectl in the namespace and returns what it prints."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        return kube.kubectl("--namespace", self.namespace, *arguments, stdin=stdin)

    def says(self, *arguments: str, stdin: str | None = None) -> str:
        """Both outputs of a kubectl that may fail."""
        command: list[Argument] = [
            tool("kubectl"),
            f"--kubeconfig={KUBECONFIG}",
            f"--namespace={self.namespace}",
            *arguments,
        ]
        done = attempt(command, stdin=stdin)
        return done.stdout + done.stderr

    def get(self, *arguments: str) -> Json:
        """An object, or an empty dict where it does not exist."""
        text = self("get", *arguments, "--ignore-not-found", "-o", "json")
        return json.loads(text) if text.strip() else {}

    def items(self, kinds: str, *arguments: str) -> list[Json]:
        """Every object of the kinds that the arguments select."""
        return self.get(kinds, *arguments).get("items", [])

    def apply(self, name: str, spec: Mapping[str, Any]) -> None:
        """Applies a VLMService as a user does: with its whole spec."""
        manifest = {"apiVersion": "vlmserve.dev/v1alpha1", "kind": "VLMService", "metadata": {"name": name}}
        self("apply", "-f", "-", stdin=json.dumps(manifest | {"spec": spec}))

    def service(self, name: str) -> Json:
        """The live VLMService."""
        return self.get("vlms", name)

    def condition(self, name: str, kind: str = "Ready") -> tuple[str, str, str]:
        """Status, reason and message; three empty texts while there is none of the present generation."""
        service = self.service(name)
        generation = service.get("metadata", {}).get("generation")
        for each in service.get("status", {}).get("conditions", []):
            if each["type"] == kind and each.get("observedGeneration") == generation:
                return each["status"], each["reason"], each["message"]
        return "", "", ""

    def wait_for(
        self, name: str, status: str, reason: str, *, kind: str = "Ready", seconds: float = SOON_SECONDS
    ) -> str:
        """Waits for a condition; returns its message."""
        seen = ("", "", "")

        def reached() -> bool:
            nonlocal seen
            seen = self.condition(name, kind)
            return seen[:2] == (status, reason)

        try:
            eventually(reached, f"{kind}={status} {reason} of {name}", seconds=seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; the condition is {seen}") from None
        return seen[2]

    def wait_until_ready(self, name: str, seconds: float = START_SECONDS) -> None:
        self.wait_for(name, "True", "Serving", seconds=seconds)

    def pods(self, name: str) -> list[Json]:
        """Pods of a service that are not on their way out."""
        found = self.items("pods", "-l", f"vlmserve.dev/service={name}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def pod(self, name: str) -> Json:
        """The one pod of a service, as soon as there is exactly one."""
        return eventually(lambda: self._only_pod(name), f"one pod of {name}", seconds=30)

    def _only_pod(self, name: str) -> Json | None:
        found = self.pods(name)
        return found[0] if len(found) == 1 else None

    def pause_others(self, name: str) -> None:
        """Two cores carry one engine: every other service of the namespace gets no pods."""
        for other in self.items("vlms"):
            if other["metadata"]["name"] != name and other["spec"].get("replicas") != 0:
                self("scale", "vlms", other["metadata"]["name"], "--replicas=0")
        others = f"vlmserve.dev/service,vlmserve.dev/service!={name}"
        self("wait", "--for=delete", "pods", "-l", others, "--timeout=60s")

    def evidence(self) -> str:
        """Everything that explains why something in the namespace is not as it should be."""
        found = []
        for service in self.items("vlms"):
            name = service["metadata"]["name"]
            found.append(f"--- conditions of {name} ---")
            for each in service.get("status", {}).get("conditions", []):
                found.append(f"{each['type']:18} {each['status']:8} {each['reason']}: {each['message']}")
        found += ["--- pods ---", self.says("get", "pods", "-o", "wide")]
        for pod in self.items("pods"):
            name = pod["metadata"]["name"]
            found += [f"--- end of the log of {name} ---", self.says("logs", name, "--all-containers", "--tail=40")]
            for each in pod["status"].get("containerStatuses", []):
                if ended := each.get("lastState", {}).get("terminated"):
                    found.append(f"its last end: {ended.get('message') or ended}")
        found += ["--- events ---", self.says("get", "events", "--sort-by=.metadata.creationTimestamp")[-6000:]]
        log = World(OPERATOR_NAMESPACE).says("logs", f"deployment/{OPERATOR}", "--tail=40")
        return "\n".join([*found, "--- end of the operator's log ---", log])


def main_status(pod: Json) -> Json:
    """The engine container's status; empty before the kubelet has looked at the pod."""
    statuses: list[Json] = pod.get("status", {}).get("containerStatuses", [])
    return next((each for each in statuses if each["name"] == "main"), {})
