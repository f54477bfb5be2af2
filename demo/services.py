"""Installs the operator and waits for VLMServices."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from demo.commands import LOG, REPOSITORY, Cluster, write_log
from demo.screen import DemoError, Screen, clock

RELEASE, NAMESPACE = "vlm-operator", "vlm-system"
CHART = REPOSITORY / "charts" / "vlm-operator"
EXAMPLES = REPOSITORY / "examples"
UNPROCESSED_SECONDS = 45.0
PLAN_CONDITIONS = ("OverridesResolved", "HardwareResolved", "ResourceFit")


def install(cluster: Cluster, image: str, build: str = "") -> bool:
    """Installs or upgrades the chart and waits until the operator is ready. Returns whether its pods were replaced.

    `build` distinguishes images with the same name.
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
    """Applies an example with one replica, even if it was scaled to zero before."""
    cluster.kubectl("apply", "-f", str(EXAMPLES / f"{name}.yaml"), what=f"applying {name}")
    cluster.kubectl("scale", "vlmservice", name, "--replicas=1", what=f"scaling {name}")


def delete(cluster: Cluster, name: str) -> None:
    """Deletes a service and waits until its pods are gone."""
    cluster.kubectl("delete", "vlmservice", name, "--ignore-not-found", "--timeout=60s", what=f"deleting {name}")
    cluster.kubectl(
        "wait", "--for=delete", "pod", "-l", f"vlmserve.dev/service={name}", "--timeout=90s", what=f"stopping {name}"
    )


def conditions(service: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {condition["type"]: condition for condition in service.get("status", {}).get("conditions", [])}


def wait_for_plan(cluster: Cluster, name: str, *, seconds: float = 30) -> None:
    """Waits until the operator has made a plan for the current spec."""
    deadline = time.monotonic() + seconds
    while True:
        service = cluster.get("vlmservice", name)
        status = service.get("status", {})
        current = status.get("observedGeneration") == service.get("metadata", {}).get("generation")
        if current and status.get("plan", {}).get("hash"):
            return
        if time.monotonic() > deadline:
            log_diagnostics(cluster, name)
            raise DemoError(f"the operator made no plan for {name} within {seconds:.0f} s", log=LOG)
        time.sleep(0.5)


def wait_until_ready(cluster: Cluster, screen: Screen, name: str, *, seconds: float = 300) -> dict[str, Any]:
    """Shows the startup phase until Ready is True, and returns the service."""
    begun = time.monotonic()
    while True:
        service = cluster.get("vlmservice", name)
        by_type = conditions(service)
        ready = by_type.get("Ready", {})
        current = service.get("status", {}).get("observedGeneration") == service["metadata"]["generation"]
        if current and ready.get("status") == "True":
            screen.say(f"  {name} is ready after {clock(time.monotonic() - begun)}")
            return service
        refused = next(
            (by_type[kind] for kind in PLAN_CONDITIONS if by_type.get(kind, {}).get("status") == "False"), None
        )
        if current and refused:
            raise DemoError(f"{name} cannot be served: {refused['reason']}: {refused['message']}", log=LOG)
        if not by_type and time.monotonic() - begun > UNPROCESSED_SECONDS:
            log_diagnostics(cluster, name)
            raise DemoError(f"the operator has not processed {name} within {UNPROCESSED_SECONDS:.0f} s", log=LOG)
        phase = phase_of(service, ready)
        screen.live(f"  {clock(time.monotonic() - begun):>5}  {name}: {phase}", key=phase.split(",")[0])
        if time.monotonic() - begun > seconds:
            log_diagnostics(cluster, name)
            raise DemoError(f"{name} is not ready after {seconds:.0f} s: {phase}", log=LOG)
        time.sleep(1)


def phase_of(service: dict[str, Any], ready: dict[str, Any]) -> str:
    startup = service.get("status", {}).get("startup")
    if startup:
        return f"{startup['phase']}, {startup['elapsedSeconds']} s of at most {startup['budgetSeconds']} s"
    return f"{ready['reason']}, {ready['message']}" if ready else "not processed by the operator yet"


def log_diagnostics(cluster: Cluster, name: str) -> None:
    """Writes everything that explains a failed start to the demo's log."""
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
