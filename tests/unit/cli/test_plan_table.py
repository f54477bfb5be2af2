"""The plan as a table."""

import io
import re
from collections.abc import Callable

import pytest
from rich.console import Console
from unit.cli.builders import A100, WORKLOAD, Result, node, service

from vlm_api.plan import Finding, PlanEngine, PlanHardware, PlanMemory, PlanResources, Setting, Severity, Source
from vlm_api.status import PlanStatus, VLMService
from vlm_operator.cli.plan_table import InForce, print_plan

Plan = Callable[..., Result]

PLAN = PlanStatus(
    hash="0123abcd",
    engine=PlanEngine(version="1.2.3", image="lmsysorg/sglang:v1.2.3"),
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
    memory=PlanMemory(
        weights_mib=16000,
        kv_cache_mib=40000,
        image_bytes=6291456,
        image_tokens=256,
        video_bytes=54067200,
        video_frames=20,
        video_tokens=2200,
        video_prompt_tokens=2282,
    ),
    resources=PlanResources(devices_per_pod=2, pods=1),
    findings=[
        Finding(
            severity=Severity.ERROR, reason="Broken", about="Engine", message="it is broken: fix it", path="spec.model"
        ),
        Finding(severity=Severity.INFO, reason="Known", about="Engine", message="it is known: go on"),
    ],
)


def printed(width: int = 120, in_force: InForce | None = None, encoding: str = "utf-8") -> str:
    """The table without colours, each line without the spaces at its end."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, width=width, markup=False, highlight=False)
    print_plan(console, VLMService.model_validate(service()), PLAN, in_force)
    file.flush()
    file.seek(0)
    return "\n".join(line.rstrip() for line in file.read().splitlines())


def row(text: str, first: str) -> list[str]:
    """The words of the row that begins with a word."""
    return next(line.split() for line in text.splitlines() if line.split()[:1] == [first])


def test_the_header_names_model_engine_hardware_and_replicas() -> None:
    lines = printed().splitlines()
    assert lines[0] == "vlm in default  plan 0123abcd"
    assert row(printed(), "Model")[1:] == ["hf://Qwen/Qwen3-VL-8B-Instruct"]
    assert "SGLang 1.2.3, lmsysorg/sglang:v1.2.3" in lines[2]
    assert "unknown GPU, Hopper 9.0, 81,559 MiB each" in lines[3]
    assert "1; per replica 1 pod with 2 GPUs" in printed()


def test_settings_have_value_source_and_reason_and_brackets_stay() -> None:
    assert row(printed(), "prefill_decode_interval") == [
        *["prefill_decode_interval", "22", "profile"],
        *["keeps", "[decoding]", "batches", "full", "[1]"],
    ]
    assert row(printed(), "[1]") == ["[1]", *["measured", "by", "somebody"]]


def test_engine_defaults_come_after_the_settings() -> None:
    text = printed()
    assert text.index("Settings") < text.index("Engine defaults") < text.index("Memory per device")
    assert row(text, "attention_backend")[:2] == ["attention_backend", "fa3"]


def test_the_memory_sum_has_numbers_and_shares() -> None:
    assert row(printed(), "weights")[1:3] == ["16,000", "MiB"]
    assert row(printed(), "weights")[-1] == "20%"
    assert "6.0 MiB, 256 tokens" in printed()


def test_the_memory_sum_adds_up_to_the_device(plan: Plan) -> None:
    text = plan(service(workload=WORKLOAD, engine={"settings": {"SGLANG_VLM_CACHE_SIZE_MB": 2048}})).out
    memory = text[text.index("Memory per device") : text.index("Memory per pod")]
    total, *parts = [int(number.replace(",", "")) for number in re.findall(r"([0-9,]+) MiB", memory)]
    assert "embedding cache" in memory
    assert 2048 in parts
    assert sum(parts) == total


def test_a_cache_that_is_off_has_no_row(plan: Plan) -> None:
    text = plan(service(workload=WORKLOAD, engine={"settings": {"SGLANG_VLM_CACHE_SIZE_MB": 0}})).out
    assert "embedding cache" not in text


def test_findings_come_before_the_settings_and_errors_before_other_findings() -> None:
    lines = printed().splitlines()
    at = lines.index("Findings")
    assert lines[at + 1 : at + 5] == [
        *["  Error Broken  (spec.model)", "    it is broken: fix it"],
        *["  Info Known", "    it is known: go on"],
    ]
    assert at < lines.index("Settings")


def test_a_finding_that_every_plan_has_is_in_json_only(plan: Plan) -> None:
    one = service(workload=WORKLOAD)
    assert "MediaFromPublicHosts" not in plan(one).out
    assert "MediaFromPublicHosts" in plan(one, flags=("-o", "json")).out


def test_a_different_value_is_shown_beside_the_planned_one() -> None:
    text = printed(in_force=InForce({"prefill_decode_interval": 1}))
    assert row(text, "prefill_decode_interval")[1:3] == ["22", "1"]
    assert row(text, "attention_backend")[1] == "fa3"
    assert row(printed(in_force=InForce({})), "prefill_decode_interval")[1:3] == ["22", "22"]
    assert "IN FORCE" not in printed()


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(len(line) for line in printed(width).splitlines()) <= width


LABELS = {"SETTING", "VALUE", "SOURCE", "REASON", "IN", "FORCE", "value", "in", "force", "source"}


def words(text: str) -> list[str]:
    """All words in alphabetical order, without bars, headings of columns and the labels that stand for these."""
    whole = re.sub(r"Instru\s+ct", "Instruct", text)  # the model's URI alone is longer than what 40 columns leave
    return sorted(w for w in re.findall(r"[^\s█░,]+", whole) if w not in LABELS)


@pytest.mark.parametrize("width", [40, 50, 60])
@pytest.mark.parametrize("in_force", [None, InForce({"prefill_decode_interval": 1})])
def test_a_narrow_terminal_shows_every_word_of_a_wide_one_unbroken(width: int, in_force: InForce | None) -> None:
    assert words(printed(width, in_force)) == words(printed(200, in_force))


def test_on_a_narrow_terminal_value_and_reason_stand_below_the_setting() -> None:
    lines = printed(40, InForce({"prefill_decode_interval": 1})).splitlines()
    at = lines.index("  prefill_decode_interval")
    assert lines[at + 1 : at + 4] == [
        "    value 22, in force 1, source profile",
        "    keeps [decoding] batches full [1]",
        "",
    ]
    at = lines.index("  attention_backend")
    assert lines[at + 1 : at + 3] == ["    value fa3", "    chosen by compute capability"]


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


def test_skipped_nodes_and_autoscaling_are_shown(plan: Plan) -> None:
    one = service(workload=WORKLOAD, scaling={"minReplicas": 1, "maxReplicas": 4}, suspend=True)
    text = plan(one, nodes=[node(), node("old", A100)]).out
    assert "1 to 4, autoscaled, suspended (no pods)" in text
    assert "Skipped   old (" in text


def test_the_cpu_is_called_cpu(plan: Plan) -> None:
    text = plan(service(hardware={"device": "cpu"})).out
    assert row(text, "Hardware") == ["Hardware", "CPU"]
    assert "per replica 1 pod with no GPU" in text


def test_the_tokens_of_one_image_and_one_video_are_printed() -> None:
    lines = [" ".join(line.split()) for line in printed().splitlines()]
    assert "one image 6.0 MiB, 256 tokens" in lines
    assert "one video 51.6 MiB, 20 frames, 2,282 tokens" in lines
