"""The time line of a request: the prefill, the decode steps in blocks, and the cache growing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..costmodel.request import Request
from ..costmodel.setting import Cost
from .text import count, plural, seconds, size

MOST_BLOCKS = 32
WIDTH = 64
LEVELS = " ▁▂▃▄▅▆▇█"
FILL = {"prefill": "█", "decode": "░"}


class Block(NamedTuple):
    """A stretch of time: `steps` passes, after which a sequence is `context` tokens long in the cache and
    all of them hold `cache_bytes`."""

    phase: str
    start_s: float
    end_s: float
    steps: int
    context: int
    cache_bytes: int


def blocks(
    asked: Request, ttft_s: float, steps: list[tuple[Cost, int]], held: Callable[[int], int]
) -> list[Block]:
    """The prefill (where there is one) and up to 32 blocks of decode steps; `held` bytes at a context."""
    out = []
    if ttft_s:
        out.append(Block("prefill", 0.0, ttft_s, 1, asked.prompt, held(asked.prompt)))
    times = [each for cost, many in steps for each in _list(cost.best, many)]
    each = max(1, -(-len(times) // MOST_BLOCKS))
    now = ttft_s
    for first in range(0, len(times), each):
        part = times[first : first + each]
        context = asked.prompt + first + len(part)
        out.append(Block("decode", now, now + sum(part), len(part), context, held(context)))
        now = out[-1].end_s
    return out


def _list(seconds_: Any, steps: int) -> list[float]:
    return list(seconds_.tolist()) if hasattr(seconds_, "ndim") else [float(seconds_)] * steps


def picture(drawn: list[Block], devices: int = 1) -> str:
    """Two rows: what runs (█ prefill, ░ decode), and the cache as it fills."""
    end = drawn[-1].end_s
    most = max(block.cache_bytes for block in drawn) or 1
    now, cache = [], []
    for column in range(WIDTH):
        at = (column + 0.5) / WIDTH * end
        block = next(each for each in drawn if at <= each.end_s or each is drawn[-1])
        now.append(FILL[block.phase])
        cache.append(LEVELS[round(block.cache_bytes / most * (len(LEVELS) - 1))])
    first, last = drawn[0], drawn[-1]
    said = [f"prefill {seconds(first.end_s)}"] if first.phase == "prefill" else []
    steps = sum(block.steps for block in drawn if block.phase == "decode")
    said += [f"{plural(steps, 'decode step')} to {seconds(end)}"] if steps else []
    kept = size(last.cache_bytes) if last.cache_bytes else "nothing"
    kept += " of the whole model" if devices > 1 else ""
    return (
        f"time   {''.join(now)}  {', '.join(said)}\n"
        f"cache  {''.join(cache)}  {kept} at {count(last.context)} tokens a sequence"
    )
