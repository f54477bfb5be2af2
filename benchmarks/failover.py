"""How long nobody works when one of two operators dies.

    python benchmarks/failover.py [--times 20] [--json FILE]

Two operators with a Lease on a real API server. One is killed (no signal that it could act on), the other must take over:
the time is from the kill until a change of a service that was made just then is applied. Then the dead one is started anew
and becomes the standby. Beside it: the same with an operator that is asked to end, which gives its Lease back.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from pathlib import Path

from control_plane import DEPLOYMENTS, SERVICES, Api, add_nodes, install, percentile, service, until
from reconcile import Operator
from rich.console import Console
from rich.table import Table

from minicluster.errors import ClusterError
from minicluster.local import apiserver


def leads(operator: Operator) -> bool:
    """Whether it says that it is the one that works."""
    return "vlm_operator_leader 1.0" in operator.get("/metrics")


def measure(folder: Path, times: int) -> dict[str, list[float]]:
    """Seconds of each fail-over: of operators that were killed, and of those that were asked to end."""
    found: dict[str, list[float]] = {"killed": [], "asked to end": []}
    with apiserver(folder) as server:
        api = Api(server.url, folder / "pki")
        install(api)
        add_nodes(api, 2)
        operators = [Operator(server.kubeconfig, folder / "a.log")]
        operators.append(Operator(server.kubeconfig, folder / "b.log", until_says="standing by"))
        try:
            api("POST", SERVICES, service("vlm"))
            until(lambda: api("GET", f"{DEPLOYMENTS}?limit=1")["items"], 30, "the service is seen to")
            for number in range(2 * times):
                how = "killed" if number < times else "asked to end"
                until(lambda: any(leads(o) for o in operators), 30, "one operator leads")
                first = next(o for o in operators if leads(o))
                replicas = number + 2
                began = time.monotonic()
                first.stop(gently=how != "killed")
                api.merge(f"{SERVICES}/vlm", {"spec": {"replicas": replicas}})
                until(
                    lambda n=replicas: api("GET", f"{DEPLOYMENTS}/vlm")["spec"]["replicas"] == n,
                    60,
                    "it is applied",
                    0.02,
                )
                found[how].append(time.monotonic() - began)
                print(f"{how}: {found[how][-1]:.1f} s", file=sys.stderr, flush=True)
                first.start("standing by")
        finally:
            for operator in operators:
                operator.stop()
    return found


def main() -> int:
    """Runs it and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--json", type=Path, metavar="FILE", help="all times")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left running
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = measure(Path(folder), options.times)
        except (ClusterError, TimeoutError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    table = Table("the leader was", "times", "p50, s", "longest, s", title="From its end to the next change applied")
    for how, seconds in found.items():
        table.add_row(how, str(len(seconds)), f"{percentile(seconds, 0.5):.1f}", f"{max(seconds):.1f}")
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
