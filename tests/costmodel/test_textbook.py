"""Tables 9.1 and 9.2 row by row, against the formulas printed in the ledger, worked out here."""

from __future__ import annotations

import pytest

from infercost import InputError
from infercost.costmodel.textbook import decode_table, prefill_table, shape_of
from infercost.models.catalogue import load_model

B, T, H, N, D, F = 8, 1024, 4096, 32, 128, 11008
PREFILL = [
    # FLOPs, access in elements, intensity as the ledger prints it
    (6 * B * T * H**2, B * T * H + H**2, 2731),
    (6 * B * T * H, B * T * H, 1),
    (4 * B * T**2 * N * D + 4 * B * T**2 * N, B * T**2 * N + B * T * N * D, 114.7),
    (2 * B * T * H**2, B * T * H + H**2, 2731),
    (5 * B * T * H, B * T * H + H, 0.9999),
    (4 * B * T * H * F, B * T * H + B * T * F + H * F, 2188),
    (2 * B * T * F, B * T * F, 1),
    (2 * B * T * H * F, B * T * H + B * T * F + H * F, 2188),
    (5 * B * T * H, B * T * H + H, 0.9999),
]
DECODE = [
    (6 * B * H**2, B * H + H**2, 7.984),
    (6 * B * H, B * H, 1),
    (0, B * N * D, 0),
    (4 * B * T * N * D + 4 * B * T * N, B * T * N + B * T * N * D + B * N * D, 0.999),
    (2 * B * H**2, B * H + H**2, 7.984),
    (5 * B * H, B * H + H, 0.8889),
    (4 * B * H * F, B * H + B * F + H * F, 7.979),
    (2 * B * F, B * F, 1),
    (2 * B * H * F, B * H + B * F + H * F, 7.979),
    (5 * B * H, B * H + H, 0.8889),
]


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_every_row(phase: str) -> None:
    shape = shape_of(load_model("llama-7b"))
    rows = prefill_table(shape, B, T) if phase == "prefill" else decode_table(shape, B, T)
    wanted = PREFILL if phase == "prefill" else DECODE
    assert len(rows) == len(wanted)
    for row, (flops, access, printed) in zip(rows, wanted, strict=True):
        assert (row.flops, row.access) == (flops, access), row.name
        assert float(f"{row.intensity:.4g}") == pytest.approx(printed, abs=0.05 if printed > 100 else 5e-5)


def test_formulas_of_the_intensity_column() -> None:
    """1/(1/H + 1/BT), (1 + 1/D)/(1/D + 1/T), (1 + 1/D)/(1 + 1/D + 1/T) and their kin."""
    shape = shape_of(load_model("llama-7b"))
    before, step = prefill_table(shape, B, T), decode_table(shape, B, T)
    assert before[0].intensity == pytest.approx(1 / (1 / H + 1 / (B * T)), rel=1e-12)
    assert before[2].intensity == pytest.approx((1 + 1 / D) / (1 / D + 1 / T), rel=1e-12)
    assert before[7].intensity == pytest.approx(1 / (1 / H + 1 / F + 1 / (B * T)), rel=1e-12)
    assert step[0].intensity == pytest.approx(1 / (1 / H + 1 / B), rel=1e-12)
    assert step[3].intensity == pytest.approx((1 + 1 / D) / (1 + 1 / D + 1 / T), rel=1e-12)
    assert step[5].intensity == pytest.approx(1 / (1 + 1 / B), rel=1e-12)


@pytest.mark.parametrize("name", ["llama-3-8b", "mixtral-8x7b", "gpt2", "deepseek-v3", "gemma-3-27b"])
def test_other_models_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="multi-head attention and a gated FFN"):
        shape_of(load_model(name))
