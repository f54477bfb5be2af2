"""The flags of ``kubectl vlm bench`` and ``kubectl vlm profile``."""

import argparse
from typing import Final

from vlm_bench.load.schedule import DEFAULT_CONCURRENCY, ROUNDS, WAVES
from vlm_bench.statistics.interval import CONFIDENCE, FEWEST_PAIRS

START_TIMEOUT_SECONDS: Final = 1800
STEPS: Final = 5
RECORD_SECONDS: Final = 120
NSIGHT_SECONDS: Final = 5
EPILOG: Final = (
    f"The ratio of two servers has a {CONFIDENCE:.0%} interval over pairs of rounds; there is no winner if it includes 1. "
    "Exit codes: 0: measured; 1: requests failed, or the cluster refused something; 2: the input is invalid."
)
IMAGE: Final = "the image with the benchmark. Default: the service's engine image"


def add_flags(command: argparse.ArgumentParser, name: str) -> None:
    """Adds the flags of ``bench`` or ``profile``."""
    command.add_argument("name", metavar="NAME", help="the VLMService")
    (_bench if name == "bench" else _profile)(command)
    command.add_argument("--image", metavar="IMAGE", help=IMAGE)
    command.add_argument("--folder", metavar="FOLDER", help=f"folder for all files. Default: ./{name}-NAME-TIME")
    command.add_argument("-o", "--output", choices=("table", "json"), default="table")


# fmt: off
def _bench(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Sends the declared workload to a VLMService with SGLang's own benchmark, from a Job in its namespace, and prints "
        "throughput, latency and failures. Each image is sent once."
    )
    command.epilog = EPILOG
    add = command.add_mutually_exclusive_group().add_argument
    add("--against", metavar="NAME|URL", help="compare with another VLMService, or with any OpenAI-compatible server")
    add("--without", metavar="SETTING", help="compare with a temporary twin without one applied setting")
    add("--set", metavar="NAME=VALUE", help="compare with a temporary twin with another value")
    add("--each", action="store_true", help="--without for every applied setting, one after the other")
    add = command.add_argument
    add("--against-model", metavar="NAME", help="the model's name there. Default: the first that it lists")
    add("--against-key", metavar="SECRET:KEY", help="that server's API key, from a Secret in the service's namespace")
    add("--start-timeout", type=int, metavar="SECONDS",
        help=f"how long a twin may take to start. Default: {START_TIMEOUT_SECONDS}")
    add = command.add_argument_group("load").add_argument
    add("--concurrency", metavar="N[,N...]", help="requests in flight; several make a curve. "
        f"Default: workload.concurrency for each ready replica, else {DEFAULT_CONCURRENCY}")
    add("--requests", type=int, metavar="N", help=f"requests of a round. Default: {WAVES} for each in flight")
    add("--rounds", type=int, default=ROUNDS, metavar="N",
        help=f"rounds of each server; a comparison needs an even number, at least {FEWEST_PAIRS}. Default: {ROUNDS}")
    add("--seed", type=int, metavar="N", help="the first round's seed. Default: a new one each time")


def _profile(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Records a few steps of prefill and decode with the engine's own profiler while the declared workload runs, and "
        "summarizes the trace. The engine keeps serving; it is slower during the recording."
    )
    add = command.add_argument
    add("--steps", type=int, metavar="N", help=f"steps of each stage. Default: {STEPS}")
    add("--concurrency", type=int, metavar="N", help="requests in flight. Default: as for bench")
    add("--stack", action="store_true", default=None, help="record Python frames too, which slows the engine down")
    add("--timeout", type=int, metavar="SECONDS", help=f"how long to wait for the steps. Default: {RECORD_SECONDS}")
    add("--nsight", action="store_true", help="record a twin of the service with Nsight Systems instead; needs nsys in the "
        "engine's image, and room for another replica in the cluster")
    add("--seconds", type=int, metavar="SECONDS", help=f"how long --nsight records. Default: {NSIGHT_SECONDS}")
    add("--start-timeout", type=int, metavar="SECONDS",
        help=f"how long the twin of --nsight may take to start. Default: {START_TIMEOUT_SECONDS}")
# fmt: on
