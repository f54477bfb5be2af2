"""``--version``."""

from collections.abc import Callable
from importlib.metadata import version

import pytest

from vlm_operator.__main__ import main as operator
from vlm_operator.cli.main import main


@pytest.mark.parametrize(("program", "name"), [(main, "kubectl-vlm"), (operator, "vlm-operator")])
def test_prints_the_version(program: Callable[..., int], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        program(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"{name} {version('vlm-operator')}\n"
