"""A real Envoy with the router's configuration, before engines on this machine."""

import contextlib
import json
import re
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import envoy as package
import httpx
from routing.engines import Engine

from vlm_operator.fleet.envoy import Backend, Routing, bootstrap

BINARY = Path(package.__file__).parent / "_bin" / "envoy"
LIMIT = 32 << 20


def routing(*weights: int, by_image: bool = False, shares: bool = False, **changes: Any) -> Routing:
    """A router before as many pools as there are weights."""
    pools = [Backend(f"pool{n}", f"pool{n}.example", weight) for n, weight in enumerate(weights or (1,))]
    chosen = {
        "backends": pools,
        "by_image": by_image,
        "shares": shares,
        "load_factor_percent": 125,
        "body_bytes": LIMIT,
        "max_request_seconds": 60,
        "port": 8000,
        "health_port": 8001,
        "metrics_port": 8002,
        "memory_mib": 512,
    }
    return Routing(**(chosen | changes))


def validate(config: Mapping[str, Any], folder: Path) -> str:
    """What Envoy itself finds wrong with a configuration; empty if it is valid."""
    path = folder / "validate.json"
    path.write_text(json.dumps(config))
    command = [str(BINARY), "--mode", "validate", "-c", str(path), "--log-level", "error"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return "" if done.returncode == 0 else done.stderr


class Envoy:
    """One router, before pools of engines on this machine."""

    def __init__(self, routing: Routing, pools: Sequence[Sequence[Engine]], folder: Path, threads: int = 1) -> None:
        config = bootstrap(routing)
        ports = {8000: _free_port(), 8002: _free_port(), 9901: _free_port()}
        static = config["static_resources"]
        for listener in static["listeners"]:
            socket_address = listener["address"]["socket_address"]
            socket_address |= {"address": "127.0.0.1", "port_value": ports[socket_address["port_value"]]}
            del socket_address["ipv4_compat"]
        config["admin"]["address"]["socket_address"]["port_value"] = ports[9901]
        by_host = dict(zip((b.host for b in routing.backends), pools, strict=True))
        for cluster in static["clusters"]:
            for group in cluster["load_assignment"]["endpoints"]:
                group["lb_endpoints"] = [
                    each for entry in group["lb_endpoints"] for each in _here(entry, by_host, ports)
                ]
        path = folder / f"envoy-{ports[8000]}.json"
        path.write_text(json.dumps(config))
        self.log = folder / f"envoy-{ports[8000]}.log"
        command = [str(BINARY), "-c", str(path), "--concurrency", str(threads), "--log-level", "warn"]
        command += ["--disable-hot-restart"]
        self.url, self.metrics_url = f"http://127.0.0.1:{ports[8000]}", f"http://127.0.0.1:{ports[8002]}"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def wait(self, engines: int, seconds: float = 20) -> None:
        """Until it has found so many engines healthy."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with contextlib.suppress(httpx.HTTPError):
                text = httpx.get(f"{self.metrics_url}/metrics", timeout=2).text
                found = re.findall(
                    r'^envoy_cluster_membership_healthy{envoy_cluster_name="engines.*} (\d+)$', text, re.MULTILINE
                )
                if sum(map(int, found)) == engines:
                    return
            time.sleep(0.05)
        raise AssertionError(self.log.read_text())

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)


def _here(
    entry: dict[str, Any], by_host: Mapping[str, Sequence[Engine]], ports: Mapping[int, int]
) -> list[dict[str, Any]]:
    address = entry["endpoint"]["address"]["socket_address"]
    if address["address"] not in by_host:
        return [{"endpoint": {"address": _address(ports[address["port_value"]])}}]
    return [
        {
            **entry,
            "endpoint": {
                "address": _address(engine.port),
                "health_check_config": {"port_value": engine.port},
            },
        }
        for engine in by_host[address["address"]]
    ]


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
