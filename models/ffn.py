"""Feed-forward blocks: the part of a layer that treats every position alone."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from .. import InputError
from .block import Block, FeedForward
from .dimensions import divided, positive
from .tensor import Tensor, vector


@dataclass(frozen=True)
class Dense(FeedForward):
    """One MLP of `width`: three matrices when `gated` (SwiGLU, GeGLU), else two.

    `mixed`: RWKV's channel mix, which adds a hidden x hidden receptance and two mixing vectors.
    `weights_of`: index of the layer whose weights these are; they are read here and stored there.
    """

    key = "dense"

    width: int
    gated: bool = True
    bias: bool = False
    mixed: bool = False
    weights_of: int | None = None

    def __post_init__(self) -> None:
        positive("dense", width=self.width)

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """gate and up: [width, hidden] (up alone where not gated), down: [hidden, width], their biases."""
        out = mlp_tensors("mlp", hidden, self.width, self.gated)
        if self.bias:
            out += (
                vector("mlp", "up_bias", self.width * (2 if self.gated else 1)),
                vector("mlp", "down_bias", hidden),
            )
        if self.mixed:
            out += (Tensor("mlp", "receptance", hidden, hidden), vector("mlp", "mix", hidden, 2))
        return out

    def over_ranks(self, tp: int, ep: int) -> Block:
        return replace(self, width=divided(self.width, tp, "width"))

    def prunable(self) -> dict[str, str]:
        return {"ffn": "width"}


MAX_EXPERTS = 65_536


@dataclass(frozen=True)
class Experts(FeedForward):
    """`count` experts of `width`, `top_k` of them per token, and `shared` always-on ones.

    Shared experts are one MLP of `shared * shared_width` (shared_width None: `width`), behind a
    sigmoid gate of one output where `shared_gate`. `router_bias`: the router's own bias;
    `bias`: a bias in every expert's projections. `total`: experts over all ranks where this layer
    is one rank's share (the router still scores them all). Source: DeepSeekMoE, arXiv 2401.06066.
    """

    key = "experts"

    count: int
    top_k: int
    width: int
    gated: bool = True
    shared: int = 0
    shared_width: int | None = None
    shared_gate: bool = False
    bias: bool = False
    router_bias: bool = False
    total: int | None = None

    def __post_init__(self) -> None:
        if self.count > MAX_EXPERTS:
            raise InputError(f"experts: count must be at most {MAX_EXPERTS:,}, not {self.count:,}")
        positive(
            "experts",
            count=self.count,
            top_k=self.top_k,
            width=self.width,
            shared_width=self.shared_width,
        )
        if self.top_k > (self.total or self.count):
            raise InputError(f"experts: top_k {self.top_k} is more than count {self.count}")
        if not 0 <= self.shared <= self.count * 1024:
            raise InputError(f"experts: shared must not be negative or absurd, not {self.shared}")

    @property
    def shared_total_width(self) -> int:
        return self.shared * (self.shared_width or self.width)

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """An MLP times `count`, the router: [count, hidden], the shared experts and their gate."""
        out = tuple(
            tensor._replace(copies=self.count)
            for tensor in mlp_tensors("experts", hidden, self.width, self.gated)
        )
        if self.bias:
            out += (
                vector("experts", "up_bias", self.width * (2 if self.gated else 1), self.count),
                vector("experts", "down_bias", hidden, self.count),
            )
        scored = self.total or self.count
        out += (Tensor("router", "router", scored, hidden),)
        if self.router_bias:
            out += (vector("router", "router_bias", scored),)
        if self.shared:
            out += mlp_tensors("shared_experts", hidden, self.shared_total_width, self.gated)
            if self.shared_gate:
                out += (Tensor("shared_experts", "shared_gate", 1, hidden),)
        return out

    def over_ranks(self, tp: int, ep: int) -> Block:
        """Whole experts over `ep` ranks, or each one's width over `tp`; the shared ones' width over `tp`."""
        shared = self.shared_width or self.width
        if self.shared:
            shared = divided(shared, tp, "shared expert width")
        if ep > 1:
            count = divided(self.count, ep, "experts")
            return replace(self, count=count, total=self.count, shared_width=shared)
        return replace(self, width=divided(self.width, tp, "expert width"), shared_width=shared)

    def prunable(self) -> dict[str, str]:
        return {"experts": "count"}


@dataclass(frozen=True)
class Projections(FeedForward):
    """Small matrices every token goes through beside mixer and MLP: adapters, low-rank side paths,
    per-layer inputs, an output transform.

    `shapes` lists them as `inner x outer` words, `2048x64 64x2048`, `*3` for three alike; each may
    have a `bias`; `vectors` counts further parameters that are only read; `again` lists products done
    with matrices that are stored elsewhere, or with activations.
    """

    key = "projections"
    main = False

    shapes: str
    bias: bool = False
    vectors: int = 0
    again: str = ""

    def __post_init__(self) -> None:
        self.products()
        if not self.matrices() and not self.vectors:
            raise InputError("projections: shapes are words such as '2048x64 64x2048*2'")
        if not 0 <= self.vectors <= 10**12:
            raise InputError(f"projections: vectors must be between 0 and 1e12, not {self.vectors}")

    def matrices(self) -> tuple[tuple[int, int, int], ...]:
        """(inner, outer, copies) of each stored matrix."""
        return self._parsed(self.shapes)

    def products(self) -> tuple[tuple[int, int, int], ...]:
        """(inner, outer, copies) of each product with something stored elsewhere."""
        return self._parsed(self.again)

    def _parsed(self, words: str) -> tuple[tuple[int, int, int], ...]:
        out = []
        for word in words.split():
            match = re.fullmatch(r"([1-9]\d{0,7})x([1-9]\d{0,7})(?:\*([1-9]\d{0,3}))?", word)
            if match is None:
                raise InputError(f"projections: '{word}' is not a shape such as 2048x64 or 64x64*3")
            out.append((int(match[1]), int(match[2]), int(match[3] or 1)))
        return tuple(out)

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """Each matrix as [outer, inner], times its copies."""
        out: list[Tensor] = []
        for index, (inner, outer, copies) in enumerate(self.matrices()):
            out.append(Tensor("projections", f"projection_{index}", outer, inner, copies=copies))
            if self.bias:
                out.append(vector("projections", f"projection_{index}_bias", outer, copies))
        if self.vectors:
            out.append(vector("projections", "vectors", self.vectors))
        return tuple(out)

    def over_ranks(self, tp: int, ep: int) -> Block:
        """Whole on every rank, as a side path is."""
        return self

    def prunable(self) -> dict[str, str]:
        return {}


def mlp_tensors(component: str, hidden: int, width: int, gated: bool) -> tuple[Tensor, ...]:
    """Matrices of one MLP: [gate,] up and down."""
    gate = (Tensor(component, "gate", width, hidden),) if gated else ()
    return (*gate, Tensor(component, "up", width, hidden), Tensor(component, "down", hidden, width))
