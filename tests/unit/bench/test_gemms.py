"""Matrix products: their shapes, and whether memory or arithmetic holds them up."""

from __future__ import annotations

import pytest

from vlm_bench.traces.gemms import Gemm, product_shape, ridge_of


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        (((8, 4096), (4096, 1024)), (1, 8, 1024, 4096)),
        (((1024,), (8, 4096), (4096, 1024)), (1, 8, 1024, 4096)),
        (((2, 4, 4096), (1024, 4096)), (1, 8, 1024, 4096)),
        (((16, 8, 64), (16, 64, 128)), (16, 8, 128, 64)),
        (((8, 4096),), None),
        ((), None),
        (((8, 4096), (77, 33)), None),
    ],
)
def test_products_are_read_from_the_sizes_of_tensors(
    shapes: tuple[tuple[int, ...], ...], expected: tuple[int, ...] | None
) -> None:
    assert product_shape(shapes) == expected


def test_the_number_of_rows_is_never_less_than_operations_a_byte() -> None:
    assert (Gemm("g", 1, 1.0, 8, 12288, 4096).flops_per_byte or 0) < 8


@pytest.mark.parametrize(
    ("name", "ridge"),
    [
        ("NVIDIA H100 80GB HBM3", 989 / 3.35), ("NVIDIA H100 PCIe", 756 / 2.0), ("NVIDIA-H200", 989 / 4.8),
        ("NVIDIA H20", 148 / 4.0), ("NVIDIA L40S", 362 / 0.864), ("NVIDIA H200 NVL", 835 / 4.8),
        ("NVIDIA A100-SXM4-80GB", 312 / 2.039), ("NVIDIA A100 80GB PCIe", 312 / 1.935),
        ("NVIDIA A100-SXM4-40GB", 312 / 1.555), ("NVIDIA A100-PCIE-40GB", 312 / 1.555), ("NVIDIA Z9000", None),
    ],
)  # fmt: skip
def test_gpus_are_known_by_their_names(name: str, ridge: float | None) -> None:
    assert ridge_of(name) == ridge
