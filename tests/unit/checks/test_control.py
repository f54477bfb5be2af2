"""Settings that hand the pod, or the control of its engine, to clients, models or other code."""

from typing import Any

import pytest
from unit.plan.builders import plan, service

from vlm_operator.errors import InvalidInput

KINDS = ("EngineRunsCode", "ControlPathsOpen", "MediaFilesOpen")
HUB = "hf://Qwen/Qwen3-VL-8B-Instruct"


def told(**spec: Any) -> list[tuple[str, str | None]]:
    return [(f.reason, f.path) for f in plan(service(**spec)).findings if f.reason in KINDS]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("enable_custom_logit_processor", True, "EngineRunsCode"),
        ("forward_hooks", [{"name": "a", "target_modules": ["b"], "hook_factory": "c:d"}], "EngineRunsCode"),
        ("custom_weight_loader", ["a.b"], "EngineRunsCode"),
        ("trust_remote_code", True, "EngineRunsCode"),
        ("sidecar", "team.sidecar", "EngineRunsCode"),
        ("SGLANG_EXTERNAL_MODEL_PACKAGE", "team.models", "EngineRunsCode"),
        ("SGLANG_EXTERNAL_MM_PROCESSOR_PACKAGE", "team.processors", "EngineRunsCode"),
        ("trust_request_chat_template", True, "EngineRunsCode"),
        ("tool_server", "tools:8080", "EngineRunsCode"),
        ("enable_http2", True, "ControlPathsOpen"),
        ("SGLANG_RUST_SERVER", True, "ControlPathsOpen"),
        ("grpc_port", 8002, "ControlPathsOpen"),
    ],
)
def test_a_setting_that_hands_the_pod_over_is_told_at_its_field(name: str, value: Any, reason: str):
    assert told(engine={"settings": {name: value}}) == [(reason, f"spec.engine.settings.{name}")]
    assert told() == []


@pytest.mark.parametrize("name", ["SGLANG_GRPC_PORT", "DUMPER_SERVER_PORT"])
def test_a_second_server_may_come_by_a_variable(name: str):
    ((reason, path),) = told(engine={"env": [{"name": name, "value": "8002"}]})
    assert (reason, str(path).startswith("spec.engine.env")) == ("ControlPathsOpen", True)
    assert told(engine={"env": [{"name": "DUMPER_SERVER_PORT", "value": "-1"}]}) == []


def test_a_server_without_the_plugin_may_come_by_a_variable():
    known, hidden = {"value": "1"}, {"valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}
    for name, value in (("SGLANG_RUST_SERVER", known), ("SGLANG_RUST_SERVER", hidden), ("DUMPER_SERVER_PORT", hidden)):
        ((reason, path),) = told(engine={"env": [{"name": name, **value}]})
        assert (reason, str(path).startswith("spec.engine.env")) == ("ControlPathsOpen", True)
    assert told(engine={"env": [{"name": "SGLANG_RUST_SERVER", "value": "0"}]}) == []


@pytest.mark.parametrize(
    ("model", "is_told"),
    [
        ({"uri": HUB}, True),
        ({"uri": HUB, "revision": "main"}, True),
        ({"uri": HUB, "revision": "0123456789abcdef" * 2 + "01234567"}, False),
        ({"uri": "pvc://models/qwen"}, False),
    ],
)
def test_a_model_s_code_that_can_change_is_told(model: dict[str, str], is_told: bool):
    found = told(model=model, engine={"settings": {"trust_remote_code": True}})
    assert [reason for reason, _ in found] == ["EngineRunsCode"] * is_told


def test_files_of_the_pod_can_be_allowed_and_that_is_told():
    allowed = {"env": [{"name": "VLMSERVE_ALLOW_MEDIA_FILES", "value": "1"}]}
    assert told(engine=allowed) == [("MediaFilesOpen", "spec.engine.env")]
    assert plan(service(engine=allowed)).engine.env["VLMSERVE_ALLOW_MEDIA_FILES"] == "1"
    assert told(engine={"env": [{"name": "VLMSERVE_ALLOW_MEDIA_FILES", "value": "0"}]}) == []
    with pytest.raises(InvalidInput, match="must be 1 or 0"):
        plan(service(engine={"env": [{"name": "VLMSERVE_ALLOW_MEDIA_FILES", "value": "yes"}]}))


def test_a_release_without_the_guard_may_serve_without_the_key():
    key = {"apiKeySecretRef": {"name": "k", "key": "k"}}
    faults = [
        f for f in plan(service(engine={"version": "0.5.10"}, security=key)).findings if "CVE-2026-48710" in f.message
    ]
    assert [(f.reason, f.path) for f in faults] == [("EngineFault", "spec.engine.version")]
    for spec in ({"engine": {"version": "0.5.10"}}, {"engine": {"version": "0.5.11"}, "security": key}):
        assert not [f for f in plan(service(**spec)).findings if "CVE-2026-48710" in f.message]
