"""The memory bill of a rank: what it holds at its fullest, how far a budget reaches, what would make it fit.

Weights, the cache of every sequence, and the widest moment of a step. What an engine's allocator adds on
top (context, NCCL, graphs, fragments) is not counted but left room for: the budget is a share of the card.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from .. import InputError
from ..models.formats import Format, find_format
from ..models.recipes import find_recipe
from ..models.spec import Model
from .arith import kit, most
from .kv import allocate, cache_bill
from .limits import MAX_TOKENS
from .parallel import Parallel
from .request import Setting
from .step import Segment, Step, decode
from .weights import weight_bill

CHUNK_TOKENS = 8192
"""Tokens of one step of a long prefill: the default of vLLM's --max-num-batched-tokens on large cards."""
MOST_GPUS = 1024
FORMATS = ("fp8-row", "gptq")
"""Recipes that are tried where 16 bit does not fit, by what they leave of it."""


class Memory(NamedTuple):
    """Bytes of the fullest rank."""

    weights: int
    cache: int
    activations: int

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.activations


def peak_memory(
    setting: Setting,
    tokens: int,
    batch: int,
    widest: Step,
    encoder: int = 0,
    concat: bool = False,
    shared: int = 0,
) -> Memory:
    """The fullest rank with `batch` sequences of `tokens` tokens, at the fullest moment of the `widest` step:
    the residual stream beside the inputs and outputs of the kernel that has most of them.

    `concat`: the cache grows by concatenation, so the last one stands beside the new one (transformers up
    to 4.35, before its caches were allocated once; held to optimum-benchmark's peaks). `shared`: first tokens
    that all sequences have in common and whose rows are kept once. Arrays of tokens and of steps give a bill
    of arrays.
    """
    fullest = Memory(0, 0, 0)
    for plan, kernels, _ in setting.stages(widest):
        weights = weight_bill(plan.model, plan.recipe).weight_bytes
        if concat:
            grown = allocate(plan.model, "concat", tokens, batch, plan.run.kv, prompt=1, encoder=encoder)
            cache = grown.allocated_bytes
        else:
            cache = cache_bill(plan.model, tokens, batch, plan.run.kv, encoder).logical_bytes
            cache = cache - (batch - 1) * shared_bytes(plan.model, tokens, shared, plan.run.kv)
        residual = plan.step.tokens * plan.model.hidden * plan.activation_bytes
        most_of_one: Any = 0
        for op in kernels:
            most_of_one = most(most_of_one, op.work.bytes.activations)
        activations = kit(residual, most_of_one).floor(residual + most_of_one)
        fullest = fuller(fullest, Memory(weights, cache, activations))
    return fullest


def fuller(one: Memory, other: Memory) -> Memory:
    """The bill with the larger total, element by element for arrays."""
    more = other.total > one.total
    return Memory(*(kit(more).where(more, b, a) for a, b in zip(one, other, strict=True)))


def shared_bytes(model: Model, tokens: int, shared: int, fmt: Format) -> int:
    """Rows of the first `shared` tokens that a sequence of `tokens` still holds: what another sequence with
    the same beginning does not keep again. Of a window what has not slid out of it, of a state nothing.

    Source: PagedAttention, arXiv 2309.06180, section 4.4.
    """
    if not shared:
        return 0
    whole, own = (cache_bill(model, length, 1, fmt).logical_bytes for length in (tokens, tokens - shared))
    return whole - own


class Load(NamedTuple):
    """What is to be held: `batch` sequences of `tokens` tokens, prompts computed `chunk` tokens at a time (of
    all sequences together).

    `share` of the capacity is the budget; the rows of `shared` first tokens are kept once.
    """

    tokens: int
    batch: int
    share: float
    chunk: int = CHUNK_TOKENS
    encoder: int = 0
    concat: bool = False
    encoder_follows: bool = False
    shared: int = 0

    @property
    def positions(self) -> int:
        """Encoder positions of each sequence: as many as it has tokens where they follow these."""
        return self.tokens if self.encoder_follows else self.encoder

    def memory(self, setting: Setting) -> Memory:
        """The bill of the fullest rank."""
        new = min(self.tokens * self.batch, max(1, self.chunk))
        prompts = Segment(1, new, 0, min(self.batch, new), encoder_new=self.positions)
        steps = [decode(self.batch, self.tokens, self.positions)]
        # A concatenated cache is at its fullest when the last token is decoded, not in a prefill.
        steps += [] if self.concat else [Step("prefill", (prompts,))]
        bills = [
            peak_memory(setting, self.tokens, self.batch, step, self.positions, self.concat, self.shared)
            for step in steps
        ]
        return max(bills, key=lambda bill: bill.total)

    def budget_bytes(self, setting: Setting) -> int:
        """Raises InputError for a sheet that has no capacity."""
        capacity = setting.gpu.capacity_bytes
        if capacity is None:
            raise InputError(f"{setting.gpu.name} has no memory capacity on its sheet")
        return int(capacity * self.share)

    def fits(self, setting: Setting) -> bool:
        return self.memory(setting).total <= self.budget_bytes(setting)


def longest(load: Load, setting: Setting) -> int | None:
    """Most tokens of each sequence that fit; 0 where none do, None where any length does."""
    return _most(lambda tokens: load._replace(tokens=tokens).fits(setting))


def largest_batch(load: Load, setting: Setting) -> int | None:
    """Most sequences of this length that fit; 0 where none do, None where any number does."""
    return _most(lambda batch: load._replace(batch=batch).fits(setting))


def _most(holds: Callable[[int], bool]) -> int | None:
    """The largest count for which `holds`, which is true up to it and false beyond."""
    if not holds(1):
        return 0
    low, high = 1, 2
    while holds(high):
        low, high = high, 2 * high
        if high > MAX_TOKENS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def gpus_needed(load: Load, setting: Setting) -> Parallel | None:
    """The fewest ranks that hold it: powers of two of tensor parallelism that divide the model, and beyond
    those pipeline stages; None where no number up to 1,024 does."""
    widest = 1
    for tp in _powers():
        try:
            wider = setting._replace(parallel=Parallel(tp=tp))
            if load.fits(wider):
                return wider.parallel
        except InputError:
            break
        widest = tp
    for pp in _powers():
        try:
            deeper = setting._replace(parallel=Parallel(tp=widest, pp=pp))
            if widest * pp <= MOST_GPUS and load.fits(deeper):
                return deeper.parallel
        except InputError:
            break
    return None


def _powers() -> Iterator[int]:
    count = 1
    while count <= MOST_GPUS:
        yield count
        count *= 2


class Change(NamedTuple):
    """Other formats, and the bill with them."""

    weights: str
    kv: str
    total: int


def what_would_fit(load: Load, setting: Setting) -> list[Change]:
    """Formats of weights and cache that bring the bill into the budget, the mildest of each way: not both
    where one does it, nor fewer bits than are needed."""
    own_kv, budget = setting.run.kv, load.budget_bytes(setting)
    narrow = find_format("fp8")
    caches: list[Format] = [own_kv] + ([narrow] if narrow.row_bytes(128) < own_kv.row_bytes(128) else [])
    own = setting.recipe
    now = load.memory(setting)
    found: list[Change] = []
    enough: list[tuple[int, int]] = []
    for recipe in (own, *(find_recipe(name) for name in FORMATS)):
        for kv in caches:
            run = replace(setting.run, recipe=recipe, kv=kv)
            memory = load.memory(setting._replace(run=run))
            milder = any(memory.weights <= w and memory.cache <= c for w, c in enough)
            if memory.weights <= now.weights and memory.total <= budget and not milder:
                found.append(Change(recipe.name, kv.name, memory.total))
                enough.append((memory.weights, memory.cache))
    return found
