"""Chunks of a prompt: the ledger's bill, sums by hand, and what a chunk may be long."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infercost import InputError
from infercost.cli.calibrations import clock_of
from infercost.costmodel.batching import Lengths
from infercost.costmodel.chunking import chunk_bill, chunk_within, free_chunk, reread_bytes, ridge_tokens
from infercost.costmodel.serving import Workload
from infercost.costmodel.setting import Setting, step_cost
from infercost.costmodel.step import Run
from infercost.hardware.catalogue import load_gpu
from infercost.models.catalogue import load_model
from infercost.models.formats import find_format
from infercost.models.recipes import find_recipe

A100 = load_gpu("a100")
LLAMA = Setting(load_model("llama-7b"), Run(), A100, clock=clock_of("auto", A100))
LONG = Workload(Lengths("fixed", 8192, 128))


def test_the_ledger() -> None:
    """cb.splitfuse, its values and its note."""
    cut = chunk_bill(LLAMA, LONG, 256)
    assert cut.pieces == 32
    assert cut.ridge_tokens == pytest.approx(153, rel=0.001)
    assert cut.reread_bytes == 524_288 * 256 * 32 * 31 // 2  # 66.6 GB
    assert cut.reread_bytes == pytest.approx(66.6e9, rel=0.001)
    assert cut.weights_s == pytest.approx(0.207, rel=0.005)
    assert (cut.linear_s, cut.attention_s) == (
        pytest.approx(0.340, rel=0.005),
        pytest.approx(0.056, rel=0.01),
    )
    assert cut.hidden
    small = chunk_bill(LLAMA, LONG, 128)
    assert small.weights_s == pytest.approx(0.415, rel=0.005)
    assert not small.hidden
    assert cut.whole_s < cut.chunked_s < small.chunked_s


@settings(max_examples=40, deadline=None)
@given(prompt=st.integers(1, 5000), chunk=st.integers(100, 6000), shared=st.integers(0, 2000))
def test_rows_read_again_are_those_before_each_later_chunk(prompt: int, chunk: int, shared: int) -> None:
    """Gemma 3: 10 full layers and 52 that see 1,023 tokens before the new one; 8,192 B a row."""
    rows = 0
    for start in range(chunk, prompt, chunk):
        past = shared + start
        rows += 10 * past + 52 * min(past, 1023)
    got = reread_bytes(load_model("gemma-3-27b"), find_format("bf16"), prompt, chunk, shared)
    assert got == 8192 * rows


def test_a_prompt_in_one_chunk_costs_nothing_more() -> None:
    cut = chunk_bill(LLAMA, LONG, 8192)
    assert (cut.pieces, cut.reread_bytes) == (1, 0)
    assert cut.chunked_s == pytest.approx(cut.whole_s, rel=1e-12)
    with pytest.raises(InputError, match="at most 4,096"):
        chunk_bill(LLAMA, LONG, 1)


def test_narrower_weights_hide_sooner_and_experts_later() -> None:
    """ridge·b/2: 4.25 bits of NF4 with 16-bit products, 8 of FP8 on a part of 1,979 TFLOP/s; every expert's
    weights for the 37 of 671 billion that a token uses."""
    narrow = ridge_tokens(LLAMA._replace(run=Run(recipe=find_recipe("gptq"))))
    assert narrow == pytest.approx(153 * 4.5 / 16, rel=0.1)
    mixture = ridge_tokens(Setting(load_model("mixtral-8x7b"), Run(), A100))
    assert mixture == pytest.approx(153 * 46.7 / 12.9, rel=0.01)


@pytest.mark.parametrize("batch", [1, 8, 64])
def test_the_longest_chunk_that_rides_along(batch: int) -> None:
    work = LONG
    free = free_chunk(LLAMA, work, batch)
    past = work.fresh // 2
    at, over = (step_cost(LLAMA, work.mixed(batch, 1, tokens, past)) for tokens in (free, free + 1))
    assert at.compute_s <= at.memory_s
    assert over.compute_s > over.memory_s
    limit = 1.5 * step_cost(LLAMA, work.decode(batch)).best
    within = chunk_within(LLAMA, work, batch, limit)
    assert step_cost(LLAMA, work.mixed(batch, 1, within, past)).best <= limit
    assert step_cost(LLAMA, work.mixed(batch, 1, within + 1, past)).best > limit
    assert chunk_within(LLAMA, work, batch, 1e-6) == 0
