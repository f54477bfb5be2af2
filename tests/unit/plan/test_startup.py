"""How long a start may take."""

import pytest

from vlm_operator.plan.startup_budget import BASE_SECONDS, GROUP_PULL_SECONDS, startup_budget


@pytest.mark.parametrize(
    ("uri", "weights_mib", "reading_seconds"),
    [
        ("hf://Qwen/Qwen3-VL-8B-Instruct", 16_722, 720),
        ("hf://Qwen/Qwen3-VL-235B-A22B-Instruct", 449_000, 17_960 + 40),
        ("hf://some/unknown", None, 1800),
        ("pvc://models/qwen", 16_722, 180),
        ("pvc://models/qwen", None, 0),
        ("oci://registry.example.com/qwen:1", 16_722, 120),
        ("file:///models/qwen", 16_722, 180),
        ("file:///models/tiny", 1, 60),
    ],
)
def test_the_weights_are_read_once_from_where_they_lie(uri: str, weights_mib: int | None, reading_seconds: int) -> None:
    assert startup_budget(uri, weights_mib).seconds == BASE_SECONDS + reading_seconds


def test_the_sum_is_said() -> None:
    assert startup_budget("hf://Qwen/Qwen3-VL-8B-Instruct", 16_722).reason == (
        "900 s for the engine's start, graphs and warm-up, and 720 s for 16,722 MiB of weights from the hub at 25 MiB/s"
    )
    assert startup_budget("pvc://models/qwen", None).reason.endswith("the weights' size is unknown")
    assert "assumed to be 45,000 MiB" in startup_budget("hf://a/b", None).reason


def test_a_larger_model_never_gets_less_time() -> None:
    for scheme in ("hf", "pvc", "oci", "file"):
        budgets = [startup_budget(f"{scheme}://x/y", size).seconds for size in (0, 1, 100, 10_000, 1_000_000)]
        assert budgets == sorted(budgets)


def test_a_group_is_given_time_for_images_that_its_members_still_pull():
    one, two = (startup_budget("hf://a/b", 100, nodes) for nodes in (1, 2))
    assert two.seconds - one.seconds == GROUP_PULL_SECONDS
    assert "1,200 s for images that other nodes of the group may still pull" in two.reason
