"""The one error that a user can cause: input that is wrong whatever the cluster looks like."""

from __future__ import annotations


class InvalidInput(Exception):
    """A field's value cannot be right. ``str()`` is one line that names the field, the value and the next step."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message
