"""What stands against believing a comparison: images that were seen before, warm-ups that failed, many verdicts at once, and
settings that are not in force."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from vlm_operator.measure.compare import Comparison
from vlm_operator.measure.interval import CONFIDENCE
from vlm_operator.measure.rounds import Round, counted_by_engine
from vlm_operator.measure.twin import Change, word

REPEATED: Final = "images that had come before"
# Counter of the engine -> how tables call it.
COUNTED: Final[Mapping[str, str]] = {
    "vlmserve_images_received_total": "images received",
    "vlmserve_images_repeated_total": REPEATED,
    "vlmserve_image_pool_fallbacks_total": "image features without room in the pool",
    "sglang:cached_tokens_total": "prompt tokens from the prefix cache",
    "sglang:prompt_tokens_total": "prompt tokens",
    "sglang:num_retracted_requests_total": "requests taken back for want of memory",
}


def in_words(counters: Mapping[str, float]) -> dict[str, float]:
    """The engine's counters in words, those that were served."""
    return {text: counters[name] for name, text in COUNTED.items() if name in counters}


def cautions(names: Sequence[str], rounds: Sequence[Round], comparisons: Sequence[Comparison]) -> list[str]:
    """Sentences without a full stop."""
    return [*_warm_ups(names, rounds), *_repeated(names, rounds), *_many(comparisons)]


def _warm_ups(names: Sequence[str], rounds: Iterable[Round]) -> list[str]:
    return [
        f"in the warm-up of {names[each.target]} {each.failures} of {each.requests} requests failed: "
        f"{max(each.errors.items(), key=lambda error: error[1])[0]}"
        for each in rounds
        if not each.counted and each.failures
    ]


def _repeated(names: Sequence[str], rounds: Sequence[Round]) -> list[str]:
    found = []
    for target, name in enumerate(names):
        counted = in_words(counted_by_engine(rounds, target))
        if repeated := counted.get(REPEATED):
            found.append(
                f"{repeated:,.0f} of {counted.get('images received', repeated):,.0f} images had come to {name} before, so its "
                "caches may have answered for them: give another --seed, and keep other clients away meanwhile"
            )
    return found


def _many(comparisons: Sequence[Comparison]) -> list[str]:
    """Several verdicts at once."""
    count = sum(1 for each in comparisons if each.decisive is not None)
    if count < 2:
        return []
    return [f"of {count} such intervals {count * (1 - CONFIDENCE):.1f} miss by chance; measure again what matters"]


def not_in_force(change: Change | None, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str | None:
    """Why the setting was not what was measured, by what both engines told; None where it was, or where they do not tell."""
    if change is None or change.name not in theirs:
        return None
    name, told, own = change.name, theirs[change.name], ours.get(change.name)
    if own is not None and plain(own) == plain(told):
        return f"the twin and the service both tell {name}={word(told)}"
    # An engine that makes something else of the setting, such as a share for each rank, does so in both.
    rewritten = _other(own, change.planned)
    if _other(told, change.measured) and not rewritten:
        return f"the twin was to have {name}={word(change.measured)} and tells {word(told)}"
    return None


def _other(told: Any, planned: Any) -> bool:
    """Whether another value is told than planned. Maps and lists may be told in another form, so they never are."""
    if not isinstance(told, (str, int, float)) or not isinstance(planned, (str, int, float)):
        return False
    return plain(told) != plain(planned)


def plain(value: Any) -> str:
    """``/server_info`` tells variables as texts and flags as values; 1 and 1.0 are the same, and true is 1 in a variable."""
    text = {"true": "1", "false": "0"}.get(str(value).lower(), str(value).lower())
    try:
        return repr(float(text))
    except ValueError:
        return text
