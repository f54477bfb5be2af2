"""What killed downloads left in the hub's cache, laid out as huggingface_hub 1.33 does it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from unit.runtime.harness import Container

from vlm_runtime.downloads import STALE_SECONDS, caches, clear

ETAG = "6dd18dcb7beea15bea7d68f46599445cd347ec60c4795e8f9f9dd010c4836014"
LEFT = f"{ETAG}.e3aaa511.incomplete"
MIB = 1 << 20
LATER = STALE_SECONDS + 1


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache with one file that a download left, and one that is whole."""
    blobs = tmp_path / "models--org--model" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / LEFT).write_bytes(bytes(3 * MIB))
    (blobs / ETAG).write_bytes(b"whole")
    locks = tmp_path / ".locks" / "models--org--model"
    locks.mkdir(parents=True)
    (locks / f"{ETAG}.lock").touch()
    return tmp_path


def names(cache: Path) -> set[str]:
    return {path.name for path in (cache / "models--org--model" / "blobs").iterdir()}


def now_of(cache: Path) -> float:
    return (cache / "models--org--model" / "blobs" / LEFT).stat().st_mtime


def test_what_a_killed_download_left_is_removed_and_what_is_whole_stays(cache: Path) -> None:
    assert clear([cache], now_of(cache) + LATER) == (1, 3 * MIB)
    assert names(cache) == {ETAG}


def test_what_is_still_written_stays(cache: Path) -> None:
    assert clear([cache], now_of(cache) + STALE_SECONDS - 1) == (0, 0)
    assert LEFT in names(cache)


def test_what_another_pod_holds_the_lock_of_stays_however_long_it_rests(cache: Path) -> None:
    with (cache / ".locks" / "models--org--model" / f"{ETAG}.lock").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert clear([cache], now_of(cache) + LATER) == (0, 0)
    assert clear([cache], now_of(cache) + LATER) == (1, 3 * MIB)


def test_what_an_older_version_would_go_on_with_stays(cache: Path) -> None:
    blobs = cache / "models--org--model" / "blobs"
    (blobs / f"{ETAG}.incomplete").touch()
    clear([cache], now_of(cache) + LATER)
    assert names(cache) == {ETAG, f"{ETAG}.incomplete"}


def test_a_cache_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    assert clear([tmp_path / "nowhere"]) == (0, 0)


@pytest.mark.parametrize(
    ("env", "args", "folders"),
    [
        ({"HOME": "/h"}, [], ["/h/.cache/huggingface/hub"]),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x"}, [], ["/x/huggingface/hub"]),
        ({"HF_HOME": "/hf", "XDG_CACHE_HOME": "/x"}, [], ["/hf/hub"]),
        ({"HF_HOME": "/hf", "HF_HUB_CACHE": "/c"}, [], ["/c"]),
        ({"HF_HOME": "/hf"}, ["--download-dir", "/d"], ["/hf/hub", "/d"]),
    ],
)
def test_the_cache_is_where_the_hubs_library_has_it(env: dict[str, str], args: list[str], folders: list[str]) -> None:
    assert caches(env, args) == [Path(folder) for folder in folders]


def test_a_start_makes_room_in_the_cache_and_says_so(container: Callable[..., Container], cache: Path) -> None:
    left = cache / "models--org--model" / "blobs" / LEFT
    os.utime(left, (1, 1))
    run = container(env={"HF_HUB_CACHE": str(cache)})
    run.wait_for(lambda: "removed 1 files of 3 MiB that downloads left" in run.log(), "removed")
    assert not left.exists()
