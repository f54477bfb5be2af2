"""What is too long or too much for a plan: an input error that names the field, or a list that says what it leaves out."""

import random
from typing import Any

import pytest
from unit.plan.builders import RUNTIME_IMAGE, request_of, service

from vlm_api.plan import MAX_FINDINGS, MAX_SHORT, MAX_TEXT, ServingPlan, Severity, error, warning
from vlm_api.reasons import FindingReason
from vlm_operator.errors import InvalidInput
from vlm_operator.facts.types import Cluster
from vlm_operator.plan.make import listed, make_plan

SECRET = "pem " * 1250


def plan_of(**spec: Any) -> ServingPlan:
    return make_plan(request_of(service(**spec)), Cluster(()), runtime_image=RUNTIME_IMAGE)


def unknown(count: int) -> dict[str, Any]:
    return {"engine": {"env": [{"name": f"SGLANG_NOT_{number}", "value": "1"} for number in range(count)]}}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"engine": {"env": [{"name": "CA", "value": SECRET}]}}, "spec.engine.env[0]"),
        ({"engine": {"args": ["--json-model-override-args", f'{{"a": "{SECRET}"}}']}}, "spec.engine.args[0]"),
        ({"engine": {"settings": {"chat_template": SECRET}}}, "spec.engine.settings.chat_template"),
        (
            {"template": {"spec": {"containers": [{"name": "main", "env": [{"name": "CA", "value": SECRET}]}]}}},
            "spec.template.spec.containers[name=main].env[0]",
        ),
    ],
)
def test_a_value_that_a_plan_cannot_keep_is_an_error_with_field_length_and_bound(spec, field):
    with pytest.raises(InvalidInput) as caught:
        plan_of(**spec)
    assert caught.value.path == field
    assert f"{MAX_TEXT:,}" in caught.value.message
    assert " 5,0" in caught.value.message
    assert SECRET[:20] not in caught.value.message


def test_the_longest_value_that_a_plan_keeps_is_whole():
    text = "a" * MAX_TEXT
    assert plan_of(engine={"env": [{"name": "CA", "value": text}]}).engine.env["CA"] == text


def test_more_words_than_a_command_line_has_name_the_longest_list():
    with pytest.raises(InvalidInput) as caught:
        plan_of(engine={"version": "0.5.12", "settings": {"cuda_graph_bs_decode": list(range(1, 601))}})
    assert caught.value.path == "spec.engine.settings.cuda_graph_bs_decode"
    assert "at most 512" in caught.value.message


def test_findings_beyond_the_bound_are_counted_and_the_last_says_how_many():
    findings = plan_of(**unknown(70)).findings
    assert len(findings) == MAX_FINDINGS
    last = findings[-1]
    assert last.reason == FindingReason.FINDINGS_LEFT_OUT
    everything = plan_of(**unknown(20)).findings
    assert last.message.startswith(f"{len(everything) + 50 - (MAX_FINDINGS - 1)} more findings")


def test_no_error_is_left_out_for_a_warning():
    many = [warning(FindingReason.ENGINE_VARIABLE_UNKNOWN, str(number)) for number in range(90)]
    found = listed([*many, error(FindingReason.TOO_MANY_DEVICES, "e")])
    assert found[0].severity is Severity.ERROR
    exactly = listed(many[:MAX_FINDINGS])
    assert {f.message for f in exactly} == {f.message for f in many[:MAX_FINDINGS]}


def test_a_finding_is_cut_to_its_bounds():
    finding = warning(FindingReason.TEMPLATE_FIELD_UNKNOWN, "m" * 9000, "spec.template." + "f" * 900)
    assert len(finding.message) == MAX_TEXT
    assert finding.message.endswith("…(cut from 9,000 characters)")
    assert len(finding.path or "") == MAX_SHORT


def test_any_size_ends_in_a_plan_or_in_one_sentence():
    draw, sentences = random.Random(13), []
    text = lambda: draw.choice(["x", "\x1b[31m", "[red]", "‮", "ü"]) * draw.choice([1, 60, 820, 1366, 1600])  # noqa: E731
    for _ in range(150):
        engine: dict[str, Any] = {"version": "0.5.12"}
        if draw.random() < 0.5:
            engine |= unknown(draw.choice([1, 62, 63, 64, 65, 128]))["engine"]
        if draw.random() < 0.3:
            engine["settings"] = draw.choice(
                [{"chat_template": text()}, {"cuda_graph_bs_decode": list(range(1, draw.choice([5, 400, 520])))}]
            )
        if draw.random() < 0.3:
            engine["args"] = ["--chat-template", text()][: draw.choice([1, 2])]
        template = {"metadata": {"labels": {}}, "spec": {"f" * draw.choice([1, 600, 5000]): 1}}
        spec = {"engine": engine} | ({"template": template} if draw.random() < 0.5 else {})
        try:
            found = plan_of(**spec)
        except InvalidInput as refused:
            sentences.append(str(refused))
            continue
        assert len(found.findings) <= MAX_FINDINGS
        assert ServingPlan.model_validate(found.to_api())
    assert sentences
    assert all(each.startswith("spec.") and len(each) < 20_000 for each in sentences)
