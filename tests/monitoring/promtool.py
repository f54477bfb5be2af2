"""promtool, Prometheus' checker of metrics and rules."""

import shutil
import subprocess


def promtool(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Runs promtool, which is part of Debian's prometheus package."""
    program = shutil.which("promtool")
    assert program is not None, "promtool is missing: apt-get install --no-install-recommends prometheus"
    return subprocess.run([program, *arguments], input=stdin, capture_output=True, text=True, check=False)


def complaints(exposition: str) -> list[str]:
    """The errors of ``promtool check metrics``: syntax and naming rules."""
    check = promtool("check", "metrics", stdin=exposition)
    found = [*check.stdout.splitlines(), *check.stderr.splitlines()]
    assert bool(found) == bool(check.returncode), found
    return found
