"""Visited pairs against brute force, and the kernels of attention."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from infercost.costmodel.attention import key_rows, visited_pairs
from infercost.costmodel.forward import ops
from infercost.costmodel.step import Plan, Run, decode, prefill
from infercost.models.attention import Attention
from infercost.models.ffn import Dense
from infercost.models.spec import Layer, Model

counts = st.integers(1, 40)


@given(counts, st.integers(0, 40), st.one_of(st.none(), st.integers(1, 50)))
def test_visited_pairs_are_the_masked_square(new: int, past: int, window: int | None) -> None:
    """Query i (from 1) of a causal sequence sees positions past + i back to the window's start."""
    seen = 0
    for i in range(1, new + 1):
        for j in range(1, past + i + 1):
            seen += window is None or past + i - j < window
    assert visited_pairs(new, past, window) == seen


@given(st.integers(1, 30), st.integers(0, 30), st.integers(1, 40))
def test_key_rows_are_those_some_query_sees(new: int, past: int, window: int) -> None:
    from infercost.costmodel.step import Segment

    first = max(1, past + 1 - window + 1)
    assert key_rows(Segment(1, new, past), window) == past + new - first + 1


def test_window_formula_of_the_ledger() -> None:
    """swa: W·T - W(W-1)/2 pairs against T(T+1)/2."""
    t, w = 32768, 4096
    assert visited_pairs(t, 0) == t * (t + 1) // 2
    assert visited_pairs(t, 0, w) == w * t - w * (w - 1) // 2


def test_arrays_pass_through() -> None:
    """The formulas take arrays as they take numbers: sweeps use the same ones."""
    import numpy as np

    new = np.array([1, 5, 9000])
    assert list(visited_pairs(new, 7)) == [visited_pairs(int(n), 7) for n in new]
    assert list(visited_pairs(new, 7, 100)) == [visited_pairs(int(n), 7, 100) for n in new]


@given(
    heads=st.sampled_from([1, 2, 4, 8]),
    groups=st.sampled_from([1, 2, 4]),
    batch=st.integers(1, 5),
    context=st.integers(1, 300),
)
def test_gqa_scales_kv_and_leaves_scores_alone(heads: int, groups: int, batch: int, context: int) -> None:
    """KV bytes go with kv_heads / heads; the FLOPs of scores and values do not change."""
    many = heads * groups

    def attend(kv_heads: int) -> tuple[int, int]:
        layer = Layer((Attention(many, kv_heads, 16), Dense(8)))
        plan = Plan(Model("m", 32, 40, (layer,), "test"), decode(batch, context))
        op = next(op for op in ops(plan) if op.name == "attention")
        kv = op.bytes.kv if context > 1 else op.bytes.activations - batch * many * 32 * 2
        return op.matmul_flops, kv

    full, shared = attend(many), attend(heads)
    assert full[0] == shared[0]
    assert full[1] == shared[1] * groups


def test_eager_writes_and_reads_the_scores() -> None:
    """Eager: three kernels over the full square; flash: none of it in memory, half of it computed."""
    layer = Layer((Attention(4, 4, 8), Dense(8)))
    small = Model("m", 32, 40, (layer,), "test")
    eager = {op.name: op for op in ops(Plan(small, prefill(2, 10), Run(attention="eager")))}
    scores = 2 * 4 * 10 * 10
    assert eager["attention.softmax"].bytes.activations == 2 * scores * 2
    assert eager["attention.softmax"].vector_flops == 4 * scores
    assert eager["attention.qk"].bytes.total == (2 * 10 * 4 * 8 * 2 + scores) * 2
    assert eager["attention.qk"].matmul_flops == 2 * scores * 8
    flash = {op.name: op for op in ops(Plan(small, prefill(2, 10)))}["attention"]
    assert flash.matmul_flops == 2 * 2 * 4 * 55 * 16
    assert flash.bytes.total == 4 * 2 * 10 * 4 * 8 * 2
