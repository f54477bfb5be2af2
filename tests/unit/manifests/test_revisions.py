"""The history of a service, and the way back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlm_operator.manifests.revision import HISTORY, number, patch_to, revision, spec_of_pods, surplus
from vlm_operator.plan.digest import OUTSIDE_THE_PLAN

OWNER = {"uid": "u"}


def raw(concurrency: int = 8, **metadata: Any) -> dict[str, Any]:
    spec = {"model": {"uri": "hf://a/b"}, "workload": {"concurrency": concurrency}, "replicas": 3, "suspend": False}
    return {"metadata": {"name": "vlm", "namespace": "default", **metadata}, "spec": spec}


def history(*digests: str) -> list[dict[str, Any]]:
    live: list[dict[str, Any]] = []
    for index, digest in enumerate(digests):
        made = revision(raw(index), digest, "hash", live, OWNER)
        live = [r for r in live if r["metadata"]["name"] != made["metadata"]["name"]] + [made]
    return live


def test_each_spec_that_pods_were_made_from_is_a_revision_with_the_next_number():
    assert [(r["metadata"]["name"], number(r)) for r in history("a", "b")] == [("vlm-a", 1), ("vlm-b", 2)]


def test_the_same_spec_again_is_the_same_revision():
    live = history("a", "b")
    assert revision(raw(1), "b", "hash", live, OWNER) == live[-1]


def test_a_spec_that_comes_back_is_the_newest_again_and_what_is_in_it_stays():
    live = history("a", "b")
    back = revision(raw(99), "a", "hash", live, OWNER)
    assert number(back) == 3
    assert back["data"] == live[0]["data"]


def test_what_says_how_many_pods_there_are_is_no_part_of_it():
    (one,) = history("a")
    assert set(one["data"]["spec"]) == {"model", "workload"}


def test_the_change_cause_is_kept():
    annotations = {"kubernetes.io/change-cause": "more images", "other": "x"}
    made = revision(raw(annotations=annotations), "a", "hash", [], OWNER)
    assert made["metadata"]["annotations"] == {"kubernetes.io/change-cause": "more images"}


def test_ten_are_kept_and_the_present_one_always():
    live = history(*(f"{n:02}" for n in range(HISTORY + 3)))
    assert [number(r) for r in surplus(live, live[-1]["metadata"]["name"])] == [3, 2, 1]
    assert live[0] not in surplus(live, live[0]["metadata"]["name"])


def merged(value: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    value = dict(value) if isinstance(value, dict) else {}
    for key, below in patch.items():
        if below is None:
            value.pop(key, None)
        else:
            value[key] = merged(value.get(key), below)
    return value


leaves = st.one_of(st.booleans(), st.integers(0, 3), st.lists(st.integers(0, 3), max_size=2))
specs = st.dictionaries(
    st.sampled_from(["model", "engine", "workload", "replicas", "suspend"]),
    st.recursive(leaves, lambda below: st.dictionaries(st.sampled_from("abc"), below, min_size=1), max_leaves=6),
)


@given(specs, specs)
def test_a_rollback_restores_the_earlier_spec_and_leaves_the_rest(now: dict[str, Any], earlier: dict[str, Any]):
    after = merged(now, patch_to(now, spec_of_pods(earlier))["spec"])
    assert spec_of_pods(after) == spec_of_pods(earlier)
    assert {k: v for k, v in after.items() if k in OUTSIDE_THE_PLAN} == {
        k: v for k, v in now.items() if k in OUTSIDE_THE_PLAN
    }


@pytest.mark.parametrize("spec", [{}, {"model": {"uri": "hf://a/b"}}])
def test_nothing_changes_where_nothing_differs(spec: dict[str, Any]):
    assert patch_to(spec, spec) == {"spec": {}}


def test_a_pool_that_comes_back_beside_weights_gets_no_requests_yet() -> None:
    earlier = {"pools": [{"name": "main"}, {"name": "next", "concurrency": 8}]}
    now = {"pools": [{"name": "main", "weight": 90, "replicas": 4, "concurrency": 8}]}
    assert patch_to(now, earlier) == {
        "spec": {
            "pools": [{"name": "main", "weight": 90, "replicas": 4}, {"name": "next", "concurrency": 8, "weight": 0}]
        }
    }
