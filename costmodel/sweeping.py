"""Many requests of one setting at once: a rectangle of batches and lengths, as arrays.

Every figure is the one `costmodel.request` gives for the request alone; what does not change along a side
of the rectangle (the matrices of a decode step with its context) is computed once for it. Only the sum over
decode steps is not taken step by step: see `stride`. Arrays are numpy's, which whoever calls has imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from .arith import SplitError
from .memory import Memory, request_memory
from .request import Request
from .setting import Cost, Setting, step_cost
from .times.expected import pooled

Array = Any

EACH_STEP, EACH_CONTEXT = 64, 256
SHORTEST_STRIDE, MOST_STRIDES = 16, 1024
ELEMENTS = 1 << 18
"""Decode steps of one evaluation: each array of them takes 2 MiB."""


def stride(steps: int) -> int:
    """How many neighbouring contexts of `steps` decode steps one evaluation stands for.

    Up to 64 steps each is computed, and every one at a context of up to 256. Beyond, those of a stride are as
    many times the one at their mean context. That is exact where time is linear in the context, and across
    the jumps of a kernel that takes keys in tiles, for strides end on multiples of 16 as tiles do; what is
    left is the curvature, or a bend, inside 16 of more than 256 tokens. Strides double until a request has no
    more than 1,024 of them.
    """
    if steps <= EACH_STEP:
        return 1
    length = SHORTEST_STRIDE
    while length * MOST_STRIDES < steps:
        length *= 2
    return length


class Lengths(NamedTuple):
    """Requests along the second side of a rectangle, arrays of floats: tokens in, tokens out, of them in a
    prefix cache, encoder positions."""

    prompt: Array
    gen: Array
    cached: Array
    encoder: Array

    def take(self, which: Array) -> Lengths:
        return Lengths(*(side[which] for side in self))

    def request(self, batches: Array) -> Request:
        """All of them at every one of `batches`, a column; what none has is a plain zero."""
        cached, encoder = (side if side.any() else 0 for side in (self.cached, self.encoder))
        return Request(self.prompt, self.gen, batches, cached, encoder)


class Rectangle(NamedTuple):
    """What requests cost, arrays of (batches, lengths): the prefill, all decode steps (zeros where one token
    comes out), both together; memory of the fullest rank in bytes."""

    ttft: Cost
    decoding: Cost
    whole: Cost
    memory: Memory


def rectangle(setting: Setting, batches: Array, lengths: Lengths) -> Rectangle:
    """Every one of `batches` with every one of `lengths` on a setting.

    Counts are arrays of floats, so that none overflows. A confidence is that of the whole rectangle.
    Raises InputError where the setting cannot be.
    """
    np: Any = sys.modules["numpy"]
    column = batches[:, None]
    order = np.lexsort((lengths.prompt - lengths.cached, lengths.cached > 0))
    parts = list(_agreeing(setting, column, lengths, order))
    place = np.argsort(np.concatenate([which for which, _, _ in parts]))

    def joined(sides: Sequence[Array]) -> Array:
        shaped = [
            np.broadcast_to(s, (len(batches), len(w))) for s, (w, _, _) in zip(sides, parts, strict=True)
        ]
        return np.concatenate(shaped, axis=1)[:, place]

    ttft = _combined([cost for _, cost, _ in parts], joined)
    memory = Memory(*(joined(sides) for sides in zip(*(held for _, _, held in parts), strict=True)))
    decoding = decode_sums(setting, column, lengths)
    return Rectangle(ttft, decoding, _combined([ttft, decoding], sum), memory)


def _agreeing(
    setting: Setting, column: Array, lengths: Lengths, which: Array
) -> Iterable[tuple[Array, Cost, Memory]]:
    """Prefill and memory of some of the lengths, halved until all of a part take the same kernels."""
    try:
        yield (which, *_prefills(setting, column, lengths.take(which)))
    except SplitError:
        middle = len(which) // 2
        yield from _agreeing(setting, column, lengths, which[:middle])
        yield from _agreeing(setting, column, lengths, which[middle:])


def _prefills(setting: Setting, column: Array, lengths: Lengths) -> tuple[Cost, Memory]:
    """The prefills, equal ones once for all numbers of tokens out, and the memory."""
    np: Any = sys.modules["numpy"]
    asked = lengths.request(column)
    memory = request_memory(setting, asked)
    keys = np.stack([lengths.prompt, lengths.cached, lengths.encoder])
    _, first, place = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    cost = step_cost(setting, lengths.take(first).request(column).prefill())
    shape = (len(column), len(first))
    return _combined([cost], lambda one: np.broadcast_to(one[0], shape)[:, place.ravel()]), memory


def _combined(costs: Sequence[Cost], combine: Callable[[Sequence[Array]], Array]) -> Cost:
    """A cost whose every field is made of the same fields of `costs`, with the confidence of their times
    together."""
    np: Any = sys.modules["numpy"]
    made = {
        name: combine([getattr(cost, name) for cost in costs])
        for name in Cost._fields
        if name not in ("expected", "confidence")
    }
    known = [(cost.expected, cost.confidence) for cost in costs if cost.confidence is not None]
    if len(known) < len(costs):
        return Cost(expected=None, confidence=None, **made)
    sure = pooled([(float(np.sum(seconds)), confidence) for seconds, confidence in known])
    return Cost(expected=combine([seconds for seconds, _ in known]), confidence=sure, **made)


class Strides(NamedTuple):
    """Decode steps of many requests, cut into strides: mean context, steps and encoder positions of each, and
    where each request's begin."""

    context: Array
    steps: Array
    encoder: Array
    begin: Array


def strides(lengths: Lengths) -> Strides:
    """The strides of requests that all have a decode step, in their order."""
    np: Any = sys.modules["numpy"]
    steps = (lengths.gen - 1).astype(np.int64)
    sizes, place = np.unique(steps, return_inverse=True)
    long = np.array([stride(int(size)) for size in sizes])[place.ravel()]
    first = lengths.prompt.astype(np.int64) + 1
    last = first + steps - 1
    alone = np.where(long > 1, np.clip(np.minimum(last, EACH_CONTEXT) - first + 1, 0, None), 0)
    low = (first + alone - 1) // long
    counts = np.where(first + alone > last, 0, (last - 1) // long - low + 1) + alone
    owner = np.repeat(np.arange(len(counts)), counts)
    begin = np.cumsum(counts) - counts
    nth = np.arange(len(owner)) - begin[owner]
    single, index = nth < alone[owner], low[owner] + nth - alone[owner]
    start = np.where(single, first[owner] + nth, np.maximum((first + alone)[owner], index * long[owner] + 1))
    end = np.where(single, start, np.minimum(last[owner], (index + 1) * long[owner]))
    return Strides((start + end) / 2, end - start + 1, lengths.encoder[owner], begin)


def decode_sums(setting: Setting, column: Array, lengths: Lengths) -> Cost:
    """All decode steps of each request, added up; zeros where the prefill's token is the only one."""
    np: Any = sys.modules["numpy"]
    shape = (len(column), len(lengths.gen))
    decoding = np.flatnonzero(lengths.gen > 1)
    if not len(decoding):
        # One step, not counted, says whether an expected time is known at all.
        one = step_cost(setting, Lengths(*(side[:1] for side in lengths)).request(column).decode(2.0))
        return _combined([one], lambda fields: np.zeros(shape) * np.max(fields[0]))
    parts: list[Cost] = []
    for which in _groups(lengths, decoding, len(column)):
        cut = strides(lengths.take(which))
        keys = np.stack([cut.context, cut.encoder])
        (contexts, positions), place = np.unique(keys, axis=1, return_inverse=True)
        asked = Request(1, 2, column, 0, positions if positions.any() else 0)
        cost = step_cost(setting, asked.decode(contexts))

        def added(
            one: Sequence[Array], cut: Strides = cut, place: Array = place, size: int = len(contexts)
        ) -> Array:
            each = np.broadcast_to(one[0], (len(column), size))[:, place.ravel()]
            return np.add.reduceat(each * cut.steps, cut.begin, axis=1)

        parts.append(_combined([cost], added))

    def filled(sides: Sequence[Array]) -> Array:
        out = np.zeros(shape)
        out[:, decoding] = np.concatenate(sides, axis=1)
        return out

    return _combined(parts, filled)


def _groups(lengths: Lengths, which: Array, batches: int) -> Iterable[Array]:
    """`which` in parts whose strides, at all batches, are few enough for one evaluation (or one request)."""
    np: Any = sys.modules["numpy"]
    sizes, place = np.unique(lengths.gen[which] - 1, return_inverse=True)
    each = np.array([size / stride(int(size)) + 2 for size in sizes])[place.ravel()]
    each = each + np.clip(EACH_CONTEXT - lengths.prompt[which], 0, None)
    group = (np.cumsum(each) * batches // ELEMENTS).astype(np.int64)
    parts: list[Array] = np.split(which, np.flatnonzero(np.diff(group)) + 1)
    return parts
