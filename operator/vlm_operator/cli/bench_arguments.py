"""The flags of ``kubectl vlm bench`` and ``kubectl vlm profile``."""

from __future__ import annotations

import argparse
from typing import Any, Final

from vlm_operator.measure.interval import CONFIDENCE, FEWEST_PAIRS
from vlm_operator.measure.load import DEFAULT_CONCURRENCY, WAVES
from vlm_operator.measure.schedule import ROUNDS

START_TIMEOUT_SECONDS: Final = 1800
STEPS: Final = 5
RECORD_SECONDS: Final = 120
NSIGHT_SECONDS: Final = 5
EPILOG: Final = (
    f"The ratio of two servers comes with a {CONFIDENCE:.0%} interval over pairs of rounds; no winner is named "
    "when it holds 1. exit codes: 0: measured; 1: requests failed, or the cluster refused something; 2: the input is not valid"
)


def add_bench(commands: Any, cluster: argparse.ArgumentParser) -> None:
    """Adds the command to the others."""
    bench = commands.add_parser(
        "bench",
        parents=[cluster],
        help="load with images like the declared workload; compares servers and settings",
        description="Sends the declared workload to a VLMService with SGLang's own benchmark, from a Job beside it, and "
        "prints what came back. Images are seen once.",
        epilog=EPILOG,
    )
    bench.add_argument("name", metavar="NAME", help="the VLMService")
    other = bench.add_mutually_exclusive_group()
    other.add_argument(
        "--against", metavar="NAME|URL", help="compare with another VLMService, or with any OpenAI-compatible server"
    )
    other.add_argument(
        "--without", metavar="SETTING", help="compare with a temporary twin that leaves out one applied setting"
    )
    other.add_argument("--set", metavar="NAME=VALUE", help="compare with a temporary twin that has another value")
    other.add_argument("--each", action="store_true", help="--without for every applied setting, one after the other")
    bench.add_argument(
        "--against-model", metavar="NAME", help="the model's name there; default: the first that is listed"
    )
    bench.add_argument("--against-key", metavar="SECRET:KEY", help="the API key of the server at that URL")
    load = bench.add_argument_group("load")
    load.add_argument(
        "--concurrency",
        metavar="N[,N...]",
        help="requests at once; several make a curve. "
        f"Default: workload.concurrency for each ready replica, else {DEFAULT_CONCURRENCY}",
    )
    load.add_argument(
        "--requests", type=int, metavar="N", help=f"requests of a round. Default: {WAVES} for each at once"
    )
    load.add_argument(
        "--rounds", type=int, default=ROUNDS, metavar="N",
        help=f"rounds of each server; a comparison needs an even number from {FEWEST_PAIRS} on. Default: {ROUNDS}",
    )  # fmt: skip
    load.add_argument("--seed", type=int, metavar="N", help="the first round's seed. Default: a new one each time")
    load.add_argument(
        "--image", metavar="IMAGE", help="the image with the benchmark. Default: the service's engine image"
    )
    bench.add_argument(
        "--start-timeout", type=int, metavar="SECONDS",
        help=f"how long a twin may take to start. Default: {START_TIMEOUT_SECONDS}",
    )  # fmt: skip
    bench.add_argument("--folder", metavar="FOLDER", help="where rounds and report go. Default: ./bench-NAME-TIME")
    bench.add_argument("-o", "--output", choices=("table", "json"), default="table")


def add_profile(commands: Any, cluster: argparse.ArgumentParser) -> None:
    """Adds ``profile`` to the others."""
    profile = commands.add_parser(
        "profile",
        parents=[cluster],
        help="where the engine's time goes under load: kinds of kernels, the largest, GEMMs that memory holds up",
        description="Records a few steps of prefill and decode with the engine's own profiler while the declared workload "
        "runs, and sums the trace up. The engine goes on serving; it is slower while it is recorded.",
    )
    profile.add_argument("name", metavar="NAME", help="the VLMService")
    profile.add_argument("--steps", type=int, metavar="N", help=f"steps of each stage. Default: {STEPS}")
    profile.add_argument("--concurrency", type=int, metavar="N", help="requests at once. Default: as for bench")
    profile.add_argument(
        "--stack", action="store_true", default=None, help="record Python's frames too, which slows the engine down"
    )
    profile.add_argument(
        "--nsight", action="store_true",
        help="record a twin of the service with Nsight Systems instead; the engine's image needs nsys, and the cluster "
        "room for another replica",
    )  # fmt: skip
    profile.add_argument(
        "--seconds", type=int, metavar="SECONDS",
        help=f"how long --nsight records. Default: {NSIGHT_SECONDS}",
    )  # fmt: skip
    profile.add_argument(
        "--start-timeout", type=int, metavar="SECONDS",
        help=f"how long the twin of --nsight may take to start. Default: {START_TIMEOUT_SECONDS}",
    )  # fmt: skip
    profile.add_argument(
        "--timeout", type=int, metavar="SECONDS",
        help=f"how long to wait for the steps. Default: {RECORD_SECONDS}",
    )  # fmt: skip
    profile.add_argument(
        "--image", metavar="IMAGE", help="the image with the benchmark. Default: the service's engine image"
    )
    profile.add_argument("--folder", metavar="FOLDER", help="where traces and report go. Default: ./profile-NAME-TIME")
    profile.add_argument("-o", "--output", choices=("table", "json"), default="table")
