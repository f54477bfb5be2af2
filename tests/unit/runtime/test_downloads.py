"""Unfinished downloads in the cache, as huggingface_hub 1.33 lays it out."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from vlm_runtime.sglang.leftovers import STALE_SECONDS, clear_downloads, download_caches

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


def test_an_unfinished_download_is_removed_and_a_complete_one_is_kept(cache: Path) -> None:
    assert clear_downloads([cache], now_of(cache) + LATER) == (1, 3 * MIB)
    assert names(cache) == {ETAG}


def test_a_running_download_is_kept(cache: Path) -> None:
    assert clear_downloads([cache], now_of(cache) + STALE_SECONDS - 1) == (0, 0)
    assert LEFT in names(cache)


def test_a_locked_download_is_kept_however_old(cache: Path) -> None:
    with (cache / ".locks" / "models--org--model" / f"{ETAG}.lock").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert clear_downloads([cache], now_of(cache) + LATER) == (0, 0)
    assert clear_downloads([cache], now_of(cache) + LATER) == (1, 3 * MIB)


def test_a_download_that_an_older_version_continues_is_kept(cache: Path) -> None:
    blobs = cache / "models--org--model" / "blobs"
    (blobs / f"{ETAG}.incomplete").touch()
    clear_downloads([cache], now_of(cache) + LATER)
    assert names(cache) == {ETAG, f"{ETAG}.incomplete"}


def test_a_missing_cache_is_not_an_error(tmp_path: Path) -> None:
    assert clear_downloads([tmp_path / "nowhere"]) == (0, 0)


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
def test_the_cache_is_where_huggingface_hub_has_it(env: dict[str, str], args: list[str], folders: list[str]) -> None:
    assert download_caches(env, args) == [Path(folder) for folder in folders]
