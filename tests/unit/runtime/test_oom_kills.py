"""OOM kills, in both versions of cgroups."""

from __future__ import annotations

from pathlib import Path

import pytest

from vlm_runtime.supervise.pod import oom_kills

V2 = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n"
V1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"


@pytest.mark.parametrize(
    ("file", "text", "self_cgroup"),
    [
        ("memory.events", V2, "0::/\n"),
        ("kubepods/pod1/c1/memory.events", V2, "0::/kubepods/pod1/c1\n"),
        ("memory/memory.oom_control", V1, "4:memory:/kubepods/pod1/c1\n0::/\n"),
        ("memory/kubepods/pod1/c1/memory.oom_control", V1, "9:name=systemd:/\n4:memory:/kubepods/pod1/c1\n0::/\n"),
    ],
    ids=["v2 in its own namespace", "v2 in the host's", "v1 mounted from the container's group", "v1 mounted whole"],
)
def test_the_counter_is_read(tmp_path: Path, file: str, text: str, self_cgroup: str) -> None:
    path = tmp_path / "cgroup" / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    (tmp_path / "self").write_text(self_cgroup)
    assert oom_kills(tmp_path / "cgroup", tmp_path / "self") == 2


def test_without_a_counter_there_are_no_oom_kills(tmp_path: Path) -> None:
    assert oom_kills(tmp_path / "cgroup", tmp_path / "self") == 0
