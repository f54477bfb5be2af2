"""What the benchmarks of the operator share: a fast way to the API server, what programs use, and when objects come.

Everything here is made to cost little beside what is measured: the load, the API server and the operator share the cores.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import yaml

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY / "tests/cluster")]

from unit.cli import builders  # noqa: E402 - found by the path that is set above

CRD = REPOSITORY / "crds/vlmservices.vlmserve.dev.yaml"
SERVICES = "/apis/vlmserve.dev/v1alpha1/namespaces/default/vlmservices"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
# The server then sends names and versions only, and this process has little to read.
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
LABEL = "vlmserve.dev/service"
DEVICES = 8  # of each node
TICKS = os.sysconf("SC_CLK_TCK")


class Api:
    """JSON to and from one API server, as its administrator; one connection a thread."""

    def __init__(self, url: str, pki: Path) -> None:
        self._address = urlsplit(url)
        self._context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        self._context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        self._own = threading.local()

    def connect(self) -> http.client.HTTPSConnection:
        """A connection of its own."""
        return http.client.HTTPSConnection(
            str(self._address.hostname), self._address.port, context=self._context, timeout=60
        )

    def __call__(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """The answer, as text where it is no JSON. Raises OSError where the server refuses."""
        connection = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = self.connect()
        headers = {"Content-Type": kind, "Accept": "application/json"}
        text = None if body is None else json.dumps(body)
        try:
            connection.request(method, path, text, headers)
            answer = connection.getresponse()
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            # The server has closed a connection that nobody used for a while.
            connection.close()
            connection.request(method, path, text, headers)
            answer = connection.getresponse()
        data = answer.read()
        if answer.status >= 300:
            raise OSError(f"{method} {path}: {answer.status} {data[:500]!r}")
        return json.loads(data) if "json" in str(answer.getheader("Content-Type")) else data.decode()

    def merge(self, path: str, patch: dict[str, Any]) -> Any:
        """A JSON merge patch."""
        return self("PATCH", path, patch, "application/merge-patch+json")

    def requests(self) -> dict[tuple[str, str], int]:
        """How many requests the server has had, by verb and resource, as it counts them itself."""
        found: dict[tuple[str, str], int] = {}
        for labels, value in re.findall(r"^apiserver_request_total{(.*)} (\S+)$", self("GET", "/metrics"), re.M):
            said = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            key = said["verb"], said["resource"]
            found[key] = found.get(key, 0) + int(float(value))
        return found


def writes(before: dict[tuple[str, str], int], after: dict[tuple[str, str], int]) -> dict[str, int]:
    """Writing requests between two counts, as ``VERB resource``; the lease and the server's own are left out."""
    ours = {key: number - before.get(key, 0) for key, number in after.items()}
    reading, own = ("GET", "LIST", "WATCH", "CONNECT"), ("leases", "flowschemas", "prioritylevelconfigurations")
    return {f"{v} {r}": n for (v, r), n in sorted(ours.items()) if n and v not in reading and r not in own}


@dataclass(frozen=True)
class Use:
    """What one program has used."""

    cpu_seconds: float
    rss_mib: float
    peak_mib: float


def use(pid: int) -> Use:
    """CPU time so far, and resident memory now and at most, as the kernel tells."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    status = Path(f"/proc/{pid}/status").read_text()
    mib = {name: int(kib) / 1024 for name, kib in re.findall(r"(VmRSS|VmHWM):\s+(\d+)", status)}
    return Use((int(fields[11]) + int(fields[12])) / TICKS, mib["VmRSS"], mib["VmHWM"])


def children() -> dict[str, int]:
    """Programs that this process has started, by name."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, fields = path.read_text().split("(", 1)[1].rsplit(")", 1)
        except (OSError, IndexError):
            continue
        if int(fields.split()[1]) == os.getpid():
            found[name] = int(path.parent.name)
    return found


def server_pid(folder: Path) -> int:
    """The process of the API server whose state is in that folder."""
    return int((folder / "pid" / "kube-apiserver").read_text().split()[0])


@dataclass
class Arrivals:
    """When objects came or changed, seen by watches in threads of their own."""

    accept: ClassVar[str] = METADATA
    api: Api
    seen: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    """``plural/name`` -> times by the monotonic clock, each with the type of the event."""
    touched: set[str] = field(default_factory=set)
    _stop: bool = False

    def watch(self, path: str) -> None:
        """Starts to watch a kind; returns once that has begun."""
        began = threading.Event()
        threading.Thread(target=self._follow, args=(path, began), daemon=True).start()
        began.wait(60)

    def stop(self) -> None:
        """Ends the watches, within a moment."""
        self._stop = True

    def first(self, key: str) -> float | None:
        """When it came."""
        found = self.seen.get(key)
        return found[0][0] if found else None

    def note(self, plural: str, event: dict[str, Any]) -> str:
        """Takes an event down; the version that it brought."""
        metadata = event["object"]["metadata"]
        self.seen.setdefault(f"{plural}/{metadata['name']}", []).append((time.monotonic(), event["type"]))
        self.touched.add(metadata["name"])
        return str(metadata["resourceVersion"])

    def _follow(self, path: str, began: threading.Event) -> None:
        plural = path.rpartition("/")[2]
        version = self.api("GET", f"{path}?limit=1")["metadata"]["resourceVersion"]
        while not self._stop:
            connection = self.api.connect()
            query = f"watch=1&resourceVersion={version}&timeoutSeconds=3000"
            connection.request("GET", f"{path}?{query}", headers={"Accept": self.accept})
            answer = connection.getresponse()
            connection.sock.settimeout(None)
            began.set()
            rest = b""
            while not self._stop and (part := _more(answer)):
                *lines, rest = (rest + part).split(b"\n")
                for event in map(json.loads, lines):
                    version = self.note(plural, event)


def _more(answer: http.client.HTTPResponse) -> bytes:
    """What has come of a watch; nothing where the server has ended it or is gone."""
    try:
        return answer.read1(1 << 16)
    except (http.client.HTTPException, OSError):
        return b""


def service(name: str, **workload: Any) -> dict[str, Any]:
    """A service whose model needs no reading."""
    return builders.service(name, workload={**builders.WORKLOAD, **workload})


def node(index: int) -> dict[str, Any]:
    """A node of eight H100s or L40Ss, as GPU feature discovery and the device plugin leave it."""
    product, memory, capability = (
        ("NVIDIA-H100-80GB-HBM3", "81559", ("9", "0")) if index % 2 == 0 else ("NVIDIA-L40S", "46068", ("8", "9"))
    )
    labels = {
        "kubernetes.io/hostname": f"node-{index}",
        "kubernetes.io/arch": "amd64",
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.memory": memory,
        "nvidia.com/gpu.compute.major": capability[0],
        "nvidia.com/gpu.compute.minor": capability[1],
        "nvidia.com/gpu.count": str(DEVICES),
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gfd.timestamp": "1",
    }
    resources = {"nvidia.com/gpu": str(DEVICES), "cpu": "128", "memory": "1000Gi", "pods": "110"}
    ready = [{"type": "Ready", "status": "True"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{index}", "labels": labels},
        "status": {"allocatable": resources, "capacity": resources, "conditions": ready},
    }


def together(work: Callable[[Any], Any], items: Iterable[Any], threads: int = 4) -> list[Any]:
    """The same for each, a few at a time."""
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, items))


def add_nodes(api: Api, count: int) -> None:
    """Nodes that nothing stands behind."""

    def add(index: int) -> None:
        api("POST", "/api/v1/nodes", node(index))
        # The API server marks every new node as not ready; the controller that would take it back is not here.
        api.merge(f"/api/v1/nodes/node-{index}", {"spec": {"taints": None}})

    together(add, range(count))


def install(api: Api) -> None:
    """Installs our kind, and waits until it is served."""
    api("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", yaml.safe_load(CRD.read_text()))

    def served() -> bool:
        try:
            return bool(api("GET", SERVICES))
        except OSError:
            return False

    until(served, 60, "the kind is served", 0.2)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least that share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def until(condition: Callable[[], Any], seconds: float, what: str, pause: float = 0.05) -> Any:
    """The first true value of ``condition``. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(pause)
    return found


def still(count: Callable[[], Any], seconds: float, longest: float) -> Any:
    """The value of ``count`` once it has not changed for so long. Raises TimeoutError."""
    deadline, value, since = time.monotonic() + longest, count(), time.monotonic()
    while time.monotonic() - since < seconds:
        if time.monotonic() > deadline:
            raise TimeoutError(f"still changing after {longest:.0f} s")
        time.sleep(0.25)
        if (now := count()) != value:
            value, since = now, time.monotonic()
    return value


def chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """The items in groups of that size."""
    return (items[at : at + size] for at in range(0, len(items), size))
