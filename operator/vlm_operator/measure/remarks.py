"""What the rounds themselves give reason to say beside their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, median
from typing import Final

from vlm_operator.measure.rounds import Round, Summary

# Below this the start and the end of a round, where fewer requests run, and one hiccup weigh too much.
SHORT_ROUND_SECONDS: Final = 5.0
# One in a hundred of them are two.
FEWEST_FOR_P99: Final = 200
# The load is one Python process with one thread: near a whole core its own speed is measured, not the server's.
BUSY: Final = 0.8


def remarks_of(targets: Sequence[str], rounds: Iterable[Round], summaries: Sequence[Summary]) -> list[str]:
    """Sentences without a full stop, each about all targets and concurrencies that it holds for."""
    groups: dict[tuple[int, int], list[Round]] = {(s.target, s.concurrency): [] for s in summaries}
    for each in rounds:
        if each.counted:
            groups[each.target, each.concurrency].append(each)
    found = {_place(targets, *group): counted for group, counted in groups.items()}
    said = [
        _unsteady(targets, summaries),
        _short_rounds(found),
        _busy_load(found),
        _short_answers(found),
        _not_told(targets, groups),
        _few_for_p99(found),
    ]
    return [sentence for sentence in said if sentence]


def _place(targets: Sequence[str], target: int, concurrency: int) -> str:
    return f"{targets[target]} at {concurrency} at once"


def _unsteady(targets: Sequence[str], summaries: Sequence[Summary]) -> str:
    spans = [
        f"{_place(targets, s.target, s.concurrency)} {s.slowest_round:.2f} to {s.fastest_round:.2f} requests/s"
        for s in summaries
        if s.unsteady and not s.failures
    ]
    told = "rounds differ widely, as they do where other work shares the machine"
    return f"{told}: {', '.join(spans)}" if spans else ""


def _short_rounds(found: dict[str, list[Round]]) -> str:
    lengths = {place: median(each.seconds for each in rounds) for place, rounds in found.items()}
    short = [f"{place} {seconds:.1f} s" for place, seconds in lengths.items() if 0 < seconds < SHORT_ROUND_SECONDS]
    return (
        f"rounds shorter than {SHORT_ROUND_SECONDS:.0f} s show little of steady serving, and chance weighs much in them: "
        f"{', '.join(short)}; more --requests make them longer"
        if short
        else ""
    )


def _busy_load(found: dict[str, list[Round]]) -> str:
    shares = {place: median(each.cpu_share for each in rounds) for place, rounds in found.items()}
    busy = [f"{place} {share:.0%}" for place, share in shares.items() if share > BUSY]
    return (
        f"the load's own program was busy for most of the core that it can use ({', '.join(busy)}): it may be what holds "
        "the rates back, which draws a ratio towards 1; measure with fewer at once, or without a CPU limit on its pod"
        if busy
        else ""
    )


def _short_answers(found: dict[str, list[Round]]) -> str:
    short = []
    for place, rounds in found.items():
        answers = [answer for each in rounds for answer in each.answers]
        if count := sum(each.short_answers for each in rounds):
            mean = fmean(answer.tokens for answer in answers)
            short.append(f"{count} of {len(answers)} of {place}, {mean:.0f} of {rounds[0].asked_tokens} in the mean")
    return (
        f"answers with fewer tokens than asked for: {'; '.join(short)}: output tokens/s counts what was made, requests/s "
        "makes the one with the shorter answers look faster"
        if short
        else ""
    )


def _not_told(targets: Sequence[str], groups: dict[tuple[int, int], list[Round]]) -> str:
    silent = {target: rounds for (target, _), rounds in groups.items() if any(not r.tokens_told for r in rounds)}
    names = [targets[target] for target in silent]
    asked = next((rounds[0].asked_tokens for rounds in silent.values()), 0)
    return (
        f"{' and '.join(names)} does not tell how many tokens its answers have: output tokens/s and TPOT take it that they "
        f"have the {asked} that were asked for"
        if names
        else ""
    )


def _few_for_p99(found: dict[str, list[Round]]) -> str:
    counts = {place: sum(len(each.answers) for each in rounds) for place, rounds in found.items()}
    few = [f"{place} {count}" for place, count in counts.items() if 0 < count < FEWEST_FOR_P99]
    return (
        f"the p99 of fewer than {FEWEST_FOR_P99} answers is little more than the slowest of them: {', '.join(few)}"
        if few
        else ""
    )
