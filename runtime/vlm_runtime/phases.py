"""Which phase of its start the engine is in, read from its log."""

from __future__ import annotations

import re
from typing import Final

from vlm_api.report import Phase

START_ORDER: Final = (
    Phase.CHECKING_HARDWARE,
    Phase.STARTING,
    Phase.LOADING_WEIGHTS,
    Phase.CAPTURING_GRAPHS,
    Phase.WARMING_UP,
    Phase.FIRST_IMAGE,
    Phase.READY,
)

# SGLang's own INFO lines. Those of a group's ranks come in any order; phases only go forward.
# Nor are they as long as what clients may have written into the others.
_LONGEST_LINE: Final = 2000
_SIGNS: Final = (
    (re.compile(r"Load weight begin"), Phase.LOADING_WEIGHTS),
    (re.compile(r"Capture (?:\w+ ){0,6}cuda graph begin", re.IGNORECASE), Phase.CAPTURING_GRAPHS),
    (re.compile(r"Uvicorn running on|Application startup complete"), Phase.WARMING_UP),
)


def phase_of(line: str) -> Phase | None:
    """The phase that begins with this line of the engine's log, or None."""
    line = line[:_LONGEST_LINE]
    return next((phase for sign, phase in _SIGNS if sign.search(line)), None)


def later(present: Phase, proposed: Phase) -> Phase:
    """The later one of two phases of a start. Draining and what follows are never left."""
    if present not in START_ORDER or proposed not in START_ORDER:
        return present
    return max(present, proposed, key=START_ORDER.index)
