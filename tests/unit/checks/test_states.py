"""States of running requests in models with linear attention: Qwen3.5-27B on one H100."""

import re
from typing import Any

import pytest
from unit.plan.builders import RUNTIME_IMAGE, cluster, node, request_of, service

from vlm_api.plan import Finding
from vlm_operator.facts.model.config import facts_of_config
from vlm_operator.plan.make import make_plan

FILES = facts_of_config(
    {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "text_config": {
            "dtype": "bfloat16",
            "num_hidden_layers": 64,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "full_attention_interval": 4,
            "linear_num_value_heads": 48,
            "linear_num_key_heads": 16,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "linear_conv_kernel_dim": 4,
        },
    },
    55_000_000_000,
)


def told(concurrency: int = 400, **settings: Any) -> Finding | None:
    asked = service(
        model={"uri": "pvc://models/qwen3.5-27b"},
        workload={"concurrency": concurrency, "inputTokens": 128, "outputTokens": 128},
        engine={"settings": settings},
    )
    made = make_plan(request_of(asked), cluster(node()), runtime_image=RUNTIME_IMAGE, inspected=FILES)
    assert not made.errors
    return next((f for f in made.findings if f.reason == "StatesHoldFewer"), None)


def held(finding: Finding | None) -> int:
    assert finding is not None
    found = re.search(r"holds about ([\d,]+) requests", finding.message)
    assert found is not None
    return int(found[1].replace(",", ""))


def test_a_plan_promises_no_more_requests_than_states_fit():
    finding = told()
    assert 1 <= held(finding) < 20
    # 5 slots of 153,944,064 bytes.
    assert finding is not None
    assert "734 MiB with its copies" in finding.message
    assert told(concurrency=held(finding)) is None


@pytest.mark.parametrize(
    "settings",
    [
        {"mamba_ssm_dtype": "bfloat16"},
        {"mamba_full_memory_ratio": 4},
        {"mamba_radix_cache_strategy": "no_buffer"},
        {"disable_radix_cache": True},
    ],
)
def test_settings_that_make_states_smaller_fewer_or_their_part_larger(settings: dict[str, Any]):
    assert held(told(**settings)) > held(told())
