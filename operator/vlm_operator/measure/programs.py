"""Programs that run in pods whose image holds nothing of ours: they are sent as text."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from vlm_operator.measure import asking, driver, readiness

# The driver last, each after what it imports.
_DRIVER: Final = (asking.__name__, readiness.__name__, driver.__name__)
# Arguments: the texts of these modules, and what the last one's main() is told.
_LOADER: Final = f"""\
import sys, types
*texts, told = sys.argv[1:]
for name, text in zip({_DRIVER!r}, texts):
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
sys.exit(module.main(told))
"""


def program(name: str) -> str:
    """The text of a module of this package."""
    return files("vlm_operator.measure").joinpath(f"{name}.py").read_text(encoding="utf-8")


def driver_command(told: str) -> list[str]:
    """The command that measures in the Job's pod, with what it is told."""
    texts = [program(name.rpartition(".")[2]) for name in _DRIVER]
    return ["python3", "-c", _LOADER, *texts, told]
