"""A model in a mounted volume."""

from __future__ import annotations

from pathlib import Path

from vlm_operator.inspect import files
from vlm_operator.inspect.errors import Unread


class Folder:
    """The files below ``root``, in which the model is at ``path``. Nothing outside ``root`` is read."""

    def __init__(self, root: Path, path: str) -> None:
        self._root = root.resolve()
        self._path = path
        self._model = (self._root / path.strip("/")).resolve()

    def config(self) -> bytes:
        """Raises Unread where there is none."""
        if not self._inside(self._model):
            raise Unread(
                "ModelNotFound", f"the path {self._path} leads out of the claim: give one inside it in spec.model.uri"
            )
        if not self._model.is_dir():
            raise Unread("ModelNotFound", f"the claim has no folder {self._path or '/'}: correct spec.model.uri")
        found = self._read(files.CONFIG, files.MOST_CONFIG_BYTES + 1)
        if found is None:
            raise Unread(
                "ModelNotFound",
                f"the folder {self._path or '/'} of the claim has no {files.CONFIG}: put the model's files there, "
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
        except (Unread, OSError):
            return None

    def _read(self, name: str, most: int) -> bytes | None:
        """At most that many bytes of a file; None where it is not there. Links are followed inside the root only."""
        try:
            file = (self._model / name).resolve()
            if not self._inside(file) or not file.is_file():
                return None
            with file.open("rb") as opened:
                return opened.read(most)
        except (OSError, RuntimeError) as error:
            why = getattr(error, "strerror", None) or "a link leads to itself"
            raise Unread(
                "ModelUnreadable",
                f"{name} in {self._path or '/'} cannot be read ({why}): let the group of spec.template's fsGroup read it",
            ) from error

    def _inside(self, path: Path) -> bool:
        return path.is_relative_to(self._root)
