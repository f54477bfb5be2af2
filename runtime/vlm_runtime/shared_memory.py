"""/dev/shm: what an earlier life of the container left there, and whether it is full.

The volume belongs to the pod and outlives a container: segments of an engine that was killed stay until the pod ends, and
after some restarts the next engine finds no room.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

SHARED_MEMORY: Final = Path("/dev/shm")
PROC: Final = Path("/proc")

# The kernel's number for the IPC namespace of the machine itself (PROC_IPC_INIT_INO): with hostIPC, or outside a
# container, /dev/shm may be shared with others, of whom nothing can be seen.
_HOST_IPC: Final = "ipc:[4026531839]"
# Under MPS, NVIDIA's device plugin sets this and mounts one /dev/shm into the containers of all pods that share a card
# (k8s-device-plugin, updateResponseForMPS): others' engines give the same names, and cannot be seen either.
_MPS: Final = "CUDA_MPS_PIPE_DIRECTORY"
_FULL_BELOW_BYTES: Final = 1 << 20

# Names that SGLang 0.5.9 to 0.5.23, Python, PyTorch, NCCL, NVSHMEM, CUDA and OpenMP give. What people put there stays.
_ENGINES_NAMES: Final = (
    "sgl_shm_", "sglang_", "multi_tokenizer_args_", "psm_", "sem.mp-", "sem.loky-", "torch_", "nccl-", "nvshmem", "cuda.shm.",
    "__KMP_REGISTERED_LIB_",
)  # fmt: skip


def clear(folder: Path = SHARED_MEMORY, proc: Path = PROC, env: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Removes an earlier engine's segments that no process has open; how many files, and how many bytes in them.

    Only what this user owns, and nothing where the folder may be the machine's own or other pods' as well.
    """
    if _MPS in env or not _is_the_pods(proc):
        return 0, 0
    stale = [path for path in _files(folder) if path.name.startswith(_ENGINES_NAMES)]
    if not stale:
        return 0, 0
    used = _in_use(folder, proc)
    files = size = 0
    for path in stale:
        with contextlib.suppress(OSError):
            found = path.stat()
            if found.st_uid != os.geteuid() or path.name in used:
                continue
            path.unlink()
            files, size = files + 1, size + found.st_size
    return files, size


def is_full(folder: Path = SHARED_MEMORY) -> bool:
    """Whether there is no room left. Segments of a dead engine count: nobody removed them."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_blocks > 0 and found.f_bavail * found.f_frsize < _FULL_BELOW_BYTES


def _is_the_pods(proc: Path) -> bool:
    try:
        return os.readlink(proc / "self/ns/ipc") != _HOST_IPC
    except OSError:
        return False


def _files(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_file() and not path.is_symlink()]
    except OSError:
        return []


def _in_use(folder: Path, proc: Path) -> set[str]:
    """Names of the files there that some visible process has open or mapped."""
    prefix = f"{folder}/"
    names: set[str] = set()
    for process in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for line in (process / "maps").read_text(encoding="utf-8", errors="replace").splitlines():
                path = line.partition("/")[2]
                if f"/{path}".startswith(prefix):
                    names.add(f"/{path}".removeprefix(prefix).removesuffix(" (deleted)"))
        with contextlib.suppress(OSError):
            for link in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    target = os.readlink(link)
                    if target.startswith(prefix):
                        names.add(target.removeprefix(prefix))
    return names
