"""A model in a mounted volume."""

from pathlib import Path

from vlm_operator.inspect import files
from vlm_operator.inspect.files import ModelReadError


class Folder:
    """A model at ``path`` below ``root``. Nothing outside ``root`` is read."""

    def __init__(self, root: Path, path: str) -> None:
        self._root = root.resolve()
        self._model = self._root / path.strip("/")
        self._name = f"/{path.strip('/')}"

    def config(self) -> bytes:
        """The bytes of config.json. Raises ModelReadError."""
        try:
            if not self._inside(self._model):
                raise ModelReadError(
                    "ModelNotFound", f"{self._name} leads out of the claim: set spec.model.uri to a folder in it"
                )
            if not self._model.is_dir():
                raise ModelReadError("ModelNotFound", f"the claim has no folder {self._name}: correct spec.model.uri")
            config = self._read(files.CONFIG, files.MAX_CONFIG_BYTES + 1)
        # RuntimeError: a link that leads to itself, before Python 3.13.
        except (OSError, RuntimeError) as error:
            why = getattr(error, "strerror", None) or "a link leads to itself"
            raise ModelReadError(
                "ModelUnreadable",
                f"cannot read {files.CONFIG} in {self._name} of the claim ({why}): correct spec.model.uri, or let the "
                "pod's user or group read it (securityContext in spec.template)",
            ) from error
        if config is None:
            raise ModelReadError(
                "ModelNotFound",
                f"the folder {self._name} of the claim has no {files.CONFIG}: put the model's files there, "
                "or correct the path in spec.model.uri",
            )
        return config

    def weights_bytes(self) -> int | None:
        """Bytes of all weights; None without safetensors files."""
        try:
            if (index := self._read(files.INDEX, files.MAX_INDEX_BYTES)) is not None:
                return files.bytes_by_index(index)
            start = self._read(files.WEIGHTS, files.LENGTH_BYTES)
            if start is None:
                return None
            return files.bytes_by_header(start, (self._model / files.WEIGHTS).stat().st_size)
        except (OSError, RuntimeError):
            return None

    def image_processor(self) -> dict[str, int] | None:
        """Whole numbers of the image processor; None without them."""
        try:
            return files.image_processor(lambda name: self._read(name, files.MAX_CONFIG_BYTES + 1))
        except (OSError, RuntimeError):
            return None

    def _read(self, name: str, most: int) -> bytes | None:
        """At most ``most`` bytes of a file; None if it does not exist. Follows links inside the root only."""
        file = self._model / name
        if not self._inside(file) or not file.is_file():
            return None
        with file.open("rb") as opened:
            return opened.read(most)

    def _inside(self, path: Path) -> bool:
        return path.resolve().is_relative_to(self._root)
