"""GPU names are matched by whole words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlm_operator.facts.nodes.products import architecture, product, products
from vlm_operator.facts.types import ComputeCapability


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("NVIDIA-H100-80GB-HBM3", "9.0"),
        ("H100_NVLINK_80GB", "9.0"),
        ("NVIDIA-GH200-480GB", "9.0"),
        ("NVIDIA-A100-80GB-PCIe", "8.0"),
        ("NVIDIA-A10", "8.6"),
        ("NVIDIA-L40S", "8.9"),
        ("NVIDIA-GeForce-RTX-4090-D", "8.9"),
        ("NVIDIA-RTX-6000-Ada-Generation", "8.9"),
        ("Quadro-RTX-6000", "7.5"),
        ("NVIDIA-RTX-A6000", "8.6"),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition", "12.0"),
        ("NVIDIA-B200", "10.0"),
        ("NVIDIA-GB10", "12.1"),
        ("Tesla-T4", "7.5"),
    ],
)
def test_a_name_gives_the_compute_capability_in_every_spelling(name, capability):
    assert str(product(name).compute_capability) == capability


@pytest.mark.parametrize("name", ["NVIDIA-L400", "NVIDIA-XH100", "GRID-A100D-40C", "NVIDIA", "NVIDIA-Thor", "", "80GB"])
def test_a_name_that_only_contains_a_known_one_is_unknown(name):
    assert product(name) is None


def test_the_480_gb_in_gh200_is_not_the_gpu_memory():
    assert product("NVIDIA-GH200-480GB").only_memory_mib == 97871


def test_a_name_with_two_memory_sizes_has_no_certain_memory():
    assert product("A100").only_memory_mib is None
    assert product("A100").memory_near(40_960) == 40_960
    assert product("A100").memory_near(60_000) is None


def test_no_two_rows_of_the_table_are_the_same():
    assert len({row.tokens for row in products()}) == len(products())


@given(st.sampled_from(products()), st.integers(1, 400_000))
def test_a_nominal_size_is_never_rounded_up(row, nominal_mib):
    found = row.memory_near(nominal_mib)
    assert found is None or found <= nominal_mib


@pytest.mark.parametrize(
    ("capability", "word"),
    [
        ((6, 1), None),
        ((7, 5), "turing"),
        ((8, 0), "ampere"),
        ((9, 0), "hopper"),
        ((12, 1), "blackwell"),
        ((13, 0), "rubin"),
    ],
)
def test_architecture_names_match_gpu_feature_discovery(capability, word):
    assert architecture(ComputeCapability(*capability)) == word
    assert architecture(None) is None
