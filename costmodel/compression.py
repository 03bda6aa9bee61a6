"""Structured pruning: a smaller model out of a larger one, to be costed by the same operations.

Which layers, heads and channels go is found by training (Sheared LLaMA, arXiv 2310.06694, section 2.1) or
by measuring (Minitron, arXiv 2407.14679, section 2.2); what a step of the model then costs depends on how
many are left, and on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from .. import InputError
from ..models.block import Block
from ..models.ffn import Projections
from ..models.spec import Model


class Kept(NamedTuple):
    """What structured pruning leaves; None leaves it as it is.

    `layers` of the depth; query `heads` and `kv_heads` of every attention; `ffn` channels of every dense MLP;
    `experts` routed ones of every layer; `hidden` channels of the residual stream.
    """

    layers: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    ffn: int | None = None
    experts: int | None = None
    hidden: int | None = None

    def given(self) -> dict[str, int]:
        return {name: value for name, value in self._asdict().items() if value is not None}


def pruned(model: Model, kept: Kept) -> Model:
    """`model` with only what is `kept`; head widths stay, and what follows from a width follows.

    With multi-head attention K and V heads go with their queries. Of a pattern of unlike layers the first
    `layers` stay. Raises InputError where more would be left than there is, or nothing to prune, or where
    what is left makes no model.
    """
    for name, value in kept.given().items():
        have = present(model, name)
        if not have:
            raise InputError(f"{model.name} has no {WORDS[name]} to prune")
        if not 1 <= value <= min(have):
            of = f"{min(have):,}" if len(have) == 1 else f"{min(have):,} to {max(have):,}"
            raise InputError(f"{value:,} {WORDS[name]} cannot be kept of {model.name}'s {of}")
    if kept.hidden is not None and kept.hidden < model.hidden:
        _refuse_fixed_widths(model)
    layers = tuple(
        replace(layer, blocks=tuple(_pruned_block(block, kept) for block in layer.blocks))
        for layer in model.layers[: kept.layers]
    )
    if not kept.given():
        return model
    title = f"{model.called}, pruned"
    name = f"{model.name}-pruned"
    return replace(model, name=name, title=title, layers=layers, hidden=kept.hidden or model.hidden)


WORDS = {
    "layers": "layers",
    "heads": "heads",
    "kv_heads": "KV heads",
    "ffn": "FFN channels",
    "experts": "experts",
    "hidden": "hidden channels",
}


def present(model: Model, name: str) -> list[int]:
    """The sizes that `model` has of what `Kept` calls `name`, each once, the smallest first."""
    if name == "layers":
        return [len(model.layers)]
    if name == "hidden":
        return [model.hidden]
    blocks = [block for layer, _ in model.groups for block in layer.blocks]
    return sorted({size for block in blocks for size in _sizes(block, name)})


def _sizes(block: Block, name: str) -> Iterator[int]:
    field = block.prunable().get(name)
    if field is not None:
        yield getattr(block, field)


def _pruned_block(block: Block, kept: Kept) -> Block:
    fields, given = block.prunable(), kept.given()
    has = {name: getattr(block, field) for name, field in fields.items()}
    if "heads" in given and has.get("kv_heads") == has.get("heads"):
        given = {"kv_heads": given["heads"]} | given
    sizes: dict[str, Any] = {field: given[name] for name, field in fields.items() if name in given}
    return replace(block, **sizes)


def _refuse_fixed_widths(model: Model) -> None:
    """Parts whose shapes are stated and do not follow the hidden width."""
    blocks = [block for layer, _ in model.groups for block in layer.blocks]
    fixed = {
        "an encoder": model.encoder is not None,
        "tables of a width of their own": model.embedding_width is not None,
        "projections of stated shapes": any(isinstance(block, Projections) for block in blocks),
        "attention over another width": any(getattr(block, "input_width", None) for block in blocks),
    }
    for what, has in fixed.items():
        if has:
            raise InputError(f"hidden channels of {model.name} cannot be pruned: it has {what}")
