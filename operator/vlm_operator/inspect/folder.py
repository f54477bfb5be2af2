"""A model in a mounted volume."""

from __future__ import annotations

from pathlib import Path

from vlm_operator.inspect import files
from vlm_operator.inspect.errors import Unread


class Folder:
    """The files below ``root``, in which the model is at ``path``. Nothing outside ``root`` is read."""

    def __init__(self, root: Path, path: str) -> None:
        self._root = root.resolve()
        self._model = self._root / path.strip("/")
        self._name = f"/{path.strip('/')}"

    def config(self) -> bytes:
        """Raises Unread where there is none."""
        try:
            if not self._inside(self._model):
                raise Unread(
                    "ModelNotFound", f"{self._name} leads out of the claim: give a folder in it in spec.model.uri"
                )
            if not self._model.is_dir():
                raise Unread("ModelNotFound", f"the claim has no folder {self._name}: correct spec.model.uri")
            found = self._read(files.CONFIG, files.MOST_CONFIG_BYTES + 1)
        # RuntimeError: a link that leads to itself, before Python 3.13.
        except (OSError, RuntimeError) as error:
            why = getattr(error, "strerror", None) or "a link leads to itself"
            raise Unread(
                "ModelUnreadable",
                f"{files.CONFIG} in {self._name} of the claim cannot be read ({why}): correct spec.model.uri, or let the "
                "pod's user or group read it (securityContext in spec.template)",
            ) from error
        if found is None:
            raise Unread(
                "ModelNotFound",
                f"the folder {self._name} of the claim has no {files.CONFIG}: put the model's files there, "
                "or correct the path in spec.model.uri",
            )
        return found

    def weights_bytes(self) -> int | None:
        """Bytes of all weights; None where no safetensors file tells."""
        try:
            if (index := self._read(files.INDEX, files.MOST_INDEX_BYTES)) is not None:
                return files.bytes_by_index(index)
            start = self._read(files.WEIGHTS, files.LENGTH_BYTES)
            if start is None:
                return None
            return files.bytes_by_header(start, (self._model / files.WEIGHTS).stat().st_size)
        except (OSError, RuntimeError):
            return None

    def _read(self, name: str, most: int) -> bytes | None:
        """At most that many bytes of a file; None where it is not there. Links are followed inside the root only."""
        file = self._model / name
        if not self._inside(file) or not file.is_file():
            return None
        with file.open("rb") as opened:
            return opened.read(most)

    def _inside(self, path: Path) -> bool:
        return path.resolve().is_relative_to(self._root)
