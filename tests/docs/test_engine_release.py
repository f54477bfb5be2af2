"""Where the newest SGLang release is named outside of the catalogue, it is the catalogue's."""

import re
from pathlib import Path

import pytest

from vlm_operator.sglang.catalogue.releases import newest, versions

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("pyproject.toml", r'"sglang==([^"]+)"'),
        ("tests/cluster/engine-constraints.txt", r"^sglang==(\S+)$"),
        ("examples/qwen3-vl-cpu.yaml", r"image: vlmserve\.local/sglang-cpu:(\S+)"),
        ("README.md", rf"SGLang {re.escape(versions()[0])} to ([^, ]+), official"),
        ("docs/install.md", rf"\| SGLang \| {re.escape(versions()[0])} to ([0-9a-z.]+?)\. A newer"),
        ("docs/private-clusters.md", r"lmsysorg/sglang:v([0-9a-z.]+)"),
    ],
)
def test_the_newest_release_is_the_catalogues(file: str, pattern: str) -> None:
    named = re.findall(pattern, (REPOSITORY / file).read_text(), re.MULTILINE)
    assert set(named) == {newest()}
