"""A real API server with our CRD in it, once for all tests of this folder. No nodes and no controllers run.

* ``api_server``: ``.url`` and ``.kubeconfig`` (an administrator).
* ``kubectl``: ``kubectl("get", "vlms", "-o", "json")`` returns what kubectl prints, and fails the test when it fails;
  ``kubectl.attempt(...)`` returns exit code, standard output and standard error.
* ``namespace``: the name of a fresh namespace, whose services go when the test ends.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from apiserver.operating import Operator, World, add_node

from minicluster.local import ApiServer, apiserver
from minicluster.paths import tool

REPOSITORY = Path(__file__).resolve().parents[2]
CRD = REPOSITORY / "crds/vlmservices.vlmserve.dev.yaml"


@dataclass(frozen=True)
class Kubectl:
    """kubectl, bound to one server."""

    kubeconfig: Path

    def attempt(
        self, *arguments: str, stdin: str | Mapping[str, Any] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs kubectl; ``stdin`` may be a manifest."""
        text = json.dumps(stdin) if isinstance(stdin, Mapping) else stdin
        command = [str(tool("kubectl")), f"--kubeconfig={self.kubeconfig}", *arguments]
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)

    def __call__(self, *arguments: str, stdin: str | Mapping[str, Any] | None = None) -> str:
        """Standard output of a kubectl that must succeed."""
        done = self.attempt(*arguments, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def until_it_works(self, *arguments: str, seconds: float = 60) -> None:
        """Runs kubectl again and again: a server that is ready still fills its caches."""
        deadline = time.monotonic() + seconds
        while (done := self.attempt(*arguments)).returncode != 0:
            assert time.monotonic() < deadline, f"kubectl {' '.join(arguments)}: {done.stderr}"
            time.sleep(0.2)


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with apiserver(tmp_path_factory.mktemp("apiserver")) as server:
        kubectl = Kubectl(server.kubeconfig)
        kubectl.until_it_works("apply", "--server-side", "-f", str(CRD))
        # A CRD that is a moment old has no conditions at all, which kubectl calls an error.
        kubectl.until_it_works("wait", "--for=condition=Established", "--timeout=60s", "crd/vlmservices.vlmserve.dev")
        # Kinds are listed, and their schemas published, a moment after they are established.
        kubectl.until_it_works("explain", "vlms.spec")
        kubectl.until_it_works("get", "vlms")
        yield server


@pytest.fixture(scope="session")
def kubectl(api_server: ApiServer) -> Kubectl:
    return Kubectl(api_server.kubeconfig)


_numbers = itertools.count(1)


@pytest.fixture
def namespace(kubectl: Kubectl) -> Iterator[str]:
    name = f"test-{next(_numbers)}"
    kubectl("create", "namespace", name)
    yield name
    # What a test leaves would keep the operators of later tests busy, and be counted as theirs.
    if kubectl("get", "vlms", "-n", name, "-o", "name"):
        kubectl("delete", "vlms", "--all", "-n", name)


@pytest.fixture(scope="module")
def operator(
    request: pytest.FixtureRequest, api_server: ApiServer, kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operator]:
    """One operator for a module, with its ``OPTIONS``, beside H100 nodes with the names in its ``NODES``."""
    nodes = getattr(request.module, "NODES", ())
    for name in nodes:
        add_node(kubectl, name, "h100")
    log = tmp_path_factory.mktemp("operator") / "log"
    started = Operator(api_server.kubeconfig, log, *getattr(request.module, "OPTIONS", ())).start()
    yield started
    assert started.stop() == 0, started.said()
    assert "Traceback" not in started.said()
    for name in nodes:
        kubectl("delete", "node", name)


@pytest.fixture
def world(kubectl: Kubectl, namespace: str) -> World:
    return World(kubectl, namespace)


@pytest.fixture
def start(api_server: ApiServer, namespace: str, tmp_path: Path) -> Iterator[Callable[..., Operator]]:
    """Starts operators for the test's own namespace, and ends them."""
    operators: list[Operator] = []

    def starting(*options: str, kubeconfig: Path = api_server.kubeconfig, until: str = "watching") -> Operator:
        log = tmp_path / f"operator-{len(operators)}.log"
        operators.append(Operator(kubeconfig, log, "--namespace", namespace, *options, namespace=namespace))
        return operators[-1].start(until)

    yield starting
    for operator in operators:
        if operator.running:
            operator.stop(signal.SIGKILL)


@pytest.fixture
def vlm(kubectl: Kubectl, namespace: str) -> Callable[..., subprocess.CompletedProcess[str]]:
    """``vlm("plan", ...)`` in a namespace of the test's own."""
    search = os.pathsep.join([str(Path(sys.executable).parent), str(tool("kubectl").parent), os.environ["PATH"]])
    ours = {"PATH": search, "KUBECONFIG": str(kubectl.kubeconfig), "NO_COLOR": "1", "COLUMNS": "140"}

    def run(*arguments: str, stdin: Any = None) -> subprocess.CompletedProcess[str]:
        command = [str(tool("kubectl")), "vlm", *arguments, "--namespace", namespace]
        text = None if stdin is None else json.dumps(stdin)
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, env=os.environ | ours)

    return run


@pytest.fixture
def kubectl_vlm(vlm: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., str]:
    """``kubectl vlm``: what it prints, after the exit code was as expected."""

    def run(*arguments: str, code: int = 0) -> str:
        done = vlm(*arguments)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run
