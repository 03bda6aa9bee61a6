"""One rank of a model over several: a smaller model, its heads, experts, widths and layers shared out."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import InputError
from ..models.attention import Attention
from ..models.block import Block
from ..models.ffn import Dense
from ..models.spec import Layer, Model
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


def shard_model(model: Model, parallel: Parallel, stage: int = 0) -> Model:
    """What one rank of pipeline `stage` holds, as a smaller model (see `shard`)."""
    blocks = [block for layer in model.layers for block in layer.blocks]
    if parallel.pp > 1 and any(getattr(block, "shared_from", None) is not None for block in blocks):
        raise InputError(
            f"pp {parallel.pp}: layers of {model.name} share caches; cutting them is not modelled"
        )
    layers = _shared_out(stage_layers(model, parallel, stage), parallel)
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


def _shared_out(layers: tuple[Layer, ...], parallel: Parallel) -> tuple[Layer, ...]:
    """`shard_layer` of each, once for each object: a model of many layers has few."""
    done: dict[int, Layer] = {}
    for layer in layers:
        if id(layer) not in done:
            done[id(layer)] = shard_layer(layer, parallel)
    return tuple(done[id(layer)] for layer in layers)


def shard_layer(layer: Layer, parallel: Parallel) -> Layer:
    blocks = tuple(block.over_ranks(parallel.tp, parallel.ep) for block in layer.blocks)
    return replace(layer, blocks=blocks)
