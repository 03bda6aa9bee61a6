"""Every kind of block, one small example of each, through everything that has to know it.

A kind is found through the registry: a new one needs an example in `EXAMPLES`, and nothing else here.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from infercost.costmodel.compression import WORDS, Kept, pruned
from infercost.costmodel.engines import ALLOCATORS, How, reserved
from infercost.costmodel.forward import BUILDS, ops
from infercost.costmodel.kv import allocate, cache_bill, cache_groups
from infercost.costmodel.parallel import link_ops, rank_step, shard
from infercost.costmodel.roofline import bound_s, compulsory, step_floor_s
from infercost.costmodel.sharding import Parallel, shard_model
from infercost.costmodel.step import Plan, Segment, Step, decode, prefill
from infercost.costmodel.weights import weight_bill
from infercost.hardware.catalogue import load_gpu
from infercost.models.attention import Attention, CrossAttention, LatentAttention
from infercost.models.block import Block, Mixer
from infercost.models.ffn import Dense, Experts, Projections
from infercost.models.formats import find_format
from infercost.models.kinds import KINDS
from infercost.models.recipes import find_recipe
from infercost.models.recurrent import LinearAttention, Recurrent, ShortConvolution, StateSpace
from infercost.models.sheet import model_from_text
from infercost.models.sheet_text import sheet_text
from infercost.models.spec import Encoder, Layer, Model
from infercost.probes.memory import _tensors

EXAMPLES: tuple[Block, ...] = (
    Attention(8, 4, 16),
    Attention(8, 4, 16, window=64),
    LatentAttention(8, 32, 16, 8, 16),
    LatentAttention(8, 32, 16, 8, 16, q_lora_rank=48, index_heads=4, index_dim=8, index_top_k=32),
    StateSpace(64, 8, 4, dt_rank=4),
    StateSpace(64, 8, 4, heads=4, groups=2),
    LinearAttention("gated_delta", 4, 8, 16, 16, conv_kernel=4),
    LinearAttention("lightning", 4, 4, 16, 16),
    LinearAttention("rwkv", 4, 4, 16, 16),
    Recurrent(64, 4, 4),
    ShortConvolution(64, 3),
    CrossAttention(8, 4, 16),
    Dense(96),
    Experts(8, 2, 32, shared=1),
    Projections("64x8 8x64"),
)
MIXERS = [block for block in EXAMPLES if isinstance(block, Mixer)]
FP16, HIDDEN, TOKENS, POSITIONS = find_format("fp16"), 64, 1000, 40
HOW, LONG = How(16, 2048, 256), 65_536


def named(block: Block) -> str:
    return f"{block.key}-{EXAMPLES.index(block)}"


def model(block: Block) -> Model:
    """One layer of it, beside what it cannot do without."""
    encoder = None
    if isinstance(block, CrossAttention):
        encoder = Encoder(HIDDEN, (Layer((Attention(8, 8, 8), Dense(96))),))
    return Model("small", HIDDEN, 128, (Layer((block,)),) * 2, "made up for this test", encoder=encoder)


def steps(block: Block) -> list[Step]:
    if isinstance(block, CrossAttention):
        return [
            Step("prefill", (Segment(2, 30, 0, encoder_new=POSITIONS),)),
            Step("decode", (Segment(2, 1, TOKENS - 1, encoder_past=POSITIONS),)),
        ]
    return [prefill(2, 300), decode(2, TOKENS)]


def made(block: Block, step: Step) -> dict[str, int]:
    """Matrix FLOPs and weight bytes of its layers: those of a model less those of one without."""
    with_it = ops(Plan(model(block), step))
    without = ops(Plan(replace(model(block), layers=(Layer((Projections("1x1"),), norms=0),)), step))
    return {
        "flops": sum(o.matmul_flops for o in with_it) - sum(o.matmul_flops for o in without),
        "weights": sum(o.bytes.weights for o in with_it) - sum(o.bytes.weights for o in without),
    }


def test_each_kind_has_an_example_and_operations() -> None:
    assert {type(block) for block in EXAMPLES} == set(KINDS.values()) == set(BUILDS)
    assert all(KINDS[block.key] is type(block) for block in EXAMPLES)


@pytest.mark.parametrize("block", EXAMPLES, ids=named)
def test_its_operations_read_its_weights_and_its_cache(block: Block) -> None:
    """No operations, not all of its matrices, or a cache left alone: a hole in its builder."""
    matrices = [t for t in block.tensors(HIDDEN) if t.kind == "linear" and t.component != "experts"]
    size = 2 * sum(find_recipe("fp16").tensor_bytes(t, 0, model(block)) for t in matrices)
    gpu = load_gpu("h100")
    for step in steps(block):
        assert made(block, step)["flops"] > 0
        if not (isinstance(block, CrossAttention) and step.phase == "decode"):
            assert made(block, step)["weights"] >= size - 4
        plan = Plan(model(block), step)
        built = ops(plan)
        touched = sum(op.bytes.kv + op.bytes.state for op in built)
        assert (touched > 0) == bool(block.caches())
        assert compulsory(plan, built).cached <= touched
        assert bound_s(plan, built, gpu) <= step_floor_s(built, gpu) * (1 + 1e-12)


@pytest.mark.parametrize("block", EXAMPLES, ids=named)
def test_two_ranks_share_it(block: Block) -> None:
    """Of its weights each has about half, unless it is a side path; of its cache half at least."""
    whole, rank = model(block), shard_model(model(block), Parallel(tp=2))
    held, half = (weight_bill(m, find_recipe("fp16")).weight_bytes for m in (whole, rank))
    assert half < held
    mine, all_of_it = rank.layers[0].blocks[0], find_recipe("fp16")
    sizes = [sum(all_of_it.tensor_bytes(t, 0, whole) for t in b.tensors(HIDDEN)) for b in (block, mine)]
    assert sizes[1] < 0.65 * sizes[0] if block.main else mine == block
    assert shard_model(whole, Parallel()).layers[0].caches() == whole.layers[0].caches()
    caches = [cache_bill(m, TOKENS, 1, FP16, POSITIONS).logical_bytes for m in (whole, rank)]
    assert caches[0] / 2 <= caches[1] <= caches[0]
    for step in steps(block):
        assert sum(op.matmul_flops for op in ops(shard(Plan(whole, step), Parallel(tp=2)))) > 0
        assert link_ops(Plan(whole, step), Parallel(tp=2))


@pytest.mark.parametrize("block", EXAMPLES, ids=named)
def test_context_parallelism_passes_on_what_it_says(block: Block) -> None:
    """A block that attends to growing rows of the decoder's tokens has to: its queries see every group's."""
    for step in steps(block):
        gathers = [
            op for op in link_ops(Plan(model(block), step), Parallel(cp=2)) if op.name == "context_gather"
        ]
        assert bool(gathers) == any(cache.keeps_tokens for cache in block.caches())
        assert all(op.work.wire_bytes > 0 for op in gathers)
        part = rank_step(step, Parallel(cp=2))
        assert ops(shard(Plan(model(block), part), Parallel(cp=2)))


@pytest.mark.parametrize("block", EXAMPLES, ids=named)
def test_pruning_cuts_what_it_says(block: Block) -> None:
    """A field called heads, or experts' count, is one that pruning asks for; halved, the block is smaller."""
    fields = block.prunable()
    assert set(fields) <= set(WORDS)
    growing = any(cache.grows for cache in block.caches())
    assert "heads" in fields or not (growing and hasattr(block, "heads"))
    for name, field in fields.items():
        half = Kept(**{name: getattr(block, field) // 2})
        small = pruned(model(block), half).layers[0].blocks[0]
        assert getattr(small, field) == getattr(block, field) // 2
        count = [sum(t.elements for t in b.tensors(HIDDEN)) for b in (block, small)]
        assert count[1] < count[0]


@pytest.mark.parametrize("block", MIXERS, ids=named)
def test_every_allocator_takes_its_cache(block: Block) -> None:
    """No less than is kept, and no more than whole blocks, a window's in flight, and padding are."""
    one = model(block)
    own = [cache for cache, _ in cache_groups(one) if not cache.of_encoder]
    if not own:
        return
    kept = cache_bill(one, LONG, 1, FP16).logical_bytes
    every = sum(n * (c.bytes_per_token(FP16) * LONG + c.state_bytes()) for c, n in cache_groups(one))
    for engine in ALLOCATORS:
        _, taken = reserved(engine, one, FP16, LONG, 1, HOW)
        assert kept <= taken <= 1.1 * every, engine
    for policy in ("paged", "static", "concat"):
        taken = allocate(one, policy, LONG, 1, FP16, reserved=2 * LONG, prompt=10).allocated_bytes
        assert kept <= taken <= 2 * every


@pytest.mark.parametrize("block", MIXERS, ids=named)
def test_the_probe_holds_what_is_predicted(block: Block) -> None:
    """The tensors of the memory probe, counted without making them."""
    one, held = model(block), 0
    for cache in (cache for layer in one.layers for cache in layer.caches()):
        for shape, each in _tensors(cache, TOKENS, POSITIONS):
            size = each
            for extent in shape:
                size *= extent
            held += size
    assert held == cache_bill(one, TOKENS, 1, FP16, POSITIONS).logical_bytes


@pytest.mark.parametrize("block", EXAMPLES, ids=named)
def test_a_sheet_says_it(block: Block) -> None:
    one = model(block)
    assert model_from_text(sheet_text(one), "made.yaml") == one
    mixed = replace(one, layers=(*one.layers, Layer((Dense(48),))))
    assert model_from_text(sheet_text(mixed), "made.yaml") == mixed
