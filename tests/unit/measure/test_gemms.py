"""Matrix products: their shapes, and whether memory or arithmetic holds them up."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console
from unit.measure.test_trace import H100, decode

from vlm_operator.cli.profile_tables import print_stage
from vlm_operator.measure.gemms import Gemm, device_of, product_shape
from vlm_operator.measure.profile_report import profile_report
from vlm_operator.measure.stages import DECODE, stages_of
from vlm_operator.measure.timeline import Stage


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
    ("gemm", "limited", "said"),
    [
        (Gemm("g", 1, 1.0, m=8, from_batch_size=True), True, "bandwidth"),
        # 400 rows allow up to 400 operations a byte, but need not reach them.
        (Gemm("g", 1, 1.0, m=400, from_batch_size=True), None, "not known"),
        (Gemm("g", 1, 1.0), None, "not known"),
        (Gemm("g", 1, 1.0, 4096, 4096, 4096), False, "arithmetic"),
    ],
)
def test_what_limits_a_gemm_is_said_only_where_it_is_known(
    gemm: Gemm, limited: bool | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gemm.limited_by_bandwidth(device_of(H100)) is limited
    monkeypatch.setattr(Stage, "gemms", lambda _: [gemm])
    stage = Stage("decode", stages_of(decode().events, H100)[DECODE])
    console = Console(file=(printed := io.StringIO()), width=160)
    print_stage(console, "vlm", stage)
    [row] = [line for line in printed.getvalue().splitlines() if line.split()[:1] == ["g"]]
    assert row.rstrip().endswith(said)
    page = profile_report("vlm", [stage], "kubectl vlm profile vlm", [], [])
    cell = {True: "yes", False: "", None: "not known"}[limited]
    assert re.search(rf"<td class=text>g</td>.*<td( class=text)?>{cell}</td></tr>", page)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM"), ("NVIDIA H100 PCIe", "H100 PCIe"), ("NVIDIA-H200", "H200 SXM"),
        ("NVIDIA H20", "H20"), ("NVIDIA L40S", "L40S"), ("NVIDIA H200 NVL", "H200 NVL"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM"), ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"), ("NVIDIA A100-PCIE-40GB", "A100 40GB"),
    ],
)  # fmt: skip
def test_devices_are_known_by_their_names(name: str, expected: str) -> None:
    found = device_of(name)
    assert found is not None
    assert found.name == expected
