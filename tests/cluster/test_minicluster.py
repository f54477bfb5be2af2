"""What of the cluster's own code can be wrong without a cluster telling so at once."""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from minicluster import archive, build, check, kube, kwok, pki, processes, stamps, volumes
from minicluster.errors import ClusterError


def test_the_same_files_give_the_same_image_whenever_they_were_written(tmp_path: Path) -> None:
    archives = []
    for name in ("one", "two"):
        root = tmp_path / name
        (root / "etc").mkdir(parents=True)
        (root / "etc" / "motd").write_text("hello")
        (root / "link").symlink_to("etc/motd")
        layer = archive.write_layer(tmp_path / f"{name}-layer.tar", archive.tree(root))
        archive.write_image(tmp_path / f"{name}.tar", archive.Image("example.local/x:1", [layer], ["/run"]))
        archives.append((tmp_path / f"{name}.tar").read_bytes())
    assert archives[0] == archives[1]


def test_skipped_folders_are_left_out_and_their_neighbours_stay(tmp_path: Path) -> None:
    for file in ("usr/share/doc/a", "usr/share/documents/b", "var/log/c", "usr/bin/d"):
        (tmp_path / "root" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / file).touch()
    skip = frozenset(["usr/share/doc", "var/log"])
    layer = archive.write_layer(tmp_path / "layer.tar", archive.tree(tmp_path / "root", skip=skip))
    with tarfile.open(layer.path) as tar:
        files = {entry.name for entry in tar if entry.isfile()}
    assert files == {"usr/share/documents/b", "usr/bin/d"}


def test_sources_keep_their_times_so_that_byte_code_stays_valid(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    for name in ("module.py", "data"):
        (tmp_path / "root" / name).touch()
    layer = archive.write_layer(tmp_path / "layer.tar", archive.tree(tmp_path / "root"))
    with tarfile.open(layer.path) as tar:
        times = {entry.name: entry.mtime for entry in tar}
    assert times == {"data": 0, "module.py": int((tmp_path / "root" / "module.py").stat().st_mtime)}


def test_a_pid_that_now_belongs_to_another_process_is_not_ours(tmp_path: Path) -> None:
    daemons = processes.Daemons(tmp_path)
    daemons.start("sleeper", ["sleep", "60"])
    try:
        found = processes.Daemons(tmp_path)  # as another run of the command sees it
        pid = found.pid("sleeper")
        assert pid is not None
        (tmp_path / "pid" / "sleeper").write_text(f"{pid} another boot and start time")
        assert found.pid("sleeper") is None
    finally:
        (tmp_path / "pid" / "sleeper").write_text(f"{pid} {processes.identity(pid or 0)}")
        daemons.stop(["sleeper"], seconds=5)
    assert daemons.pid("sleeper") is None


def test_a_daemon_that_ends_is_reported_with_its_last_words(tmp_path: Path) -> None:
    daemons = processes.Daemons(tmp_path)
    daemons.start("broken", ["sh", "-c", "echo the port is taken; exit 1"])
    with pytest.raises(ClusterError, match=r"broken ended before it answers; last line: the port is taken; log: /"):
        daemons.wait_for("it answers", lambda: False, daemon="broken", seconds=10)
    daemons.stop(["broken"], seconds=1)


def test_a_changed_added_or_renamed_file_changes_the_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    seen = {stamps.fingerprint([tmp_path])}
    (tmp_path / "a").write_text("2")
    seen.add(stamps.fingerprint([tmp_path]))
    (tmp_path / "b").write_text("")
    seen.add(stamps.fingerprint([tmp_path]))
    (tmp_path / "b").rename(tmp_path / "c")
    seen.add(stamps.fingerprint([tmp_path]))
    assert len(seen) == 4


def test_several_json_texts_in_a_row_are_all_read() -> None:
    stream = '{"kind": "A"}\n{"kind": "List", "items": [{"kind": "B"}, {"kind": "C"}]}\n'
    assert [document["kind"] for document in kube.documents(stream)] == ["A", "B", "C"]


def test_every_go_tool_has_a_program_name_and_kubernetes_a_version() -> None:
    programs = {"etcd", "kube-apiserver", "kubelet", "lws-manager", "coredns", "prometheus-adapter", *build.CNI_PLUGINS}
    assert programs <= set(build.packages())
    assert "gitMajor=1 " in build.linker_flags()


def test_every_debian_package_says_what_it_is_for() -> None:
    assert [package for package in check.packages() if len(package.reason) < 20] == []


def test_volume_and_claim_name_each_other_in_each_namespace() -> None:
    persistent, claim = volumes.manifests("team-a")[:2]
    assert persistent["spec"]["claimRef"] == {"namespace": "team-a", "name": claim["metadata"]["name"]}
    assert claim["spec"]["volumeName"] == persistent["metadata"]["name"] == "sglang-team-a"


@pytest.mark.parametrize("manifest", sorted(kwok.PRESETS.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_simulated_node_is_named_after_its_file_so_that_it_can_be_numbered(manifest: Path) -> None:
    assert f"\n  name: {manifest.stem}-0\n" in manifest.read_text()


def test_certificates_are_made_once_and_anew_when_the_list_changes(tmp_path: Path) -> None:
    one = [pki.Certificate("admin", "admin", pki.MASTERS)]
    pki.issue(tmp_path / "pki", one)
    first = (tmp_path / "pki/ca.crt").read_bytes()
    pki.issue(tmp_path / "pki", one)
    assert (tmp_path / "pki/ca.crt").read_bytes() == first
    pki.issue(tmp_path / "pki", [*one, pki.Certificate("server", "server", addresses=("IP:127.0.0.1",))])
    assert (tmp_path / "pki/ca.crt").read_bytes() != first


def test_errors_are_one_line_without_a_traceback() -> None:
    script = Path(kwok.PRESETS.parent, "cluster.py")
    done = subprocess.run([sys.executable, script, "build", "--only", "nothing"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: no such program: nothing; next: choose from ")
    assert done.stderr.count("\n") == 1
