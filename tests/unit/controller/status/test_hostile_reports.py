"""A pod may answer anything: the status stays small and valid, and says what it leaves out."""

import random
from dataclasses import replace
from typing import Any

from unit.controller.observations import PLAN, SERVED, pod, report, status_of

from vlm_api.report import EffectiveSetting, EngineDefault, Phase, PhaseStart, Report
from vlm_api.status import VLMServiceStatus

ESCAPE = "\x1b]52;c;aGk=\x07\u202e"


def status_with(hostile: Report) -> VLMServiceStatus:
    return status_of(replace(SERVED, plan=PLAN, pods=[pod("vlm-0", ready=True)], reports={"vlm-0": hostile}))


def differing(count: int, value: Any = 1) -> list[EffectiveSetting]:
    return [EffectiveSetting(name=f"s{n}", planned=0, effective=value, agrees=False) for n in range(count)]


def test_more_entries_than_the_status_lists_end_with_how_many_there_are():
    many = [f"n{number}" for number in range(257)]
    effective = status_with(
        report(ready=True, settings_read=True, settings=differing(300), not_reported=many)
    ).effective
    assert effective is not None
    assert len(effective.settings) == len(effective.not_reported) == 256
    assert effective.settings[-1]["name"] == "and 45 more"
    assert effective.not_reported[-1] == "and 2 more"


def test_as_many_as_fit_are_whole():
    effective = status_with(report(ready=True, settings_read=True, settings=differing(256))).effective
    assert effective is not None
    assert effective.settings[-1]["name"] == "s255"


def test_a_setting_of_900_kb_does_not_become_a_status_of_940_kb():
    hostile = report(ready=True, settings_read=True, settings=differing(1, {"a": ["x" * 900_000]}))
    written = status_with(hostile).model_dump_json()
    assert len(written) < 20_000
    assert "cut from 900,0" in written


def test_what_a_pod_says_reaches_no_condition_with_control_characters():
    status = status_with(report(ready=True, settings_read=True, settings=differing(1, ESCAPE)))
    (condition,) = [c for c in status.conditions if c.type == "OverridesEffective"]
    assert "\\x1b]52" in condition.message
    assert not set(ESCAPE[:1] + ESCAPE[-2:]) & set(condition.message)


def test_any_report_ends_in_a_valid_status_of_bounded_size():
    draw = random.Random(13)

    def value() -> Any:
        text = draw.choice([ESCAPE, "x", "ü", "[red]"]) * draw.choice([1, 10, 2000, 30_000])
        return draw.choice([text, [text], {text: text}, None, 10**30, True])

    for _ in range(150):
        count = draw.choice([0, 1, 255, 256, 257, 400])
        names = [str(value()) if draw.random() < 0.02 else f"n{n}" for n in range(count)]
        hostile = report(
            ready=draw.random() < 0.5,
            settings_read=True,
            settings=[EffectiveSetting(name=n, planned=value(), effective=0, agrees=False) for n in names[:60]]
            + differing(draw.choice([0, 300])),
            not_reported=names,
            engine_defaults=[EngineDefault(name=n, expected=1, effective=2, agrees=False) for n in names],
            phases=[PhaseStart(phase=Phase.STARTING, after_seconds=n) for n in range(draw.choice([0, 16, 17, 40]))],
            engine_version=ESCAPE,
        )
        status = status_with(hostile)
        assert VLMServiceStatus.model_validate(status.model_dump(by_alias=True, mode="json"))
        assert len(status.model_dump_json()) < 300_000
