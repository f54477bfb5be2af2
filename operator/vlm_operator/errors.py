"""The errors that end a command or refuse a service: each carries a sentence for the user."""

from collections.abc import Sequence


class InvalidInput(Exception):
    """A field's value is wrong whatever the cluster. ``str()`` is one line: the field, the value and the next step."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message


class InvalidInputs(Exception):
    """All that is wrong with a command's input, one line each. Exit code 2."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = tuple(lines)


class ClusterError(Exception):
    """The API server refused or could not be reached, or an object does not exist. Exit code 1."""
