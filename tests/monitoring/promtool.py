"""Prometheus' own judge of metrics."""

from __future__ import annotations

import shutil
import subprocess


def complaints(exposition: str) -> list[str]:
    """What ``promtool check metrics`` finds wrong with it: what cannot be read, and what breaks the naming rules."""
    program = shutil.which("promtool")
    assert program is not None, "promtool is missing: apt-get install --no-install-recommends prometheus"
    check = subprocess.run([program, "check", "metrics"], input=exposition, capture_output=True, text=True)
    found = [*check.stdout.splitlines(), *check.stderr.splitlines()]
    assert bool(found) == bool(check.returncode), found
    return found
