"""Only an earlier engine's segments are removed from /dev/shm."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from vlm_runtime.sglang.leftovers import clear_shared_memory, is_shared_memory_full


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """The processes that really are there, seen from a pod with an IPC namespace of its own."""
    fake = tmp_path / "proc"
    (fake / "self" / "ns").mkdir(parents=True)
    (fake / "self" / "ns" / "ipc").symlink_to("ipc:[4026532999]")
    (fake / str(os.getpid())).symlink_to(f"/proc/{os.getpid()}")
    return fake


@pytest.fixture
def shm(tmp_path: Path) -> Path:
    folder = tmp_path / "shm"
    folder.mkdir()
    for name in ("sgl_shm_mm_12_ab", "psm_1234", "torch_99_1_0", "nccl-XYZ", "weights.safetensors"):
        (folder / name).write_bytes(b"x" * 4096)
    return folder


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_only_the_engines_segments_are_removed(shm: Path, proc: Path) -> None:
    assert clear_shared_memory(shm, proc) == (4, 4 * 4096)
    assert names(shm) == {"weights.safetensors"}


def test_an_open_segment_is_kept(shm: Path, proc: Path) -> None:
    with (shm / "psm_1234").open("rb"):
        clear_shared_memory(shm, proc)
    assert names(shm) == {"psm_1234", "weights.safetensors"}


def test_a_mapped_segment_is_kept(shm: Path, proc: Path) -> None:
    with (shm / "nccl-XYZ").open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 4096)
    clear_shared_memory(shm, proc)
    assert names(shm) == {"nccl-XYZ", "weights.safetensors"}
    mapped.close()


def test_nothing_is_removed_if_mps_shares_the_folder(shm: Path, proc: Path) -> None:
    before = names(shm)
    assert clear_shared_memory(shm, proc, {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps"}) == (0, 0)
    assert names(shm) == before


def test_links_and_folders_are_kept(shm: Path, proc: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").touch()
    (shm / "torch_link").symlink_to(tmp_path / "elsewhere")
    (shm / "nccl-folder").mkdir()
    clear_shared_memory(shm, proc)
    assert {"torch_link", "nccl-folder"} < names(shm)
    assert (tmp_path / "elsewhere").exists()


def test_nothing_is_removed_in_the_hosts_ipc_namespace(shm: Path, proc: Path) -> None:
    link = proc / "self" / "ns" / "ipc"
    link.unlink()
    link.symlink_to("ipc:[4026531839]")
    assert clear_shared_memory(shm, proc) == (0, 0)
    assert len(names(shm)) == 5


def test_without_proc_or_the_folder_nothing_happens(shm: Path, proc: Path, tmp_path: Path) -> None:
    assert clear_shared_memory(shm, tmp_path / "no-proc") == (0, 0)
    assert clear_shared_memory(tmp_path / "no-shm", proc) == (0, 0)
    assert len(names(shm)) == 5


def test_full_means_no_space_left() -> None:
    assert is_shared_memory_full(Path("/proc/self")) is False  # no size at all
    assert is_shared_memory_full(Path("/nowhere")) is False
