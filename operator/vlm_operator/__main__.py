"""``vlm-operator``: the command line of the operator."""

import argparse
import asyncio
import json
import logging
import os
import re
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.metadata import version

from vlm_operator.controller.run.app import LEASE_NAME, App, Options
from vlm_operator.controller.run.services import WatchFailed
from vlm_operator.errors import InvalidInput
from vlm_operator.kube.client import ApiError
from vlm_operator.kube.lease import LeaseLost
from vlm_operator.manifests.network.site import parse_site
from vlm_operator.sglang.profiles.load import families


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the operator. Exit codes: 0 stopped by a signal, 1 cannot continue (restart it), 2 wrong options."""
    chosen = _parser().parse_args(arguments)
    _log_to_stderr(chosen.log_level, chosen.log_format)
    if not chosen.runtime_image:
        print(
            "vlm-operator: give --runtime-image, or set VLM_OPERATOR_IMAGE to the operator's own image", file=sys.stderr
        )
        return 2
    try:
        known = families(chosen.profiles)
        networks = parse_site(chosen.network_policies == "true", chosen.extra_egress)
    except InvalidInput as error:
        print(f"vlm-operator: {error}", file=sys.stderr)
        return 2
    options = Options(
        runtime_image=chosen.runtime_image,
        families=known,
        site=networks,
        namespaces=chosen.namespace or _namespaces_of_environment(),
        metrics_address=chosen.metrics_address,
        leader_election=chosen.leader_election,
        lease_name=chosen.lease_name,
        own_namespace=os.environ.get("POD_NAMESPACE", "default"),
        pod_name=os.environ.get("POD_NAME", ""),
    )
    try:
        asyncio.run(_run(options))
    except (ApiError, LeaseLost, WatchFailed, OSError) as error:
        logging.getLogger("vlm_operator").error("stopping: %s", error)
        return 1
    return 0


async def _run(options: Options) -> None:
    await App(options).run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vlm-operator", description="Serves VLMServices: vision-language models on SGLang."
    )
    parser.add_argument("--version", action="version", version=f"vlm-operator {version('vlm-operator')}")
    parser.add_argument(
        "--namespace",
        action="append",
        metavar="NAME",
        help="serve this namespace only; may be given several times (default: VLM_OPERATOR_NAMESPACES, else all)",
    )
    parser.add_argument(
        "--runtime-image",
        default=os.environ.get("VLM_OPERATOR_IMAGE", ""),
        metavar="IMAGE",
        help="the image that brings the runtime into the engine's pods (default: VLM_OPERATOR_IMAGE)",
    )
    parser.add_argument(
        "--profiles",
        default=os.environ.get("VLM_OPERATOR_PROFILES", ""),
        metavar="FOLDER",
        help="YAML files of model families with measured sets of values, in addition to those included "
        "(default: VLM_OPERATOR_PROFILES)",
    )
    parser.add_argument(
        "--network-policies",
        default=os.environ.get("VLM_OPERATOR_NETWORK_POLICIES", "true"),
        choices=["true", "false"],
        help="whether services get NetworkPolicies (default: VLM_OPERATOR_NETWORK_POLICIES, else true)",
    )
    parser.add_argument(
        "--extra-egress",
        default=os.environ.get("VLM_OPERATOR_EXTRA_EGRESS", ""),
        metavar="JSON",
        help="a list of egress rules added to every service's NetworkPolicy (default: VLM_OPERATOR_EXTRA_EGRESS)",
    )
    parser.add_argument(
        "--metrics-address",
        default=":8080",
        type=_address,
        metavar="[HOST]:PORT",
        help="the address of /healthz, /readyz and /metrics (default: %(default)s)",
    )
    parser.add_argument(
        "--no-leader-election",
        dest="leader_election",
        action="store_false",
        help="work at once, without the lease with which one of several operators works",
    )
    parser.add_argument(
        "--lease-name",
        default=os.environ.get("VLM_OPERATOR_LEASE_NAME") or LEASE_NAME,
        type=_object_name,
        metavar="NAME",
        help="the Lease in the operator's own namespace; of operators with the same Lease one works "
        f"(default: VLM_OPERATOR_LEASE_NAME, else {LEASE_NAME})",
    )
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    parser.add_argument("--log-format", default="text", choices=["text", "json"])
    return parser


def _address(text: str) -> str:
    port = text.rpartition(":")[2]
    if ":" not in text or not port.isdigit() or not 0 < int(port) < 65_536:
        raise argparse.ArgumentTypeError(f"{text!r} is not [HOST]:PORT, such as :8080 or 127.0.0.1:8080")
    return text


def _object_name(text: str) -> str:
    part = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    if len(text) > 253 or re.fullmatch(rf"{part}(\.{part})*", text) is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an object name: use lower-case letters, digits, '-' and '.', such as {LEASE_NAME}"
        )
    return text


def _namespaces_of_environment() -> list[str]:
    return [n.strip() for n in os.environ.get("VLM_OPERATOR_NAMESPACES", "").split(",") if n.strip()]


class _JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _log_to_stderr(level: str, style: str) -> None:
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(_JsonFormatter() if style == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # kopf logs each retry and a traceback of each failure; the operator reports both itself, in one line.
    logging.getLogger("kopf").setLevel(logging.DEBUG if level == "debug" else logging.CRITICAL)
    logging.getLogger("urllib3").setLevel(logging.ERROR)


if __name__ == "__main__":
    sys.exit(main())
