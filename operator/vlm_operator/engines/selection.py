"""Which SGLang version and image a service gets."""

from __future__ import annotations

import re
from typing import Final

from vlm_api.plan import Finding, Severity
from vlm_api.spec import Engine
from vlm_operator.engines.catalogue import Release, newest, release, unknown_release, versions

REPOSITORY: Final = "lmsysorg/sglang"
VERSION_UNKNOWN: Final = "EngineVersionUnknown"
VERSION_DIFFERS: Final = "EngineVersionDiffers"

# v0.5.23, v0.5.23-cu130, 0.5.23.post1-runtime: a release, then what else the image's maker says of it.
_TAG: Final = re.compile(r"v?([0-9]+\.[0-9]+\.[0-9]+(?:[.-]?(?:post|rc|dev)[0-9]+)?)(?:[-_+].*)?")


def select_engine(engine: Engine) -> tuple[Release, str, tuple[Finding, ...]]:
    """The version, the image, and what a person should know about the choice.

    The version is ``spec.engine.version``, else what the image's tag says, else the newest in the catalogue. One that
    is not in the catalogue, or that an image does not say, is unknown: then only what every version knows is passed.
    """
    tagged = version_of_tag(engine.image) if engine.image else None
    # 0.5.19+cu129, as Python's packages are numbered, is the tag v0.5.19-cu129.
    release_said, _, build = (engine.version or "").partition("+")
    said = _plain(release_said) if release_said else tagged if engine.image else newest()
    image = engine.image or f"{REPOSITORY}:v{said}" + (f"-{build}" if build else "")
    findings: list[Finding] = []
    if said is None:
        what = f"image {image} does not say which SGLang version it holds"
        findings.append(_unknown(what, "set spec.engine.version to it", "spec.engine.image"))
    elif said not in versions():
        path = "spec.engine.version" if engine.version else "spec.engine.image"
        what = f"SGLang version {said} is not one that this operator knows"
        findings.append(
            _unknown(what, f"use {_nearest(said)} or another of {known_versions()}, or a newer operator", path)
        )
    elif tagged is not None and engine.version and tagged != said:
        message = (
            f"spec.engine.version says {said}, the image's tag {tagged}; version {said} is planned for: "
            "make them agree, since a flag that the engine does not know ends it at once"
        )
        path = "spec.engine.version"
        findings.append(Finding(severity=Severity.WARNING, reason=VERSION_DIFFERS, message=message, path=path))
    chosen = release(said) if said in versions() else unknown_release()
    return chosen, image, tuple(findings)


def known_versions() -> str:
    """The catalogue's versions for a message, newest first."""
    return ", ".join(reversed(versions()))


def _nearest(version: str) -> str:
    """The catalogued version that follows an unknown one; the newest, where none does."""

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
    return Finding(severity=Severity.WARNING, reason=VERSION_UNKNOWN, message=message, path=path)
