"""A model over several ranks: what one rank holds and computes, and what goes over the links."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import InputError
from ..models.attention import Attention, CrossAttention, LatentAttention
from ..models.ffn import Dense, Experts, Projections
from ..models.recurrent import LinearAttention, Recurrent, ShortConvolution, StateSpace
from ..models.spec import Block, Layer, Model, grouped
from .arith import ceil_div, most, some
from .op import Collective, Op
from .step import Plan, Segment, Step


@dataclass(frozen=True)
class Parallel:
    """`tp` ranks share every matrix, `ep` ranks share out the experts, `pp` stages share out layers, `cp`
    groups share out each sequence's tokens.

    `ep` is 1, or equals `tp` (experts over the tensor-parallel group), or stands with tp = 1: then
    each rank attends to sequences of its own and tokens travel to the experts and back.
    """

    tp: int = 1
    ep: int = 1
    pp: int = 1
    cp: int = 1

    def __post_init__(self) -> None:
        for name in ("tp", "ep", "pp", "cp"):
            if not 1 <= getattr(self, name) <= 4096:
                raise InputError(f"{name} must be between 1 and 4096, not {getattr(self, name)}")
        if self.ep > 1 and self.tp > 1 and self.ep != self.tp:
            raise InputError(f"ep {self.ep} with tp {self.tp}: ep is 1, equal to tp, or stands alone")

    @property
    def world(self) -> int:
        return max(self.tp, self.ep) * self.pp * self.cp


def kv_heads_per_rank(kv_heads: int, tp: int) -> int:
    """KV heads a rank stores: kv_heads / tp, and one (a copy) where tp is larger. Source: vLLM."""
    if kv_heads % tp and tp % kv_heads:
        raise InputError(f"tp {tp} neither divides {kv_heads} KV heads nor is a multiple of them")
    return max(1, kv_heads // tp)


def kv_copies(kv_heads: int, tp: int) -> int:
    """How many ranks store the same KV head."""
    return tp * kv_heads_per_rank(kv_heads, tp) // kv_heads


def shard(plan: Plan, parallel: Parallel, stage: int = 0) -> Plan:
    """The plan of one rank of pipeline `stage`: a smaller model over the same step.

    Widths and heads are divided by tp (KV heads copied once there are fewer than ranks, latent
    caches copied on every rank), experts by ep, layers by pp. The first stage holds the tables and
    the encoder, the last one the head. With expert parallelism over data-parallel attention, the
    step is one rank's own and `expert_ranks` meet at the experts.

    Raises InputError where something does not divide.
    """
    ranks = parallel.ep if parallel.tp == 1 else 1
    run = replace(plan.run, expert_ranks=ranks)
    return replace(plan, model=shard_model(plan.model, parallel, stage), run=run)


def shard_model(model: Model, parallel: Parallel, stage: int = 0) -> Model:
    """What one rank of pipeline `stage` holds, as a smaller model (see `shard`)."""
    blocks = [block for layer in model.layers for block in layer.blocks]
    if parallel.pp > 1 and any(getattr(block, "shared_from", None) is not None for block in blocks):
        raise InputError(
            f"pp {parallel.pp}: layers of {model.name} share caches; cutting them is not modelled"
        )
    layers = tuple(_shard_layer(layer, parallel) for layer in stage_layers(model, parallel, stage))
    encoder = model.encoder
    if encoder is not None:
        encoder = replace(encoder, layers=tuple(_shard_layer(layer, parallel) for layer in encoder.layers))
    return replace(
        model,
        layers=layers,
        vocab=ceil_div(model.vocab, parallel.tp),
        encoder=encoder,
        input_end=model.input_end and stage == 0,
        output_end=model.output_end and stage == parallel.pp - 1,
    )


def rank_step(step: Step, parallel: Parallel) -> Step:
    """What one group of context parallelism computes of a step: a cp-th of each prompt's new tokens, after so
    many old ones that it attends to a cp-th of all pairs (tokens dealt out from both ends, as ring attention
    balances them); of a decode, the whole new token over a cp-th of the cached rows.

    Source: Ring Attention, arXiv 2310.01889; Llama 3, arXiv 2407.21783, section 3.3.2.
    """
    if parallel.cp == 1:
        return step
    return step._replace(segments=tuple(_part(segment, parallel.cp) for segment in step.segments))


def _part(segment: Segment, cp: int) -> Segment:
    if not some(segment.new - 1):
        return replace(segment, past=most(ceil_div(segment.past, cp), 1))
    new = ceil_div(segment.new, cp)
    # pairs: new x past + new (new + 1) / 2 is a cp-th of T x past + T (T + 1) / 2
    return replace(segment, new=new, past=segment.past + (segment.new - new) // 2)


def stage_layers(model: Model, parallel: Parallel, stage: int) -> tuple[Layer, ...]:
    """Layers of one pipeline stage: as even as they can be, the first stages one longer."""
    if len(model.layers) < parallel.pp:
        raise InputError(f"pp {parallel.pp} is more than the {len(model.layers)} layers of {model.name}")
    if not 0 <= stage < parallel.pp:
        raise InputError(f"stage {stage} is not one of the {parallel.pp} pipeline stages")
    each, longer = divmod(len(model.layers), parallel.pp)
    start = stage * each + min(stage, longer)
    return model.layers[start : start + each + (stage < longer)]


def _shard_layer(layer: Layer, parallel: Parallel) -> Layer:
    return replace(layer, blocks=tuple(_shard_block(block, parallel) for block in layer.blocks))


def _divide(value: int, by: int, what: str) -> int:
    if value % by:
        raise InputError(f"{what} {value} does not divide over {by} ranks")
    return value // by


def _shard_block(block: Block, parallel: Parallel) -> Block:
    tp = parallel.tp
    if isinstance(block, Experts):
        return _shard_experts(block, parallel)
    if tp == 1:
        return block
    match block:
        case Attention() | CrossAttention():
            heads = _divide(block.heads, tp, "heads")
            return replace(block, heads=heads, kv_heads=kv_heads_per_rank(block.kv_heads, tp))
        case LatentAttention():
            return replace(block, heads=_divide(block.heads, tp, "heads"))
        case StateSpace():
            some = None if block.heads is None else _divide(block.heads, tp, "state-space heads")
            groups = kv_heads_per_rank(block.groups, tp)
            return replace(block, inner=_divide(block.inner, tp, "inner"), heads=some, groups=groups)
        case LinearAttention():
            return replace(
                block,
                key_heads=_divide(block.key_heads, tp, "key_heads"),
                value_heads=_divide(block.value_heads, tp, "value_heads"),
            )
        case Recurrent():
            width, heads = _divide(block.width, tp, "width"), _divide(block.heads, tp, "heads")
            return replace(block, width=width, heads=heads)
        case ShortConvolution() | Dense():
            return replace(block, width=_divide(block.width, tp, "width"))
        case Projections():
            return block
    raise TypeError(f"no sharding for {type(block).__name__}")


def _shard_experts(block: Experts, parallel: Parallel) -> Experts:
    shared = block.shared_width or block.width
    if parallel.ep > 1:
        count = _divide(block.count, parallel.ep, "experts")
        if block.shared and parallel.tp > 1:
            shared = _divide(shared, parallel.tp, "shared expert width")
        return replace(block, count=count, total=block.count, shared_width=shared)
    shared = _divide(shared, parallel.tp, "shared expert width") if block.shared else shared
    width = _divide(block.width, parallel.tp, "expert width")
    return replace(block, width=width, shared_width=shared)


def link_ops(plan: Plan, parallel: Parallel, stage: int = 0) -> tuple[Op, ...]:
    """Collectives of one rank of `stage` in one step of the unsharded `plan`.

    Tensor parallelism all-reduces the hidden activations after every block (once where attention
    and MLP run side by side, once more inside Mamba-1, whose dt, B and C come from all channels) and
    after the vocabulary-parallel embedding, and gathers the logits; expert parallelism over
    data-parallel attention sends each token's hidden vector to its top_k experts and back; a
    pipeline stage passes the hidden activations on.
    Source: Megatron-LM, arXiv 1909.08053, section 3; DeepSeekMoE for the dispatch.
    """
    model, phase, out = plan.model, plan.step.phase, list[Op]()
    layers = stage_layers(model, parallel, stage)
    first, last = stage == 0, stage == parallel.pp - 1
    hidden_bytes = plan.step.tokens * model.hidden * plan.activation_bytes
    if parallel.tp > 1:
        work = Collective("all_reduce", hidden_bytes, parallel.tp)
        out.append(Op(phase, "all_reduce", work, sum(_reductions(layer) for layer in layers) + first))
        blocks = [block for layer in layers for block in layer.blocks]
        mamba = [b for b in blocks if isinstance(b, StateSpace) and b.dt_rank is not None]
        if mamba:
            width = (mamba[0].dt_rank or 0) + 2 * mamba[0].state
            small = plan.step.tokens * width * plan.activation_bytes
            out.append(Op(phase, "reduce_dt_bc", Collective("all_reduce", small, parallel.tp), len(mamba)))
        if last:
            logits = plan.step.logit_rows * model.vocab * plan.activation_bytes
            out.append(Op(phase, "gather_logits", Collective("all_gather", logits, parallel.tp), 1))
    elif parallel.ep > 1:
        for layer, times in grouped(layers):
            for block in layer.blocks:
                if isinstance(block, Experts):
                    work = Collective("all_to_all", hidden_bytes * block.top_k, parallel.ep)
                    out += [Op(phase, "dispatch", work, times), Op(phase, "combine", work, times)]
    if parallel.cp > 1:
        out += _context_links(plan, parallel, layers)
    if not last:
        out.append(Op(phase, "send", Collective("send", hidden_bytes, 2), 1))
    return tuple(out)


def _context_links(plan: Plan, parallel: Parallel, layers: tuple[Layer, ...]) -> list[Op]:
    """Per attention layer: the other groups' keys and values of the new tokens in a prefill; in a decode each
    group's partial output, with its maximum and sum."""
    out, phase, step = list[Op](), plan.step.phase, plan.step
    decoding = not some(step.tokens - sum(segment.count for segment in step.segments))
    for layer, times in grouped(tuple(_shard_layer(layer, parallel) for layer in layers)):
        for block in layer.blocks:
            if isinstance(block, (Attention, LatentAttention)):
                if decoding:
                    width = block.heads * _value_width(block) + 2 * block.heads
                    moved = step.tokens * width * plan.activation_bytes * parallel.cp
                else:
                    rows = sum(row.heads * row.width for row in block.cache().rows)
                    moved = step.tokens * rows * plan.activation_bytes * parallel.cp
                out.append(Op(phase, "context_gather", Collective("all_gather", moved, parallel.cp), times))
    return out


def _value_width(block: Attention | LatentAttention) -> int:
    return block.v_width if isinstance(block, Attention) else block.v_head_dim


def _reductions(layer: Layer) -> int:
    return 1 if layer.parallel else len(layer.blocks)
