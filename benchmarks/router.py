"""How the router spreads requests about images, beside SGLang's own gateway.

    python benchmarks/router.py [--smg] [--requests N] [--in-flight N ...]

The router is a real Envoy with the operator's configuration, on one core. Behind it are three stand-ins for engines that count
requests and images; `--smg` starts SGLang's gateway (`pip install smg`) before the same stand-ins. Prints for each kind of
traffic: the greatest share of an engine over the mean (1 is even, 3 is one engine alone), and encodes: at how many engines an
image was seen (1 is the least, 3 the most). At last, the time that the router adds to a request of 1 MB, and its memory.
"""

import argparse
import base64
import hashlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from routing.engines import Engine
from routing.envoy import Envoy, routing

PATH = "/v1/chat/completions"
TEXT = "Describe the product in the image as JSON with title, brand, category and price. " * 5
IMAGES, SECONDS = 20, 0.15
TRAFFIC = ("unique", "repeated", "hot", "mixed")
POLICIES = ("cache_aware", "least_load", "consistent_hashing")


def picture(number: int, size: int) -> str:
    return "data:image/png;base64," + base64.b64encode(random.Random(number).randbytes(size)).decode()


def question(traffic: str, number: int, size: int) -> tuple[str, str]:
    """The image and the text of a request."""
    if traffic == "unique" or (traffic == "mixed" and number % 2):
        return picture(1000 + number, size), TEXT
    image = 0 if traffic == "hot" else number // (2 if traffic == "mixed" else 1) % IMAGES
    return picture(image, size), f"Question {number}?"


def body(image: str, text: str) -> dict[str, Any]:
    content = [{"type": "image_url", "image_url": {"url": image}}, {"type": "text", "text": text}]
    return {"model": "tiny", "messages": [{"role": "user", "content": content}]}


def spread(url: str, engines: list[Engine], traffic: str, requests: int, in_flight: int, *, keyed: bool) -> list[str]:
    """The table's cells of one measurement."""
    for engine in engines:
        engine.forget()
    asked = [question(traffic, number, 3000) for number in range(requests)]
    with httpx.Client(timeout=120, limits=httpx.Limits(max_connections=in_flight)) as client:

        def ask(each: tuple[str, str]) -> None:
            headers = {"x-smg-routing-key": hashlib.sha256(each[0].encode()).hexdigest()} if keyed else {}
            client.post(url + PATH, json=body(*each), headers=headers).raise_for_status()

        began = time.monotonic()
        with ThreadPoolExecutor(in_flight) as pool:
            list(pool.map(ask, asked))
        took = time.monotonic() - began
    counts = [len(engine.requests) for engine in engines]
    encodes = sum(len(engine.seen) for engine in engines) / len({image for image, _ in asked})
    return [f"{max(counts) * len(counts) / sum(counts):.2f}", f"{encodes:.2f}", f"{requests / took:.0f}"]


@contextmanager
def our_router(engines: list[Engine], folder: Path, *, by_image: bool) -> Iterator[Envoy]:
    router = Envoy(routing(by_image=by_image), [engines], folder)
    try:
        router.wait(len(engines))
        yield router
    finally:
        router.stop()


@contextmanager
def gateway(engines: list[Engine], policy: str, port: int) -> Iterator[str]:
    """SGLang's gateway before the same engines."""
    command = [
        "smg",
        "launch",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--prometheus-port",
        str(port + 1),
        "--policy",
        policy,
    ]
    command += [
        "--health-check-endpoint",
        "/ready",
        "--health-check-interval-secs",
        "1",
        "--worker-startup-check-interval",
        "1",
    ]
    command += ["--worker-urls", *(f"http://127.0.0.1:{engine.port}" for engine in engines)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(120):
            try:
                if httpx.post(url + PATH, json=body(picture(0, 30), "?"), timeout=5).status_code == 200:
                    break
            except httpx.HTTPError:
                pass
            time.sleep(0.5)
        else:
            raise SystemExit(f"smg with {policy} does not answer")
        yield url
    finally:
        process.terminate()
        process.wait()


def added(folder: Path, console: Console) -> None:
    """The time that the router adds to a request of 1 MB, in turns with the same request without it."""
    engine = Engine()
    text = body(picture(1, 750_000), TEXT)
    with our_router([engine], folder, by_image=True) as router, httpx.Client(timeout=30) as client:
        urls = {"direct": f"http://127.0.0.1:{engine.port}", "router": router.url}
        times: dict[str, list[float]] = {name: [] for name in urls}
        for _ in range(300):
            for name, url in urls.items():
                began = time.monotonic()
                client.post(url + PATH, json=text).raise_for_status()
                times[name].append((time.monotonic() - began) * 1000)
        medians = {name: statistics.median(values) for name, values in times.items()}
        status = Path(f"/proc/{router.process.pid}/status").read_text()
        resident = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    console.print(
        f"1 MB, one at a time: {medians['direct']:.2f} ms without and {medians['router']:.2f} ms with the router "
        f"(medians of 300), {medians['router'] - medians['direct']:.2f} ms more; the router took at most {resident:.0f} MiB"
    )
    engine.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smg", action="store_true", help="SGLang's gateway beside, in the same run")
    parser.add_argument("--traffic", nargs="*", choices=TRAFFIC, default=TRAFFIC, help="none: only the added time")
    parser.add_argument("--requests", type=int, default=240)
    parser.add_argument("--in-flight", type=int, nargs="+", default=[6, 24, 64])
    options = parser.parse_args()
    if options.smg and shutil.which("smg") is None:
        parser.error("smg is not installed: pip install smg")
    console = Console(width=120)
    table = Table("ROUTER", "TRAFFIC", "IN FLIGHT", "SHARE", "ENCODES", "REQUESTS/S", box=None)
    engines = [Engine(SECONDS) for _ in range(3)]

    def measure(name: str, url: str, *, keyed: bool = False) -> None:
        for traffic in options.traffic:
            for in_flight in options.in_flight:
                cells = spread(url, engines, traffic, options.requests, in_flight, keyed=keyed)
                table.add_row(name, traffic, str(in_flight), *cells)
                print(name, traffic, in_flight, *cells, file=sys.stderr)

    with tempfile.TemporaryDirectory() as folder:
        for by_image in (False, True):
            with our_router(engines, Path(folder), by_image=by_image) as router:
                measure(f"affinity {'Image' if by_image else 'None'}", router.url)
        for number, policy in enumerate(POLICIES if options.smg else ()):
            with gateway(engines, policy, 28_700 + 2 * number) as url:
                measure(f"smg {policy}", url, keyed=policy == "consistent_hashing")
        console.print(table)
        added(Path(folder), console)
    return 0


if __name__ == "__main__":
    sys.exit(main())
