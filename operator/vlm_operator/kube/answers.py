"""Answers of an API server, or of a proxy before it: JSON objects, and errors in words."""

import html
import json
import re
from typing import Any, Final

Json = dict[str, Any]

# Of an answer that is not from Kubernetes: enough to recognize who answered.
WORDS_LENGTH: Final = 200
_TITLE: Final = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_UNSEEN: Final = re.compile(r"<(script|style)\b.*?</\1\s*>", re.IGNORECASE | re.DOTALL)
_TAG: Final = re.compile(r"<[!/a-z][^>]*>", re.IGNORECASE)


class ApiError(Exception):
    """The API server refused, or did not answer. ``status`` is the HTTP code, 0 without an answer."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def refused(self) -> bool:
        """Whether the request itself was wrong, so that sending it again is of no use."""
        return self.status in (400, 403, 405, 413, 415, 422)


def json_object(data: bytes) -> Json:
    """An answer that must be a JSON object; nothing at all is an empty one. Raises ApiError."""
    answer = _parsed(data) if data else {}
    if not isinstance(answer, dict):
        raise ApiError(0, "NoAnswer", f"the answer is not from an API server: {in_words(data) or 'it is empty'}")
    return answer


def refusal(status: int, data: bytes) -> ApiError:
    """The error that an answer with such an HTTP status is: a Status of Kubernetes, or whatever a proxy says."""
    answer = _parsed(data)
    if not isinstance(answer, dict):
        return ApiError(status, "Unknown", ": ".join(filter(None, (f"HTTP {status}", in_words(data)))))
    return ApiError(status, str(answer.get("reason") or "Unknown"), str(answer.get("message") or f"HTTP {status}"))


def in_words(data: bytes) -> str:
    """Of a page its title, or else its text: one line, at most ``WORDS_LENGTH`` characters."""
    text = data.decode(errors="replace")
    title = _TITLE.search(text)
    words = title[1] if title and title[1].strip() else _TAG.sub(" ", _UNSEEN.sub(" ", text))
    line = " ".join(html.unescape(words).split())
    return line if len(line) <= WORDS_LENGTH else line[: WORDS_LENGTH - 1] + "…"


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None
