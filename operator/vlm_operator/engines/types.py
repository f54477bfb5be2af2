"""The engine version and the user's own choices, as the rules read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from vlm_api.plan import Finding


class EngineVersion(Protocol):
    """One SGLang version, or an unknown one, for which only what every version knows is passed."""

    @property
    def version(self) -> str | None:
        """Such as ``0.5.23``; None when the image does not say."""

    def flag(self, setting: str) -> str | None:
        """The flag for a setting in this version's spelling (``cuda_graph_max_bs_decode`` -> ``--cuda-graph-max-bs``
        before 0.5.14), or None where the version has none. Always None for an unknown version, except for the flags
        that every catalogued version has."""

    def has_variable(self, name: str) -> bool:
        """Whether the version reads that environment variable. For an unknown version: whether all of them do."""

    def default(self, setting: str) -> Any:
        """The default that the version's source states; None where it states none."""

    def render_flag(self, setting: str, value: Any) -> list[str]:
        """The arguments that give the setting that value in this version. Raises KeyError where it has no such flag."""

    @property
    def has_override_set(self) -> bool:
        """Whether the version itself brings the Qwen3-VL Hopper set (0.5.20 and later)."""

    @property
    def has_plugins(self) -> bool:
        """Whether it loads the entry points ``sglang.srt.platforms`` and ``sglang.srt.plugins`` (0.5.12 and later)."""


@dataclass(frozen=True)
class Choice:
    """One value that the user wrote."""

    value: Any
    """Typed as the engine types it: int, float, bool, str, list or dict."""
    path: str
    """Where: ``spec.engine.settings.prefill_decode_interval``, ``spec.engine.args[0]``, ``spec.engine.env[1]``, or a
    path that begins with ``spec.template``."""


@dataclass(frozen=True)
class UserChoices:
    """Everything that the user decided about the engine. Locked before the first rule runs."""

    settings: Mapping[str, Choice] = field(default_factory=dict)
    """By SGLang's field name or variable name, in one spelling (``cuda_graph_max_bs_decode`` whatever the flag is called)."""
    args: tuple[str, ...] = ()
    """``spec.engine.args`` as written, then the arguments of ``main`` in the template, to be passed last. What was said
    twice stands here once."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Literal values of ``spec.engine.env`` and of ``main`` in the template."""
    referenced_env: frozenset[str] = frozenset()
    """Variables whose value comes from a Secret, ConfigMap or field: known to be set, value unknown."""
    findings: tuple[Finding, ...] = ()

    def get(self, name: str) -> Any:
        """The user's value, or None."""
        choice = self.settings.get(name)
        return None if choice is None else choice.value
