"""How often the kernel killed a process of this container for memory."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")


def oom_kills(root: Path = ROOT, self_cgroup: Path = Path("/proc/self/cgroup")) -> int:
    """The container's counter of kills for memory (cgroup v2: memory.events, v1: memory.oom_control); 0 if unreadable."""
    for path in _counters(root, self_cgroup):
        count = _counter(path)
        if count is not None:
            return count
    return 0


def _counters(root: Path, self_cgroup: Path) -> list[Path]:
    """Where the counter may stand: at the top where the container sees only its own group, else below."""
    below = _own_groups(self_cgroup)
    v2, v1 = below.get("", ""), below.get("memory", "")
    return [
        root / v2 / "memory.events",
        root / "memory" / v1 / "memory.oom_control",
        root / "memory.events",
        root / "memory" / "memory.oom_control",
    ]


def _own_groups(self_cgroup: Path) -> dict[str, str]:
    """Controller -> path of this process' group, relative; ``""`` is cgroup v2."""
    try:
        lines = self_cgroup.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    groups: dict[str, str] = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), path.lstrip("/")))
    return groups


def _counter(path: Path) -> int | None:
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    except (OSError, ValueError):
        return None
    return None
