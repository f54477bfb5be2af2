"""``kubectl vlm``: the command line. Libraries that take long to load are loaded by the command that needs them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from vlm_operator.cli.bench_arguments import add_bench, add_profile
from vlm_operator.cli.errors import ClusterError, InvalidInputs

DESCRIPTION = "Plans, and explains, vision-language models served on Kubernetes."
EXIT_CODES = (
    "exit codes: 0: done; 1: no plan can be made (the findings say why), or the cluster did not answer; "
    "2: the input is not valid"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    options = parser().parse_args(arguments)
    try:
        code = run(options)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader has gone, as `head` does. Nothing more can be written, not even at exit.
        _write_no_more()
        return 0
    except OSError as error:
        print(f"error: the output cannot be written: {error.strerror or error}", file=sys.stderr)
        _write_no_more()
        return 1


def _write_no_more() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(options: argparse.Namespace) -> int:
    """The command that was chosen, with its errors as lines on standard error."""
    try:
        if options.command == "plan":
            from vlm_operator.cli.plan import plan

            return plan(options)
        if options.command == "bench":
            from vlm_operator.cli.bench import bench

            return bench(options)
        if options.command == "profile":
            from vlm_operator.cli.profile import profile

            return profile(options)
        if options.command in ("history", "rollback"):
            from vlm_operator.cli.history import history, rollback

            return history(options) if options.command == "history" else rollback(options)
        from vlm_operator.cli.live import explain, status

        return explain(options) if options.command == "explain" else status(options)
    except InvalidInputs as error:
        for line in error.lines:
            print(f"error: {line}", file=sys.stderr)
        return 2
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    """Commands and flags; the flags for the cluster are kubectl's."""
    cluster = argparse.ArgumentParser(add_help=False)
    group = cluster.add_argument_group("cluster")
    group.add_argument("--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, else ~/.kube/config")
    group.add_argument("--context", metavar="NAME", help="default: the kubeconfig's current context")
    group.add_argument("-n", "--namespace", metavar="NAME", help="default: the context's namespace")

    result = argparse.ArgumentParser(prog="kubectl vlm", description=DESCRIPTION, epilog=EXIT_CODES)
    result.add_argument("--version", action="version", version=f"kubectl-vlm {version('vlm-operator')}")
    commands = result.add_subparsers(dest="command", required=True, metavar="COMMAND")

    plan = commands.add_parser(
        "plan",
        parents=[cluster],
        help="what would be run for a VLMService, and why",
        description="Makes the plan for each VLMService in the files: every engine setting, with its reason.",
        epilog=EXIT_CODES,
    )
    plan.add_argument(
        "-f", "--filename", action="append", required=True, metavar="FILE", help="a VLMService; - is standard input"
    )
    plan.add_argument(
        "--nodes",
        metavar="FILE",
        help="plan for these nodes instead of the cluster's: what `kubectl get nodes,resourceslices -o yaml` prints",
    )
    plan.add_argument("-o", "--output", choices=("table", "json", "yaml", "manifests"), default="table")
    plan.add_argument(
        "--runtime-image", metavar="IMAGE", help="the operator's image, as installed in the cluster; part of the plan"
    )
    plan.add_argument(
        "--profiles", metavar="FOLDER", help="YAML files of model families, as in the chart's value `profiles`"
    )

    explain = commands.add_parser(
        "explain",
        parents=[cluster],
        help="every setting of a running VLMService: planned, in force, and why",
        description="The plan in force, beside what the running engine says it uses.",
    )
    explain.add_argument("name", metavar="NAME", help="the VLMService")

    status = commands.add_parser(
        "status",
        parents=[cluster],
        help="how a VLMService is, and the next step for whatever is wrong",
        description="Conditions, start-up, pods, and the next step.",
    )
    status.add_argument("name", metavar="NAME", help="the VLMService")

    history = commands.add_parser(
        "history",
        parents=[cluster],
        help="earlier specs of a VLMService",
        description="The revisions of a VLMService: one for each spec that pods were made from, the newest ten.",
    )
    history.add_argument("name", metavar="NAME", help="the VLMService")
    history.add_argument("--revision", type=int, metavar="N", help="show the spec of that revision")

    rollback = commands.add_parser(
        "rollback",
        parents=[cluster],
        help="put an earlier spec of a VLMService back",
        description="Shows what changes, and puts an earlier spec back into the VLMService: all of it that pods are "
        "made from. Replicas, scaling, suspend, rolloutStrategy and metrics stay as they are.",
    )
    rollback.add_argument("name", metavar="NAME", help="the VLMService")
    rollback.add_argument(
        "--to-revision", type=int, default=0, metavar="N", help="default: the revision before the present spec"
    )
    rollback.add_argument("--dry-run", action="store_true", help="only show what would change")

    add_bench(commands, cluster)
    add_profile(commands, cluster)
    return result


if __name__ == "__main__":
    sys.exit(main())
