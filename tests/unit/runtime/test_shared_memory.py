"""What an earlier engine left in /dev/shm is removed, and nothing else."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from vlm_runtime.shared_memory import clear, is_full


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


def test_an_engines_segments_go_and_what_people_put_there_stays(shm: Path, proc: Path) -> None:
    assert clear(shm, proc) == (4, 4 * 4096)
    assert names(shm) == {"weights.safetensors"}


def test_what_a_process_has_open_stays(shm: Path, proc: Path) -> None:
    with (shm / "psm_1234").open("rb"):
        clear(shm, proc)
    assert names(shm) == {"psm_1234", "weights.safetensors"}


def test_what_a_process_has_mapped_stays_though_it_closed_it(shm: Path, proc: Path) -> None:
    with (shm / "nccl-XYZ").open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 4096)
    clear(shm, proc)
    assert names(shm) == {"nccl-XYZ", "weights.safetensors"}
    mapped.close()


def test_nothing_goes_where_pods_that_share_a_card_by_mps_may_have_it_in_common(shm: Path, proc: Path) -> None:
    before = names(shm)
    assert clear(shm, proc, {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps"}) == (0, 0)
    assert names(shm) == before


def test_links_and_folders_stay(shm: Path, proc: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").touch()
    (shm / "torch_link").symlink_to(tmp_path / "elsewhere")
    (shm / "nccl-folder").mkdir()
    clear(shm, proc)
    assert {"torch_link", "nccl-folder"} < names(shm)
    assert (tmp_path / "elsewhere").exists()


def test_in_the_machines_own_ipc_namespace_nothing_is_touched(shm: Path, proc: Path) -> None:
    link = proc / "self" / "ns" / "ipc"
    link.unlink()
    link.symlink_to("ipc:[4026531839]")
    assert clear(shm, proc) == (0, 0)
    assert len(names(shm)) == 5


def test_without_a_proc_or_a_folder_nothing_is_touched_and_nothing_fails(shm: Path, proc: Path, tmp_path: Path) -> None:
    assert clear(shm, tmp_path / "no-proc") == (0, 0)
    assert clear(tmp_path / "no-shm", proc) == (0, 0)
    assert len(names(shm)) == 5


def test_full_is_what_has_no_room_left() -> None:
    assert is_full(Path("/proc/self")) is False  # no size at all
    assert is_full(Path("/nowhere")) is False
