"""The command line."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from . import build, check, engine, images, kwok, lifecycle, prometheus, volumes
from .errors import ClusterError


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    try:
        dispatch(arguments)
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command again continues or starts over", file=sys.stderr)
        return 130
    return 0


def dispatch(arguments: argparse.Namespace) -> None:
    match arguments.command:
        case "check":
            if arguments.install:
                check.install_packages()
            check.check()
        case "build":
            build.build(arguments.only, for_tests=arguments.tests)
        case "images":
            images.make(arguments.names)
        case "engine":
            engine.install()
        case "up":
            lifecycle.up(with_kwok=arguments.kwok, with_lws=arguments.lws, cold=arguments.cold)
        case "down":
            lifecycle.down()
        case "status":
            lifecycle.status()
        case "load":
            lifecycle.load(arguments.archive)
        case "volumes":
            volumes.provide(arguments.namespace)
        case "gpu-nodes":
            kwok.create_nodes(arguments.preset, arguments.count)
        case "prometheus":
            prometheus.start(arguments.config)


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(prog="cluster.py", description="A real one-node Kubernetes cluster.")
    commands = result.add_subparsers(dest="command", required=True, metavar="COMMAND")

    command = commands.add_parser("check", help="say what the machine lacks; exit status 1 when it lacks something")
    command.add_argument("--install", action="store_true", help="install missing Debian packages first (root)")

    command = commands.add_parser("build", help="build the cluster's programs with Go; twelve minutes the first time")
    command.add_argument(
        "--only", nargs="+", default=[], metavar="PROGRAM", help="only these, such as etcd kube-apiserver"
    )
    command.add_argument("--tests", action="store_true", help="also what only the test suites use")

    command = commands.add_parser("images", help="make the container images")
    command.add_argument("names", nargs="*", metavar="IMAGE", help=f"only these of: {', '.join(images.MAKERS)}")

    commands.add_parser("engine", help="install the real engine (9 GB) and the tiny model")

    command = commands.add_parser("up", help="start the cluster, or what is missing of it (root)")
    command.add_argument("--no-kwok", dest="kwok", action="store_false", help="without simulated nodes")
    command.add_argument("--no-lws", dest="lws", action="store_false", help="without the LeaderWorkerSet controller")
    command.add_argument("--cold", action="store_true", help="forget certificates and imported images first")

    commands.add_parser("down", help="stop everything and remove mounts, control groups and the network (root)")
    commands.add_parser("status", help="say what runs")

    command = commands.add_parser("load", help="import an image archive into the node (root)")
    command.add_argument("archive", type=Path, metavar="IMAGE.tar")

    command = commands.add_parser("volumes", help="claims `sglang` and `models` for a namespace")
    command.add_argument("namespace", metavar="NAMESPACE")

    command = commands.add_parser("gpu-nodes", help="simulated GPU nodes")
    command.add_argument("preset", choices=sorted(path.stem for path in kwok.PRESETS.glob("*.yaml")))
    command.add_argument("--count", type=int, default=1, help="how many nodes (default: 1)")

    command = commands.add_parser("prometheus", help="start this machine's Prometheus beside the cluster (root)")
    command.add_argument("config", type=Path, metavar="CONFIG.yaml")
    return result
