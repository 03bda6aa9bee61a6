"""`infercost kv --plot`: the cache over the context."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .. import InputError
from ..costmodel.kv import cache_bill
from ..costmodel.sharding import Parallel
from .engine_flags import Flags
from .pictures.file import draw
from .pictures.memory import MOST_BARS, cache_chart, contexts
from .pools import taken
from .text import plural

if TYPE_CHECKING:
    from .kv import Point


def draw_cache(path: str, points: list[Point], flags: Flags, library: bool) -> None:
    """The cache of every model, format and batch of the points over the context; with an engine what it takes
    on a rank, against its pool."""
    engine = flags if flags.memory is not None else None

    def held(point: Point, length: int) -> int:
        if engine is not None:
            ranks = Parallel(tp=point.ranks)
            return taken(engine, point.model, point.fmt, length, point.batch, ranks).all_bytes
        bill = cache_bill(point.model, length, point.batch, point.fmt, point.positions, library=library)
        return bill.logical_bytes

    kinds = {(point.model.name, point.fmt.name, point.batch): point for point in points}
    if len(kinds) > MOST_BARS:
        raise InputError(
            f"--plot: {len(kinds)} lines are more than the {MOST_BARS} that a picture tells apart"
        )
    lines = [
        (f"{name}, {plural(batch, 'sequence')}, KV {fmt}", partial(held, point))
        for (name, fmt, batch), point in kinds.items()
    ]
    named = ", ".join(dict.fromkeys(point.model.called for point in points))
    what = f"KV cache and state as {engine.engine} takes them" if engine else "KV cache and state"
    pool = next((point.taken.pool.bytes for point in points if point.taken and point.taken.pool), None)
    lengths = contexts(max(point.seq for point in points), None)
    draw(path, [cache_chart(f"{what}: {named}", lines, lengths, pool)])
