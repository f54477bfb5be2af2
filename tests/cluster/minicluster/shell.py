"""Running programs: short ones with their output returned, long ones with a log and signs of life."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .errors import ClusterError

Argument = str | Path
PROGRESS_SECONDS = 15.0


def say(text: str) -> None:
    print(text, flush=True)


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment, with the folders of system programs that a user's PATH may lack."""
    result = dict(os.environ) | dict(extra or {})
    result["PATH"] = result.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"
    return result


def run(
    argv: Sequence[Argument],
    *,
    stdin: str | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    hint: str = "",
) -> str:
    """Standard output of a program that must succeed."""
    done = attempt(argv, stdin=stdin, cwd=cwd, env=env)
    if done.returncode != 0:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        reason = lines[-1] if lines else f"exit status {done.returncode}"
        raise ClusterError(f"{command_name(argv)} failed: {reason}", hint=hint)
    return done.stdout


def attempt(
    argv: Sequence[Argument],
    *,
    stdin: str | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a program that may fail; a missing program is an error all the same."""
    try:
        return subprocess.run(
            [str(part) for part in argv],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            cwd=cwd,
            env=environment(env),
        )
    except FileNotFoundError as error:
        raise missing(error) from error


def run_long(
    label: str,
    argv: Sequence[Argument],
    log: Path,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    progress: Callable[[], str] = str,
    accepted: Sequence[int] = (0,),
    hint: str = "",
) -> None:
    """Runs a program for minutes: output into `log`, a line with the elapsed time every 15 seconds."""
    say(f"{label} (log: {log})")
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with log.open("w") as output:
        try:
            process = subprocess.Popen(
                [str(part) for part in argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=environment(env),
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise missing(error) from error
    try:
        while True:
            try:
                status = process.wait(PROGRESS_SECONDS)
                break
            except subprocess.TimeoutExpired:
                say(f"  {elapsed(started)} {progress()}".rstrip())
    finally:
        if process.poll() is None:  # interrupted: its children must not go on in the background
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
    if status not in accepted:
        raise ClusterError(f"{label}: {command_name(argv)} ended with exit status {status}", log=log, hint=hint)
    say(f"  {elapsed(started)} done")


def elapsed(started: float) -> str:
    minutes, seconds = divmod(int(time.monotonic() - started), 60)
    return f"{minutes}:{seconds:02d}"


def command_name(argv: Sequence[Argument]) -> str:
    return " ".join([Path(argv[0]).name, *(str(part) for part in argv[1:3])])


def missing(error: FileNotFoundError) -> ClusterError:
    hint = "`python3 tests/cluster/cluster.py check` says what to install"
    return ClusterError(f"{error.filename} not found", hint=hint)
