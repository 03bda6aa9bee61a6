"""Steady states: Little's law, a single request as its special case, dollars, prefixes kept once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infercost import InputError
from infercost.cli.calibrations import clock_of
from infercost.costmodel.batching import Lengths
from infercost.costmodel.disaggregated import Prefiller
from infercost.costmodel.memory import Load, shared_bytes
from infercost.costmodel.request import Request, dollars
from infercost.costmodel.search import most_within
from infercost.costmodel.serving import (
    POLICIES,
    Workload,
    disaggregated,
    handover,
    knee,
    pieces,
    steady,
    usd_per_million,
)
from infercost.costmodel.setting import Setting, step_cost
from infercost.costmodel.sharding import Parallel
from infercost.costmodel.step import Run
from infercost.hardware.catalogue import load_gpu
from infercost.models.catalogue import load_model
from infercost.models.formats import find_format

KINDS = st.sampled_from(["fixed", "exponential", "uniform"])


def setting(model: str = "llama-3-8b", gpu: str = "h100", floors: bool = False, **ranks: int) -> Setting:
    one = load_gpu(gpu)
    clock = None if floors else clock_of("auto", one)
    return Setting(load_model(model), Run(), one, Parallel(**ranks), clock)


SMALL = setting()


@settings(max_examples=60, deadline=None)
@given(
    policy=st.sampled_from(POLICIES[:3]),
    kind=KINDS,
    prompt=st.integers(1, 9000),
    gen=st.integers(1, 700),
    batch=st.integers(1, 300),
    users=st.integers(0, 500),
    chunk=st.sampled_from([64, 512, 2048, 8192]),
)
def test_littles_law(
    policy: str, kind: str, prompt: int, gen: int, batch: int, users: int, chunk: int
) -> None:
    """Requests in the system = rate x the time each spends there, waiting included, for every schedule."""
    at = steady(policy, SMALL, Workload(Lengths(kind, prompt, gen)), batch, batch + users, chunk)
    assert at.requests_per_s * at.e2e_s == pytest.approx(batch + users, rel=1e-9)
    assert at.queue_s >= -1e-9
    assert 0 < at.used <= 1 + 1e-9
    assert (at.tpot_s is None) == (gen == 1)
    assert at.output_tokens_per_s == pytest.approx(gen * at.requests_per_s)


@settings(max_examples=40, deadline=None)
@given(policy=st.sampled_from(POLICIES), batch=st.integers(1, 200), gen=st.integers(2, 400))
def test_more_slots_yield_no_fewer_tokens(policy: str, batch: int, gen: int) -> None:
    """Of floors, which have no tiles: a longer step of more sequences is never slower for each of them."""
    run, work = setting(floors=True), Workload(Lengths("fixed", 600, gen))
    low, high = (steady(policy, run, work, b, chunk=256) for b in (batch, batch + 1))
    assert high.output_tokens_per_s >= low.output_tokens_per_s * (1 - 1e-3)
    assert low.tpot_s is not None
    assert high.tpot_s is not None
    assert high.tpot_s >= low.tpot_s * (1 - 1e-3)


def test_one_slot_is_one_request() -> None:
    """Prefill, then G - 1 steps at contexts P + 1, ..., P + G - 1: the floor is linear in the context, the
    expected time nearly (a kernel splits the cache into whole parts)."""
    work = Workload(Lengths("fixed", 1000, 100))
    for run, close in ((setting(floors=True), 1e-9), (SMALL, 3e-3)):
        whole = step_cost(run, work.prefill()).best
        whole += sum(step_cost(run, work.decode(1, 1000 + i)).best for i in range(1, 100))
        for policy in ("static", "continuous"):
            at = steady(policy, run, work, 1)
            assert at.e2e_s == pytest.approx(whole, rel=close)
            assert at.requests_per_s == pytest.approx(1 / whole, rel=close)


def test_continuous_by_its_formula() -> None:
    work, batch = Workload(Lengths("exponential", 512, 128)), 16
    reading = step_cost(SMALL, work.prefill()).best
    step = step_cost(SMALL, work.decode(batch, 512 + 128)).best
    at = steady("continuous", SMALL, work, batch)
    assert at.requests_per_s == pytest.approx(batch / (batch * reading + 127 * step), rel=1e-9)
    assert at.tpot_s == pytest.approx(step + 15 * reading / 127, rel=1e-9)
    assert at.gap_s == pytest.approx(step + reading, rel=1e-9)


def test_static_loses_what_the_longest_takes() -> None:
    """At long outputs a static batch of 8 yields 1/H_8 of what its steps could."""
    lengths = Lengths("exponential", 16, 20_000)
    work = Workload(lengths)
    at = steady("static", SMALL, work, 8)
    step = step_cost(SMALL, work.decode(8, 16 + lengths.longest(8) / 2)).best
    assert at.output_tokens_per_s * step / 8 == pytest.approx(0.3679, rel=0.005)


def test_a_chunk_of_many_pieces() -> None:
    assert pieces(Workload(Lengths("fixed", 8192, 8)), 256) == (32, 256, 3968, 1)
    assert pieces(Workload(Lengths("fixed", 8192, 8), shared=4096), 512) == (8, 512, 4096 + 1792, 1)
    assert pieces(Workload(Lengths("fixed", 100, 8)), 400) == (1, 100, 0, 4)


def test_prefill_limits_chunked_batches() -> None:
    """Where prompts come faster than a chunk takes them, more slots only queue."""
    work = Workload(Lengths("fixed", 8192, 32))
    few, many = (steady("chunked", SMALL, work, batch, chunk=512) for batch in (64, 128))
    assert few.output_tokens_per_s == pytest.approx(many.output_tokens_per_s, rel=1e-9)
    assert many.queue_s > few.queue_s > 0
    with pytest.raises(InputError, match="encoder-decoder"):
        steady("chunked", setting("whisper-large-v3"), Workload(Lengths("fixed", 4, 4), encoder=1500), 1)


def test_disaggregated_prefill_by_hand() -> None:
    """LLaMA-7B, 1,000 tokens of 524,288 B over 50 GB/s; as much prefilling as one decoding unit uses up."""
    run, work = setting("llama-7b", "a100"), Workload(Lengths("fixed", 1000, 101))
    reading, step = step_cost(run, work.prefill()).best, step_cost(run, work.decode(32)).best
    passed = handover(run, work, 32, 50e9)
    assert passed.kv_bytes == 524_288_000
    assert passed.seconds == pytest.approx(524_288_000 / 50e9)
    rate = 32 / (100 * step)
    assert passed.prefill_units == pytest.approx(rate * reading)
    assert passed.link_bytes_per_s == pytest.approx(rate * 524_288_000)
    at = disaggregated(run, work, 32, 50e9)
    assert at.requests_per_s == pytest.approx(rate)
    assert at.devices == pytest.approx(1 + rate * reading)
    assert at.ttft_s == pytest.approx(reading)
    assert at.tpot_s == pytest.approx(step + passed.seconds / 100)
    # Two ranks have two links, each its half.
    two = handover(setting("llama-7b", "a100", tp=2), work, 32, 50e9)
    assert two.seconds == pytest.approx(passed.seconds / 2)


def test_what_a_million_tokens_cost() -> None:
    """CASE-108: 2.50 an hour, 8 GPUs, 12,000 tokens/s (kubernetes-sigs/inference-perf#139)."""
    assert usd_per_million(2.50, 8, 12_000) == pytest.approx(0.46296296296296297, rel=1e-12)


def test_the_knee_is_where_the_cache_takes_as_long_as_the_weights() -> None:
    """Of steps of a + b·B throughput over latency, B/(a + b·B)², is greatest at B = a/b."""
    run, work = setting("llama-7b", "a100", floors=True), Workload(Lengths("fixed", 16, 4000))
    bend = knee(steady("static", run, work, batch) for batch in range(1, 40))
    context = work.lengths.mean_context
    one, two = (step_cost(run, work.decode(batch, context)).best for batch in (1, 2))
    assert bend.batch == pytest.approx((one - (two - one)) / (two - one), abs=1)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 200), st.integers(0, 200))
def test_most_within(limit: int, border: int) -> None:
    assert most_within(lambda count: count <= border, limit) == min(limit, border)


@pytest.mark.parametrize(
    ("model", "row", "layers", "window_layers", "window"),
    [("llama-3-8b", 4096, 32, 0, 1), ("gemma-3-27b", 8192, 10, 52, 1024)],
)
def test_a_shared_prefix_is_kept_once(
    model: str, row: int, layers: int, window_layers: int, window: int
) -> None:
    """2·K·D·b a token and layer; of a window what of the prefix has not slid out."""
    one, kv = load_model(model), find_format("bf16")
    for tokens, shared in ((3000, 2500), (3000, 500), (900, 800), (2000, 0)):
        inside = max(0, shared - max(0, tokens - window))
        expected = row * (layers * shared + window_layers * inside)
        assert shared_bytes(one, tokens, shared, kv) == expected
        run = Setting(one, replace(Run(), kv=kv), load_gpu("h200"))
        alone, together = (Load(tokens, 10, 0.9, shared=n).memory(run) for n in (0, shared))
        assert alone.cache - together.cache == 9 * expected
        assert alone.weights == together.weights


def test_states_are_not_shared() -> None:
    assert shared_bytes(load_model("mamba2-2.7b"), 100, 50, find_format("bf16")) == 0


def test_a_shared_prefix_is_not_computed() -> None:
    half = Workload(Lengths("fixed", 2048, 8), shared=1024)
    assert half.fresh == 1024
    shared, whole = (step_cost(SMALL, work.prefill()).best for work in (half, half._replace(shared=0)))
    assert shared < 0.6 * whole
    with pytest.raises(InputError, match="all but one"):
        Workload(Lengths("fixed", 64, 8), shared=64).checked()


def test_cached_input_of_an_encoder_decoder() -> None:
    """Flan-T5 XL, 256 tokens of which 128 are cached: later tokens read 128 rows of 2 x 32 heads x 64 values
    in each of 24 layers, at 2 bytes, that a prompt without them would not have had."""
    one = setting("flan-t5-xl", "a100", floors=True)
    asked = Request(256, 2, cached=128, encoder=2048).checked()
    reading = step_cost(one, asked.prefill())
    bill = dollars(one, asked, reading, None, 3600.0)
    rows = 128 * 24 * 2 * 32 * 64 * 2
    assert bill.cached_input == pytest.approx(1e6 * rows / one.gpu.bandwidth / 128, rel=1e-9)


def test_ranks_of_one_replica_send_a_cache_together() -> None:
    """LLaMA 3 8B: 131,072 bytes a token, from two ranks over 1 GB/s each; of experts shared out over eight,
    whose batches are their own, each sends its own."""
    ask = Request(1000, 2)
    tensor = Prefiller(setting(floors=True, tp=2), 1e9)
    assert tensor.transfer_s(ask) == pytest.approx(1000 * 131072 / 2e9)
    experts = setting("mixtral-8x7b", floors=True, ep=8)
    assert Prefiller(experts, 1e9).transfer_s(ask) == pytest.approx(1000 * 131072 / 1e9)
    work = Workload(Lengths("fixed", 1000, 2))
    assert handover(experts, work, 1, 1e9).seconds == pytest.approx(1000 * 131072 / 1e9)


def test_policies_are_known_ones() -> None:
    with pytest.raises(InputError, match="static, continuous, chunked, disaggregated, not 'none'"):
        steady("none", setting(), Workload(Lengths("fixed", 10, 10)), 1)
