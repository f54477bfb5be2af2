"""Removes what a killed engine left behind: segments in /dev/shm, and unfinished downloads in the cache.

/dev/shm belongs to the pod and outlives a container: after some restarts the next engine has no room. A killed download
leaves gigabytes in a cache that may be a claim: huggingface_hub (1.33; since its pull request 4228) writes each file under
a name that no other download continues, and removes it only if the download fails.
"""

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from vlm_runtime.sglang.command import option

SHARED_MEMORY: Final = Path("/dev/shm")
PROC: Final = Path("/proc")
# A download that wrote nothing for so long is dead: huggingface_hub gives up after some minutes. The lock alone proves
# nothing, since some network file systems grant it to everybody.
STALE_SECONDS: Final = 900.0

# The kernel's number for the host's IPC namespace (PROC_IPC_INIT_INO): with hostIPC, or outside a container, other processes
# that this one cannot see may use /dev/shm.
_HOST_IPC: Final = "ipc:[4026531839]"
# Under MPS, NVIDIA's device plugin sets this and mounts one /dev/shm into all pods that share a GPU (k8s-device-plugin,
# updateResponseForMPS): their engines use the same names, and are invisible too.
_MPS: Final = "CUDA_MPS_PIPE_DIRECTORY"
_FULL_BELOW_BYTES: Final = 1 << 20

# Names of SGLang 0.5.9 to 0.5.23, Python, PyTorch, NCCL, NVSHMEM, CUDA and OpenMP. Users' own files stay.
_SEGMENT_NAMES: Final = (
    "sgl_shm_", "sglang_", "multi_tokenizer_args_", "psm_", "sem.mp-", "sem.loky-", "torch_", "nccl-", "nvshmem", "cuda.shm.",
    "__KMP_REGISTERED_LIB_",
)  # fmt: skip
# <etag>.<8 hex digits>.incomplete. Without the digits, an older version continues the download.
_UNFINISHED: Final = re.compile(r"([0-9a-f]{40,64})\.[0-9a-f]{8}\.incomplete")


def clear_shared_memory(
    folder: Path = SHARED_MEMORY, proc: Path = PROC, env: Mapping[str, str] = os.environ
) -> tuple[int, int]:
    """Removes an earlier engine's segments that no process has open: number of files, and their bytes.

    Only this user's files, and nothing if the host or other pods may use the folder too.
    """
    if _MPS in env or not _is_private(proc):
        return 0, 0
    stale = [path for path in _files(folder) if path.name.startswith(_SEGMENT_NAMES)]
    if not stale:
        return 0, 0
    used = _open_names(folder, proc)
    files = size = 0
    for path in stale:
        with contextlib.suppress(OSError):
            stat = path.stat()
            if stat.st_uid != os.geteuid() or path.name in used:
                continue
            path.unlink()
            files, size = files + 1, size + stat.st_size
    return files, size


def is_shared_memory_full(folder: Path = SHARED_MEMORY) -> bool:
    """Whether /dev/shm has less than 1 MiB left. Segments of a dead engine count: nobody removed them."""
    try:
        stat = os.statvfs(folder)
    except OSError:
        return False
    return stat.f_blocks > 0 and stat.f_bavail * stat.f_frsize < _FULL_BELOW_BYTES


def _is_private(proc: Path) -> bool:
    try:
        return os.readlink(proc / "self/ns/ipc") != _HOST_IPC
    except OSError:
        return False


def _files(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_file() and not path.is_symlink()]
    except OSError:
        return []


def _open_names(folder: Path, proc: Path) -> set[str]:
    """Names of the files there that a visible process has open or mapped."""
    prefix = f"{folder}/"
    paths: set[str] = set()
    for process in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for line in (process / "maps").read_text(encoding="utf-8", errors="replace").splitlines():
                paths.add(f"/{line.partition('/')[2]}".removesuffix(" (deleted)"))
        with contextlib.suppress(OSError):
            for link in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    paths.add(os.readlink(link))
    return {path.removeprefix(prefix) for path in paths if path.startswith(prefix)}


def download_caches(env: Mapping[str, str], args: Sequence[str]) -> list[Path]:
    """Where an engine with these variables and arguments keeps its downloads."""
    home = env.get("HF_HOME") or f"{env.get('XDG_CACHE_HOME') or env.get('HOME', '') + '/.cache'}/huggingface"
    default = env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE") or f"{home}/hub"
    return [Path(folder) for folder in dict.fromkeys([default, option(args, "--download-dir")]) if folder]


def clear_downloads(folders: Sequence[Path], now: float | None = None) -> tuple[int, int]:
    """Removes this user's files that no download writes any more: number of files, and their bytes.

    ``now``: seconds since 1970, for tests.
    """
    now = time.time() if now is None else now
    files = size = 0
    for folder in folders:
        for path in _unfinished(folder):
            with contextlib.suppress(OSError), _locked(folder, path) as is_free:
                stat = path.stat()
                if is_free and stat.st_uid == os.geteuid() and now - stat.st_mtime >= STALE_SECONDS:
                    path.unlink()
                    files, size = files + 1, size + stat.st_size
    return files, size


def _unfinished(folder: Path) -> Iterator[Path]:
    for model in folder.glob("models--*"):
        with contextlib.suppress(OSError):
            yield from [path for path in (model / "blobs").iterdir() if _UNFINISHED.fullmatch(path.name)]


@contextlib.contextmanager
def _locked(folder: Path, path: Path) -> Iterator[bool]:
    """Holds the lock of that file's download; False if another process has it."""
    lock = folder / ".locks" / path.parent.parent.name / f"{path.name.partition('.')[0]}.lock"
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield True
        return
    try:
        yield _lock(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks
    return True
