"""Prometheus' own judge of metrics and rules."""

from __future__ import annotations

import shutil
import subprocess


def promtool(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Runs it; it comes with Debian's package of Prometheus."""
    program = shutil.which("promtool")
    assert program is not None, "promtool is missing: apt-get install --no-install-recommends prometheus"
    return subprocess.run([program, *arguments], input=stdin, capture_output=True, text=True, check=False)


def complaints(exposition: str) -> list[str]:
    """What ``promtool check metrics`` finds wrong with it: what cannot be read, and what breaks the naming rules."""
    check = promtool("check", "metrics", stdin=exposition)
    found = [*check.stdout.splitlines(), *check.stderr.splitlines()]
    assert bool(found) == bool(check.returncode), found
    return found
