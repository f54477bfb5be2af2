"""Streams through rolling updates: how many are cut, how many requests fail, and what an update takes.

    python benchmarks/drain.py [--engine real|stand-in] [--updates 3] [--streams 8] [--keep-alive] [--keep]

Two replicas serve behind their Service in the cluster on this machine (tests/cluster, as root), with the operator of these
sources. Clients stream answers without a pause, each over a new connection (or with ``--keep-alive`` over one that they
keep, as gateways do), while the service is changed again and again,
and the operator replaces its pods one after the other. ``real`` is unchanged SGLang on the CPU; ``stand-in`` is
tests/unit/runtime/stand_in.py below the same runtime, which streams and drains as SGLang does and starts in a second.
Exit code 1 where a stream was cut or a request failed.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from streams import Load, Request, Streams

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests"), str(REPOSITORY / "tests/cluster")]

from demo import machine  # noqa: E402
from demo import services as installing  # noqa: E402
from demo.__main__ import LOCAL_IMAGE  # noqa: E402
from demo.commands import Cluster, start_log  # noqa: E402
from e2e import services  # noqa: E402
from e2e.endpoint import engine_url  # noqa: E402
from e2e.world import World, eventually  # noqa: E402

from minicluster import images, kube, lifecycle, volumes  # noqa: E402
from minicluster.paths import KUBECONFIG, RUN  # noqa: E402
from minicluster.processes import Daemons  # noqa: E402
from vlm_api.names import LABEL_PLAN  # noqa: E402

NAMESPACE, NAME = "vlm-drain", "drain"
# A stream takes some seconds: the stand-in needs 0.1 s a token.
TOKENS = {"real": 48, "stand-in": 20}
IMAGE_SIDE = {"real": 224, "stand-in": 32}
# Two engines on two cores, with others' streams beside them.
UPDATE_SECONDS = {"real": 900, "stand-in": 120}


def spec(engine: str, update: int) -> dict[str, Any]:
    """The service with two replicas. Each update changes a variable that no engine reads."""
    closed = {"replicas": 2, "security": {"allowedMediaDomains": ["images.example.com"]}}
    found = services.cpu(**closed) if engine == "real" else services.stand_in(**closed)
    found["engine"].setdefault("env", []).append({"name": "DRAIN_UPDATE", "value": str(update)})
    if engine == "real":
        # What two replicas and those on their way out really take, so that all of them have room on one node.
        found["template"]["spec"]["containers"][0]["resources"] = {"requests": {"memory": "2Gi"}}
    return found


@contextmanager
def prepared(keep: bool) -> Iterator[World]:
    """A namespace of its own in the cluster with the operator of these sources; a cluster that ran stays."""
    ran = KUBECONFIG.exists() and lifecycle.is_healthy(Daemons(RUN))
    images.make(["operator"])
    lifecycle.up()
    start_log()
    installing.install(Cluster.at(KUBECONFIG), LOCAL_IMAGE, machine.operator_build())
    kube.kubectl("create", "namespace", NAMESPACE)
    volumes.provide(NAMESPACE)
    world = World(NAMESPACE)
    try:
        world("apply", "-f", "-", stdin=json.dumps(services.stand_in_program()))
        yield world
    finally:
        remove(world)
        if not ran and not keep:
            lifecycle.down()


def remove(world: World) -> None:
    """Pods first: a namespace with pods is looked at again only after half of their grace period of minutes."""
    world("delete", "vlms", "--all", "--timeout=30s")
    world.says("wait", "--for=delete", "pods", "--all", "--timeout=150s")
    kube.kubectl("delete", "namespace", NAMESPACE, "--timeout=120s")
    for volume in volumes.VOLUMES:
        kube.kubectl("delete", "pv", f"{volume.claim}-{NAMESPACE}", "--ignore-not-found", "--timeout=30s")


def updated(world: World, engine: str, number: int) -> float:
    """Changes the service and waits until two replicas of the new plan serve; seconds from the change on."""
    before = plan_of(world)
    begun = time.monotonic()
    world.apply(NAME, spec(engine, number))
    eventually(lambda: plan_of(world) != before, "another plan", seconds=30, pause=0.1)
    world("rollout", "status", f"deployment/{NAME}", f"--timeout={UPDATE_SECONDS[engine]}s")
    seconds = time.monotonic() - begun
    if world.service(NAME)["spec"].get("replicas") != 2:
        raise SystemExit("somebody else scaled the service meanwhile: nothing was measured")
    return seconds


def plan_of(world: World) -> str:
    """The plan of the pods that the Deployment makes now; empty before there is one."""
    template = world.get("deployment", NAME).get("spec", {}).get("template", {})
    return str(template.get("metadata", {}).get("labels", {}).get(LABEL_PLAN, ""))


def say(text: str) -> None:
    print(text, flush=True)


def run(engine: str, updates: int, count: int, *, seconds_at_most: float, keep_alive: bool, keep: bool) -> bool:
    """True where nothing was cut and nothing failed."""
    with prepared(keep) as world:
        say(f"starting two replicas, engine: {engine}")
        say(f"two replicas serve after {updated(world, engine, 0):.0f} s")
        load = Load(engine_url(world, NAME), NAME, TOKENS[engine], IMAGE_SIDE[engine])
        seconds: list[float] = []
        begun = time.monotonic()

        def tell(request: Request) -> None:
            say(f"  {request.ended - begun:7.1f} s  {request.outcome}: {request.detail}")

        with Streams(load, count, tell, keep_alive) as streams:
            eventually(lambda: len(streams.done) >= count, "a first answer for each stream", seconds=120)
            for number in range(1, updates + 1):
                if time.monotonic() - begun > seconds_at_most:
                    break
                seconds.append(updated(world, engine, number))
                if updates <= 10 or number % 10 == 0 or number == updates:
                    say(f"update {number} of {updates}: {seconds[-1]:.1f} s, {dict(streams.outcomes())}")
            # The last old pod is still on its way out.
            eventually(lambda: len(world.items("pods")) == 2, "the old pods are gone", seconds=180, pause=1.0)
        table(engine, seconds, streams)
        return streams.cut() == 0 and streams.failed() == 0


def table(engine: str, seconds: list[float], streams: Streams) -> None:
    """What is printed at the end."""
    took = sorted(request.ended - request.began for request in streams.done if request.outcome == "ok")
    rows = [
        ("updates", f"{len(seconds)}"),
        ("seconds of an update: mean, median, longest", f"{_three(seconds)}"),
        ("streams that ended well", f"{len(took):,}"),
        ("seconds of a stream: mean, median, longest", f"{_three(took)}"),
        ("connections that were begun", f"{streams.connections():,}"),
        ("streams cut", f"{streams.cut()}"),
        ("requests failed", f"{streams.failed()}"),
    ]
    found = Table("what", "value", title=_title(engine, streams))
    for row in rows:
        found.add_row(*row)
    Console(width=100).print(found)


def _title(engine: str, streams: Streams) -> str:
    kept = ", connections kept" if streams.keep_alive else ""
    return f"Rolling updates of two replicas, {streams.count} streams{kept}, engine: {engine}"


def _three(values: list[float]) -> str:
    return f"{statistics.mean(values):.1f}, {statistics.median(values):.1f}, {max(values):.1f}" if values else "-"


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=["real", "stand-in"], default="real")
    parser.add_argument(
        "--updates", type=int, default=None, help="default: 3 with the real engine, 100 with the stand-in"
    )
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no further update after that many")
    parser.add_argument("--keep-alive", action="store_true", help="clients keep their connections")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left in the cluster
    updates = chosen.updates if chosen.updates is not None else {"real": 3, "stand-in": 100}[chosen.engine]
    return (
        0
        if run(
            chosen.engine,
            updates,
            chosen.streams,
            seconds_at_most=chosen.seconds,
            keep_alive=chosen.keep_alive,
            keep=chosen.keep,
        )
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())
