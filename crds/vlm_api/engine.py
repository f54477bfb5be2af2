"""The SGLang engine: ``spec.engine``."""

from enum import Enum
from typing import Annotated, ClassVar

from pydantic import Field

from vlm_api.base import IMAGE, ApiModel, Json, Matches, Rule, UniqueBy


class Tuning(str, Enum):
    """Who chooses the engine's settings."""

    AUTO = "Auto"
    OFF = "Off"


class EnvVar(ApiModel):
    """An environment variable, as in a pod."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!(has(self.value) && has(self.valueFrom))",
            message="value and valueFrom are mutually exclusive: set one of them",
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
    """The literal value. Use ``valueFrom`` for secrets."""
    value_from: dict[str, Json] | None = None
    """The source of the value: a core/v1 EnvVarSource."""


class Engine(ApiModel):
    """The SGLang engine and your choices for it."""

    version: (
        Annotated[
            str,
            Field(min_length=1, max_length=64),
            Matches(r"^v?[0-9]+\.[0-9]+\.[0-9]+([.+-]?[A-Za-z0-9])*$", "must be an SGLang version such as 1.2.3"),
        ]
        | None
    ) = None
    """SGLang's version. Default: the version in the image's tag; without an image, the newest that the operator knows."""
    image: (
        Annotated[
            str,
            Field(min_length=1, max_length=512),
            Matches(
                f"^{IMAGE}$",
                "must be an image such as registry.example.com/sglang:v1.2.3, without spaces, scheme or user",
            ),
        ]
        | None
    ) = None
    """The engine's image. Default: SGLang's official image of that version."""
    tuning: Tuning = Tuning.AUTO
    """``Auto``: the operator chooses the settings. ``Off``: only your own settings apply."""
    settings: Annotated[dict[str, Json], Field(max_length=128)] = {}
    """Settings by SGLang's field name (``prefill_decode_interval``) or environment variable
    (``SGLANG_VLM_CACHE_SIZE_MB``). They override the operator's choices."""
    args: Annotated[list[Annotated[str, Field(max_length=8192)]], Field(max_length=128)] = []
    """Engine flags in full (``--log-requests``), added last. They override ``env`` and ``settings``."""
    env: Annotated[list[EnvVar], Field(max_length=128), UniqueBy("name")] = []
    """Environment variables of the engine's container. They override ``settings``."""
