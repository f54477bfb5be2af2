"""Which SGLang version and image a service gets, which CUDA the image needs, and which CUDA a driver runs."""

import re
from functools import lru_cache
from typing import Any, Final

from vlm_api.plan import Finding, warning
from vlm_api.reasons import FindingReason
from vlm_api.spec import Engine
from vlm_operator.sglang.catalogue.releases import Release, known, newest, release, unknown_release, versions

REPOSITORY: Final = "lmsysorg/sglang"

# v1.2.3, v1.2.3-cu130, 1.2.3.post1-runtime: a release, then what the image's publisher adds.
_TAG: Final = re.compile(r"v?([0-9]+\.[0-9]+\.[0-9]+(?:[.-]?(?:post|rc|dev)[0-9]+)?)(?:[-_+].*)?")


def select_engine(engine: Engine) -> tuple[Release, str, tuple[Finding, ...]]:
    """The version, the image, and findings about the choice.

    The version is ``spec.engine.version``, else that of the image's tag, else the newest in the catalogue. If it is not in
    the catalogue or the image does not name one, it is unknown: then only what every version knows is passed.
    """
    tagged = version_of_tag(engine.image) if engine.image else None
    # 0.5.19+cu129, as Python's packages are numbered, is the tag v0.5.19-cu129.
    release_stated, _, build = (engine.version or "").partition("+")
    stated = _plain(release_stated) if release_stated else tagged if engine.image else newest()
    image = engine.image or f"{REPOSITORY}:v{stated}" + (f"-{build}" if build else "")
    findings: list[Finding] = []
    if stated is None:
        what = f"the tag of image {image} does not name its SGLang version"
        findings.append(_unknown(what, "set spec.engine.version to it", "spec.engine.image"))
    elif stated not in versions():
        path = "spec.engine.version" if engine.version else "spec.engine.image"
        what = f"this operator does not know SGLang version {stated}"
        findings.append(
            _unknown(
                what,
                f"use {_nearest(stated)} or another of {', '.join(reversed(versions()))}, or a newer operator",
                path,
            )
        )
    elif tagged is not None and engine.version and tagged != stated:
        message = (
            f"spec.engine.version is {stated} but the image's tag is {tagged}, and the plan is for {stated}: "
            "make them agree, because the engine exits on an unknown flag"
        )
        path = "spec.engine.version"
        findings.append(warning(FindingReason.ENGINE_VERSION_DIFFERS, message, path))
    chosen = release(stated) if stated in versions() else unknown_release()
    return chosen, image, tuple(findings)


def _nearest(version: str) -> str:
    """The catalogued version that follows an unknown one, or else the newest."""

    def order(text: str) -> list[int]:
        return [int(part) for part in re.findall(r"[0-9]+", text)]

    return next((known for known in versions() if order(known) >= order(version)), newest())


def version_of_tag(image: str) -> str | None:
    """The SGLang version that an image's tag names; None for a digest alone, ``latest``, or a tag of another kind."""
    name = image.partition("@")[0]
    _, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:  # the colon of a registry's port
        return None
    found = _TAG.fullmatch(tag)
    return _plain(found[1]) if found else None


def _plain(version: str) -> str:
    """``v0.5.12-post1`` -> ``0.5.12.post1``."""
    return re.sub(r"[.-]?(post|dev)([0-9]+)", r".\1\2", version.lower().removeprefix("v"))


def _unknown(what: str, step: str, path: str) -> Finding:
    message = f"{what}, so only settings that every known version has are passed: {step}"
    return warning(FindingReason.ENGINE_VERSION_UNKNOWN, message, path)


# --- CUDA ---------------------------------------------------------------------------------------------------------

Cuda = tuple[int, int]

# v0.5.19-cu129, v0.5.12-cu13-runtime.
_IN_TAG: Final = re.compile(r"[-.]cu(\d{2})(\d?)(?![0-9a-z])")
# What a tag of SGLang's own images may add to the version without changing its CUDA.
_SAME: Final = re.compile(r"v?[0-9.]+(?:[.-]?post[0-9]+)?(?:-runtime)?")


@lru_cache(maxsize=256)
def image_cuda(image: str) -> Cuda | None:
    """The CUDA that an image is built for; None when unknown.

    A tag that names it wins. Otherwise it is known for SGLang's own images of catalogued releases, in any registry: such an
    image holds the wheel of its release, which requires that CUDA (the release notes of 0.5.11 say the same).
    """
    tag = _tag(image)
    if found := _IN_TAG.search(tag):
        return int(found[1]), int(found[2] or 0)
    version = version_of_tag(image)
    known_tag = version in versions() and _is_own(image) and _SAME.fullmatch(tag)
    return _cuda(release(version).facts["cuda"]) if version is not None and known_tag else None


def _tag(image: str) -> str:
    return image.partition("@")[0].rpartition(":")[2]


def _is_own(image: str) -> bool:
    """Whether it is SGLang's own repository, in any registry."""
    repository = image.partition("@")[0].rpartition(":")[0]
    return repository == REPOSITORY or repository.endswith(f"/{REPOSITORY}")


_AMD64: Final = frozenset({"amd64"})
_ARCHITECTURES: Final = {"amd64": "amd64", "x86": "amd64", "arm64": "arm64", "aarch64": "arm64"}


@lru_cache(maxsize=256)
def image_architectures(image: str) -> frozenset[str]:
    """The processors' architectures that an image is known to be built for. Another publisher's image is taken to be for
    amd64 only, unless its tag names one. SGLang's own images of catalogued releases are for both (its workflow
    _docker-build-and-publish.yml joins an amd64 and an arm64 image under each tag)."""
    words = re.findall(r"[a-z0-9]+", _tag(image).lower())
    if named := frozenset(_ARCHITECTURES[word] for word in words if word in _ARCHITECTURES):
        return named
    return frozenset({"amd64", "arm64"}) if _is_own(image) and version_of_tag(image) in versions() else _AMD64


# Words in the tags of SGLang's images for other hardware than NVIDIA's GPUs.
OTHER_HARDWARE: Final = ("rocm", "xpu", "xeon", "cann", "npu", "musa", "tpu")


def other_hardware(image: str) -> str | None:
    """The word in an image's tag that names other hardware than NVIDIA's GPUs, or None."""
    words = re.findall(r"[a-z]+", _tag(image).lower())
    return next((word for word in OTHER_HARDWARE if word in words), None)


def driver_cuda(driver: str | None) -> Cuda | None:
    """The newest CUDA, to its major version, that a driver such as ``535.104.05`` runs; None when unknown."""
    found = re.match(r"([0-9]{3,4})(?:\.|$)", driver or "")
    if found is None:
        return None
    rows: list[dict[str, Any]] = [row for row in known()["driver_cuda"] if row["driver"] <= int(found[1])]
    return _cuda(rows[-1]["cuda"]) if rows else None


def _cuda(text: str) -> Cuda:
    major, minor = text.split(".")
    return int(major), int(minor)
