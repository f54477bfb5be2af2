"""What the runtime costs: the same engine bare and below the runtime, with plugins and exporter, under the same load.

    python benchmarks/overhead.py [--pairs 12] [--requests 400] [--streams 4] [--tokens 16]

Unchanged SGLang on the CPU with the tiny model (tests/cluster/cluster.py engine), started twice with the same arguments:
once by ``python -m sglang.launch_server``, once by the runtime as in its pod. Both stay loaded, and the one that is not
under load is stopped (SIGSTOP, all of its processes), so that it takes no processor. Rounds alternate A B B A, so that a
machine that grows slower or faster harms both alike; each round streams the same number of answers about images that
never come twice, and is scraped once, as Prometheus does. Rounds take longer than the runtime's pause between two
questions (15 s): its clocks go on while it is stopped, so in a shorter round it would ask more often than it does. A first
pair is not counted. Prints the ratios of throughput and of time to the first token, each as the median over the pairs, which
a burst of somebody else's work does not move, with its 95 % bootstrap interval; the same of the processor time that all
processes take for a request, which other work on the machine disturbs less than it does the clock; and what the runtime's
own process takes.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from streams import Client, Load, Request

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY / "tests/cluster")]

from engine.conftest import ENGINE, MODEL, PYTHON  # noqa: E402
from unit.runtime.harness import Container, make_plan  # noqa: E402

from minicluster.ports import free_port  # noqa: E402
from vlm_runtime.install import install  # noqa: E402
from vlm_runtime.sglang.processes import children  # noqa: E402

NAME = "tiny"
ARGS = [
    "--model-path", str(MODEL), "--served-model-name", NAME, "--device", "cpu", "--max-total-tokens", "8192",
    "--max-running-requests", "8", "--enable-metrics", "--host", "127.0.0.1",
]  # fmt: skip
ENV = {
    "TORCHDYNAMO_DISABLE": "1",
    "SGLANG_EXPOSE_OWN_ENV_VARS": "1",
    "SGLANG_VLM_CACHE_SIZE_MB": "0",
    "HF_HUB_OFFLINE": "1",
    "VLMSERVE_DEVICE": "cpu",
    "PYTHONUNBUFFERED": "1",
}
START_SECONDS = 400
TICKS = os.sysconf("SC_CLK_TCK")
RESAMPLES = 10_000


@dataclass
class Engine:
    """One running engine. ``pid`` is the runtime's process, or the engine's own where it is bare."""

    name: str
    pid: int
    port: int
    log: Path
    scraped: Sequence[int]
    """Ports whose /metrics Prometheus would ask."""

    def everything(self) -> list[int]:
        """All of its processes, the first one too."""
        found, new = [self.pid], [self.pid]
        while new:
            new = [child for pid in new for child in children(pid)]
            found += new
        return found

    def stop(self) -> None:
        """Takes the processor away from all of it, parents first: none of them sees its child stop."""
        for pid in self.everything():
            os.kill(pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Gives it back, children first."""
        for pid in reversed(self.everything()):
            os.kill(pid, signal.SIGCONT)

    def wait_until_ready(self) -> None:
        """Until it serves. Raises SystemExit where it does not."""
        deadline = time.monotonic() + START_SECONDS
        while get(self.port, "/ready") != 200:
            if time.monotonic() > deadline or has_ended(self.pid):
                raise SystemExit(f"the engine {self.name} is not ready; the end of its log:\n{tail(self.log)}")
            time.sleep(0.5)


def get(port: int, path: str) -> int:
    """The status of a GET; 0 where nobody listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        return response.status
    except OSError:
        return 0
    finally:
        connection.close()


def has_ended(pid: int) -> bool:
    """Whether a child of ours is there no more, or only its exit code is."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def tail(log: Path) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])


@dataclass(frozen=True)
class Round:
    """What one round measured. ``cpu_seconds`` and ``wall_seconds`` are of the engine's first process in that time,
    ``work_seconds`` is the processor time of all of its processes for a request."""

    requests_per_second: float
    first_token_seconds: float
    cpu_seconds: float
    wall_seconds: float
    work_seconds: float


def one_round(engine: Engine, requests: int, streams: int, tokens: int) -> Round:
    """So many answers from one engine, ``streams`` at a time."""
    load = Load(f"http://127.0.0.1:{engine.port}", NAME, tokens, 224)
    engine.go_on()
    try:
        engine.wait_until_ready()
        answers(load, streams, streams)  # caches of the processor, after the other one's round
        everything = engine.everything()
        work = sum(map(cpu_seconds, everything))
        cpu, begun = cpu_seconds(engine.pid), time.monotonic()
        scraping = threading.Thread(target=lambda: [get(port, "/metrics") for port in engine.scraped])
        scraping.start()
        done = answers(load, requests, streams)
        wall = time.monotonic() - begun
        scraping.join()
        cpu = cpu_seconds(engine.pid) - cpu
        work = sum(map(cpu_seconds, everything)) - work
    finally:
        engine.stop()
    first = statistics.mean(request.first_token_seconds for request in done)
    return Round(requests / wall, first, cpu, wall, work / requests)


def answers(load: Load, requests: int, streams: int) -> list[Request]:
    """Raises SystemExit where one of them failed: a round with failures measures nothing."""
    with ThreadPoolExecutor(streams) as pool:
        done = list(pool.map(lambda _: Client(load).ask(), range(requests)))
    for request in done:
        if request.outcome != "ok":
            raise SystemExit(f"{load.url}: {request.outcome}: {request.detail}")
    return done


def cpu_seconds(pid: int) -> float:
    """Processor time of one process, all of its threads, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mib(pid: int) -> dict[str, float]:
    """RSS and PSS of one process in MiB; PSS counts shared pages by their share."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    kib = {line.split(":")[0]: int(line.split()[1]) for line in lines[1:]}
    return {name: kib[name] / 1024 for name in ("Rss", "Pss")}


@dataclass(frozen=True)
class Ratio:
    """The median of ratios, and its 95 % interval."""

    median: float
    low: float
    high: float


def ratio(pairs: Sequence[tuple[Round, Round]], value: Callable[[Round], float]) -> Ratio:
    """Below the runtime over bare, pair by pair."""
    ratios = [value(below) / value(bare) for bare, below in pairs]
    chance = random.Random(0)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    low, high = medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES) - 1]
    return Ratio(statistics.median(ratios), low, high)


def start_bare(library: Path, folder: Path) -> tuple[Engine, subprocess.Popen[bytes]]:
    """The engine alone. Of this project it has the platform plugin, without which no CPU is served, and no other."""
    port = free_port()
    entry_points = next((library / "lib").glob("*.dist-info/entry_points.txt"))
    groups = entry_points.read_text().split("\n\n")
    entry_points.write_text(
        "\n\n".join(group for group in groups if group.strip().startswith("[sglang.srt.platforms]"))
    )
    env = {**os.environ, **ENV, "PYTHONPATH": f"{library / 'lib'}:{ENGINE}"}
    command = [PYTHON, "-m", "sglang.launch_server", *ARGS, "--port", str(port)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    return Engine("bare", process.pid, port, folder / "log", [port]), process


def start_below(library: Path, folder: Path) -> tuple[Engine, Container]:
    """The engine below the runtime, as in its pod."""
    container = Container(
        folder,
        make_plan(
            engine={"args": ARGS, "env": ENV},
            runtime={"served_model_name": NAME, "startup_budget_seconds": START_SECONDS, "drain_seconds": 10},
        ),
        program=[PYTHON, str(library / "start.py")],
        env={"PYTHONPATH": str(ENGINE), **ENV},
    )
    scraped = [container.engine_port, container.port]
    engine = Engine("runtime", container.process.pid, container.engine_port, container.log_path, scraped)
    return engine, container


def say(text: str) -> None:
    print(text, flush=True)


def measure(pairs: int, requests: int, streams: int, tokens: int) -> None:
    """Runs everything and prints the table."""
    with tempfile.TemporaryDirectory() as scratch:
        folders = {name: Path(scratch) / name for name in ("bare", "below", "bare-library", "library")}
        for folder in folders.values():
            folder.mkdir()
        for name in ("bare-library", "library"):
            install(folders[name])
        bare, process = start_bare(folders["bare-library"], folders["bare"])
        container: Container | None = None
        try:
            say("starting the bare engine")
            bare.wait_until_ready()
            bare.stop()
            below, container = start_below(folders["library"], folders["below"])
            say("starting the engine below the runtime")
            container.wait_ready(START_SECONDS)
            below.stop()
            found: list[tuple[Round, Round]] = []
            for number in range(-1, pairs):
                order = (bare, below) if number % 2 == 0 else (below, bare)
                rounds = {engine.name: one_round(engine, requests, streams, tokens) for engine in order}
                if number >= 0:
                    found.append((rounds["bare"], rounds["runtime"]))
                say(
                    f"pair {number + 1} of {pairs}: "
                    + ", ".join(
                        f"{n} {r.requests_per_second:.2f}/s, {r.work_seconds * 1000:.1f} ms of work"
                        for n, r in rounds.items()
                    )
                )
            table(found, memory_mib(below.pid), requests, streams)
        finally:
            if container is not None:
                below.go_on()
                container.end()
            for pid in reversed(bare.everything()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()


def table(pairs: Sequence[tuple[Round, Round]], memory: dict[str, float], requests: int, streams: int) -> None:
    """What is printed at the end."""
    throughput = ratio(pairs, lambda r: r.requests_per_second)
    first = ratio(pairs, lambda r: r.first_token_seconds)
    below = [b for _, b in pairs]
    cpu = sum(r.cpu_seconds for r in below) / sum(r.wall_seconds for r in below)
    found = Table(
        "what", "value", "goal", title=f"{len(pairs)} pairs of rounds, {requests} requests, {streams} at a time"
    )
    for side, name in enumerate(("bare", "below the runtime")):
        rounds = [pair[side] for pair in pairs]
        said = f"{statistics.median(r.requests_per_second for r in rounds):.2f}/s, "
        said += f"{statistics.median(r.first_token_seconds for r in rounds) * 1000:.0f} ms to the first token, "
        said += f"{statistics.median(r.work_seconds for r in rounds) * 1000:.1f} ms of processor time for a request"
        found.add_row(name, said, "")
    found.add_row("throughput, ratio", _said(throughput), "0.99, interval from 0.95")
    found.add_row("time to the first token, ratio", _said(first), "1.01")
    work = ratio(pairs, lambda r: r.work_seconds)
    found.add_row("processor time of all processes for a request, ratio", _said(work), "")
    found.add_row("runtime's own processor time", f"{cpu:.2%} of a core", "2 %")
    found.add_row("runtime's own memory", f"RSS {memory['Rss']:.0f} MiB, PSS {memory['Pss']:.0f} MiB", "60 MiB")
    Console(width=140).print(found)


def _said(found: Ratio) -> str:
    return f"{found.median:.3f} ({found.low:.3f} to {found.high:.3f})"


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--requests", type=int, default=400, help="of a round")
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=16, help="of an answer")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left running
    for path in (ENGINE / "sglang", MODEL / "config.json"):
        if not path.exists():
            raise SystemExit(f"{path} is missing: make it with `python3 tests/cluster/cluster.py engine`")
    measure(chosen.pairs, chosen.requests, chosen.streams, chosen.tokens)
    return 0


if __name__ == "__main__":
    sys.exit(main())
