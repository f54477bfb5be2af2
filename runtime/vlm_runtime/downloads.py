"""What is left of downloads from the hub whose engine was killed: gigabytes in a cache that may belong to a claim.

huggingface_hub (1.33; since its pull request 4228) writes each file of a model under a name that no other download takes up
again, and removes it when the download fails. Where the process is killed, it stays for good.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from vlm_runtime.command import option

# A download that wrote nothing for so long is none: the hub's library gives up after some minutes. The lock alone proves
# nothing, since some network file systems grant it to everybody.
STALE_SECONDS: Final = 900.0
# <etag>.<8 hex digits>.incomplete. Without the digits, an older version goes on with it.
_LEFT: Final = re.compile(r"([0-9a-f]{40,64})\.[0-9a-f]{8}\.incomplete")


def caches(env: Mapping[str, str], args: Sequence[str]) -> list[Path]:
    """Where an engine with these variables and arguments keeps what it downloads."""
    home = env.get("HF_HOME") or f"{env.get('XDG_CACHE_HOME') or env.get('HOME', '') + '/.cache'}/huggingface"
    usual = env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE") or f"{home}/hub"
    return [Path(folder) for folder in dict.fromkeys([usual, option(args, "--download-dir")]) if folder]


def clear(folders: Sequence[Path], now: float | None = None) -> tuple[int, int]:
    """Removes what no download writes any more; how many files, and how many bytes in them.

    Only what this user owns. ``now``: seconds since 1970, for tests.
    """
    now = time.time() if now is None else now
    files = size = 0
    for folder in folders:
        for path in _left(folder):
            with contextlib.suppress(OSError), _unlocked(folder, path) as free:
                found = path.stat()
                if free and found.st_uid == os.geteuid() and now - found.st_mtime >= STALE_SECONDS:
                    path.unlink()
                    files, size = files + 1, size + found.st_size
    return files, size


def _left(folder: Path) -> Iterator[Path]:
    for model in folder.glob("models--*"):
        with contextlib.suppress(OSError):
            yield from [path for path in (model / "blobs").iterdir() if _LEFT.fullmatch(path.name)]


@contextlib.contextmanager
def _unlocked(folder: Path, path: Path) -> Iterator[bool]:
    """Whether no other process has the lock of that file's download; none gets it meanwhile."""
    lock = folder / ".locks" / path.parent.parent.name / f"{path.name.partition('.')[0]}.lock"
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield True
        return
    try:
        yield _take(descriptor)
    finally:
        os.close(descriptor)


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks
    return True
