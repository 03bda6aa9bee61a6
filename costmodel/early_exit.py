"""Early exit: tokens that are sure leave before the last layer, and pay a head wherever that is asked.

Source: seed 001, section 4; CALM, arXiv 2207.07061 (confidence at a layer, state propagation); seed ledger,
ee.entropy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from .. import InputError
from ..models.ffn import Projections
from ..models.spec import Layer, Model
from .setting import Cost, Setting, step_cost
from .step import decode
from .weights import weight_bill

MAX_EXITS = 256
KEYS = ("k", "v", "kv_a")
"""Matrices that make the cached rows of a layer from its input."""


class Exits(NamedTuple):
    """`shares`: of all tokens, those that leave after a layer (counted from 1); the rest go through all.

    `checks`: layers after which a head is asked, the last layer's own head not counted.
    """

    layers: int
    checks: tuple[int, ...]
    shares: tuple[tuple[int, float], ...]

    def checked(self) -> Exits:
        """Raises InputError for layers that are not there and shares that are no distribution."""
        for layer in (*self.checks, *(layer for layer, _ in self.shares)):
            if not 1 <= layer < self.layers:
                raise InputError(
                    f"an exit after layer {layer}: the layers before the last are 1 to {self.layers - 1}"
                )
        if len(self.checks) > MAX_EXITS:
            raise InputError(f"{len(self.checks):,} checks are more than {MAX_EXITS}; ask at fewer layers")
        given = [share for _, share in self.shares]
        if not all(0 <= share <= 1 for share in given) or sum(given) > 1 + 1e-9:
            raise InputError(
                "the shares of tokens that leave early are between 0 and 1, and no more than 1 in all"
            )
        return self

    @property
    def left(self) -> dict[int, float]:
        """Share of tokens that leave after each layer, the last one included."""
        out: dict[int, float] = {}
        for layer, share in self.shares:
            out[layer] = out.get(layer, 0.0) + share
        out[self.layers] = max(0.0, 1 - sum(out.values()))
        return dict(sorted(out.items()))

    def heads(self, layer: int) -> int:
        """Heads a token pays that leaves after `layer`: each check up to there, or the model's own."""
        return sum(1 for check in self.checks if check <= layer) + (layer == self.layers)

    @property
    def mean_layer(self) -> float:
        return sum(layer * share for layer, share in self.left.items())

    def of_a_batch(self, batch: int) -> Exits:
        """The same for `batch` sequences that leave together, when the last of them is sure: F(l)^B."""
        below, shares, before = 0.0, [], 0.0
        for layer, share in self.left.items():
            below = min(1.0, below + share)
            now = below**batch
            shares.append((layer, now - before))
            before = now
        return self._replace(shares=tuple(pair for pair in shares if pair[0] < self.layers))


def at_every(layers: int, every: int, hazard: float) -> Exits:
    """A head after every `every` layers, at each of which a token that comes by leaves with that probability.

    Raises InputError for what is no number of layers, or no probability.
    """
    if not 1 <= every < layers:
        raise InputError(f"a check every {every} layers: between 1 and {layers - 1}")
    if not 0 <= hazard <= 1:
        raise InputError(f"the probability of leaving at a check is between 0 and 1, not {hazard:g}")
    checks = tuple(range(every, layers, every))
    shares = tuple((layer, hazard * (1 - hazard) ** i) for i, layer in enumerate(checks))
    return Exits(layers, checks, shares)


class Reads(NamedTuple):
    """Weights a step reads, in layers: `head` a layer's worth, `full` and `early` whole steps, the latter in
    the mean; `break_even_layer` is the mean exit at which checks that often cost what they save."""

    head: float
    full: float
    early: float
    break_even_layer: float


def weight_reads(setting: Setting, exits: Exits) -> Reads:
    """Weight bytes alone: Σ_l P(reach l)·(layer + [checked]·head), the KV of skipped layers left out.

    Layers are counted alike, by their mean. Source: seed ledger, ee.entropy.
    """
    model, recipe = setting.model, setting.recipe
    body = weight_bill(replace(model, input_end=False, output_end=False), recipe)
    headed = weight_bill(replace(model, input_end=False), recipe)
    layer = body.read_bytes_per_step / exits.layers
    head = (headed.read_bytes_per_step - body.read_bytes_per_step) / layer
    early = sum(share * (at + exits.heads(at) * head) for at, share in exits.left.items())
    full = exits.layers + head
    each = 1 + head * (len(exits.checks) + 1) / exits.layers
    return Reads(head, full, early, full / each)


class EarlyExit(NamedTuple):
    """A step with exits, in the mean over tokens: `full` without any, and of `early` the `fill` of skipped
    layers' caches, by kind of time."""

    full: Cost
    early: dict[str, float | None]
    fill: dict[str, float | None]

    def speedup(self, kind: str) -> float | None:
        full, early = self.full.times()[kind], self.early[kind]
        return None if full is None or early is None else full / early


def early_exit(setting: Setting, exits: Exits, batch: int, context: int) -> EarlyExit:
    """Decode steps of `batch` sequences at `context` tokens, the new one counted.

    A token that leaves still needs keys and values in the layers it skips: they are made from the hidden
    state it left with (state propagation), at the cost of those layers' K and V matrices; writing the rows is
    not counted. A batch leaves together, when its last sequence is sure.
    Raises InputError for layers whose state cannot be made so.
    """
    together = exits.checked().of_a_batch(batch)
    step = decode(batch, context)
    full = step_cost(setting, step)

    def cost(part: Model) -> Cost:
        return step_cost(setting._replace(model=replace(part, output_end=False)), step)

    model = setting.model
    body = {at: cost(replace(model, layers=model.layers[:at])) for at in together.left}
    filled = {at: _fill(model, at) for at in together.left}
    fills = {at: cost(part) for at, part in filled.items() if part is not None}

    early: dict[str, float | None] = {}
    fill: dict[str, float | None] = {}
    for kind, whole in full.times().items():
        if whole is None:
            early[kind] = fill[kind] = None
            continue
        ran = {at: _seconds(one, kind) for at, one in body.items()}
        made = {at: _seconds(fills.get(at), kind) for at in body}
        head = whole - ran[exits.layers]
        fill[kind] = sum(share * made[at] for at, share in together.left.items())
        early[kind] = sum(
            share * (ran[at] + exits.heads(at) * head + made[at]) for at, share in together.left.items()
        )
    return EarlyExit(full, early, fill)


def _seconds(cost: Cost | None, kind: str) -> float:
    return 0.0 if cost is None else cost.times()[kind] or 0.0


def _fill(model: Model, left: int) -> Model | None:
    """Layers that only make the cached rows of those after `left` ones, in the formats of their keys where a
    file says them; None where there are none to make."""
    held = {(at, component, name): fmt for at, component, name, fmt in model.stored}
    out = list[Layer]()
    stored = [each for each in model.stored if each[0] == -1]
    for index, layer in enumerate(model.layers[left:], left):
        for block in layer.blocks:
            caches = block.caches()
            if any(cache.state or cache.of_encoder for cache in caches):
                raise InputError(
                    f"early exit: {model.name} keeps a state in layers that would be skipped, and a state "
                    "cannot be made from an earlier layer's output"
                )
            made = [tensor for tensor in block.tensors(model.hidden) if tensor.name in KEYS]
            if any(cache.stored for cache in caches):
                if not made:
                    raise InputError(f"early exit: what makes the cached rows of {block.key} is not known")
                fmt = held.get((index, made[0].component, made[0].name))
                stored += [] if fmt is None else [(len(out), "projections", "projection_0", fmt)]
                rows = sum(tensor.rows for tensor in made)
                out.append(Layer((Projections(f"{model.hidden}x{rows}"),), norms=0))
    return replace(model, layers=tuple(out), stored=tuple(stored), input_end=False) if out else None
