"""What a person reads: the plan as a table."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest
from rich.console import Console
from unit.cli.builders import A100, WORKLOAD, Result, node, service

from vlm_api.plan import Finding, PlanEngine, PlanHardware, PlanMemory, PlanResources, Setting, Severity, Source
from vlm_api.status import PlanStatus, VLMService
from vlm_operator.cli.table import EngineSays, print_plan

Plan = Callable[..., Result]

PLAN = PlanStatus(
    hash="0123abcd",
    engine=PlanEngine(version="0.5.23", image="lmsysorg/sglang:v0.5.23"),
    hardware=PlanHardware(device="cuda", compute_capability="9.0", architecture="hopper", memory_mib=81559),
    settings=[
        Setting(
            name="prefill_decode_interval",
            value=22,
            applied=True,
            source=Source.PROFILE,
            rule="r",
            reason="keeps [decoding] batches full",
            evidence="measured by somebody",
        ),
        Setting(
            name="attention_backend",
            applied=False,
            source=Source.ENGINE,
            rule="r",
            reason="chosen by compute capability",
            expected="fa3",
        ),
    ],
    memory=PlanMemory(weights_mib=16000, kv_cache_mib=40000, image_bytes=6291456, image_tokens=256),
    resources=PlanResources(devices_per_pod=2, pods=1),
    findings=[
        Finding(severity=Severity.ERROR, reason="Broken", message="it is broken: mend it", path="spec.model"),
        Finding(severity=Severity.INFO, reason="Known", message="it is known: go on"),
    ],
)


def printed(width: int = 120, says: EngineSays | None = None, encoding: str = "utf-8") -> str:
    """The table without colours, each line without the spaces at its end."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, width=width, markup=False, highlight=False)
    print_plan(console, VLMService.model_validate(service()), PLAN, says)
    file.flush()
    file.seek(0)
    return "\n".join(line.rstrip() for line in file.read().splitlines())


def row(text: str, first: str) -> list[str]:
    """The words of the row that begins with a word."""
    return next(line.split() for line in text.splitlines() if line.split()[:1] == [first])


def test_the_first_lines_say_what_where_and_how_many() -> None:
    lines = printed().splitlines()
    assert lines[0] == "vlm in default  plan 0123abcd"
    assert row(printed(), "Model")[1:] == ["hf://Qwen/Qwen3-VL-8B-Instruct"]
    assert "SGLang 0.5.23, lmsysorg/sglang:v0.5.23" in lines[2]
    assert "GPU of an unknown product, Hopper 9.0, 81,559 MiB each" in lines[3]
    assert "1, each 1 pod with 2 GPUs" in printed()


def test_settings_come_with_value_source_and_reason_and_text_in_brackets_stays() -> None:
    assert row(printed(), "prefill_decode_interval") == [
        *["prefill_decode_interval", "22", "profile"],
        *["keeps", "[decoding]", "batches", "full", "[1]"],
    ]
    assert row(printed(), "[1]") == ["[1]", *["measured", "by", "somebody"]]


def test_settings_left_alone_come_after_with_what_the_engine_takes() -> None:
    text = printed()
    assert text.index("Settings") < text.index("Left alone") < text.index("Memory of one device")
    assert row(text, "attention_backend")[:2] == ["attention_backend", "fa3"]


def test_the_memory_sum_has_numbers_and_shares() -> None:
    assert row(printed(), "weights")[1:3] == ["16,000", "MiB"]
    assert row(printed(), "weights")[-1] == "20%"
    assert "6.0 MiB, 256 tokens" in printed()


def test_the_memory_sum_adds_up_to_the_device(plan: Plan) -> None:
    text = plan(service(workload=WORKLOAD, engine={"settings": {"SGLANG_VLM_CACHE_SIZE_MB": 2048}})).out
    memory = text[text.index("Memory of one device") : text.index("Memory of the pod")]
    total, *parts = [int(number.replace(",", "")) for number in re.findall(r"([0-9,]+) MiB", memory)]
    assert "image embeddings" in memory
    assert 2048 in parts
    assert sum(parts) == total


def test_a_cache_that_is_off_has_no_row(plan: Plan) -> None:
    text = plan(service(workload=WORKLOAD, engine={"settings": {"SGLANG_VLM_CACHE_SIZE_MB": 0}})).out
    assert "image embeddings" not in text


def test_the_worst_finding_is_the_last_thing_that_is_read() -> None:
    assert printed().splitlines()[-2:] == ["  Error Broken  (spec.model)", "    it is broken: mend it"]


def test_a_value_that_the_engine_does_not_use_stands_beside_the_planned_one() -> None:
    text = printed(says=EngineSays({"prefill_decode_interval": 1}))
    assert row(text, "prefill_decode_interval")[1:3] == ["22", "1"]
    assert row(text, "attention_backend")[1] == "fa3"
    assert row(printed(says=EngineSays({})), "prefill_decode_interval")[1:3] == ["22", "22"]
    assert "ENGINE SAYS" not in printed()


def test_a_value_that_the_engine_does_not_tell_is_not_shown_as_if_it_did() -> None:
    text = printed(says=EngineSays({}, frozenset({"prefill_decode_interval"})))
    assert row(text, "prefill_decode_interval")[1:4] == ["22", "not", "told"]


def test_what_the_engine_chose_otherwise_than_expected_stands_with_the_expectation() -> None:
    text = printed(says=EngineSays({"attention_backend": "flashinfer"}))
    assert row(text, "attention_backend")[1:4] == ["flashinfer", "(expected", "fa3)"]


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(len(line) for line in printed(width).splitlines()) <= width


LABELS = {"SETTING", "VALUE", "SOURCE", "WHY", "ENGINE", "SAYS", "TAKES", "value", "engine", "says", "takes", "source"}


def words(text: str) -> list[str]:
    """All words in alphabetical order, without bars, headings of columns and the labels that stand for these."""
    whole = re.sub(r"Instru\s+ct", "Instruct", text)  # the model's URI alone is longer than what 40 columns leave
    return sorted(w for w in re.findall(r"[^\s█░,]+", whole) if w not in LABELS)


@pytest.mark.parametrize("width", [40, 50, 60])
@pytest.mark.parametrize("says", [None, EngineSays({"prefill_decode_interval": 1})])
def test_a_narrow_terminal_shows_every_word_of_a_wide_one_unbroken(width: int, says: EngineSays | None) -> None:
    assert words(printed(width, says)) == words(printed(200, says))


def test_on_a_narrow_terminal_value_and_reason_stand_below_the_setting() -> None:
    lines = printed(40, EngineSays({"prefill_decode_interval": 1})).splitlines()
    at = lines.index("  prefill_decode_interval")
    assert lines[at + 1 : at + 5] == [
        "    value 22, engine says 1, source",
        "    profile",
        "    keeps [decoding] batches full [1]",
        "",
    ]
    at = lines.index("  attention_backend")
    assert lines[at + 1 : at + 3] == ["    engine takes fa3", "    chosen by compute capability"]


def test_settings_stand_in_a_table_where_sentences_have_room() -> None:
    assert "VALUE" not in printed(60)
    assert "VALUE" in printed(80)


def test_a_terminal_without_unicode_gets_plain_bars() -> None:
    assert "######" in printed(encoding="ascii")


def test_files_and_pipes_get_no_colours(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    result = plan(service(workload=WORKLOAD))
    assert result.code == 0
    assert "mm_feature_transport" in result.out
    assert "\x1b" not in result.out


def test_terminals_get_colours_unless_no_color_says_no(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[35m" in plan(service(engine={"settings": {"prefill_decode_interval": 10}})).out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[35m" not in plan(service(engine={"settings": {"prefill_decode_interval": 10}})).out


def test_what_was_passed_over_and_who_scales_is_said(plan: Plan) -> None:
    one = service(workload=WORKLOAD, scaling={"minReplicas": 1, "maxReplicas": 4}, suspend=True)
    text = plan(one, nodes=[node(), node("old", A100)]).out
    assert "1 to 4, autoscaled, suspended: no pods" in text
    assert "Passed over  old (" in text


def test_the_cpu_is_called_cpu(plan: Plan) -> None:
    text = plan(service(hardware={"device": "cpu"})).out
    assert row(text, "Hardware") == ["Hardware", "CPU"]
    assert "each 1 pod with no GPU" in text
