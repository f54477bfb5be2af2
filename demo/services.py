"""The operator's installation, and VLMServices on their way to Ready."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from demo.commands import LOG, REPOSITORY, Cluster, write_log
from demo.screen import DemoError, Screen, clock

RELEASE, NAMESPACE = "vlm-operator", "vlm-system"
CHART = REPOSITORY / "charts" / "vlm-operator"
EXAMPLES = REPOSITORY / "examples"
UNSEEN_SECONDS = 45.0
DECIDED = ("OverridesResolved", "HardwareResolved", "ResourceFit")


def install(cluster: Cluster, image: str, build: str = "") -> bool:
    """Installs or upgrades the chart and waits until the operator is ready. True: its pods were replaced.

    `build` tells images of the same name apart.
    """
    repository, _, digest = image.partition("@")
    tag = ""
    if not digest and ":" in repository.rsplit("/", 1)[-1]:
        repository, _, tag = repository.rpartition(":")
    before = operator_template(cluster)
    settings = [f"image.repository={repository}", f"image.tag={tag}", f"image.digest={digest}"]
    if build:
        settings.append(f"podAnnotations.vlmserve\\.dev/demo-build={build}")
    arguments = [part for setting in settings for part in ("--set-string", setting)]
    cluster.helm(
        "upgrade",
        RELEASE,
        str(CHART),
        "--install",
        f"--namespace={NAMESPACE}",
        "--create-namespace",
        "--wait",
        "--timeout=120s",
        *arguments,
        what="installing the chart",
    )
    return bool(operator_template(cluster) != before)


def operator_template(cluster: Cluster) -> Any:
    deployment = cluster.get("deployment", RELEASE, f"--namespace={NAMESPACE}")
    return deployment.get("spec", {}).get("template")


def apply_example(cluster: Cluster, name: str) -> None:
    """The example as it is written, with one replica even where an earlier one was scaled to none."""
    cluster.kubectl("apply", "-f", str(EXAMPLES / f"{name}.yaml"), what=f"applying {name}")
    cluster.kubectl("scale", "vlmservice", name, "--replicas=1", what=f"scaling {name}")


def delete(cluster: Cluster, name: str) -> None:
    """Removes a service and waits for its pods to be gone."""
    cluster.kubectl("delete", "vlmservice", name, "--ignore-not-found", "--timeout=60s", what=f"deleting {name}")
    cluster.kubectl(
        "wait", "--for=delete", "pod", "-l", f"vlmserve.dev/service={name}", "--timeout=90s", what=f"stopping {name}"
    )


def conditions(service: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {condition["type"]: condition for condition in service.get("status", {}).get("conditions", [])}


def wait_for_plan(cluster: Cluster, name: str, *, seconds: float = 30) -> None:
    """Until the operator has made a plan for the service as it stands."""
    deadline = time.monotonic() + seconds
    while True:
        service = cluster.get("vlmservice", name)
        status = service.get("status", {})
        current = status.get("observedGeneration") == service.get("metadata", {}).get("generation")
        if current and status.get("plan", {}).get("hash"):
            return
        if time.monotonic() > deadline:
            save_evidence(cluster, name)
            raise DemoError(f"the operator made no plan for {name} in {seconds:.0f} s", log=LOG)
        time.sleep(0.5)


def wait_until_ready(cluster: Cluster, screen: Screen, name: str, *, seconds: float = 300) -> dict[str, Any]:
    """Shows the phase of the start until Ready is True; returns the service."""
    begun = time.monotonic()
    while True:
        service = cluster.get("vlmservice", name)
        known = conditions(service)
        ready = known.get("Ready", {})
        current = service.get("status", {}).get("observedGeneration") == service["metadata"]["generation"]
        if current and ready.get("status") == "True":
            screen.say(f"  {name} is ready after {clock(time.monotonic() - begun)}")
            return service
        refused = next((known[kind] for kind in DECIDED if known.get(kind, {}).get("status") == "False"), None)
        if current and refused:
            raise DemoError(f"{name} cannot be served: {refused['reason']}: {refused['message']}", log=LOG)
        if not known and time.monotonic() - begun > UNSEEN_SECONDS:
            save_evidence(cluster, name)
            raise DemoError(f"the operator has not looked at {name} in {UNSEEN_SECONDS:.0f} s", log=LOG)
        phase = phase_of(service, ready)
        screen.live(f"  {clock(time.monotonic() - begun):>5}  {name}: {phase}", key=phase.split(",")[0])
        if time.monotonic() - begun > seconds:
            save_evidence(cluster, name)
            raise DemoError(f"{name} is not ready after {seconds:.0f} s: {phase}", log=LOG)
        time.sleep(1)


def phase_of(service: dict[str, Any], ready: dict[str, Any]) -> str:
    startup = service.get("status", {}).get("startup")
    if startup:
        return f"{startup['phase']}, {startup['elapsedSeconds']} s of at most {startup['budgetSeconds']} s"
    return f"{ready['reason']}, {ready['message']}" if ready else "not seen by the operator yet"


def save_evidence(cluster: Cluster, name: str) -> None:
    """Everything that explains why a service does not come up, into the demo's log."""
    selector = f"vlmserve.dev/service={name}"
    for title, arguments in {
        "service": ["get", "vlmservice", name, "-o", "yaml"],
        "pods": ["describe", "pods", "-l", selector],
        "engine": ["logs", "-l", selector, "--all-containers", "--tail=200", "--prefix"],
        "operator": ["logs", f"--namespace={NAMESPACE}", f"deployment/{RELEASE}", "--tail=200"],
        "events": ["get", "events", "--sort-by=.lastTimestamp"],
    }.items():
        write_log(f"\n--- {title} ---")
        try:
            cluster.kubectl(*arguments, what=title)
        except DemoError as error:
            write_log(str(error))


def example(name: str) -> Path:
    return EXAMPLES / f"{name}.yaml"
