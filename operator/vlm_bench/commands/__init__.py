"""The commands ``bench`` and ``profile``."""

import argparse
from importlib.util import find_spec
from typing import Final

from vlm_operator.errors import InvalidInputs

# What the extra [bench] adds to the command line's own libraries.
LIBRARIES: Final = ("scipy", "matplotlib")


def measure(options: argparse.Namespace) -> int:
    """Runs the chosen command; its exit code. Raises InvalidInputs without the libraries of the extra."""
    if missing := [name for name in LIBRARIES if find_spec(name) is None]:
        raise InvalidInputs([f"{options.command} needs {' and '.join(missing)}: run pip install 'vlm-operator[bench]'"])
    if options.command == "bench":
        from vlm_bench.commands.bench import bench

        return bench(options)
    from vlm_bench.commands.profile import profile

    return profile(options)
