"""Ridges, verdicts, the type a part computes in, the roof over an operation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infercost import InputError
from infercost.costmodel.op import Gemm, Op
from infercost.costmodel.roofline import (
    Ridge,
    attainable_flops,
    default_dtype,
    floor_s,
    math_dtype,
    ridge,
    verdict,
)
from infercost.hardware.catalogue import gpu_from_text, gpu_names, load_gpu


def test_both_ridges_of_the_a100() -> None:
    both = ridge(load_gpu("a100"), "fp16")
    assert round(both.textbook, 1) == 142.5
    assert round(both.datasheet, 1) == 153.0
    assert both.headline() == both.textbook
    assert both.headline("datasheet") == both.datasheet


@pytest.mark.parametrize("name", gpu_names())
def test_the_two_conventions_differ_by_the_size_of_a_gigabyte(name: str) -> None:
    gpu = load_gpu(name)
    both = ridge(gpu, default_dtype(gpu))
    assert both.datasheet / both.textbook == pytest.approx(2**30 / 1e9)


def test_a100_40g_ridge() -> None:
    """CASE-099: 312e12 / 1555e9."""
    assert ridge(load_gpu("a100-40g-sxm"), "bf16").datasheet == pytest.approx(200.64308681672026)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "compute-bound"),
        (0.0, "memory-bound"),
        (0.749 * 142.5, "memory-bound"),
        (114.67, "near the ridge (below)"),
        (152.9, "near the ridge (below)"),
        (153.1, "near the ridge (above)"),
        (1.26 * 153, "compute-bound"),
        (2730.67, "compute-bound"),
    ],
)
def test_verdicts(value: float | None, said: str) -> None:
    assert verdict(value, Ridge(142.5074, 153.0162)) == said


@pytest.mark.parametrize(
    ("gpu", "wanted", "used"),
    [
        ("a100", "fp8", "bf16"),
        ("h100", "fp8", "fp8"),
        ("v100", "bf16", "fp16"),
        ("tpu-v5e", "fp16", "bf16"),
        ("apple-m1", "bf16", "fp16"),
        ("cpu-generic-2ch", "fp16", "fp32"),
    ],
)
def test_a_part_without_a_type_takes_the_first_it_has(gpu: str, wanted: str, used: str) -> None:
    assert math_dtype(load_gpu(gpu), wanted) == used


def test_a_part_with_nothing_usable_says_so() -> None:
    text = "name: x\ntitle: x\nvendor: x\nsource: x\npeak_tflops: {int4: 5}\nmemory: {bandwidth_gb_per_s: 9}"
    with pytest.raises(InputError, match="no peak for fp16"):
        math_dtype(gpu_from_text(text, "x.yaml"), "fp16")


@given(st.integers(1, 10_000), st.integers(1, 10_000), st.integers(1, 10_000))
def test_a_gemm_runs_at_its_roof(rows: int, inner: int, outer: int) -> None:
    """FLOPs / floor = min(peak, intensity x bandwidth)."""
    gpu = load_gpu("a100")
    op = Op("p", "gemm", Gemm(rows, inner, outer, 2 * inner * outer, "fp16"), 1)
    assert op.matmul_flops / floor_s(op.work, gpu) == pytest.approx(attainable_flops(op, gpu))
    assert attainable_flops(op, gpu) <= 312e12
