"""KV and state sizes: laws, and figures other tools got wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infercost import InputError
from infercost.costmodel.kv import allocate, cache_bill
from infercost.models.attention import Attention
from infercost.models.catalogue import load_model, model_names
from infercost.models.formats import find_format

FP16 = find_format("fp16")
lengths, batches = st.integers(1, 200_000), st.integers(1, 64)


@given(st.sampled_from(model_names()), lengths, batches, st.integers(2, 9))
def test_linear_in_batch(name: str, tokens: int, batch: int, times: int) -> None:
    one = cache_bill(load_model(name), tokens, batch, FP16, 10)
    many = cache_bill(load_model(name), tokens, batch * times, FP16, 10)
    assert many.logical_bytes == times * one.logical_bytes
    assert many.state_bytes == times * one.state_bytes


@given(lengths, batches, st.integers(2, 9))
def test_linear_in_length_with_full_attention(tokens: int, batch: int, times: int) -> None:
    for name in ("llama-7b", "falcon-7b", "deepseek-v3"):
        one = cache_bill(load_model(name), tokens, batch, FP16)
        assert cache_bill(load_model(name), tokens * times, batch, FP16).logical_bytes == (
            times * one.logical_bytes
        )


@given(st.integers(1, 10_000), st.integers(0, 10_000))
def test_windows_cap(window: int, beyond: int) -> None:
    """At the window and past it the same is kept; below it the same as without one."""
    free = load_model("llama-7b")
    capped = free.with_attention(window=window)
    at = cache_bill(capped, window, 1, FP16).logical_bytes
    assert cache_bill(capped, window + beyond, 1, FP16).logical_bytes == at
    assert at == cache_bill(free, window, 1, FP16).logical_bytes


@given(lengths, lengths)
def test_monotone_in_length(a: int, b: int) -> None:
    for name in model_names():
        model = load_model(name)
        low, high = (cache_bill(model, t, 1, FP16, 5).logical_bytes for t in sorted((a, b)))
        assert low <= high


@given(st.sampled_from(model_names()), lengths, batches)
def test_groups_sum_to_the_whole(name: str, tokens: int, batch: int) -> None:
    bill = cache_bill(load_model(name), tokens, batch, FP16, 7)
    assert sum(group.bytes for group in bill.groups) == bill.logical_bytes


@given(st.integers(1, 16), st.integers(1, 16).map(lambda n: n * 32))
def test_formats_are_ordered(heads: int, width: int) -> None:
    """Fewer bits, scales and all, never take more: fp32 > 16 bit > 8 bit with scales > 8 > 4 bit."""
    cache = Attention(heads, heads, width).caches()[0]
    order = ["fp32", "bf16", "q8_0", "fp8", "int4-g32-asym", "int4-g32", "int4"]
    sizes = [cache.bytes_per_token(find_format(name)) for name in order]
    assert sizes == sorted(sizes, reverse=True)
    assert cache.bytes_per_token(find_format("fp16")) == cache.bytes_per_token(find_format("bf16"))


@given(st.integers(1, 5000), st.integers(1, 512), batches)
def test_pages_waste_less_than_a_block(tokens: int, block: int, batch: int) -> None:
    model = load_model("llama-7b")
    taken = allocate(model, "paged", tokens, batch, FP16, block)
    used = cache_bill(model, tokens, batch, FP16).logical_bytes
    per_token = 524288 * batch
    assert 0 <= taken.allocated_bytes - used <= (block - 1) * per_token
    assert taken.allocated_bytes % (block * per_token) == 0
    assert 0 < taken.utilisation <= 1


def test_growing_by_concatenation_copies_twice_what_attention_reads() -> None:
    """pg.concat: 2 · Σ t over the 511 steps of 512 generated tokens after a prompt of 512."""
    taken = allocate(load_model("llama-7b"), "concat", 1024, 1, FP16, prompt=512)
    assert taken.copied_bytes == 2 * sum(range(512, 1023)) * 524288 == 410975731712


@pytest.mark.parametrize(
    ("model", "per_token", "state"),
    [
        ("gpt2", 36864, 0),
        ("falcon-7b", 8192, 0),
        ("llama-3-8b", 131072, 0),
        ("gemma-2-27b", 376832, 0),
        ("gemma-3-27b", 507904, 0),
        ("deepseek-v3", 70272, 0),
        ("gpt-oss-120b", 73728, 0),
        ("mixtral-8x7b", 131072, 0),
        ("qwen3-30b-a3b", 98304, 0),
        # transformers keeps conv_kernel columns where engines keep one less: 16,515,072 there.
        ("jamba-v0.1", 16384, 28 * (3 * 8192 * 2 + 8192 * 16 * 4)),
        ("mamba2-2.7b", 0, 64 * (3 * 5376 * 2 + 80 * 64 * 128 * 4)),
        ("qwen3-next-80b-a3b", 24576, 77266944),
    ],
)
def test_per_token_and_state(model: str, per_token: int, state: int) -> None:
    bill = cache_bill(load_model(model), 1, 1, find_format("bf16"))
    assert (bill.bytes_per_token, bill.state_bytes) == (per_token, state)


def test_cross_attention_counts_encoder_positions() -> None:
    """flan-t5-xl: 196,608 bytes per decoder token and as many per encoder position."""
    model = load_model("flan-t5-xl")
    assert cache_bill(model, 10, 1, FP16, 100).logical_bytes == 196608 * 110
    assert cache_bill(model, 10, 1, FP16, 100).bytes_per_token == 196608


def test_allocators_refuse_what_they_cannot_hold() -> None:
    model = load_model("llama-7b")
    with pytest.raises(InputError, match="10 tokens reserved do not hold 20"):
        allocate(model, "static", 20, 1, FP16, reserved=10)
    with pytest.raises(InputError, match="paged, static or concat, not 'buddy'"):
        allocate(model, "buddy", 20, 1, FP16)
