"""The control group below which the kubelet makes those of the pods, on cgroup v1 and v2."""

import contextlib
import errno
import os
import time
from pathlib import Path

from .errors import ClusterError

ROOT = Path("/sys/fs/cgroup")
NAME = "vlm-cluster"
CONTROLLERS = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids")  # as cgroup v2 calls them
CPUSET_FILES = ("cpuset.cpus", "cpuset.mems")


def is_unified() -> bool:
    return (ROOT / "cgroup.controllers").exists()


def folders() -> list[Path]:
    """Ours in each hierarchy; on v1 a hierarchy may have several names, of which all but one are links."""
    if is_unified():
        return [ROOT / NAME]
    return [path / NAME for path in ROOT.iterdir() if not path.is_symlink() and (path / "cgroup.procs").exists()]


def create() -> None:
    if not ROOT.is_dir():
        raise ClusterError(f"{ROOT} is not there", hint="mount cgroups, as every init system does")
    if is_unified():
        enable_controllers()
    for folder in folders():
        folder.mkdir(exist_ok=True)
        if is_unified():
            continue
        for file in CPUSET_FILES:  # a new v1 cpuset is empty, and an empty one takes no process
            if (folder / file).exists():
                (folder / file).write_text((folder.parent / file).read_text())


def enable_controllers() -> None:
    """Hands the controllers that the kubelet and runc use down from the root group.

    In a container the root group is not the machine's, and refuses this while it holds processes of its own: then
    they move into a group beside ours first.
    """
    available = (ROOT / "cgroup.controllers").read_text().split()
    for controller in [name for name in CONTROLLERS if name in available]:
        try:
            (ROOT / "cgroup.subtree_control").write_text(f"+{controller}")
        except OSError as error:
            if error.errno != errno.EBUSY:
                hint = "in a container, run it privileged"
                raise ClusterError(f"cannot enable the cgroup controller {controller}: {error}", hint=hint) from error
            empty_root_group()
            (ROOT / "cgroup.subtree_control").write_text(f"+{controller}")


def empty_root_group() -> None:
    beside = ROOT / "init"
    beside.mkdir(exist_ok=True)
    for pid in (ROOT / "cgroup.procs").read_text().split():
        # Some end meanwhile, and kernel threads stay.
        with contextlib.suppress(OSError):
            (beside / "cgroup.procs").write_text(pid)


def processes() -> set[int]:
    """Everything that runs in a pod."""
    found: set[int] = set()
    for group in below():
        with contextlib.suppress(OSError):  # the group went away while we looked
            found.update(int(pid) for pid in (group / "cgroup.procs").read_text().split())
    return found


def below() -> list[Path]:
    """All groups of the pods, leaves first. Groups go away meanwhile, which ``os.walk`` passes over and ``rglob`` does not."""
    return [Path(group) for folder in folders() for group, _, _ in os.walk(folder, topdown=False)]


def remove(seconds: float = 10.0) -> None:
    """Removes the groups from the leaves up; a killed process leaves its group a moment later."""
    deadline = time.monotonic() + seconds
    while left := [group for group in below() if not try_rmdir(group)]:
        if time.monotonic() > deadline:
            raise ClusterError(f"control group {left[0]} cannot be removed: processes {sorted(processes())}")
        time.sleep(0.05)


def try_rmdir(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
