"""Reasons to doubt a measurement, from its rounds: images seen before, failed warm-ups, short or unsteady rounds, a busy load,
short answers, several verdicts at once, and settings that are not in effect."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median
from typing import Any, Final

from vlm_bench.load.target import COUNTERS, RECEIVED, REPEATED
from vlm_bench.statistics.comparison import Comparison
from vlm_bench.statistics.interval import CONFIDENCE
from vlm_bench.statistics.rounds import Round, Summary, counter_increases
from vlm_bench.twins.twin import Change, word

# In shorter rounds the start and the end, where fewer requests run, and single hiccups weigh too much.
SHORT_ROUND_SECONDS: Final = 5.0
# One in a hundred of them are two.
FEWEST_FOR_P99: Final = 200
# The load is one Python process with one thread: near a whole core it measures its own speed, not the server's.
BUSY: Final = 0.8


def counted(rounds: Sequence[Round], target: int) -> dict[str, float]:
    """By how much the engine's counters rose, by their names in tables; only those that the engine serves."""
    increases = counter_increases(rounds, target)
    return {text: increases[name] for name, text in COUNTERS.items() if name in increases}


def remarks(
    names: Sequence[str], rounds: Sequence[Round], summaries: Sequence[Summary], comparisons: Sequence[Comparison]
) -> Iterator[str]:
    """Sentences without a full stop, each about all targets and concurrencies that it concerns."""
    yield from _warm_ups_and_repeats(names, rounds)
    if (verdicts := sum(each.decisive is not None for each in comparisons)) > 1:
        wrong = verdicts * (1 - CONFIDENCE)
        yield f"of {verdicts} such intervals {wrong:.1f} miss the true value by chance; repeat what matters"
    spans = [
        f"{names[s.target]} at concurrency {s.concurrency} {s.slowest_round:.2f} to {s.fastest_round:.2f} requests/s"
        for s in summaries
        if s.unsteady and not s.failures
    ]
    if spans:
        yield f"rounds differ widely, as when other work shares the machine: {', '.join(spans)}"
    groups = {
        f"{names[s.target]} at concurrency {s.concurrency}": [
            r for r in rounds if r.counted and (r.target, r.concurrency) == (s.target, s.concurrency)
        ]
        for s in summaries
    }
    yield from _times(groups)
    yield from _answers(names, groups)


def _warm_ups_and_repeats(names: Sequence[str], rounds: Sequence[Round]) -> Iterator[str]:
    for each in rounds:
        if not each.counted and each.failures:
            error = max(each.errors, key=lambda text: each.errors[text])
            yield f"in the warm-up of {names[each.target]} {each.failures} of {each.requests} requests failed: {error}"
    for target, name in enumerate(names):
        counters = counted(rounds, target)
        if repeated := counters.get(REPEATED):
            yield (
                f"{name} had received {repeated:,.0f} of {counters.get(RECEIVED, repeated):,.0f} images before, so its caches "
                "may have answered for them: use another --seed, and keep other clients away during the measurement"
            )


def _times(groups: Mapping[str, list[Round]]) -> Iterator[str]:
    lengths = {place: median(each.seconds for each in rounds) for place, rounds in groups.items()}
    short = [f"{place} {seconds:.1f} s" for place, seconds in lengths.items() if 0 < seconds < SHORT_ROUND_SECONDS]
    if short:
        yield (
            f"rounds shorter than {SHORT_ROUND_SECONDS:.0f} s show little steady serving and much chance: {', '.join(short)}; "
            "make them longer with more --requests"
        )
    shares = {place: median(each.cpu_share for each in rounds) for place, rounds in groups.items()}
    busy = [f"{place} {share:.0%}" for place, share in shares.items() if share > BUSY]
    if busy:
        yield (
            f"the load generator kept most of its core busy ({', '.join(busy)}) and may limit the rates, which draws a ratio "
            "towards 1: measure at a lower concurrency, or without a CPU limit on its pod"
        )


def _answers(names: Sequence[str], groups: Mapping[str, list[Round]]) -> Iterator[str]:
    short, few = [], []
    silent: dict[str, int] = {}
    for place, rounds in groups.items():
        answers = [answer for each in rounds for answer in each.answers]
        if count := sum(each.short_answers for each in rounds):
            mean = fmean(answer.tokens for answer in answers)
            short.append(f"{count} of {len(answers)} of {place}, on average {mean:.0f} of {rounds[0].asked_tokens}")
        if any(not each.reports_tokens for each in rounds):
            silent[names[rounds[0].target]] = rounds[0].asked_tokens
        if 0 < len(answers) < FEWEST_FOR_P99:
            few.append(f"{place} {len(answers)}")
    if short:
        yield (
            f"answers with fewer tokens than requested: {'; '.join(short)}: output tokens/s count the tokens generated, "
            "requests/s favour the server with the shorter answers"
        )
    if silent:
        yield (
            f"{' and '.join(silent)} does not report token counts: output tokens/s and TPOT assume the "
            f"{max(silent.values())} tokens requested"
        )
    if few:
        yield f"a p99 of fewer than {FEWEST_FOR_P99} answers is little more than the slowest: {', '.join(few)}"


def not_in_effect(change: Change | None, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str | None:
    """Why the changed setting is not what was measured, from what both engines report; None if it is, or if they do not report
    it."""
    if change is None or change.name not in theirs:
        return None
    name, twins, own = change.name, theirs[change.name], ours.get(change.name)
    if own is not None and plain(own) == plain(twins):
        return f"the twin and the service both report {name}={word(twins)}"
    # An engine that rewrites the setting, such as into a share for each rank, does so in both.
    rewritten = _differs(own, change.planned)
    if _differs(twins, change.measured) and not rewritten:
        return f"the twin should have {name}={word(change.measured)} but reports {word(twins)}"
    return None


def _differs(reported: Any, planned: Any) -> bool:
    """Whether the values differ. Maps and lists may be reported in another form, so they never do."""
    if not isinstance(reported, (str, int, float)) or not isinstance(planned, (str, int, float)):
        return False
    return plain(reported) != plain(planned)


def plain(value: Any) -> str:
    """``/server_info`` reports variables as texts and flags as values; 1 and 1.0 are equal, and true is 1 in a variable."""
    text = {"true": "1", "false": "0"}.get(str(value).lower(), str(value).lower())
    try:
        return repr(float(text))
    except ValueError:
        return text
