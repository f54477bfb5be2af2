"""The SGLang engine and what the user decides about it: ``spec.engine``."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, ClassVar

from pydantic import Field

from vlm_api.base import IMAGE, ApiModel, Json, Matches, Rule, UniqueBy


class Tuning(str, Enum):
    """Who decides the engine's settings."""

    AUTO = "Auto"
    OFF = "Off"


class EnvVar(ApiModel):
    """An environment variable, as in a pod."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!(has(self.value) && has(self.valueFrom))",
            message="value and valueFrom exclude each other: give one of them",
            holds=lambda s: s.value is None or s.value_from is None,
            field="valueFrom",
        ),
    )

    name: Annotated[
        str,
        Field(min_length=1, max_length=253),
        Matches(r"^[-._a-zA-Z][-._a-zA-Z0-9]*$", "must be a variable's name: letters, digits, '-', '_' and '.'"),
    ]
    """The variable's name."""
    value: Annotated[str, Field(max_length=32_768)] | None = None
    """The value itself. Secrets belong into ``valueFrom``."""
    value_from: dict[str, Json] | None = None
    """Where the value comes from: core/v1 EnvVarSource."""


class Engine(ApiModel):
    """The SGLang engine, and what the user decides about it."""

    version: (
        Annotated[
            str,
            Field(min_length=1, max_length=64),
            Matches(r"^v?[0-9]+\.[0-9]+\.[0-9]+([.+-]?[A-Za-z0-9]+)*$", "must be a version of SGLang such as 0.5.23"),
        ]
        | None
    ) = None
    """SGLang's version. Default: what the image's tag says; without an image, the newest that the operator knows."""
    image: (
        Annotated[
            str,
            Field(min_length=1, max_length=512),
            Matches(f"^{IMAGE}$", "must be an image such as lmsysorg/sglang:v0.5.23, without spaces, scheme and user"),
        ]
        | None
    ) = None
    """The engine's image. Default: SGLang's own image of that version."""
    tuning: Tuning = Tuning.AUTO
    """``Auto``: the operator works the settings out. ``Off``: only what is written here."""
    settings: Annotated[dict[str, Json], Field(max_length=128)] = {}
    """Settings by SGLang's own field name (``prefill_decode_interval``) or variable name
    (``SGLANG_VLM_CACHE_SIZE_MB``). Always win."""
    args: Annotated[list[Annotated[str, Field(max_length=8192)]], Field(max_length=128)] = []
    """Full engine flags (``--log-requests``), after everything else. Always win over ``settings``."""
    env: Annotated[list[EnvVar], Field(max_length=128), UniqueBy("name")] = []
    """Environment variables of the engine's container. Always win over ``settings``."""
