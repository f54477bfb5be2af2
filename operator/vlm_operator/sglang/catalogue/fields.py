"""What is known of one setting of the engine: a field of ``ServerArgs``, or an environment variable."""

from dataclasses import dataclass
from typing import Any, Final, Literal

Kind = Literal["str", "int", "size", "float", "bool", "json"]
Many = Literal["+", "*", "?"]

# A value that argparse fills in by itself, where the source does not say which.
UNKNOWN: Final = object()


@dataclass(frozen=True)
class Bounds:
    """The values that make sense. ``above`` and ``below`` exclude the bound itself."""

    min: float | None = None
    max: float | None = None
    above: float | None = None
    below: float | None = None
    or_: tuple[float, ...] = ()

    def problem(self, value: float) -> str | None:
        """What is wrong with a value, such as "must be above 0 and below 1"; None where it is within the bounds."""
        bounds = [
            (f"at least {self.min}", self.min is None or value >= self.min),
            (f"above {self.above}", self.above is None or value > self.above),
            (f"at most {self.max}", self.max is None or value <= self.max),
            (f"below {self.below}", self.below is None or value < self.below),
        ]
        if value in self.or_ or all(holds for _, holds in bounds):
            return None
        stated = (self.min, self.above, self.max, self.below)
        words = [words for (words, _), bound in zip(bounds, stated, strict=True) if bound is not None]
        others = "".join(f", or {other}" for other in self.or_)
        return f"must be {' and '.join(words)}{others}"


@dataclass(frozen=True)
class Spelling:
    """One way to say a field on the command line."""

    flag: str
    sets: Any = None
    """The value that the flag alone stands for; None where a value follows."""
    argument: bool = True
    """Whether a value follows."""
    deprecated: str = ""
    """What the engine recommends instead; empty where the spelling is current."""


@dataclass(frozen=True)
class Field:
    """A field of ``ServerArgs``, or an environment variable (without a flag)."""

    name: str
    kind: Kind
    flag: str = ""
    many: Many | None = None
    choices: tuple[Any, ...] = ()
    default: Any = UNKNOWN
    spellings: tuple[Spelling, ...] = ()
    """Every way to say it, the flag first."""
    negative: str = ""
    """The flag that says no, where there is one."""
    without_effect: bool = False
    """The engine accepts it, warns, and does nothing."""
    refused: bool = False
    """The engine knows the flag only to stop with a message."""
