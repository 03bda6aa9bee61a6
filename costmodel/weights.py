"""Weights: what they take in memory, and what one step reads of them."""

from __future__ import annotations

from typing import NamedTuple

from ..models.ffn import Experts
from ..models.recipes import Recipe
from ..models.spec import Layer, Model
from ..models.tensor import Tensor
from .build import layer_groups
from .ffn import local_distinct
from .op import whole

ENCODER_SIDE = ("cross_k", "cross_v", "cross_k_bias", "cross_v_bias")
"""Read once per encoder input, not by a decode step."""
ABSENT = "not in the file"
"""Stands for the format of what a recipe leaves out."""


class Component(NamedTuple):
    """Tensors on one line of the bill that share a format."""

    name: str
    format: str
    parameters: int
    bytes: int


class WeightBill(NamedTuple):
    """Resident bytes by component, and bytes one decode step of `batch` tokens reads.

    `read_bytes_per_step` leaves out the input table (its rows are looked up) unless it is tied to
    the head, the encoder's side and towers, and experts no token is expected to touch: an expectation for
    MoE, exact otherwise.
    """

    components: tuple[Component, ...]
    parameters: int
    active_parameters: int
    weight_bytes: int
    read_bytes_per_step: float


def weight_bill(model: Model, recipe: Recipe, batch: int = 1, skew: float = 0.0) -> WeightBill:
    """The bill of `model` stored by `recipe`."""
    lines: dict[tuple[str, str], list[int]] = {}
    read: float = 0

    def enter(
        tensors: tuple[Tensor, ...], layer: int, times: int, share: float | None, stored: bool = True
    ) -> None:
        nonlocal read
        for tensor in tensors:
            absent = tensor.component in recipe.leaves_out
            size = 0 if absent else times * recipe.tensor_bytes(tensor, layer, model)
            fmt = ABSENT if absent else recipe.format(tensor, layer, model).name
            line = lines.setdefault((tensor.component, fmt), [0, 0])
            line[0] += times * tensor.elements * stored
            line[1] += size * stored
            if share is not None and tensor.name not in ENCODER_SIDE:
                read += size if tensor.component != "experts" else size * share

    for tensor in model.outer_tensors():
        looked_up = tensor.kind == "table" and not (tensor.name == "embedding" and model.tied)
        enter((tensor,), -1, 1, None if looked_up else 1)
    for layer, index, times in layer_groups(model, recipe):
        owned = model.layer_tensors(layer, owned=True)
        borrowed = tuple(t for t in model.layer_tensors(layer) if t not in owned)
        enter(owned, index, times, touched_share(layer, batch, skew))
        enter(borrowed, index, times, 1, stored=False)
    enter(model.encoder_tensors(), 0, 1, None)
    components = tuple(Component(name, fmt, *line) for (name, fmt), line in lines.items() if line[0])
    total = sum(component.bytes for component in components)
    return WeightBill(components, model.parameters, model.active_parameters, total, whole(float(read)))


def touched_share(layer: Layer, tokens: int, skew: float = 0.0) -> float:
    """Expected share of a layer's routed experts that `tokens` tokens touch (1 without experts)."""
    for block in layer.blocks:
        if isinstance(block, Experts):
            return float(local_distinct(block, tokens, skew) / block.count)
    return 1.0


def nominal_bytes(parameters: float, bits: float) -> float:
    """P·bits/8: a nominal size, before scales. Source: seed ledger, w.7b.fp16."""
    return parameters * bits / 8
