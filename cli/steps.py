"""The steps of a request: its prefill, and all its decode steps as arrays of contexts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import InputError
from ..costmodel.arith import SplitError
from ..costmodel.request import Request
from ..costmodel.setting import Cost, Setting, step_cost, summed
from ..costmodel.step import Step

MAX_STEPS = 1 << 20
"""Decode steps that are added up one by one."""
CHUNK = 1 << 14
"""Contexts in one array."""
MANY_SEQUENCES = 1 << 20
"""From here on a step may be more than arrays can count; below, no model is so large."""
MOST_COUNTED = 1 << 62


def phases_of(setting: Setting, asked: Request) -> tuple[Cost, Cost | None]:
    """The prefill, and all decode steps together (None where the prefill's token is the only one)."""
    contexts = range(asked.prompt + 1, asked.prompt + 1 + asked.decode_steps)
    steps = steps_at(setting, asked, contexts, recount=False)
    return step_cost(setting, asked.prefill()), summed(steps) if steps else None


def steps_at(setting: Setting, asked: Request, contexts: range, recount: bool) -> list[tuple[Cost, int]]:
    """Steps at all of `contexts`, as arrays of bounded length, each with how many it is of."""
    import numpy as np

    make = asked.recount if recount else asked.decode
    if contexts and asked.batch > MANY_SEQUENCES:
        last = step_cost(setting, make(contexts[-1]))
        if max(last.matmul_flops, last.moved_bytes) > MOST_COUNTED:
            raise InputError(
                f"a step of {asked.batch:,} sequences is {float(last.matmul_flops):.3g} FLOPs, more than "
                "64-bit counts hold; ask for a smaller batch"
            )
    out = []
    for start in range(contexts.start, contexts.stop, CHUNK):
        part = np.arange(start, min(start + CHUNK, contexts.stop), dtype=np.int64)
        out += _agreeing(setting, make, part)
    return out


def _agreeing(setting: Setting, make: Callable[[Any], Step], contexts: Any) -> list[tuple[Cost, int]]:
    """Steps at an array of contexts, halved until all steps of an array take the same kernels."""
    try:
        return [(step_cost(setting, make(contexts)), len(contexts))]
    except SplitError:
        parts = (contexts[: len(contexts) // 2], contexts[len(contexts) // 2 :])
        return [found for part in parts for found in _agreeing(setting, make, part)]
