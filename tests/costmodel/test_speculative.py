"""Speculation: yields against a simulation and the papers' closed forms, laws of rounds, drafts by hand."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infercost import InputError
from infercost.cli.calibrations import clock_of
from infercost.costmodel.cascade import Cascade
from infercost.costmodel.early_exit import Exits, at_every, early_exit, weight_reads
from infercost.costmodel.setting import Setting, step_cost
from infercost.costmodel.sharding import Parallel
from infercost.costmodel.speculative import (
    LOOKUP,
    OUTSIDE_LAYERS,
    Round,
    Speculation,
    Walk,
    acceptance,
    expected_tokens,
    fastest,
    free_tokens,
    heuristic_draft,
    layer_draft,
    medusa_draft,
    model_draft,
    operations,
    tree_tokens,
)
from infercost.costmodel.speculative_methods import METHODS, errors, speculation_of
from infercost.costmodel.step import Run, decode
from infercost.hardware.catalogue import load_gpu
from infercost.models.catalogue import load_model
from infercost.models.recipes import find_recipe

ALPHAS = st.floats(0, 1)
GAMMAS = st.integers(1, 16)


def setting(model: str, gpu: str = "a100", weights: str | None = None, tp: int = 1) -> Setting:
    one = load_gpu(gpu)
    run = Run(recipe=None if weights is None else find_recipe(weights))
    return Setting(load_model(model), run, one, Parallel(tp), clock_of("auto", one))


@pytest.mark.parametrize(("alpha", "gamma"), [(0.6, 4), (2 / 3, 3), (0.9, 8)])
def test_yields_as_simulated(alpha: float, gamma: int) -> None:
    """Drafted tokens accepted one by one until the first is not, and one of the target's."""
    chance = random.Random(5)
    rounds = 40_000
    total = 0
    for _ in range(rounds):
        accepted = 0
        while accepted < gamma and chance.random() < alpha:
            accepted += 1
        total += accepted + 1
    assert total / rounds == pytest.approx(expected_tokens(alpha, gamma), rel=0.01)


@given(alpha=st.floats(0, 0.999), gamma=GAMMAS)
def test_the_closed_form(alpha: float, gamma: int) -> None:
    assert expected_tokens(alpha, gamma) == pytest.approx((1 - alpha ** (gamma + 1)) / (1 - alpha), rel=1e-9)


@given(alpha=ALPHAS, gamma=GAMMAS)
def test_acceptance_is_the_inverse(alpha: float, gamma: int) -> None:
    tokens = expected_tokens(alpha, gamma)
    assert expected_tokens(acceptance(tokens, gamma), gamma) == pytest.approx(tokens, rel=1e-9)
    with pytest.raises(InputError):
        acceptance(gamma + 1.5, gamma)
    with pytest.raises(InputError):
        acceptance(0.5, gamma)


@given(alpha=ALPHAS, gamma=GAMMAS, draft=st.floats(0, 2), verify=st.floats(0.5, 4), step=st.floats(1e-4, 10))
def test_laws_of_a_round(alpha: float, gamma: int, draft: float, verify: float, step: float) -> None:
    one = Round(expected_tokens(alpha, gamma), gamma, draft, verify)
    scaled = Round(one.tokens, gamma, draft * step, verify * step, step)
    assert scaled.speedup == pytest.approx(one.speedup, rel=1e-9)
    even = one.break_even_draft
    assert even is not None
    assert (one.speedup > 1) == (draft < even) or math.isclose(one.speedup, 1, rel_tol=1e-9)
    if even > 0:
        assert one._replace(draft=even).speedup == pytest.approx(1, rel=1e-9)
    assert one._replace(draft=draft + 0.1).speedup < one.speedup
    # Theorem 3.8 of arXiv 2211.17192, where verifying is free.
    if alpha < 1:
        free = (1 - alpha ** (gamma + 1)) / ((1 - alpha) * (gamma * draft + 1))
        assert one._replace(verify=1).speedup == pytest.approx(free, rel=1e-9)


@given(alpha=st.floats(0.01, 0.99), gamma=GAMMAS, draft=st.floats(0, 1))
def test_operations_of_the_paper(alpha: float, gamma: int, draft: float) -> None:
    paper = (1 - alpha) * (gamma * draft + gamma + 1) / (1 - alpha ** (gamma + 1))
    found = operations(expected_tokens(alpha, gamma), gamma, draft, gamma + 1)
    assert found == pytest.approx(paper, rel=1e-9)


RANKS = st.lists(st.lists(st.floats(0, 0.33), min_size=1, max_size=3), min_size=1, max_size=3)


@given(ranks=RANKS, size=st.integers(1, 45))
def test_a_tree_takes_the_most_probable_paths(ranks: list[list[float]], size: int) -> None:
    every = [1.0]
    for depth in range(1, len(ranks) + 1):
        every += [math.prod(path) for path in itertools.product(*ranks[:depth])]
    best = sorted(every, reverse=True)[:size]
    found, nodes = tree_tokens(ranks, size)
    assert nodes == len(best)
    assert found == pytest.approx(sum(best), rel=1e-9)


@given(alpha=ALPHAS, gamma=st.integers(1, 8))
def test_a_tree_of_one_guess_a_head_is_a_chain(alpha: float, gamma: int) -> None:
    found, nodes = tree_tokens([[alpha]] * gamma, 64)
    assert (found, nodes) == (pytest.approx(expected_tokens(alpha, gamma), rel=1e-9), gamma + 1)


@given(
    gamma=st.integers(1, 8),
    rounds=st.lists(st.integers(0, 8), min_size=1, max_size=20),
)
def test_laws_of_a_walk(gamma: int, rounds: list[int]) -> None:
    accepted = tuple(min(each, gamma) for each in rounds)
    walked = Walk(accepted, gamma).checked()
    ended = accepted[-1] == gamma
    assert walked.tokens == sum(accepted) + len(accepted) - ended
    assert walked.kept <= walked.examined <= walked.drafted == gamma * walked.passes
    assert sum(walked.yields) == walked.tokens


def test_what_is_no_walk() -> None:
    for accepted, gamma in (((4,), 3), ((-1,), 3), ((), 3), ((0,), 0)):
        with pytest.raises(InputError):
            Walk(accepted, gamma).checked()


@pytest.mark.parametrize("tokens", [1.5, 2.28, 3.5])
def test_where_the_heuristic_rests(tokens: float) -> None:
    """Two more after a whole round, one fewer after any other: drafted and yielded, as simulated."""
    alpha, gamma = heuristic_draft(tokens)
    chance, length, drafted, yielded, rounds = random.Random(3), 5, 0, 0, 60_000
    for _ in range(rounds):
        accepted = 0
        while accepted < length and chance.random() < alpha:
            accepted += 1
        drafted, yielded = drafted + length, yielded + accepted + 1
        length = length + 2 if accepted == length else max(1, length - 1)
    assert drafted / rounds == pytest.approx(gamma, rel=0.03)
    assert yielded / rounds == pytest.approx(tokens, rel=0.02)
    with pytest.raises(InputError):
        heuristic_draft(1)


@settings(max_examples=10, deadline=None)
@given(alpha=st.floats(0.1, 0.95), batch=st.sampled_from([1, 8, 64]), context=st.integers(1, 4096))
def test_a_speculation_of_models(alpha: float, batch: int, context: int) -> None:
    target, small = setting("llama-3-8b", "h100"), setting("llama-3.2-1b", "h100")
    found = Speculation(target, model_draft(small), batch, context)
    lengths = found.lengths(alpha, range(1, 6))
    plain = step_cost(target, decode(batch, context))
    for each in lengths:
        for kind, seconds in plain.times().items():
            one = each.rounds[kind]
            assert one is not None
            assert one.step == seconds
        floor, bound = each.rounds["floor"], each.rounds["bound"]
        assert floor is not None
        assert bound is not None
        assert bound.verify <= floor.verify
        assert floor.verify >= floor.step  # more tokens never take less than one, at their floors
    assert fastest(lengths).best.speedup == max(each.best.speedup for each in lengths)
    slow = found._replace(host_s=1e-3).lengths(alpha, [3])[0].best
    assert slow.step == pytest.approx(1e-3 * (32 + OUTSIDE_LAYERS))
    assert slow.verify == slow.step
    assert slow.draft == pytest.approx(1e-3 * (16 + OUTSIDE_LAYERS))
    assert slow.around == pytest.approx(1e-3 * OUTSIDE_LAYERS)


def test_a_model_that_drafts_for_itself_gains_nothing() -> None:
    target = setting("llama-3-8b", "h100")
    for each in Speculation(target, model_draft(target), 1, 512).lengths(1.0, range(1, 5)):
        floor = each.rounds["floor"]
        assert floor is not None
        assert floor.speedup < 1.01


def test_free_only_below_the_ridge() -> None:
    """sp.verify: 153 tokens on an A100 in 16 bit, 38 in bare 4 bit."""
    assert free_tokens(setting("llama-7b")) == pytest.approx(153.016, rel=1e-4)
    assert free_tokens(setting("llama-7b", weights="int4")) == pytest.approx(38.25, rel=1e-3)
    costs = [
        Speculation(setting("llama-7b"), LOOKUP, batch, 1).lengths(0.5, [4])[0].rounds["bound"]
        for batch in (1, 32, 64)
    ]
    ratios = [one.verify / one.step for one in costs if one is not None]
    assert ratios[0] == pytest.approx(1, abs=0.001)
    assert 1.04 < ratios[1] < 1.06
    assert ratios[2] > 2


def test_heads_and_layers_by_hand() -> None:
    """sp.medusa: K(H^2 + HV) values, +0.3 GB of fp16 a head for LLaMA-7B."""
    target = setting("llama-7b")
    hidden, vocab = 4096, 32000
    for heads in (1, 5):
        found = Speculation(target, medusa_draft(target, heads), 1, 128)
        memory = found.memory()
        assert memory.weights == heads * 2 * (hidden * hidden + hidden * vocab)
        assert (memory.cache, memory.shared) == (0, 0)
        drafting = found.passes(2).draft
        assert drafting is not None
        assert drafting.matmul_flops == heads * 2 * (hidden * hidden + hidden * vocab)
        assert drafting.weight_bytes == memory.weights
    layer = 202_375_168 + 2 * hidden * hidden + 4 * hidden  # one of LLaMA's, the 2H x H matrix, four norms
    memory = Speculation(target, layer_draft(target, "eagle"), 3, 100).memory()
    assert memory.weights == 2 * layer
    assert memory.cache == 3 * 100 * 2 * 2 * hidden
    assert memory.shared == 2 * (2 * vocab * hidden + hidden)
    assert memory.kv_per_token == 524_288 // 32 * 33
    assert Speculation(target, LOOKUP, 1, 100).memory()[:3] == (0, 0, 0)


def test_layers_that_do_not_stand_alone() -> None:
    for model in ("flan-t5-xl", "gemma-3n-e2b"):
        one = setting(model)
        alone = all(getattr(block, "shared_from", None) is None for block in one.model.layers[-1].blocks)
        if one.model.encoder is None and alone:
            continue
        with pytest.raises(InputError, match="does not stand alone"):
            layer_draft(one, "mtp")


def test_every_method_is_passes() -> None:
    target, drafter = setting("llama-7b"), setting("llama-68m")
    for name, method in METHODS.items():
        found, length, verify = speculation_of(method, target, drafter, 1, 2.5, None)
        one = found.verified(2.5, length, verify, found.passes(verify)).best
        assert 0 < one.speedup <= 2.5 * 1.02, name
        assert verify >= 2
    with pytest.raises(InputError):
        speculation_of(METHODS["sps"], target, None, 1, 2.5, None)
    assert errors([0.1, -0.3, 0.2]) == (3, 0.2, pytest.approx(0.2), 0.1)


def test_exits_of_llama_by_hand() -> None:
    """ee.entropy: a head is 0.648 of a layer; checks at all 32 layers cost 52.73 instead of 32.65."""
    one = setting("llama-7b")
    reads = weight_reads(one, at_every(32, 1, 0))
    head = 131_072_000 / 202_375_168
    assert reads.head == pytest.approx(head, rel=5e-4)
    assert reads.full == pytest.approx(32.648, rel=5e-4)
    assert reads.early == pytest.approx(52.73, rel=5e-4)
    assert reads.break_even_layer == pytest.approx(19.8, abs=0.02)
    half = Exits(32, (16,), ((16, 0.5),)).checked()
    assert weight_reads(one, half).early == pytest.approx(0.5 * (16 + head) + 0.5 * (32 + 2 * head), rel=5e-4)


@settings(max_examples=10, deadline=None)
@given(every=st.integers(1, 16), hazard=ALPHAS, batch=st.sampled_from([1, 4, 64]))
def test_laws_of_exits(every: int, hazard: float, batch: int) -> None:
    one = setting("llama-3-8b", "h100")
    exits = at_every(32, every, hazard).checked()
    assert sum(exits.left.values()) == pytest.approx(1)
    together = exits.of_a_batch(batch)
    assert sum(together.left.values()) == pytest.approx(1)
    assert together.mean_layer >= exits.mean_layer - 1e-9
    never = early_exit(one, Exits(32, (), ()), batch, 256)
    assert never.early["floor"] == pytest.approx(never.full.floor, rel=1e-9)
    found = early_exit(one, exits, batch, 256)
    assert found.fill["floor"] is not None
    assert found.early["floor"] is not None
    assert 0 <= found.fill["floor"] < found.early["floor"]
    if hazard == 0:
        assert found.early["floor"] > found.full.floor


def test_filling_skipped_layers_reads_their_k_and_v() -> None:
    """Exit after layer 16: K and V matrices of the 16 skipped, 2·H·H values each, at batch 1 memory-bound."""
    one = setting("llama-7b")
    found = early_exit(one, Exits(32, (16,), ((16, 1.0),)), 1, 256)
    moved = 16 * (2 * 2 * 4096 * 4096 + 3 * 2 * 4096)
    assert found.fill["floor"] == pytest.approx(moved / 2039e9, rel=1e-3)
    assert found.fill["bound"] == pytest.approx(16 * 2 * 2 * 4096 * 4096 / 2039e9, rel=1e-9)


@pytest.mark.parametrize("model", ["mamba2-2.7b", "jamba-v0.1", "qwen3-next-80b-a3b"])
def test_a_state_cannot_be_filled(model: str) -> None:
    one = setting(model, "h200")
    with pytest.raises(InputError, match="keeps a state"):
        early_exit(one, Exits(len(one.model.layers), (1,), ((1, 1.0),)), 1, 64)


@given(
    costs=st.lists(st.floats(0.01, 100), min_size=2, max_size=5),
    scorer=st.floats(0, 1),
    data=st.data(),
)
def test_laws_of_a_cascade(costs: list[float], scorer: float, data: st.DataObject) -> None:
    shares = data.draw(st.lists(ALPHAS, min_size=len(costs) - 1, max_size=len(costs) - 1))
    found = Cascade(tuple(costs), tuple(shares), scorer).checked()
    assert costs[0] <= found.mean <= found.worst * (1 + 1e-12)
    even = found.break_even
    if 0 <= even <= 1:
        at = found._replace(accepted=(even, *shares[1:]))
        assert at.mean == pytest.approx(costs[-1], rel=1e-6)
    # Simulated as a walk over models: the share that reaches the end is the product of refusals.
    assert found.reached[-1] == pytest.approx(math.prod(1 - share for share in shares))


def test_what_is_no_cascade() -> None:
    for cascade in (
        Cascade((1.0,), ()),
        Cascade((1.0, 2.0), ()),
        Cascade((1.0, 2.0), (1.5,)),
        Cascade((0.0, 2.0), (0.5,)),
        Cascade((1.0, 2.0), (0.5,), -1.0),
    ):
        with pytest.raises(InputError):
            cascade.checked()


def stored(model: str, by_layer: Callable[[int, str], str]) -> Setting:
    """A setting of `model` as a GGUF file holds it: formats of the matrices by layer and name, norms fp32."""
    one = load_model(model)
    held = [
        (at, tensor.component, tensor.name, by_layer(at, tensor.name))
        for at, layer in enumerate(one.layers)
        for tensor in layer.blocks[0].tensors(one.hidden) + layer.blocks[1].tensors(one.hidden)
    ]
    outside = [(-1, "embedding", "embedding", "q4_k"), (-1, "head", "head", "q6_k")]
    gpu = load_gpu("a100")
    return Setting(replace(one, stored=(*outside, *held)), Run(), gpu)


def test_a_draft_of_a_file_is_stored_as_its_last_layer() -> None:
    """LLaMA 3 8B with `down` in q6_k in the last layer alone: 256 values take 144 and 210 bytes; the fusion
    matrix is in no file, and in 16 bit."""
    target = stored("llama-3-8b", lambda at, name: "q6_k" if (at, name) == (31, "down") else "q4_k")
    memory = Speculation(target, layer_draft(target, "eagle"), 1, 1000).memory()
    four = 4096 * 4096 * 2 + 1024 * 4096 * 2 + 2 * 14336 * 4096
    six = 14336 * 4096
    norms = 4 * 4096 * 4
    assert memory.weights == 8192 * 4096 * 2 + four // 256 * 144 + six // 256 * 210 + norms


def test_skipped_layers_are_filled_from_keys_as_they_are_stored() -> None:
    """K and V of 4096 x 2048 in q4_k, one token in and its rows out in 2 bytes, for each of 8 layers."""
    target = stored("llama-3-8b", lambda at, name: "q4_k" if at >= 24 else "q8_0")
    filled = early_exit(target, Exits(32, (24,), ((24, 1.0),)), 1, 100).fill["floor"]
    each = 4096 * 2048 // 256 * 144 + 2 * (4096 + 2048)
    assert filled == pytest.approx(8 * each / target.gpu.bandwidth, rel=1e-12)
