"""One rank of a model over several: a smaller model, its heads, experts, widths and layers shared out."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import InputError
from ..models.attention import Attention, CrossAttention, LatentAttention
from ..models.ffn import Dense, Experts, Projections
from ..models.recurrent import LinearAttention, Recurrent, ShortConvolution, StateSpace
from ..models.spec import Block, Layer, Model
from .arith import ceil_div


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


def shard_model(model: Model, parallel: Parallel, stage: int = 0) -> Model:
    """What one rank of pipeline `stage` holds, as a smaller model (see `shard`)."""
    blocks = [block for layer in model.layers for block in layer.blocks]
    if parallel.pp > 1 and any(getattr(block, "shared_from", None) is not None for block in blocks):
        raise InputError(
            f"pp {parallel.pp}: layers of {model.name} share caches; cutting them is not modelled"
        )
    layers = tuple(shard_layer(layer, parallel) for layer in stage_layers(model, parallel, stage))
    encoder = model.encoder
    if encoder is not None:
        encoder = replace(encoder, layers=tuple(shard_layer(layer, parallel) for layer in encoder.layers))
    return replace(
        model,
        layers=layers,
        vocab=ceil_div(model.vocab, parallel.tp),
        encoder=encoder,
        input_end=model.input_end and stage == 0,
        output_end=model.output_end and stage == parallel.pp - 1,
    )


def stage_layers(model: Model, parallel: Parallel, stage: int) -> tuple[Layer, ...]:
    """Layers of one pipeline stage: as even as they can be, the first stages one longer; each holds the
    weights that its layers share."""
    if len(model.layers) < parallel.pp:
        raise InputError(f"pp {parallel.pp} is more than the {len(model.layers)} layers of {model.name}")
    if not 0 <= stage < parallel.pp:
        raise InputError(f"stage {stage} is not one of the {parallel.pp} pipeline stages")
    each, longer = divmod(len(model.layers), parallel.pp)
    start = stage * each + min(stage, longer)
    return _owning(model.layers[start : start + each + (stage < longer)], start)


def _owning(layers: tuple[Layer, ...], start: int) -> tuple[Layer, ...]:
    """Layers that stand `start` layers into their model: where the weights of one before them are used, the
    first block that does holds them, and the later ones are lent its."""
    holders: dict[tuple[int, type], int] = {}

    def here(block: Block, index: int) -> Block:
        if not isinstance(block, (Attention, Dense)) or block.weights_of is None:
            return block
        owner = block.weights_of
        if 0 <= owner - start < len(layers):
            return replace(block, weights_of=owner - start)
        holder = holders.setdefault((owner, type(block)), index)
        return replace(block, weights_of=None if holder == index else holder)

    if start == 0:
        return layers
    return tuple(
        replace(layer, blocks=tuple(here(block, index) for block in layer.blocks))
        for index, layer in enumerate(layers)
    )


def shard_layer(layer: Layer, parallel: Parallel) -> Layer:
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
