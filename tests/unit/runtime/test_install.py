"""The runtime beside an unchanged engine."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import vlm_runtime
from vlm_runtime.install import install, main

# What SGLang's own image brings; pynvml is asked for with care.
BROUGHT_BY_THE_ENGINE = {"torch", "pydantic", "pydantic_core", "prometheus_client", "sglang", "uvicorn"}
OWN = {"vlm_api", "vlm_runtime"}


def test_it_starts_from_the_volume_alone_and_never_imports_the_engine(tmp_path: Path) -> None:
    install(tmp_path)
    code = (
        "import runpy, sys\n"
        "try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "except SystemExit as end: print(end.code, [m for m in sys.modules if m.startswith('sglang')])"
    )
    argv = [str(tmp_path / "start.py"), "--plan", "/nowhere", "--termination-log", str(tmp_path / "why")]
    code = f"import sys; sys.argv = {argv!r}\n{code}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "1 []"
    assert "BadPlan" in (tmp_path / "why").read_text()


def test_the_engine_finds_the_plugin_by_its_entry_point(tmp_path: Path) -> None:
    install(tmp_path)
    code = (
        "from importlib.metadata import entry_points\n"
        "(found,) = entry_points(group='sglang.srt.platforms', name='vlm_cpu')\n"
        "print(found.load().__module__, found.load().__code__.co_filename)"
    )
    ran = subprocess.run(
        [sys.executable, "-S", "-c", code],  # -S: without this environment's own packages
        env={**os.environ, "PYTHONPATH": str(tmp_path / "lib")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == [
        "vlm_runtime.sglang.inside.cpu",
        str(tmp_path / "lib/vlm_runtime/sglang/inside/cpu.py"),
    ]


def test_files_of_an_earlier_version_are_removed(tmp_path: Path) -> None:
    stale = tmp_path / "lib" / "vlm_runtime" / "stale.py"
    stale.parent.mkdir(parents=True)
    stale.write_text("")
    install(tmp_path)
    assert not stale.exists()


def test_every_user_can_read_it_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        install(tmp_path)
    finally:
        os.umask(before)
    for path in (tmp_path / "lib", *(tmp_path / "lib").rglob("*"), tmp_path / "start.py"):
        wanted = 0o755 if path.is_dir() else 0o644
        assert path.stat().st_mode & 0o777 == wanted, path


def test_a_volume_that_cannot_be_written_is_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert main([str(tmp_path / "file")]) == 2
    err = capsys.readouterr().err
    assert "mount a writable volume" in err
    assert err.count("\n") == 1


def test_a_missing_argument_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "DEST" in capsys.readouterr().err


def test_nothing_is_imported_that_the_engines_image_might_lack() -> None:
    imported: set[str] = set()
    for path in Path(vlm_runtime.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.partition(".")[0])
    assert imported - set(sys.stdlib_module_names) - OWN - BROUGHT_BY_THE_ENGINE == set()


def test_only_sglang_names_its_releases_and_only_nvml_loads_pynvml() -> None:
    folder = Path(vlm_runtime.__file__).parent
    texts = {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in folder.rglob("*.py")}
    outside = {name: text for name, text in texts.items() if not name.startswith("sglang/")}
    assert [name for name, text in outside.items() if re.search(r"\b0\.5\.\d|SGLANG_|sglang:", text)] == []
    assert [name for name, text in texts.items() if '"pynvml"' in text] == ["hardware/nvml.py"]
