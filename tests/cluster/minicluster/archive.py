"""Container images as files, in the format of `docker save`, which containerd imports. Same input, same bytes."""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from .errors import ClusterError

REGISTRY = "vlmserve.local"  # resolves nowhere: an image that is not on the node must fail, not be pulled
PAUSE = f"{REGISTRY}/pause:1"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
BLOCK = 1 << 20


@dataclass(frozen=True)
class Layer:
    """An uncompressed layer tar; its digest lies beside it, so that a kept layer need not be read again."""

    path: Path

    @property
    def digest(self) -> str:
        return self.path.with_suffix(".sha256").read_text()


@dataclass(frozen=True)
class Content:
    """One entry of a layer: a file of this machine, or text."""

    name: str  # in the image, without the leading slash
    source: Path | str
    mode: int | None = None  # as the file's own where None
    keep_owner: bool = False


class _HashingWriter(io.RawIOBase):
    def __init__(self, target: BinaryIO) -> None:
        self.target, self.hash = target, hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.hash.update(data)
        return self.target.write(data)


def write_layer(path: Path, contents: Iterator[Content] | list[Content]) -> Layer:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        writer = _HashingWriter(file)
        with tarfile.open(fileobj=writer, mode="w|", format=tarfile.GNU_FORMAT) as tar:
            for content in contents:
                add(tar, content)
    partial.replace(path)
    path.with_suffix(".sha256").write_text(writer.hash.hexdigest())
    return Layer(path)


def add(tar: tarfile.TarFile, content: Content) -> None:
    if isinstance(content.source, str):
        data = content.source.encode()
        entry = tarfile.TarInfo(content.name)
        entry.size, entry.mode = len(data), content.mode or 0o644
        tar.addfile(entry, io.BytesIO(data))
        return
    entry = tar.gettarinfo(content.source, content.name)
    # Byte code names the time of its source, so sources keep theirs; all other times only make images differ.
    entry.mtime = int(entry.mtime) if content.name.endswith(".py") else 0
    entry.uname = entry.gname = ""
    if not content.keep_owner:
        entry.uid = entry.gid = 0
    if content.mode is not None:
        entry.mode = content.mode
    if entry.isreg():
        with content.source.open("rb") as file:
            tar.addfile(entry, file)
    elif entry.isdir() or entry.issym() or entry.islnk():
        tar.addfile(entry)


def tree(
    root: Path, prefix: str = "", *, skip: frozenset[str] = frozenset(), keep_owner: bool = False
) -> Iterator[Content]:
    """All below `root` in a fixed order, at `prefix` in the image; `skip` names paths relative to `root`."""
    for path in sorted(root.iterdir()):
        relative = path.relative_to(root).as_posix()
        if relative in skip:
            continue
        yield Content(prefix + relative, path, keep_owner=keep_owner)
        if path.is_dir() and not path.is_symlink():
            below = frozenset(name.removeprefix(f"{relative}/") for name in skip if name.startswith(f"{relative}/"))
            yield from tree(path, f"{prefix}{relative}/", skip=below, keep_owner=keep_owner)


@dataclass(frozen=True)
class Image:
    reference: str
    layers: list[Layer]
    command: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    user: str = ""


def write_image(path: Path, image: Image) -> None:
    variables = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"} | image.environment
    config = {
        "architecture": architecture(),
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {
            "Env": [f"{name}={value}" for name, value in variables.items()],
            "Entrypoint": image.command or None,
            "User": image.user,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in image.layers]},
        "history": [{"created_by": "vlm-cluster"} for _ in image.layers],
    }
    config_data = json.dumps(config, sort_keys=True).encode()
    config_name = f"{hashlib.sha256(config_data).hexdigest()}.json"
    layer_names = [f"{layer.digest}.tar" for layer in image.layers]
    manifest = [{"Config": config_name, "RepoTags": [image.reference], "Layers": layer_names}]
    partial = path.with_suffix(".partial")
    with tarfile.open(partial, "w", format=tarfile.GNU_FORMAT) as tar:
        for name, data in ((config_name, config_data), ("manifest.json", json.dumps(manifest).encode())):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
        for layer, name in zip(image.layers, layer_names, strict=True):
            add(tar, Content(name, layer.path, mode=0o644))
    partial.replace(path)


def architecture() -> str:
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise ClusterError(f"no images for the architecture {machine}")
    return ARCHITECTURES[machine]
