"""The unchanged engine and a tiny model, as the cluster's tools install them."""

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from minicluster import paths
from vlm_operator.sglang.catalogue.releases import newest


def _there(folder: Path, file: str) -> Path:
    assert (folder / file).exists(), f"{folder} is not there: run `python3 tests/cluster/cluster.py engine` first"
    return folder


@pytest.fixture(scope="session")
def engine_site() -> Path:
    """The folder with the published wheel of SGLang and what it needs."""
    return _there(paths.ENGINE, "sglang")


@pytest.fixture(scope="session")
def tiny_model() -> Path:
    """A Qwen3-VL with two small layers."""
    return _there(paths.MODELS / "tiny-qwen3-vl", "config.json")


@pytest.fixture(scope="session")
def wheel(request: pytest.FixtureRequest) -> Any:
    """Downloads a release's wheel once; it stays in pytest's cache."""
    folder: Path = request.config.cache.mkdir("sglang-wheels")

    def download(version: str) -> Path:
        if not list(folder.glob(f"sglang-{version}-*.whl")):
            command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(folder)]
            subprocess.run([*command, f"sglang=={version}"], check=True)
        return next(folder.glob(f"sglang-{version}-*.whl"))

    return download


@pytest.fixture(scope="session")
def release_path(engine_site: Path, wheel: Any, request: pytest.FixtureRequest) -> Any:
    """Release -> PYTHONPATH with it: its wheel alone, unpacked once in front of the newest release's dependencies."""
    folder: Path = request.config.cache.mkdir("sglang-releases")

    def unpack(version: str) -> str:
        if version == newest():
            return str(engine_site)
        site, fresh = folder / version, folder / f"{version}.new"
        if not site.is_dir():
            with zipfile.ZipFile(wheel(version)) as archive:
                archive.extractall(fresh)
            fresh.rename(site)
        return f"{site}:{engine_site}"

    return unpack
