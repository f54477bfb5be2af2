"""The one way in which reading a model's files fails."""

from __future__ import annotations


class Unread(Exception):
    """Why the files could not be read: a reason of ``vlm_api.reasons.UNREAD``, and a sentence with the next step."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
