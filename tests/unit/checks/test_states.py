"""States of running requests in models with linear attention: Qwen3.5-27B on one H100."""

import re
from typing import Any

import pytest
from unit.plan.builders import RUNTIME_IMAGE, cluster, node, request_of, service

from vlm_api.plan import Finding, ServingPlan
from vlm_operator.facts.model.config import facts_of_config
from vlm_operator.manifests.workload import autoscaler
from vlm_operator.plan.make import make_plan
from vlm_operator.plan.request import PoolRequest

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


def asked(concurrency: int = 400, scaling: dict[str, int] | None = None, **settings: Any) -> PoolRequest:
    return request_of(
        service(
            model={"uri": "pvc://models/qwen3.5-27b"},
            workload={"concurrency": concurrency, "inputTokens": 128, "outputTokens": 128},
            engine={"settings": settings},
            scaling=scaling,
        )
    )


def planned(concurrency: int = 400, **settings: Any) -> ServingPlan:
    made = make_plan(asked(concurrency, **settings), cluster(node()), runtime_image=RUNTIME_IMAGE, inspected=FILES)
    assert not made.errors
    return made


def told(concurrency: int = 400, **settings: Any) -> Finding | None:
    return next((f for f in planned(concurrency, **settings).findings if f.reason == "StatesHoldFewer"), None)


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


def running(made: ServingPlan) -> int:
    (limit,) = (s for s in made.settings if s.name == "max_running_requests")
    assert "so that many run at once" in limit.reason
    assert limit.value is not None
    return int(limit.value)


@pytest.mark.parametrize("settings", [{}, {"mamba_ssm_dtype": "bfloat16"}, {"disable_radix_cache": True}])
def test_as_many_run_at_once_as_states_have_room_for(settings: dict[str, Any]):
    made = planned(**settings)
    assert 1 <= running(made) == made.memory.requests == held(told(**settings)) < 100


def test_the_user_s_number_of_states_counts_in_place_of_a_part_of_the_memory():
    # A running request takes five.
    assert running(planned(max_mamba_cache_size=30)) == 6
    assert running(planned(concurrency=4, max_mamba_cache_size=30)) == 4


def test_the_autoscaler_aims_at_what_memory_lets_run():
    made = planned()
    scaled = autoscaler(made, asked(scaling={"minReplicas": 1, "maxReplicas": 3}))
    assert scaled["spec"]["metrics"][0]["pods"]["target"]["averageValue"] == str(int(running(made) * 0.8))


def test_a_device_that_holds_the_weights_and_no_state_is_refused():
    # 51,750 MiB of weights leave less than two states of five slots on such a device, of which states get 0.47.
    small = node("small", "NVIDIA-A100-SXM4-64GB", 61_000, "8.0")
    made = make_plan(asked(concurrency=1), cluster(small), runtime_image=RUNTIME_IMAGE, inspected=FILES)
    assert [f.reason for f in made.findings if f.reason in ("ModelDoesNotFit", "MemoryTight")]


@pytest.mark.parametrize("ratio", [0, 1e308])
def test_a_ratio_that_leaves_states_or_tokens_nothing_is_planned_without_a_fault(ratio: float):
    made = make_plan(
        asked(mamba_full_memory_ratio=ratio), cluster(node()), runtime_image=RUNTIME_IMAGE, inspected=FILES
    )
    assert made.memory.requests is None or made.memory.requests < 400
