"""A pool's spec: the service's, with the pool's fields in their place."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlm_api.status import VLMService
from vlm_operator.errors import InvalidInput
from vlm_operator.manifests.pod.merge import merge_template
from vlm_operator.plan.pools import merge_patches
from vlm_operator.plan.request import PoolRequest, requests_of


def requests(*pools: dict[str, Any], **spec: Any) -> dict[str, PoolRequest]:
    document = {
        "metadata": {"name": "qwen3-vl"},
        "spec": {"model": {"uri": "hf://Qwen/Qwen3-VL-8B-Instruct"}, **spec, "pools": list(pools)},
    }
    return {r.pool: r for r in requests_of(VLMService.model_validate(document))}


def test_a_service_that_names_pool_main_keeps_the_plan_it_had_without_pools() -> None:
    spec = {"workload": {"concurrency": 400}, "engine": {"settings": {"prefill_decode_interval": 10}}}
    alone = requests(**spec)["main"]
    beside = requests({"name": "main"}, {"name": "l40s", "hardware": {"products": ["NVIDIA-L40S"]}}, **spec)
    assert beside["main"].digest == alone.digest
    assert beside["l40s"].digest != alone.digest


def test_a_pool_says_field_by_field_and_setting_by_setting_what_it_wants_otherwise() -> None:
    pool = requests(
        {
            "name": "l40s",
            "concurrency": 64,
            "model": {"uri": "hf://Qwen/Qwen3-VL-4B-Instruct"},
            "hardware": {"products": ["NVIDIA-L40S"]},
            "parallelism": {"tensor": 2},
            "engine": {"settings": {"b": 2}},
            "suspend": False,
        },
        model={"uri": "hf://Qwen/Qwen3-VL-8B-Instruct", "name": "vision"},
        hardware={"products": ["NVIDIA-H100-80GB-HBM3"], "minMemoryMiB": 40_000},
        workload={"concurrency": 400, "outputTokens": 64},
        parallelism={"tensor": 1, "data": 2},
        engine={"settings": {"a": 1, "b": 1}, "args": ["--log-requests"]},
        suspend=True,
    )["l40s"].spec
    assert (pool.model.uri, pool.model.name) == ("hf://Qwen/Qwen3-VL-4B-Instruct", "vision")
    assert (pool.hardware.products, pool.hardware.min_memory_mib) == (["NVIDIA-L40S"], 40_000)
    assert (pool.parallelism.tensor, pool.parallelism.data) == (2, 2)
    assert pool.engine.settings == {"a": 1, "b": 2}
    assert pool.engine.args == ["--log-requests"]
    assert (pool.workload.concurrency, pool.workload.output_tokens) == (64, 64)
    assert (pool.replicas, pool.scaling, pool.suspend, pool.pools) == (None, None, False, [])


def test_fields_that_do_not_go_together_are_refused_in_the_pool_that_joins_them() -> None:
    with pytest.raises(InvalidInput, match=r"^spec.pools\[1\].multinode.nodeCount: in pool two, .*is 3, .*nodeCount 2"):
        requests(
            {"name": "main"},
            {"name": "two", "parallelism": {"tensor": 3}},
            parallelism={"tensor": 4},
            multinode={"nodeCount": 2},
        )


@pytest.mark.parametrize(
    ("second", "refusal"),
    [
        ({"model": {"name": "other"}}, r"^spec.pools\[1\].model.name: pool main serves 'qwen3-vl' and pool b 'other'"),
        ({"multinode": {"nodeCount": 2}, "parallelism": {"tensor": 2}}, r"^spec.pools\[1\].multinode.nodeCount: "),
    ],
)
def test_pools_that_one_address_cannot_serve_together_are_refused(second: dict[str, Any], refusal: str) -> None:
    with pytest.raises(InvalidInput, match=refusal):
        requests({"name": "main"}, {"name": "b", **second})


def test_a_sentence_names_the_fields_where_the_user_wrote_them() -> None:
    request = requests({"name": "main", "engine": {"settings": {"a": 1}}}, engine={"settings": {"b": 1}})["main"]
    text = request.text_of("written in spec.engine.settings.a, not spec.engine.settings.b: raise spec.replicas.")
    assert (
        text == "written in spec.pools[0].engine.settings.a, not spec.engine.settings.b: raise spec.pools[0].replicas."
    )


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("spec.engine.args[0]", "spec.pools[0].engine.args[0]"),
        ("spec.engine.env[0].value", "spec.engine.env[0].value"),
        ("spec.engine.settings.a", "spec.pools[0].engine.settings.a"),
        ("spec.engine.settings.b", "spec.engine.settings.b"),
        ("spec.engine.settings", "spec.pools[0].engine.settings"),
        ("spec.workload.concurrency", "spec.pools[0].concurrency"),
        ("spec.workload.images", "spec.workload.images"),
        ("spec.template.spec.volumes[0]", "spec.pools[0].template.spec.volumes[0]"),
        ("spec.replicas", "spec.pools[0].replicas"),
        ("spec.hardware", "spec.hardware"),
        ("", ""),
    ],
)
def test_a_field_is_named_where_the_user_wrote_it(path: str, found: str) -> None:
    pool = {
        "name": "main",
        "concurrency": 1,
        "engine": {"args": ["--x"], "settings": {"a": 1}},
        "template": {"spec": {"volumes": []}},
    }
    assert requests(pool)["main"].path_of(path) == found


KEYS = st.sampled_from(["a", "b"])
ENTRIES = st.builds(
    lambda name, rest: {"name": name, **rest}, KEYS, st.dictionaries(st.sampled_from(["x", "y"]), st.integers(0, 2))
)
LISTS = st.lists(ENTRIES, unique_by=lambda e: e["name"], max_size=2)
DELETED = st.builds(lambda name: {"name": name, "$patch": "delete"}, KEYS)
PATCH_LISTS = st.lists(st.one_of(ENTRIES, DELETED), unique_by=lambda e: e["name"], max_size=2)


def specs(lists: st.SearchStrategy[list[Any]], nothing: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    fields = {
        "containers": lists,
        "imagePullSecrets": lists,
        "tolerations": st.lists(st.builds(lambda key: {"key": key}, KEYS), max_size=2, unique_by=str),
        "nodeSelector": st.dictionaries(KEYS, st.one_of(st.sampled_from("pq"), nothing), max_size=2),
        "priority": st.integers(0, 2),
    }
    return st.fixed_dictionaries({}, optional={name: st.one_of(field, nothing) for name, field in fields.items()})


@given(ours=specs(LISTS, st.nothing()), service=specs(PATCH_LISTS, st.none()), pool=specs(PATCH_LISTS, st.none()))
def test_two_templates_as_one_do_what_one_after_the_other_does(
    ours: dict[str, Any], service: dict[str, Any], pool: dict[str, Any]
) -> None:
    def merged(base: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
        """Without the order of entries: what is deleted and added again may stand elsewhere."""
        spec = merge_template(base, patch)["spec"]
        return {
            "spec": {key: sorted(value, key=str) if isinstance(value, list) else value for key, value in spec.items()}
        }

    below = merge_template({"spec": ours}, {"spec": service})
    both = merge_patches({"spec": service}, {"spec": pool})
    assert merged({"spec": ours}, both) == merged(below, {"spec": pool})
