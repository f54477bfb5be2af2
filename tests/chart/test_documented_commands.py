"""Runs every command in the documentation, in a user's order, against a real API server.

There is no kubelet and no engine, so commands that need a pod run with ``--help``, which still checks their flags.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from apiserver.operating import Operator, World, add_node, eventually
from chart.installing import Cluster, empty_cluster
from chart.rendering import REPOSITORY

from minicluster.paths import BIN
from vlm_operator.sglang.catalogue.releases import newest

# These pages come first; the others follow by name.
FIRST = ("docs/install.md", "docs/first-service.md", "docs/autoscaling.md")
# Commands on these pages change the checkout.
FOR_DEVELOPERS = ("docs/adding-a-release.md", "docs/development.md")
# These run at the very end.
LAST = ("helm uninstall", "kubectl delete vlms", "kubectl delete crd")
NAME = "qwen3-vl"
PLACES = {
    "NAMESPACE": "default",
    "NAME": NAME,
    "POD": f"{NAME}-0",
    "NODE": "h100-0",
    "RELEASE": "vlm-operator",
    "VERSION": newest(),
    "SERVICE.yaml": "service.yaml",
    "qwen3-vl-cpu": NAME,  # only in the demo
}
# Programs that are not run: they need Docker, root, a package index or a pod.
NOT_RUN = ("docker", "apt-get", "python3", "curl", "export")
# Commands that need a running pod or another server, or take minutes.
HELP_ONLY = (
    "logs",
    "port-forward",
    "rollout",
    "wait",
    "vlm bench",
    "vlm profile",
    "/apis/custom.metrics",
    "benchmarks/",
)
# Commands with these flags never end.
ENDLESS = re.compile(r"\s(?:-w|--watch)\b")


def pages() -> list[Path]:
    paths = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "examples").glob("*.md")]
    names = {str(path.relative_to(REPOSITORY)): path for path in sorted(paths)}
    return [names[name] for name in FIRST] + [
        path for name, path in names.items() if name not in (*FIRST, *FOR_DEVELOPERS)
    ]


def commands() -> Iterator[tuple[str, str]]:
    """(page, command) of every shell block, without comments and duplicates."""
    late, known = [], set()
    for page in pages():
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            for command in split(block):
                place = (str(page.relative_to(REPOSITORY)), command)
                same = " ".join(command.replace("\\\n", " ").split())
                if same in known:
                    continue
                known.add(same)
                if command.startswith(LAST):
                    late.append(place)
                else:
                    yield place
    yield from late


def split(block: str) -> Iterator[str]:
    """The commands of a block. A backslash or an open quote continues a line."""
    command = ""
    for line in block.splitlines():
        command += ("\n" if command else "") + line
        if line.endswith("\\") or command.count("'") % 2:
            continue
        text = re.sub(r"\s+#\s.*$", "", command, flags=re.MULTILINE).strip()
        command = ""
        if text and not text.startswith("#"):
            yield text


def as_run(command: str) -> str:
    """The command with real names, without endless flags, and with ``--help`` if it needs a pod."""
    for place, real in PLACES.items():
        command = re.sub(rf"(?<![A-Za-z_]){re.escape(place)}(?![A-Za-z_])", real, command)
    command = ENDLESS.sub("", command).rstrip("& ").strip()
    command = re.split(r"\s\|\s", command)[0]
    if any(word in command for word in HELP_ONLY):
        command += " --help"
    if "crds/vlmservices" in command:
        command += " --dry-run=server"  # Helm owns the CRD here
    return command


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A shell in a checkout, with a cluster."""
    folder = tmp_path_factory.mktemp("documented")
    home = folder / "home"
    home.mkdir()
    for name in ("charts", "crds", "examples", "tests", "Makefile", "docs", "benchmarks", ".venv"):
        (home / name).symlink_to(REPOSITORY / name)
    (home / "service.yaml").write_text(first_manifest("docs/first-service.md"))
    with empty_cluster(folder / "cluster") as cluster:
        environment = {
            **os.environ,
            "KUBECONFIG": cluster.kubeconfig,
            "HOME": str(home),
            "PATH": f"{BIN}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

        def run(command: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                ["bash", "-c", command], cwd=home, env=environment, capture_output=True, text=True, timeout=60
            )

        run.cluster = cluster  # type: ignore[attr-defined]
        run.folder = folder  # type: ignore[attr-defined]
        yield run


def first_manifest(page: str) -> str:
    """The first VLMService on a page."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", (REPOSITORY / page).read_text(), re.MULTILINE | re.DOTALL)
    return next(block for block in blocks if "\nkind: VLMService\n" in block)


class Kubectl:
    """kubectl as in the API server's tests."""

    def __init__(self, cluster: Cluster) -> None:
        self.kubeconfig = Path(cluster.kubeconfig)
        self._cluster = cluster

    def __call__(self, *arguments: str, stdin: Any = None) -> str:
        return self._cluster.kubectl(*arguments, manifest=stdin)


def test_documented_commands_work(shell: Any) -> None:
    cluster: Cluster = shell.cluster
    kubectl = Kubectl(cluster)
    operator = Operator(kubectl.kubeconfig, shell.folder / "operator.log", namespace="vlm-system")
    world = World(kubectl, "default")
    failed, ran = [], 0
    try:
        for page, command in commands():
            if command.split()[0] in NOT_RUN or command.startswith(("make", "sudo make")):
                continue
            if command.startswith(LAST[0]) and operator.running:
                operator.stop()
            done = shell(as_run(command))
            ran += 1
            if done.returncode != 0:
                failed.append(
                    f"{page}: {command}\n  ran: {as_run(command)}\n  {done.stderr.strip() or done.stdout.strip()}"
                )
            if command.startswith("helm install") and not operator.running:
                # Replaces the Deployment, since no kubelet runs it.
                cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/vlmservices.vlmserve.dev")
                add_node(kubectl, "h100-0", "h100")
                operator.start()
            if command == "kubectl apply -f service.yaml":
                eventually(lambda: world.exists("deployment", NAME), seconds=30, what=operator.said)
                add_pod(world)
                scale_by_requests(world)
    finally:
        if operator.running:
            operator.stop()
    assert not failed, "\n\n".join(failed)
    assert ran > 50
    assert "vlmservices" not in cluster.kubectl("get", "crd", "-o", "name")


def add_pod(world: World) -> None:
    """Creates a scheduled pod of the Deployment."""
    labels = world.get("deployment", NAME)["spec"]["template"]["metadata"]["labels"]
    spec = {"containers": [{"name": "main", "image": "x"}], "nodeName": "h100-0"}
    metadata = {"name": f"{NAME}-0", "labels": labels}
    world("create", "-f", "-", stdin={"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def scale_by_requests(world: World) -> None:
    """Creates the autoscaled service of autoscaling.md, which uses the same name."""
    service = yaml.safe_load(first_manifest("docs/autoscaling.md"))
    service["metadata"]["name"] = "scaled"
    world("apply", "-f", "-", stdin=service)
    eventually(lambda: world.exists("hpa", "scaled"), seconds=30)
    live = world.get("hpa", "scaled")
    live["metadata"] = {"name": NAME}
    del live["status"]
    world("apply", "-f", "-", stdin=json.loads(json.dumps(live)))


def test_documented_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    documented = {w for _, c in commands() if c.startswith("make ") for w in shlex.split(c)[1:] if "=" not in w}
    assert documented
    assert documented <= targets
