"""What engines allocate: laws, and figures worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infercost import InputError
from infercost.costmodel.engines import (
    ALLOCATORS,
    POOLED,
    How,
    llama_cpp_cells,
    pool,
    reserved,
    sglang_request,
    sglang_share,
    step_limits,
    vllm_pool,
    vllm_request,
)
from infercost.costmodel.kv import cache_bill
from infercost.hardware.catalogue import load_gpu
from infercost.hardware.engine import FOLDER, engine_from_text, load_engine
from infercost.models.catalogue import load_model
from infercost.models.formats import find_format

BF16 = find_format("bf16")
HOW = How(block_tokens=16, in_flight=8192, sequences=1024, window_share=0.8)
MODELS = ("llama-3-8b", "gemma-3-27b", "gpt-oss-20b", "deepseek-v3", "jamba-v0.1", "mistral-7b-v0.1")


@pytest.mark.parametrize("engine", [name for name in ALLOCATORS if name != "sglang"])
@pytest.mark.parametrize("name", MODELS)
@given(tokens=st.integers(1, 200_000), batch=st.integers(1, 64))
def test_no_less_than_is_kept(engine: str, name: str, tokens: int, batch: int) -> None:
    """An allocator takes at least what the sequences keep, and more for more of them.

    SGLang is left out: its window pool is smaller than its tokens' windows where those are long.
    """
    model = load_model(name)
    kept = cache_bill(model, tokens, batch, BF16).logical_bytes
    one, everything = reserved(engine, model, BF16, tokens, batch, HOW)
    assert everything >= kept
    assert everything >= reserved(engine, model, BF16, tokens, max(1, batch // 2), HOW)[1]
    assert sum(group.pieces * group.bytes for group in one.groups) >= one.request_bytes - 1


@given(tokens=st.integers(1, 1 << 20), block=st.sampled_from([8, 16, 32, 64, 128]))
def test_whole_blocks_of_full_attention(tokens: int, block: int) -> None:
    model = load_model("llama-3-8b")
    one = vllm_request(model, BF16, tokens, HOW._replace(block_tokens=block))
    assert one.units == -(-tokens // block)
    assert one.unit_bytes == block * 131072


def test_a_window_keeps_what_a_step_may_add() -> None:
    """Mistral 7B v0.1, all 32 layers of window 4,096: blocks of a request of 32k with 8,192 in flight."""
    one = vllm_request(load_model("mistral-7b-v0.1"), BF16, 32768, HOW)
    assert one.units == -(-(4095 + 8192) // 16) + 1
    short = vllm_request(load_model("mistral-7b-v0.1"), BF16, 1000, HOW)
    assert short.units == -(-1000 // 16) + 1


def test_blocks_beside_a_state_are_as_long_as_the_state() -> None:
    """Qwen3-Next: a linear layer's state of 2,146,304 bytes in pages of 2,048 bytes a token (2 heads of 256,
    K and V): 1,048 tokens, in sixteens 1,056."""
    one = vllm_request(load_model("qwen3-next-80b-a3b"), BF16, 32768, HOW)
    assert -(-2146304 // 2048) == 1048
    assert one.block_tokens == 1056
    assert one.unit_bytes == 12 * 1056 * 2048
    assert one.units == 3 + 32


def test_context_ranks_share_out_the_tokens() -> None:
    model = load_model("deepseek-v3")
    whole, shared = (vllm_request(model, BF16, 65536, HOW._replace(ranks_of_context=n)) for n in (1, 8))
    assert shared.units * 8 == whole.units


def test_logged_tokens_are_concurrency_times_length() -> None:
    one = vllm_request(load_model("gpt-oss-120b"), BF16, 131072, HOW)
    held = vllm_pool(one, 6 << 30, 131072)
    assert held.tokens == int(held.blocks / one.units * 131072)
    assert held.bytes <= 6 << 30 < held.bytes + one.unit_bytes


@pytest.mark.parametrize("engine", POOLED)
def test_a_pool_holds_more_of_shorter_requests(engine: str) -> None:
    model = load_model("gpt-oss-20b")
    found = [
        pool(engine, reserved(engine, model, BF16, tokens, 1, HOW)[0], 8 << 30, tokens)
        for tokens in (32768, 16384)
    ]
    assert found[0] is not None
    assert found[1] is not None
    assert found[1].concurrency > found[0].concurrency > 0


def test_llama_cpp_takes_the_context_of_all_slots() -> None:
    """Llama 3 8B at 4 slots of 4,100 tokens: 16,400 cells, padded to 16,640."""
    cells = llama_cpp_cells(load_model("llama-3-8b"), BF16, 4100, 4, HOW._replace(in_flight=512))
    assert cells.request_bytes == 16640 * 131072
    assert pool("llama.cpp", cells, 1 << 40, 4100) is None


def test_sglang_refuses_a_window_pool_shorter_than_the_window() -> None:
    with pytest.raises(InputError, match="window pool"):
        sglang_request(load_model("gemma-3-27b"), BF16, 1100, HOW._replace(block_tokens=1))


def test_sglang_keeps_ten_gib_on_large_cards() -> None:
    assert sglang_share(80 << 30, 8192, 1) * 80 == pytest.approx(80 - (512 + 1.5 * 8192 + 128 + 320) / 1024)
    assert sglang_share(80 << 30, 2048, 1) * 80 == pytest.approx(70)


def test_unknown_allocators_are_named() -> None:
    with pytest.raises(InputError, match="gpt-fast"):
        reserved("gpt-fast", load_model("llama-3-8b"), BF16, 16, 1, HOW)


VLLM = load_engine("vllm").memory


@pytest.mark.parametrize(
    ("gpu", "steps"),
    [
        ("h100", (8192, 1024)),
        ("h200", (8192, 1024)),
        ("a100-80g", (2048, 256)),
        ("a100-40g", (2048, 256)),
        ("l40s", (2048, 256)),
        ("l4", (2048, 256)),
        ("rtx4090", (2048, 256)),
        ("b200", (16384, 1024)),
        ("mi300x", (16384, 1024)),
    ],
)
def test_vllms_steps_by_card(gpu: str, steps: tuple[int, int]) -> None:
    """vllm/engine/arg_utils.py get_batch_defaults, of its server: from 70 GiB 8,192 tokens and 1,024
    sequences but A100, from 160 GiB (0.28) 16,384, else 2,048 and 256."""
    assert VLLM is not None
    assert step_limits(VLLM, load_gpu(gpu)) == steps
    assert step_limits(VLLM, None) == (8192, 1024)


def test_other_engines_have_one_step() -> None:
    memory = load_engine("sglang").memory
    assert memory is not None
    assert {step_limits(memory, load_gpu(gpu)).tokens for gpu in ("l4", "b200", "h100")} == {8192}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("  block_tokens: 1\n", "", "block_tokens"),
        ("  share_of: static\n", "  share_of: static\n  share: 0.9\n", "one of its own"),
        ("  share_of: static\n", "  share_of: total\n", "share is needed"),
        ("  window_share: 0.8\n", "  window_share: 1.8\n", "window_share"),
        ("  chunk_tokens: 8192\n", "  chunk_tokens: 8192\n  cards: {x: {chunk_tokens: 1}}\n", "sequences"),
    ],
)
def test_a_profile_states_what_is_read(old: str, new: str, said: str) -> None:
    """What an engine allocates by stands in its profile alone, and nothing there is unread."""
    text = (FOLDER / "sglang.yaml").read_text(encoding="utf-8")
    assert old in text
    with pytest.raises(InputError, match=said):
        engine_from_text(text.replace(old, new), "x.yaml")
