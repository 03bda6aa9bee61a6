"""A model: an embedding, a sequence of layers, a head, and what stands beside them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from .. import InputError
from .attention import Attention, CrossAttention
from .block import Block
from .cache import CacheSpec
from .dimensions import MAX_DIMENSION, positive
from .ffn import Dense, Experts
from .tensor import Tensor, parameters, vector

MAX_LAYERS = 4096


@dataclass(frozen=True)
class Norm:
    """`kind` rms (a weight), layer (a weight, and a bias where `bias`) or none (no parameters)."""

    kind: str = "rms"
    bias: bool = False

    def __post_init__(self) -> None:
        if self.kind not in ("rms", "layer", "none"):
            raise InputError(f"norm: kind is rms, layer or none, not '{self.kind}'")

    def values(self, width: int) -> int:
        return 0 if self.kind == "none" else width * (2 if self.bias else 1)


@dataclass(frozen=True)
class Layer:
    """Blocks in order, and how many norms of the hidden width stand around them.

    `parallel`: attention and MLP read the same normed input (GPT-J, Falcon-7B).
    """

    blocks: tuple[Block, ...]
    norms: int = 2
    parallel: bool = False

    @property
    def main_blocks(self) -> int:
        """Blocks that add to the residual stream and are split over ranks: all but side paths."""
        return sum(block.main for block in self.blocks)

    def caches(self) -> tuple[CacheSpec, ...]:
        return tuple(cache for block in self.blocks for cache in block.caches())


def usual_norms(blocks: tuple[Block, ...]) -> int:
    """Norms of a layer of which a sheet says nothing: one before each block, three at the most."""
    return min(len(blocks), 3)


def grouped(layers: tuple[Layer, ...]) -> tuple[tuple[Layer, int], ...]:
    """Distinct layers with how often each stands, in order of first appearance."""
    counts: dict[Layer, int] = {}
    for layer in layers:
        counts[layer] = counts.get(layer, 0) + 1
    return tuple(counts.items())


@dataclass(frozen=True)
class Stem:
    """A convolution before the encoder as the GEMM it is: [rate · positions, inner] x [inner, outer].

    `inner` is channels in x taps, `rate` its outputs per encoder position; it has a bias.
    """

    inner: int
    outer: int
    rate: int = 1

    def __post_init__(self) -> None:
        positive("stem", inner=self.inner, outer=self.outer, rate=self.rate)

    def tensors(self) -> tuple[Tensor, Tensor]:
        return Tensor("encoder", "stem", self.outer, self.inner), vector("encoder", "stem_bias", self.outer)


@dataclass(frozen=True)
class Encoder:
    """Layers that run once over the input of an encoder-decoder model.

    `positions`: fixed number of encoder positions (Whisper: 1500), or None: as many as the input.
    `extra`: parameters outside the layers (learned positions, biases of positions).
    """

    hidden: int
    layers: tuple[Layer, ...]
    positions: int | None = None
    extra: int = 0
    stem: tuple[Stem, ...] = ()
    final_norm: bool = True

    def __post_init__(self) -> None:
        positive("encoder", hidden=self.hidden, positions=self.positions)
        for block in (block for layer in self.layers for block in layer.blocks):
            plain = isinstance(block, Attention) and not (
                block.gated or block.sinks or block.qk_norm or block.window or block.shared_from is not None
            )
            if not plain and not isinstance(block, Dense):
                raise InputError("encoder: layers are plain attention and dense blocks, and nothing else yet")
        if not 0 <= self.extra <= 10**12:
            raise InputError(f"encoder: extra must be between 0 and 1e12, not {self.extra}")


@dataclass(frozen=True)
class Tower:
    """A part counted in the file but not in a text forward pass: vision, audio, a projector."""

    name: str
    parameters: int

    def __post_init__(self) -> None:
        if not 0 <= self.parameters <= 10**13:
            raise InputError(f"tower: parameters must be between 0 and 1e13, not {self.parameters}")


@dataclass(frozen=True)
class Model:
    """A decoder (with an encoder or towers beside it) of one hidden width.

    `tied`: the output head is the input table. `positions`: rows of a learned position table.
    `embedding_width`: width of the tables where it is not the hidden one (OPT-350M), with a projection
    in and one out. `side_width`, `side_rows`: a second lookup table, a row a token (per-layer embeddings).
    `dtype`: the checkpoint's 16-bit (or 32-bit) type; `weights`: the recipe of the checkpoint as
    published, when it is not that type; `kv`: the format it asks its cache to be kept in, when that is not
    16 bit. `input_end`, `output_end`: whether this part of the
    model (a pipeline stage) holds the tables and the encoder, and the last norm and the head.
    `inferred`: what a reader of a file filled in itself.
    `stored`: (layer, component, tensor, format) as a file holds them, where one was read.
    """

    name: str
    hidden: int
    vocab: int
    layers: tuple[Layer, ...]
    source: str
    title: str = ""
    tied: bool = False
    norm: Norm = Norm()
    final_norm: bool = True
    embedding_norm: bool = False
    positions: int = 0
    position_biases: int = 0
    head_bias: bool = False
    embedding_width: int | None = None
    side_width: int = 0
    side_rows: int = 0
    context: int | None = None
    dtype: str = "bf16"
    weights: str = ""
    kv: str = ""
    encoder: Encoder | None = None
    towers: tuple[Tower, ...] = ()
    input_end: bool = True
    output_end: bool = True
    aliases: tuple[str, ...] = ()
    notes: str = ""
    inferred: tuple[str, ...] = ()
    stored: tuple[tuple[int, str, str, str], ...] = ()

    def __post_init__(self) -> None:
        positive("model", hidden=self.hidden, vocab=self.vocab)
        if not 1 <= len(self.layers) <= MAX_LAYERS:
            raise InputError(f"model: layers must be between 1 and {MAX_LAYERS}, not {len(self.layers)}")
        positive("model", embedding_width=self.embedding_width)
        for name in ("positions", "position_biases", "side_width", "side_rows"):
            if not 0 <= getattr(self, name) <= MAX_DIMENSION:
                raise InputError(f"model: {name} must be between 0 and {MAX_DIMENSION:,}")
        if self.context is not None and not 1 <= self.context <= 1 << 40:
            raise InputError(f"model: context must be positive, not {self.context}")
        if self.dtype not in ("fp16", "bf16", "fp32"):
            raise InputError(f"model: dtype is fp16, bf16 or fp32, not '{self.dtype}'")
        for index, layer in enumerate(self.layers):
            for block in layer.blocks:
                source = getattr(block, "shared_from", None)
                if source is not None:
                    self._check_shared(block, index, source)
        cross = any(isinstance(b, CrossAttention) for layer in self.layers for b in layer.blocks)
        if cross and self.encoder is None:
            raise InputError("model: a layer has cross_attention but there is no encoder")

    def _check_shared(self, block: Block, index: int, source: int) -> None:
        """Layer `source`, earlier than `index`, stores just the rows that `block` reads."""
        kept = [c for c in self.layers[source].caches() if c.keeps_tokens] if 0 <= source < index else []
        shares = f"model: layer {index} shares the cache of layer {source}, which keeps"
        if not kept:
            raise InputError(f"{shares} none")
        (read,) = block.caches()
        if read._replace(stored=True) not in kept:
            raise InputError(f"{shares} {kept[0].shape}, where it reads {read.shape}")

    @cached_property
    def groups(self) -> tuple[tuple[Layer, int], ...]:
        """Distinct layers with how often each stands, in order of first appearance."""
        return grouped(self.layers)

    def layer_tensors(
        self, layer: Layer, hidden: int | None = None, owned: bool = False
    ) -> tuple[Tensor, ...]:
        """Tensors one layer works with, norms included; `owned`: only those stored for it."""
        width = self.hidden if hidden is None else hidden
        out = tuple(
            tensor
            for block in layer.blocks
            if not (owned and getattr(block, "weights_of", None) is not None)
            for tensor in block.tensors(width)
        )
        if layer.norms and self.norm.values(width):
            out += (vector("norms", "norm", self.norm.values(width), layer.norms),)
        return out

    def outer_tensors(self) -> tuple[Tensor, ...]:
        """Tensors outside the layers: tables, head, final norm; a tied head is not listed again."""
        width = self.embedding_width or self.hidden
        norm = self.norm.values(self.hidden)
        out: list[Tensor] = []
        if self.input_end or (self.tied and self.output_end):
            out.append(Tensor("embedding", "embedding", self.vocab, width, "table"))
        if self.input_end:
            if self.embedding_width:
                out.append(Tensor("embedding", "project_in", self.hidden, width))
            if self.side_width:
                out.append(Tensor("embedding", "side_table", self.side_rows, self.side_width, "table"))
            if self.positions:
                out.append(Tensor("embedding", "positions", self.positions, self.hidden, "table"))
            if self.position_biases:
                out.append(vector("attention", "position_biases", self.position_biases))
            if self.embedding_norm and norm:
                out.append(vector("norms", "embedding_norm", norm))
        if self.output_end:
            if self.final_norm and norm:
                out.append(vector("norms", "final_norm", norm))
            if self.embedding_width:
                out.append(Tensor("head", "project_out", width, self.hidden))
            if not self.tied:
                out.append(Tensor("head", "head", self.vocab, width))
            if self.head_bias:
                out.append(vector("head", "head_bias", self.vocab))
        return tuple(out)

    def encoder_tensors(self) -> tuple[Tensor, ...]:
        """All tensors of the encoder and the towers."""
        out: list[Tensor] = []
        if not self.input_end:
            return ()
        if self.encoder is not None:
            for layer in self.encoder.layers:
                out += [
                    tensor._replace(component=f"encoder_{tensor.component}")
                    for tensor in self.layer_tensors(layer, self.encoder.hidden)
                ]
            if self.encoder.final_norm:
                out.append(vector("encoder_norms", "encoder_norm", self.norm.values(self.encoder.hidden)))
            for convolution in self.encoder.stem:
                out += convolution.tensors()
            if self.encoder.extra:
                out.append(vector("encoder", "encoder_extra", self.encoder.extra))
        out += [vector("towers", tower.name, tower.parameters) for tower in self.towers if tower.parameters]
        return tuple(out)

    @property
    def called(self) -> str:
        """What a reader knows it as."""
        return self.title or self.name

    @cached_property
    def parameters(self) -> int:
        """All parameters, a tied table once, towers included."""
        inner = sum(count * parameters(self.layer_tensors(layer, owned=True)) for layer, count in self.groups)
        return inner + parameters(self.outer_tensors()) + parameters(self.encoder_tensors())

    @cached_property
    def active_parameters(self) -> int:
        """Parameters with only top_k of each layer's routed experts; embeddings counted in full."""
        idle = 0
        for layer, count in self.groups:
            for block in layer.blocks:
                if isinstance(block, Experts):
                    routed = sum(t.elements for t in block.tensors(self.hidden) if t.component == "experts")
                    scored = block.total or block.count
                    idle += count * (routed - routed * block.top_k // scored)
        return self.parameters - idle

    def with_attention(self, **changes: Any) -> Model:
        """The same model with fields of every `Attention` replaced: the what-ifs of the command line."""

        def change(block: Block) -> Block:
            return replace(block, **changes) if isinstance(block, Attention) else block

        layers = tuple(
            replace(layer, blocks=tuple(change(block) for block in layer.blocks)) for layer in self.layers
        )
        if not any(isinstance(b, Attention) for layer in self.layers for b in layer.blocks):
            names = ", ".join(changes)
            raise InputError(f"{self.name} has no plain attention layer for {names} to change")
        return replace(self, layers=layers)

    def with_layers(self, count: int) -> Model:
        """The same model `count` layers deep, its pattern of layers repeated or cut."""
        if not 1 <= count <= MAX_LAYERS:
            raise InputError(f"layers must be between 1 and {MAX_LAYERS}, not {count}")
        return replace(self, layers=tuple(self.layers[i % len(self.layers)] for i in range(count)))
