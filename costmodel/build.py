"""What the builders of every layer type share: the plan, the tensors' bytes, and the list of ops."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from ..models.recipes import Recipe
from ..models.spec import Layer, Model
from ..models.tensor import Tensor, vector
from .op import Gemm, Number, Op, Pointwise, Work, contents
from .step import Plan, Step

NORM_FLOPS = 4
GATE_FLOPS = 5
ACTIVATION_FLOPS = 4
ROPE_FLOPS = 3
"""Vector FLOPs per value: a norm (5 with the residual add it is fused with), SiLU(g)·u, an activation
alone, RoPE per rotated value. Source: the design's conventions; seed ledger, pre.model."""


class Builder:
    """Collects the ops of one plan; equal works under one name are counted together.

    `layer` is the index of the layer being built (-1 outside the layers), `times` how many layers
    are built at once, of `groups` kinds of layers, `hidden` the width of the stack it stands in.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan, self.model, self.run = plan, plan.model, plan.run
        self.recipe: Recipe = plan.recipe
        self.activation_bytes = plan.activation_bytes
        self.step: Step = plan.step
        self.hidden = plan.model.hidden
        self.layer, self.times, self.groups = -1, 1, 0
        self._counts: dict[tuple[str, Any], tuple[Work, int]] = {}

    def ops(self) -> tuple[Op, ...]:
        """What was built; works of one name stand together, where the first of them ran."""
        phase = self.step.phase
        first = {name: i for i, (name, _) in reversed(list(enumerate(self._counts)))}
        built = [Op(phase, name, work, n) for (name, _), (work, n) in self._counts.items()]
        return tuple(sorted(built, key=lambda op: first[op.name]))

    def add(self, name: str, work: Work, count: int = 1) -> None:
        key = (name, _identity(work, self.groups))
        self._counts[key] = (work, self._counts.get(key, (work, 0))[1] + count * self.times)

    def weight_bytes(self, tensors: Iterable[Tensor]) -> int:
        """Bytes of `tensors` in the recipe's formats."""
        return sum(self.recipe.tensor_bytes(tensor, self.layer, self.model) for tensor in tensors)

    def math(self, tensor: Tensor) -> str:
        """What the matrix units compute in when they multiply by `tensor`."""
        return self.recipe.format(tensor, self.layer, self.model).math or self.plan.activation

    def stored(self, tensor: Tensor) -> str:
        """The name of the format that `tensor` is stored in."""
        return self.recipe.format(tensor, self.layer, self.model).name

    def gemm(
        self, name: str, rows: Number, matrices: list[Tensor], others: list[Tensor], batch: int = 1
    ) -> None:
        """One GEMM over the stacked outputs of `matrices`, reading `others` (biases) with them; `batch` of
        them side by side where that many copies of a matrix are multiplied by.

        Without fusion each matrix is a GEMM of its own.
        """
        if self.run.fusion == "none" and len(matrices) > 1:
            for matrix in matrices:
                own = [bias for bias in others if bias.name == f"{matrix.name}_bias"]
                self.gemm(f"{name}.{matrix.name}", rows, [matrix], own)
            return
        outer = sum(matrix.rows for matrix in matrices)
        size = self.weight_bytes([*matrices, *others])
        first, width = matrices[0], self.activation_bytes
        work = Gemm(rows, first.cols, outer, size, self.math(first), width, batch, self.stored(first))
        self.add(name, work)

    def pointwise(
        self,
        name: str,
        values: Number,
        reads: float,
        writes: float,
        flops: int,
        weights: Iterable[Tensor] = (),
        kv_bytes: Number = 0,
        count: int = 1,
        rows: Number | None = None,
    ) -> None:
        """An elementwise kernel over `rows` (the step's tokens); with ideal fusion its activations never
        leave the chip."""
        if self.run.fusion == "ideal":
            reads = writes = 0
        size = self.weight_bytes(weights)
        if rows is None:
            rows = self.step.encoder_tokens if name.startswith("encoder.") else self.step.tokens
        work = Pointwise(name, values, reads, writes, flops, size, kv_bytes, self.activation_bytes, rows)
        self.add(name, work, count)

    def norm_weights(self) -> list[Tensor]:
        """Those of a norm of the hidden width."""
        values = self.model.norm.values(self.hidden)
        return [vector("norms", "norm", values)] if values else []

    def norms(self, tokens: Number, layer: Layer, prefix: str = "") -> None:
        """The layer's norms of the hidden width: one fused with each residual add, the rest alone.

        A layer adds to the residual after each main block, or once for blocks side by side; Gemma's
        sandwich norms come on top of those.
        """
        weight = self.norm_weights()
        values = tokens * self.hidden
        adds, added = (1, layer.main_blocks) if layer.parallel else (layer.main_blocks, 1)
        fused = min(layer.norms, adds)
        if self.run.fusion == "none":
            if adds:
                self.pointwise(f"{prefix}add", values, 1 + added, 1, added, count=adds)
            if layer.norms:
                self.pointwise(f"{prefix}norm", values, 1, 1, NORM_FLOPS, weight, count=layer.norms)
            return
        if fused:
            self.pointwise(f"{prefix}add_norm", values, 1 + added, 2, NORM_FLOPS + added, weight, count=fused)
        if layer.norms > fused:
            self.pointwise(f"{prefix}norm", values, 1, 1, NORM_FLOPS, weight, count=layer.norms - fused)


Build: TypeAlias = Callable[[Builder, Any], None]
"""Adds the operations of one kind of block; what is known of the step stands in the builder."""


def _identity(work: Work, groups: int) -> Any:
    """What equal works share: themselves, or (arrays have no hash) their kind and their fields' contents.

    Where all layers are built at once, no two works of arrays are equal: each is itself.
    """
    try:
        hash(work)
    except TypeError:
        return id(work) if groups == 1 else contents(work)
    return work


def by_name(tensors: Iterable[Tensor]) -> dict[str, Tensor]:
    return {tensor.name: tensor for tensor in tensors}


def layer_groups(model: Model, recipe: Recipe) -> list[tuple[Layer, int, int]]:
    """(layer, index of its first appearance, count): layers of equal shape and equal formats."""
    if not recipe.by_layer:
        first = {layer: i for i, layer in reversed(list(enumerate(model.layers)))}
        return [(layer, first[layer], count) for layer, count in model.groups]
    groups: dict[tuple[Layer, tuple[str, ...]], list[int]] = {}
    for index, layer in enumerate(model.layers):
        formats = tuple(recipe.rule(tensor, index, model) for tensor in model.layer_tensors(layer))
        groups.setdefault((layer, formats), []).append(index)
    return [(layer, indices[0], len(indices)) for (layer, _), indices in groups.items()]
