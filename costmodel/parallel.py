"""A step over several ranks: what one rank computes, and what goes over the links."""

from __future__ import annotations

from dataclasses import replace

from ..models.ffn import Experts
from ..models.recurrent import StateSpace
from ..models.spec import Layer, grouped
from .arith import ceil_div, most, some
from .op import Collective, Op
from .sharding import Parallel, shard_layer, shard_model, stage_layers
from .step import Plan, Segment, Step


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


def link_ops(plan: Plan, parallel: Parallel, stage: int = 0) -> tuple[Op, ...]:
    """Collectives of one rank of `stage` in one step of the unsharded `plan`.

    Tensor parallelism all-reduces the hidden activations after every block that is split (once
    where attention and MLP run side by side, once more inside Mamba-1, whose dt, B and C come from all
    channels) and after the vocabulary-parallel embedding, and gathers the logits; expert parallelism over
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
    for layer, times in grouped(tuple(shard_layer(layer, parallel) for layer in layers)):
        for block in layer.blocks:
            exchange = block.exchange()
            if exchange is not None:
                values = exchange.partial if decoding else exchange.fresh
                moved = step.tokens * values * plan.activation_bytes * parallel.cp
                out.append(Op(phase, "context_gather", Collective("all_gather", moved, parallel.cp), times))
    return out


def _reductions(layer: Layer) -> int:
    return min(1, layer.main_blocks) if layer.parallel else layer.main_blocks
