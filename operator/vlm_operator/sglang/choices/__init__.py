"""What the user wrote about the engine, checked against its release."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vlm_api.plan import Finding


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
    """Everything that the user set for the engine. Locked before the first rule runs."""

    settings: Mapping[str, Choice] = field(default_factory=dict)
    """By SGLang's field name or variable name, in one spelling (``cuda_graph_max_bs_decode`` whatever the flag is called)."""
    args: tuple[str, ...] = ()
    """``spec.engine.args`` as written, then the arguments of ``main`` in the template, to be passed last, without
    repetitions."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Literal values of ``spec.engine.env`` and of ``main`` in the template."""
    referenced_env: frozenset[str] = frozenset()
    """Variables whose value comes from a Secret, ConfigMap or field: known to be set, value unknown."""
    findings: tuple[Finding, ...] = ()

    def get(self, name: str) -> Any:
        """The user's value, or None."""
        choice = self.settings.get(name)
        return None if choice is None else choice.value
