"""Programs that run in pods whose image holds nothing of ours, so they are sent as text: ``driver`` with ``server`` into the pod
that sends the load, ``recorder`` into the engine's. The standard library only (and SGLang), Python 3.10."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

# The driver last, after what it imports.
_DRIVER: Final = (f"{__name__}.server", f"{__name__}.driver")
# Arguments: the texts of these modules, then the argument of the last one's main().
_LOADER: Final = f"""\
import sys, types
*texts, options = sys.argv[1:]
for name, text in zip({_DRIVER!r}, texts):
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
sys.exit(module.main(options))
"""


def program(name: str) -> str:
    """The text of a module of this package."""
    return files(__name__).joinpath(f"{name.rpartition('.')[2]}.py").read_text(encoding="utf-8")


def driver_command(options: str) -> list[str]:
    """The command that measures in the load's pod. ``options``: JSON, see ``driver``."""
    return ["python3", "-c", _LOADER, *map(program, _DRIVER), options]
