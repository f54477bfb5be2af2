"""``kubectl vlm``: the command line. Each command imports what it needs, since some libraries load slowly."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from vlm_api.bounds import harmless
from vlm_operator.errors import ClusterError, InvalidInputs

DESCRIPTION = "Plan, explain and measure vision-language models on Kubernetes."
EXIT_CODES = (
    "exit codes: 0: success; 1: no plan is possible (see the findings) or the cluster cannot be reached; "
    "2: invalid input"
)
# The commands of vlm_bench, a program of its own: its libraries are an extra, and no other command waits for them to load.
MEASURING = {
    "bench": "send the declared workload with images; compare servers and settings",
    "profile": "show where the engine's time goes under load: kinds of kernels, the largest, GEMMs limited by bandwidth",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parser(arguments[0] if arguments else "").parse_args(arguments)
    try:
        code = run(options)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe. Python must not write at exit either.
        _discard_output()
        return 0
    except OSError as error:
        print(f"error: cannot write the output: {error.strerror or error}", file=sys.stderr)
        _discard_output()
        return 1


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(options: argparse.Namespace) -> int:
    """Runs the chosen command. Errors go to standard error, one line each."""
    try:
        if options.command == "plan":
            from vlm_operator.cli.plan import plan

            return plan(options)
        if options.command in MEASURING:
            from vlm_bench.commands import measure

            return measure(options)
        if options.command in ("history", "rollback"):
            from vlm_operator.cli.history import history, rollback

            return history(options) if options.command == "history" else rollback(options)
        if options.command == "promote":
            from vlm_operator.cli.promote import promote

            return promote(options)
        from vlm_operator.cli.service import explain, status

        return explain(options) if options.command == "explain" else status(options)
    except InvalidInputs as error:
        for line in error.lines:
            print(f"error: {harmless(line)}", file=sys.stderr)
        return 2
    except ClusterError as error:
        print(f"error: {harmless(str(error))}", file=sys.stderr)
        return 1


def parser(chosen: str) -> argparse.ArgumentParser:
    """Commands and flags. The cluster flags are kubectl's. Of MEASURING, only the chosen command gets its flags."""
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
        help="show what would run for a VLMService, and why",
        description="Plan each VLMService in the files: hardware, memory and every engine setting with its reason.",
        epilog=EXIT_CODES,
    )
    plan.add_argument(
        "-f",
        "--filename",
        action="append",
        required=True,
        metavar="FILE",
        help="file with VLMServices; - for standard input",
    )
    plan.add_argument(
        "--nodes",
        metavar="FILE",
        help="plan for these nodes, without a cluster: the output of `kubectl get nodes,resourceslices -o yaml`",
    )
    plan.add_argument(
        "--model-files",
        metavar="FOLDER",
        help="folder with the model's config.json and its safetensors index or file, for a model that the operator does "
        "not know by name",
    )
    plan.add_argument("--pool", metavar="POOL", help="only the plan of this pool")
    plan.add_argument("-o", "--output", choices=("table", "json", "yaml", "manifests"), default="table")
    plan.add_argument(
        "--runtime-image", metavar="IMAGE", help="the image of the installed operator; it is part of the plan's hash"
    )
    plan.add_argument(
        "--profiles", metavar="FOLDER", help="folder with your own profiles, as in the chart's value `profiles`"
    )

    def about_a_service(command: str, text: str, description: str) -> argparse.ArgumentParser:
        about = commands.add_parser(command, parents=[cluster], help=text, description=description)
        about.add_argument("name", metavar="NAME", help="the VLMService")
        return about

    explain = about_a_service(
        "explain",
        "show every setting of a VLMService: planned, in force, and why",
        "Show the current plan beside the values that the running engine reports.",
    )
    explain.add_argument("--pool", metavar="POOL", help="the plan of this pool; default: main, else the first pool")
    about_a_service(
        "status",
        "show the state of a VLMService and the next step",
        "Show conditions, start-up, pods and the next step.",
    )
    history = about_a_service(
        "history",
        "list earlier specs of a VLMService",
        "List the revisions of a VLMService: the last ten specs that pods were created from.",
    )
    history.add_argument("--revision", type=int, metavar="N", help="show the spec of that revision")
    rollback = about_a_service(
        "rollback",
        "restore an earlier spec of a VLMService",
        "Show what changes, then restore an earlier spec. Replicas, scaling, suspend, rolloutStrategy "
        "and metrics stay as they are.",
    )
    rollback.add_argument("--to-revision", type=int, default=0, metavar="N", help="default: the previous revision")
    rollback.add_argument("--dry-run", action="store_true", help="only show what would change")

    promote = about_a_service(
        "promote",
        "make a pool's fields those of pool main, and remove the pool",
        "Show what changes, then make what the pool says what pool main says (without a main, what the service says), and remove "
        "the pool. Replicas, scaling, suspend and rolloutStrategy of main stay. `kubectl vlm rollback` undoes it.",
    )
    promote.add_argument("pool", metavar="POOL", help="the pool that has proved itself")
    promote.add_argument("--dry-run", action="store_true", help="only show what would change")

    for name, text in MEASURING.items():
        measuring = commands.add_parser(name, parents=[cluster], help=text)
        if name == chosen:
            from vlm_bench.commands.flags import add_flags

            add_flags(measuring, name)
    return result


if __name__ == "__main__":
    sys.exit(main())
