"""An invalid kubeconfig is one line of error."""

from pathlib import Path

import pytest

from vlm_operator.cli.main import main


@pytest.mark.parametrize(
    "data",
    [b"a: [b\n", b"\xff\xfe\x00", b"just text", b"- a\n", b"apiVersion: v1\nkind: Config\ncontexts: 5\n", b"", b"{}"],
)
def test_an_invalid_kubeconfig_is_one_line(data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "config").write_bytes(data)
    assert main(["status", "vlm", "--kubeconfig", str(file)]) == 1
    out, errors = capsys.readouterr()
    assert (out, errors.count("\n")) == ("", 1)
    assert errors.startswith("error: no service account and no usable kubeconfig: ")


def test_a_folder_is_not_a_kubeconfig(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "vlm", "--kubeconfig", str(tmp_path)]) == 1
    assert "Is a directory" in capsys.readouterr().err
