"""The one error that people are meant to see: what failed, where the log is, and what to do next."""

from pathlib import Path


class ClusterError(Exception):
    """An expected failure; printed as one line, without a traceback."""

    def __init__(self, message: str, *, log: Path | None = None, hint: str = "") -> None:
        parts = [message]
        if log is not None:
            parts += [f"last line: {last}"] if (last := last_line(log)) else []
            parts.append(f"log: {log}")
        if hint:
            parts.append(f"next: {hint}")
        super().__init__("; ".join(parts))


def last_line(log: Path) -> str:
    """The last line of a log that says something, cut to 300 characters; empty when there is none."""
    try:
        lines = log.read_text(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")
