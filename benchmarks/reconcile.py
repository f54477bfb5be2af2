"""How the operator does on a large cluster: thousands of services on a thousand nodes, and the peer beside it.

    python benchmarks/reconcile.py [--services 1000 5000] [--available 1000] [--nodes 1000] [--quiet-seconds 300]
                                   [--no-peer] [--json FILE]

A real API server with real etcd; nodes are Node objects, no pod runs. For each size of ``--services``: services are created
while the operator runs; then nothing happens for a while; then the timestamp label of every node changes; then services
change one at a time; then the operator is started anew. For each size of ``--available``, on an API server of its own with
Kubernetes' controllers, its scheduler and KWOK, which simulates the pods: services are created until all serve, then the
operator is started anew. The peer is the LeaderWorkerSet controller with objects of no replicas, made by the same load in
the same run, on an API server of its own. Needs the cluster's programs (``make prepare``), and root for ``--available``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from control_plane import (
    DEPLOYMENTS,
    DEVICES,
    SERVICES,
    Api,
    Arrivals,
    add_nodes,
    children,
    install,
    percentile,
    service,
    still,
    together,
    until,
    use,
    writes,
)
from peer import leader_worker_sets
from rich.console import Console
from rich.table import Table
from workloads import Serving, kubernetes

from minicluster.errors import ClusterError
from minicluster.local import apiserver
from minicluster.ports import free_port

OWNED = (SERVICES, DEPLOYMENTS, "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/services")
CHANGES = 100


@dataclass
class Result:
    """One row: times in seconds, memory in MiB, CPU in seconds of one core."""

    name: str
    objects: int
    rate: float = 0.0
    p50: float = 0.0
    p99: float = 0.0
    requests_each: float = 0.0
    requests: dict[str, int] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    rss_mib: float = 0.0
    peak_mib: float = 0.0
    quiet_writes: dict[str, int] = field(default_factory=dict)
    quiet_cpu_percent: float = 0.0
    node_writes: dict[str, int] = field(default_factory=dict)
    change_p50: float = 0.0
    change_p99: float = 0.0
    change_writes_each: float = 0.0
    strangers: list[str] = field(default_factory=list)
    restart_seconds: float = 0.0
    restart_writes: dict[str, int] = field(default_factory=dict)
    restart_peak_mib: float = 0.0
    serving_rate: float = 0.0
    serving_p50: float = 0.0
    serving_p99: float = 0.0


class Operator:
    """The operator's process."""

    def __init__(self, kubeconfig: Path, log: Path, *options: str, until_says: str = "watching") -> None:
        self._options = options
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "POD_NAMESPACE": "default"}
        self._port, self._log = free_port(), log
        self.start(until_says)

    def start(self, until_says: str = "watching") -> None:
        """Starts it, and waits until it says so."""
        command = [sys.executable, "-m", "vlm_operator", "--runtime-image", "operator:bench"]
        command += ["--metrics-address", f"127.0.0.1:{self._port}", *self._options]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)
        until(lambda: until_says in self.get("/readyz"), 120, "the operator is ready")

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def get(self, path: str) -> str:
        """What it answers to HTTP; empty while it does not."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=30) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def number(self, name: str) -> float:
        """The sum of a metric over its labels; not a number while it does not answer."""
        said = self.get("/metrics")
        lines = (line for line in said.splitlines() if line.startswith((f"{name} ", f"{name}{{")))
        return sum(float(line.rpartition(" ")[2]) for line in lines) if said else math.nan

    def looked(self) -> float:
        """How often it has looked at a service."""
        return self.number("vlm_operator_reconciles_total")

    def counts(self) -> tuple[float, float, float]:
        """What it has done so far: changes while it works, and every ten minutes for each service even so."""
        return self.looked(), self.number("vlm_operator_queue_depth"), self.number("vlm_operator_errors_total")

    def idle(self) -> bool:
        """Whether no service waits for it."""
        return self.number("vlm_operator_queue_depth") == 0

    def stop(self, *, gently: bool = False) -> None:
        """Kills it, so that nothing is put in order, or asks it to end."""
        self._process.terminate() if gently else self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[tuple[Api, Path]]:
    """A fresh API server, and its kubeconfig."""
    with apiserver(folder) as server:
        yield Api(server.url, folder / "pki"), server.kubeconfig


def cpu(pids: dict[str, int]) -> dict[str, float]:
    """Seconds of CPU that each program has used."""
    return {name: use(pid).cpu_seconds for name, pid in pids.items()}


def spent(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Seconds of CPU between two looks."""
    return {name: round(after[name] - before[name], 2) for name in after}


def fill(api: Api, result: Result, pids: dict[str, int], names: Sequence[str], work: Work) -> dict[str, float]:
    """Creates all objects and waits for what is made of each; when each was sent, by the monotonic clock."""
    arrivals = Arrivals(api)
    arrivals.watch(work.made)
    before, counted, sent = cpu(pids), api.requests(), {}

    def create(name: str) -> None:
        sent[name] = time.monotonic()
        api("POST", work.path, work.manifest(name))

    started = time.monotonic()
    together(create, names)
    plural = work.made.rpartition("/")[2]
    until(lambda: len(arrivals.seen) >= len(names), 1800, f"all {plural} are there", 0.1)
    came = {name: arrivals.first(f"{plural}/{name}") or 0.0 for name in names}
    result.seconds = max(came.values()) - started
    result.rate = len(names) / result.seconds
    waits = [came[name] - sent[name] for name in names]
    result.p50, result.p99 = percentile(waits, 0.5), percentile(waits, 0.99)
    work.settle()
    result.cpu = spent(before, cpu(pids))
    after = api.requests()
    made = {f"{v} {r}": n - counted.get((v, r), 0) for (v, r), n in after.items()}
    made[f"POST {work.path.rpartition('/')[2]}"] -= len(names)
    result.requests = {k: n for k, n in sorted(made.items()) if n > len(names) // 20}
    result.requests_each = sum(result.requests.values()) / len(names)
    arrivals.stop()
    return sent


@dataclass
class Work:
    """What is created, what shows that it was seen to, and when all is done."""

    path: str
    made: str
    manifest: Any
    settle: Any


def measure_operator(size: int, options: argparse.Namespace, folder: Path) -> Result:
    """All phases for one size."""
    result = Result("vlm-operator", size)
    with cluster(folder / f"own-{size}") as (api, kubeconfig):
        install(api)
        add_nodes(api, options.nodes)
        operator = Operator(kubeconfig, folder / f"operator-{size}.log")
        try:
            pids = {**children(), "operator": operator.pid, "load": os.getpid()}
            pids = {n: p for n, p in pids.items() if n in ("operator", "load", "kube-apiserver", "etcd")}
            names = [f"vlm-{n}" for n in range(size)]
            settle = lambda: settled(api, operator)  # noqa: E731
            fill(api, result, pids, names, Work(SERVICES, DEPLOYMENTS, service, settle))
            say(f"{size}: {result.rate:.0f} services/s, CPU {result.cpu}")
            result.rss_mib, result.peak_mib = use(operator.pid).rss_mib, use(operator.pid).peak_mib
            quiet(api, result, operator, options.quiet_seconds)
            say(f"{size}: quiet for {options.quiet_seconds} s: {result.quiet_writes or 'no write'}")
            timestamps(api, result, operator, options.nodes)
            say(f"{size}: every node's timestamp changed: {result.node_writes or 'no write'}")
            changes(api, result, operator, names)
            say(f"{size}: one change each: p50 {result.change_p50:.3f} s, p99 {result.change_p99:.3f} s")
            anew(api, result, operator)
            say(f"{size}: started anew: {result.restart_seconds:.1f} s, {result.restart_peak_mib:.0f} MiB at most")
        finally:
            operator.stop()
    return result


def measure_available(size: int, options: argparse.Namespace, folder: Path) -> Result:
    """From creation until a service serves, with simulated pods."""
    result, own = Result("vlm-operator, pods by KWOK", size), folder / f"available-{size}"
    with cluster(own) as (api, kubeconfig), kubernetes(own, kubeconfig) as others:
        install(api)
        # Each service takes one H100, and every other node has them.
        add_nodes(api, max(options.nodes, 2 * -(-size // DEVICES)))
        operator, serving = Operator(kubeconfig, folder / f"available-{size}.log"), Serving(api)
        serving.watch(SERVICES)
        try:
            pids = {n: p for n, p in children().items() if n in ("kube-apiserver", "etcd")}
            pids |= {**others, "operator": operator.pid, "load": os.getpid()}
            names = [f"vlm-{n}" for n in range(size)]

            def settle() -> None:
                until(lambda: len(serving.seen) >= size, 1800, "all services serve", 0.1)
                settled(api, operator)

            sent = fill(api, result, pids, names, Work(SERVICES, DEPLOYMENTS, service, settle))
            came = {name: serving.first(f"vlmservices/{name}") or 0.0 for name in names}
            waits = [came[name] - sent[name] for name in names]
            result.serving_rate = size / (max(came.values()) - min(sent.values()))
            result.serving_p50, result.serving_p99 = percentile(waits, 0.5), percentile(waits, 0.99)
            result.rss_mib, result.peak_mib = use(operator.pid).rss_mib, use(operator.pid).peak_mib
            say(f"{size} with pods: {result.serving_rate:.0f} services/s until they serve, CPU {result.cpu}")
            anew(api, result, operator)
            say(
                f"{size} with pods: started anew: {result.restart_seconds:.1f} s, {result.restart_peak_mib:.0f} MiB at most"
            )
        finally:
            serving.stop()
            operator.stop()
    return result


def settled(api: Api, operator: Operator) -> None:
    """Waits until nobody writes and no service waits. Each is looked at every ten minutes even so."""
    still(lambda: (operator.idle() or time.monotonic(), sum(writes({}, api.requests()).values())), 3, 1800)


def quiet(api: Api, result: Result, operator: Operator, seconds: float) -> None:
    """Nothing happens."""
    before, started = api.requests(), use(operator.pid).cpu_seconds
    time.sleep(seconds)
    result.quiet_writes = writes(before, api.requests())
    result.quiet_cpu_percent = (use(operator.pid).cpu_seconds - started) / max(seconds, 1) * 100


def timestamps(api: Api, result: Result, operator: Operator, nodes: int) -> None:
    """GPU feature discovery runs again everywhere: the same hardware at another time."""
    before = api.requests()
    stamp = {"metadata": {"labels": {"nvidia.com/gfd.timestamp": "2"}}}
    together(lambda index: api.merge(f"/api/v1/nodes/node-{index}", stamp), range(nodes))
    settled(api, operator)
    result.node_writes = writes(before, api.requests())
    result.node_writes["PATCH nodes"] -= nodes
    result.node_writes = {k: n for k, n in result.node_writes.items() if n}


def changes(api: Api, result: Result, operator: Operator, names: Sequence[str]) -> None:
    """One service after the other changes; each waits for its Deployment. Others must not be touched."""
    arrivals, waits = Arrivals(api), []
    for path in OWNED:
        arrivals.watch(path)
    before = api.requests()
    chosen = names[:: max(1, len(names) // CHANGES)][:CHANGES]
    for name in chosen:
        sent = time.monotonic()
        api.merge(f"{SERVICES}/{name}", {"spec": {"workload": {"concurrency": 64}}})
        until(lambda n=name: arrivals.first(f"deployments/{n}"), 60, f"{name} has its new Deployment", 0.002)
        waits.append((arrivals.first(f"deployments/{name}") or 0.0) - sent)
    settled(api, operator)
    result.change_p50, result.change_p99 = percentile(waits, 0.5), percentile(waits, 0.99)
    written = writes(before, api.requests())
    result.change_writes_each = (sum(written.values()) - len(chosen)) / len(chosen)
    # A plan's ConfigMap is called NAME-plan-HASH.
    result.strangers = sorted({t.partition("-plan-")[0] for t in arrivals.touched} - set(chosen))
    arrivals.stop()


def anew(api: Api, result: Result, operator: Operator) -> None:
    """The operator is killed and started again: it must read everything and write nothing."""
    operator.stop()
    before, started = api.requests(), time.monotonic()
    operator.start()
    until(lambda: operator.looked() >= result.objects, 1800, "all services were looked at", 0.5)
    result.restart_seconds = time.monotonic() - started
    settled(api, operator)
    result.restart_writes = writes(before, api.requests())
    result.restart_peak_mib = use(operator.pid).peak_mib


def measure_peer(size: int, folder: Path) -> Result:
    """The LeaderWorkerSet controller with as many objects."""
    result = Result("LeaderWorkerSet controller", size)
    with cluster(folder / "peer") as (api, kubeconfig), leader_worker_sets(folder / "peer", kubeconfig) as peer:
        pids = {**children(), "operator": peer.pid, "load": os.getpid()}
        pids = {n: p for n, p in pids.items() if n in ("operator", "load", "kube-apiserver", "etcd")}
        names = [f"lws-{n}" for n in range(size)]
        settle = lambda: still(lambda: sum(writes({}, api.requests()).values()), 3, 1800)  # noqa: E731
        fill(api, result, pids, names, Work(peer.path, peer.made, peer.manifest, settle))
        result.rss_mib, result.peak_mib = use(peer.pid).rss_mib, use(peer.pid).peak_mib
    say(f"{result.name}: {result.rate:.0f} objects/s, CPU {result.cpu}")
    return result


def say(text: str) -> None:
    """Progress, for people."""
    print(text, file=sys.stderr, flush=True)


def ceiling(result: Result) -> float:
    """Objects a second that the API server and etcd could be asked for on these cores, were they alone on them."""
    server = (result.cpu["kube-apiserver"] + result.cpu["etcd"]) / result.objects
    return len(os.sched_getaffinity(0)) / server if server else 0.0


def table(results: Sequence[Result]) -> Table:
    """One column per run."""
    shown = Table("", *(f"{r.name}, {r.objects:,}" for r in results), title="Reconciling")

    def row(name: str, value: Any) -> None:
        shown.add_row(name, *(value(r) for r in results))

    def own(text: Any) -> Any:
        return lambda r: text(r) if r.change_p99 else "—"

    row("objects/s, create to applied", lambda r: f"{r.rate:.0f}")
    row("create to applied under that load, p50 / p99, s", lambda r: f"{r.p50:.1f} / {r.p99:.1f}")
    row("objects/s, create to serving", lambda r: f"{r.serving_rate:.0f}" if r.serving_rate else "—")
    row(
        "create to serving under that load, p50 / p99, s",
        lambda r: f"{r.serving_p50:.1f} / {r.serving_p99:.1f}" if r.serving_rate else "—",
    )
    row("requests an object", lambda r: f"{r.requests_each:.1f}")
    for name in dict.fromkeys(name for r in results for name in r.cpu):
        row(
            f"CPU ms an object: {name}",
            lambda r, n=name: f"{r.cpu[n] / r.objects * 1000:.1f}" if n in r.cpu else "—",
        )
    row("objects/s if the operator took no time at all", lambda r: f"{ceiling(r):.0f}")
    row("memory then / at most, MiB", lambda r: f"{r.rss_mib:.0f} / {r.peak_mib:.0f}")
    row("writes while quiet", own(lambda r: str(sum(r.quiet_writes.values()))))
    row("CPU while quiet, % of a core", own(lambda r: f"{r.quiet_cpu_percent:.1f}"))
    row("writes after every node's timestamp", own(lambda r: str(sum(r.node_writes.values()))))
    row("one change to its Deployment, p50 / p99, s", own(lambda r: f"{r.change_p50:.3f} / {r.change_p99:.3f}"))
    row("writes a change / other services touched", own(lambda r: f"{r.change_writes_each:.1f} / {len(r.strangers)}"))
    row(
        "started anew: s / writes / MiB at most",
        lambda r: (
            f"{r.restart_seconds:.1f} / {sum(r.restart_writes.values())} / {r.restart_peak_mib:.0f}"
            if r.restart_seconds
            else "—"
        ),
    )
    return shown


def main() -> int:
    """Runs everything and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--services", type=int, nargs="*", default=[1000, 5000])
    parser.add_argument("--available", type=int, nargs="*", default=[1000])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--quiet-seconds", type=float, default=300.0)
    parser.add_argument("--peer", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--json", type=Path, metavar="FILE", help="all numbers")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left running
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            if options.peer:
                results.append(measure_peer(1000, Path(folder)))
            results += [measure_operator(size, options, Path(folder)) for size in options.services]
            results += [measure_available(size, options, Path(folder)) for size in options.available]
        except (ClusterError, TimeoutError) as error:
            print(f"error: {error}", file=sys.stderr)
            for log in Path(folder).glob("*.log"):
                print(log.read_text()[-3000:], file=sys.stderr)
            return 1
    Console().print(table(results))
    if options.json:
        options.json.write_text(json.dumps([asdict(r) for r in results], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
