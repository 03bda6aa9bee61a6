"""Bits per weight of every format, exact bytes, and laws they obey."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infercost import InputError
from infercost.models.formats import find_format, formats

LEDGER_BITS = {
    # seed ledger, q.bits; rows of 4,096 where a row matters
    "int4-g128": 4.125,
    "int4-g128-asym": 4.15625,
    "int4-g64-asym": 4.3125,
    "int4-g32-asym": 4.625,
    "nf4": 4.5,
    "nf4-dq": 4.12695,
    "fp8": 8.0,
    "fp8-block": 8.00195,
    "mxfp4": 4.25,
    "nvfp4": 4.5,
    "int8-row": 8.00781,
    "q2_k": 2.625,
    "q3_k": 3.4375,
    "q4_0": 4.5,
    "q4_1": 5.0,
    "q4_k": 4.5,
    "q5_0": 5.5,
    "q5_1": 6.0,
    "q5_k": 5.5,
    "q6_k": 6.5625,
    "q8_0": 8.5,
    "iq1_s": 1.5625,
    "iq1_m": 1.75,
    "iq2_xxs": 2.0625,
    "iq2_xs": 2.3125,
    "iq2_s": 2.5625,
    "iq3_xxs": 3.0625,
    "iq3_s": 3.4375,
    "iq4_xs": 4.25,
    "iq4_nl": 4.5,
    "tq1_0": 1.6875,
    "tq2_0": 2.0625,
    "fp32": 32,
    "tf32": 32,
    "fp16": 16,
    "bf16": 16,
    "int8": 8,
    "int4": 4,
}


@pytest.mark.parametrize(("name", "bits"), LEDGER_BITS.items())
def test_bits_per_weight(name: str, bits: float) -> None:
    assert find_format(name).bits_per_weight() == pytest.approx(bits, rel=0.0005)


def test_llm_int8_with_outliers() -> None:
    """seed ledger, llmint8: (1-p) + 2p bytes per weight and row scales, within 1 %."""
    assert find_format("llm-int8-0.001").bits_per_weight() / 8 == pytest.approx(1.001, rel=0.01)
    assert find_format("llm-int8-0.01").matrix_bytes(10, 1000) == 10 * (990 + 2 * 10) + 10 * 4
    assert find_format("llm-int8-0").matrix_bytes(10, 1000) == find_format("int8-row").matrix_bytes(10, 1000)


def test_awq_mixed_precision() -> None:
    """seed ledger, awq: keeping 1 % of a 4-bit matrix in 16 bit would cost 4.12 bits a weight."""
    share = 0.01
    four, sixteen = find_format("int4"), find_format("fp16")
    mixed = four.bits_per_weight() * (1 - share) + sixteen.bits_per_weight() * share
    assert mixed == pytest.approx(4.12)


@pytest.mark.parametrize(
    ("name", "width", "wanted"),
    [
        ("nvfp4", 128, 72),  # CASE-032, vLLM: 64 + 8
        ("nvfp4-row", 128, 76),  # CASE-033: the same name elsewhere, with an fp32 scale per row
        ("int8-row", 128, 132),  # CASE-030: fp32 scale per token and head
        ("q8_0", 576, 612),  # CASE-028: 34 bytes per 32
        ("int8-g64", 128, 132),  # kvq.size
        ("int4-g128-asym", 128, 67),  # 64 + 2 + half a byte, rounded up
        ("fp8", 128, 128),
        ("bf16", 128, 256),
    ],
)
def test_kv_rows(name: str, width: int, wanted: int) -> None:
    assert find_format(name).row_bytes(width) == wanted


def test_gguf_blocks_are_the_package_s() -> None:
    gguf = pytest.importorskip("gguf", reason="the gguf package is not installed")
    sizes = {kind.name.lower(): size for kind, size in gguf.GGML_QUANT_SIZES.items()}
    ours = {name: (f.block, f.block_bytes) for name, f in formats().items() if f.note == "GGUF"}
    assert ours == {name: sizes[name] for name in ours}
    plain = {"f32", "f16", "bf16", "f64", "i8", "i16", "i32", "i64"}
    newer = set(sizes) - set(ours) - plain
    assert newer <= {"mxfp4", "nvfp4", "q1_0", "q2_0"}, f"types the package has gained: {newer}"


@given(st.sampled_from(sorted(formats())), st.integers(1, 300), st.integers(1, 3000))
def test_bytes_never_fall_below_the_payload(name: str, rows: int, cols: int) -> None:
    fmt = formats()[name]
    size = fmt.matrix_bytes(rows, cols)
    assert size >= rows * cols * fmt.block_bytes / fmt.block
    assert size <= fmt.matrix_bytes(rows, cols + 1)
    assert size <= fmt.matrix_bytes(rows + 1, cols)


@given(
    st.sampled_from(["fp16", "fp8-block", "int4-g128", "q4_k", "nf4"]), st.integers(1, 20), st.integers(1, 20)
)
def test_linear_in_whole_tiles(name: str, down: int, across: int) -> None:
    fmt = find_format(name)
    tile = fmt.matrix_bytes(128, 256)
    assert fmt.matrix_bytes(128 * down, 256 * across) == tile * down * across


@pytest.mark.parametrize("name", ["fp", "int5-g64", "int4-g0", "llm-int8-2", "q4_k_m_x", "", "int4-g999999"])
def test_unknown_formats(name: str) -> None:
    with pytest.raises(InputError, match="unknown number format"):
        find_format(name)
