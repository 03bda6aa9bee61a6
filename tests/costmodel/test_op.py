"""Works: a GEMM's intensity stays below each of its limits, grouped GEMMs and collectives add up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infercost.costmodel.op import Attend, Collective, Gather, Gemm, GroupedGemm, Op, Pointwise
from infercost.costmodel.roofline import intensity

sizes = st.integers(1, 20_000)


@given(sizes, sizes, sizes)
def test_gemm_intensity_is_the_harmonic_formula(rows: int, inner: int, outer: int) -> None:
    """2/(b(1/n + 1/m + 1/p)) for b bytes everywhere, so below 2n/b, 2m/b and 2p/b alike (int.matmul)."""
    work = Gemm(rows, inner, outer, weight_bytes=inner * outer * 2, math="fp16")
    value = intensity(Op("p", "gemm", work, 1))
    assert value is not None
    assert value == pytest.approx(1 / (1 / rows + 1 / inner + 1 / outer))
    assert value < min(rows, inner, outer)


@given(sizes, st.integers(1, 500), st.integers(1, 500), st.integers(1, 64))
def test_grouped_gemm_is_a_gemm_per_expert(rows: int, inner: int, outer: int, experts: int) -> None:
    """With every expert touched once, FLOPs and weight bytes are those of `experts` GEMMs."""
    one = inner * outer * 2
    grouped = GroupedGemm(rows * experts, rows * experts, inner, outer, experts, one, "bf16")
    single = Gemm(rows, inner, outer, one, "bf16")
    assert grouped.matmul_flops == experts * single.matmul_flops
    assert grouped.bytes.total == experts * single.bytes.total


def test_gather_has_no_flops() -> None:
    work = Gather(rows=7, width=16, row_bytes=32)
    assert work.matmul_flops == work.vector_flops == 0
    assert work.bytes.weights == 7 * 32
    assert work.bytes.activations == 7 * 16 * 2


def test_pointwise_bytes_are_whole() -> None:
    work = Pointwise("add_norm", 10, 2, 2, 5, weight_bytes=8)
    assert work.bytes.total == 10 * 4 * 2 + 8
    assert isinstance(work.bytes.total, int)


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("all_reduce", 2 * 7 / 8),
        ("all_gather", 7 / 8),
        ("reduce_scatter", 7 / 8),
        ("all_to_all", 7 / 8),
        ("send", 1),
    ],
)
def test_wire_bytes(name: str, share: float) -> None:
    assert Collective(name, 1000, 8).wire_bytes == 1000 * share


@pytest.mark.parametrize(
    ("new", "context", "pairs", "said"),
    [
        (4, 8, 33, "4 queries over 8 keys do not visit 33 pairs"),
        (4, 8, -1, "do not visit -1 pairs"),
        (9, 8, 71, "9 causal queries are not all among 8 keys"),
    ],
)
def test_attention_that_cannot_be(new: int, context: int, pairs: int, said: str) -> None:
    """Fewer keys than causal queries had prefill times take a power of a negative number."""
    with pytest.raises(ValueError, match=said):
        Attend(1, new, context, pairs, 8, 8, 64, 64, 256, "fp16")
    assert Attend(1, 9, 8, 72, 8, 8, 64, 64, 256, "fp16").matmul_flops, "every pair: no query is a key"
    assert Attend(1, 8, 8, 36, 8, 8, 64, 64, 256, "fp16").matmul_flops
