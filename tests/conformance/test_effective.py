"""The runtime's comparison on the real engine's resolution for described GPUs: no false alarm, and no difference missed."""

from pathlib import Path
from typing import Any

import pytest
from conformance.samples import samples
from conformance.test_resolution import models, planned, request, resolved

from vlm_api.plan import ServingPlan
from vlm_operator.sglang.catalogue.releases import newest
from vlm_runtime.sglang.effective import Comparison, compare

__all__ = ["models"]

SEED = 36_412
PLANS = 150
OTHER_INTERVAL = 7


@pytest.fixture(scope="module")
def plans() -> list[tuple[Any, ServingPlan]]:
    """Samples of what users write, on GPUs of several kinds, with their plans."""
    made = [(sample, plan) for sample in samples(SEED, 2 * PLANS, newest()) if (plan := planned(sample)) is not None]
    return made[:PLANS]


def server_info(answer: dict[str, Any]) -> dict[str, Any]:
    """What ``/server_info`` would answer after this resolution, as far as the worker tells it."""
    variables = {name: value for name, value in answer["env"].items() if value is not None}
    graph = {"cuda_graph_config": {"decode": {"max_bs": answer["graph"]}}}
    return answer["fields"] | graph | {"internal_states": [{"env_vars": variables}]}


def compared(plan: ServingPlan, answer: dict[str, Any]) -> Comparison:
    assert "refused" not in answer, answer
    return compare(plan.settings, server_info(answer))


def test_what_is_planned_and_in_force_is_never_called_ignored(
    engine_site: Path, models: dict[str, Path], plans: list[tuple[Any, ServingPlan]]
) -> None:
    requests = [request(sample, plan, models) for sample, plan in plans]
    found = [compared(plan, answer) for (_, plan), answer in zip(plans, resolved(engine_site, requests), strict=True)]
    assert [setting for each in found for setting in each.settings if not setting.agrees] == []
    assert [setting for each in found for setting in each.engine_defaults if not setting.agrees] == []
    # The comparison is not empty: every plan has settings that the worker tells, and those with a profile have many.
    assert all(each.settings or each.engine_defaults for each in found)
    assert sum(len(each.settings) + len(each.engine_defaults) for each in found) >= 5 * len(found)


def test_a_flag_that_does_not_reach_the_engine_is_found_and_nothing_else(
    engine_site: Path, models: dict[str, Path], plans: list[tuple[Any, ServingPlan]]
) -> None:
    changed = []
    for sample, plan in plans:
        setting = plan.setting("prefill_decode_interval")
        if setting is not None and setting.applied and setting.value != OTHER_INTERVAL:
            asked = request(sample, plan, models)
            asked["args"] = [*asked["args"], "--prefill-decode-interval", str(OTHER_INTERVAL)]
            changed.append((plan, asked))
    assert len(changed) >= 10
    for (plan, _), answer in zip(changed, resolved(engine_site, [asked for _, asked in changed]), strict=True):
        different = [(s.name, s.effective) for s in compared(plan, answer).settings if not s.agrees]
        assert different == [("prefill_decode_interval", OTHER_INTERVAL)]
