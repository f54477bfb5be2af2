"""Runs other programs. Their output goes to the demo's log; progress is shown on the screen."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo.screen import DemoError, Screen

REPOSITORY = Path(__file__).resolve().parent.parent
STATE = REPOSITORY / ".cluster"
LOG = STATE / "logs" / "demo.log"
_log_lock = threading.Lock()


def start_log() -> None:
    try:
        LOG.parent.mkdir(parents=True, exist_ok=True)
        LOG.write_text("")
    except OSError as error:
        raise DemoError(
            f"cannot write {LOG}: {error.strerror}", hint="run this as the owner of the checkout"
        ) from error


def write_log(text: str) -> None:
    with _log_lock, LOG.open("a") as log:
        log.write(text.rstrip("\n") + "\n")


def run(argv: Sequence[str | Path], *, what: str, stdin: str | None = None, hint: str = "") -> str:
    """Runs a short command and returns its output. `what` describes it in errors."""
    command = [str(part) for part in argv]
    write_log(f"$ {' '.join(command)}")
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    write_log(done.stdout + done.stderr)
    if done.returncode != 0:
        raise DemoError(f"{what} failed: {last_line(done.stderr or done.stdout)}", log=LOG, hint=hint)
    return done.stdout


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:400] if lines else "no output"


def follow(screen: Screen, argv: Sequence[str | Path], *, label: str, what: str) -> None:
    """Runs a long command and shows each line of its output after `label`."""
    command = [str(part) for part in argv]
    write_log(f"$ {' '.join(command)}")
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=REPOSITORY,
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        write_log(f"[{label}] {line}")
        if not line.startswith("error:"):
            screen.say(f"  {label:8} {line.rstrip()}")
    if process.wait() != 0:
        text = "".join(lines)
        reason = text[text.rfind("error:") + len("error:") :] if "error:" in text else last_line(text)
        raise DemoError(f"{what} failed: {reason.strip()}", log=LOG)


def together(*branches: Sequence[tuple[Screen, Sequence[str | Path], str, str]]) -> None:
    """Runs the branches in parallel, the commands of each in order. Raises the first failure at the end."""
    failures: list[DemoError] = []

    def walk(branch: Sequence[tuple[Screen, Sequence[str | Path], str, str]]) -> None:
        try:
            for screen, argv, label, what in branch:
                follow(screen, argv, label=label, what=what)
        except DemoError as error:
            screen.say(f"  {label:8} failed; waiting for the other commands")
            failures.append(error)

    threads = [threading.Thread(target=walk, args=(branch,), daemon=True) for branch in branches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@dataclass
class Cluster:
    """A cluster, with kubectl and helm."""

    kubeconfig: Path
    kubectl_program: str
    helm_program: str
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def at(cls, kubeconfig: Path) -> Cluster:
        """A cluster with kubectl and helm from PATH, or those built on this machine."""
        if not kubeconfig.is_file():
            raise DemoError(f"KUBECONFIG={kubeconfig}: no such file", hint="set it to the path of a kubeconfig")
        return cls(kubeconfig, program("kubectl"), program("helm"))

    def kubectl(self, *arguments: str, what: str, stdin: str | None = None) -> str:
        return run([self.kubectl_program, f"--kubeconfig={self.kubeconfig}", *arguments], what=what, stdin=stdin)

    def get(self, *arguments: str) -> dict[str, Any]:
        """An object, or an empty dict if it does not exist."""
        text = self.kubectl("get", *arguments, "--ignore-not-found", "-o", "json", what=f"get {' '.join(arguments)}")
        result: dict[str, Any] = json.loads(text) if text.strip() else {}
        return result

    def helm(self, *arguments: str, what: str) -> str:
        return run([self.helm_program, f"--kubeconfig={self.kubeconfig}", *arguments], what=what)

    def vlm(self, *arguments: str, what: str) -> str:
        """The output of kubectl-vlm in this checkout."""
        program = Path(sys.executable).parent / "kubectl-vlm"
        output = run(["env", f"KUBECONFIG={self.kubeconfig}", "COLUMNS=140", program, *arguments], what=what)
        return "\n".join(line.rstrip() for line in output.rstrip().splitlines())


def program(name: str) -> str:
    built = STATE / "bin" / name
    path = str(built) if built.is_file() else shutil.which(name)
    if path is None:
        raise DemoError(f"{name} not found on PATH or in {built.parent}", hint=f"install {name} and run this again")
    return path
