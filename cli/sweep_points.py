"""A chunk of a sweep, evaluated: rectangles of requests into columns of numbers."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from .. import InputError
from ..costmodel.kv import cache_bill
from ..costmodel.memory import within_room
from ..costmodel.request import Request, dollars
from ..costmodel.roofline import default_dtype, ridge, verdict
from ..costmodel.serving import balance
from ..costmodel.setting import Cost, Setting
from ..costmodel.sweeping import Lengths, Rectangle, rectangle
from ..costmodel.weights import weight_bill
from .inputs import encoder_positions, reads_through_encoder
from .price import usd_per_hour
from .sweep_grid import Grid, Unit

Columns = dict[str, Any]
"""Arrays of equal length by the name of the column; texts and what may be missing are arrays of objects."""

TIMES = ("ttft_s", "tpot_s", "e2e_s")
KINDS = {
    "point": "int",
    "model": "text",
    "gpu": "text",
    **dict.fromkeys(("prompt", "gen", "batch", "cached", "encoder_seq"), "int"),
    "weights": "text",
    "kv": "text",
    "tp": "int",
    "pp": "int",
    "ep": "int",
    "attention": "text",
    "mla": "text",
    "fusion": "text",
    **{f"{time}.{kind}": "number" for time in TIMES for kind in ("bound", "floor", "expected")},
    "confidence": "text",
    "error": "number",
    **dict.fromkeys(("output_tokens_per_s", "mfu", "mbu"), "number"),
    "prefill_verdict": "text",
    "decode_verdict": "text",
    "devices": "int",
    **dict.fromkeys(("weight_bytes", "kv_bytes", "peak_memory_bytes"), "int"),
    "fits": "flag",
    "usd": "number",
    "usd_per_million_output": "number",
}
"""Every column of a sweep, in its order, and what it holds."""
INPUTS = tuple(KINDS)[1 : tuple(KINDS).index("ttft_s.bound")]
ALL_CACHED = "as many tokens cached as the prompt has: the logits come from computing the last"


class Chunk(NamedTuple):
    """Points that there are, as columns, and how many there cannot be, by the reason."""

    columns: Columns
    impossible: Counter[str]


def evaluate(grid: Grid, chunk: int) -> Chunk:
    """All points of a chunk, in the order of its rectangles, batch by batch."""
    import numpy as np

    found: list[Columns] = []
    impossible: Counter[str] = Counter()
    for unit in grid.units(chunk):
        prompt, gen, cached, number = _lengths(grid, unit)
        batches = np.array(grid.batches[slice(*unit.batches)], dtype=float)
        possible = cached < prompt
        if not possible.all():
            impossible[ALL_CACHED] += int((~possible).sum()) * len(batches)
        if not possible.any():
            continue
        try:
            setting = grid.built(unit.setting)
            encoder = encoder_positions(setting.model, grid.encoder_seq, prompt)
            begun = prompt
            if reads_through_encoder(setting.model, grid.encoder_seq):
                begun = np.ones_like(prompt)
                if cached.any():
                    raise InputError("an encoder reads the prompt: a prefix cache holds none of it")
            whole = Lengths(
                begun, gen, cached, np.broadcast_to(np.asarray(encoder, dtype=float), prompt.shape)
            )
            lengths = whole.take(possible)
            costs = rectangle(setting, batches, lengths)
        except InputError as error:
            impossible[str(error)] += int(possible.sum()) * len(batches)
            continue
        columns = _columns(grid, setting, batches, lengths, costs)
        first = (unit.setting * len(grid.batches) + unit.batches[0]) * grid.lengths
        rows = first + np.arange(len(batches))[:, None] * grid.lengths
        columns["point"] = (rows + number[possible]).ravel()
        columns |= dict(zip(("attention", "mla", "fusion"), _kernels(grid, unit, columns), strict=True))
        found.append({name: columns[name] for name in KINDS})
    return Chunk(together(found), impossible)


def together(parts: list[Columns]) -> Columns:
    """Columns one below the other."""
    import numpy as np

    if len(parts) == 1:
        return parts[0]
    empty = {"int": np.int64, "number": float}
    if not parts:
        return {name: np.zeros(0, dtype=empty.get(kind, object)) for name, kind in KINDS.items()}
    return {name: np.concatenate([part[name] for part in parts]) for name in KINDS}


def _lengths(grid: Grid, unit: Unit) -> tuple[Any, Any, Any, Any]:
    """Prompts, tokens out, cached tokens of a rectangle's lengths, and their numbers in the grid."""
    import numpy as np

    number = np.arange(*unit.lengths)
    rest, at_cached = np.divmod(number, len(grid.cached))
    at_prompt, at_gen = np.divmod(rest, len(grid.gens))
    axes = ((grid.prompts, at_prompt), (grid.gens, at_gen), (grid.cached, at_cached))
    prompt, gen, cached = (np.array(axis, dtype=float)[at] for axis, at in axes)
    return prompt, gen, cached, number


def _kernels(grid: Grid, unit: Unit, columns: Columns) -> list[Any]:
    import numpy as np

    count = len(columns["point"])
    return [np.full(count, name, dtype=object) for name in grid.setting(unit.setting)[4:7]]


def _columns(grid: Grid, setting: Setting, batches: Any, lengths: Lengths, costs: Rectangle) -> Columns:
    """What `infercost request` says of each point."""
    import numpy as np

    shape = (len(batches), len(lengths.prompt))
    column = batches[:, None]
    steps = lengths.gen - 1
    asked = Request(lengths.prompt, lengths.gen, column, 0, lengths.encoder)
    whole, gpu = costs.whole, setting.gpu
    nothing = np.full(shape, np.nan)

    def flat(values: Any, kind: Any = float) -> Any:
        return np.broadcast_to(np.asarray(values), shape).astype(kind).ravel()

    out: Columns = {
        "model": setting.model.name,
        "gpu": gpu.name,
        "weights": setting.recipe.name,
        "kv": setting.run.kv.name,
        "confidence": whole.confidence.kind if whole.confidence else None,
    }
    out = {name: np.full(shape, value, dtype=object).ravel() for name, value in out.items()}
    counts: dict[str, Any] = {"batch": column, **lengths._asdict(), **setting.parallel.__dict__}
    counts["encoder_seq"] = counts.pop("encoder")
    counts["devices"] = setting.devices
    counts["weight_bytes"] = weight_bill(setting.model, setting.recipe).weight_bytes
    encoder = lengths.encoder if setting.model.encoder else 0
    counts["kv_bytes"] = cache_bill(
        setting.model, asked.held_tokens, column, setting.run.kv, encoder
    ).logical_bytes
    counts["peak_memory_bytes"] = costs.memory.total
    out |= {name: flat(values, np.int64) for name, values in counts.items()}
    with np.errstate(divide="ignore", invalid="ignore"):
        for name, cost, parts in zip(TIMES, costs[:3], (1, steps, 1), strict=True):
            for kind in ("bound", "floor", "expected"):
                value = getattr(cost, kind)
                out[f"{name}.{kind}"] = flat(nothing if value is None else value / parts)
        rate = usd_per_hour(gpu, grid.price)
        usd = None if rate is None else dollars(setting, asked, costs.ttft, costs.decoding, rate)
    out["error"] = flat(whole.confidence.error if whole.confidence else nothing)
    made = column * setting.replicas * lengths.gen
    out |= {"output_tokens_per_s": flat(made / whole.best), "mfu": flat(whole.mfu), "mbu": flat(whole.mbu)}
    out["prefill_verdict"] = _verdicts(setting, costs.ttft, np.ones(shape, dtype=bool))
    out["decode_verdict"] = _verdicts(setting, costs.decoding, np.broadcast_to(steps > 0, shape))
    out["fits"] = flat(within_room(costs.memory.total, gpu.capacity_bytes), object)
    out["usd"] = flat(usd.request if usd else nothing)
    out["usd_per_million_output"] = flat(usd.output if usd else nothing)
    return out


def _verdicts(setting: Setting, cost: Cost, there: Any) -> Any:
    """What a phase waits for, where `there` is one."""
    import numpy as np

    at = ridge(setting.gpu, default_dtype(setting.gpu))
    out = np.full(there.size, None, dtype=object)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.broadcast_to(balance(cost, at), there.shape).ravel()
    for i in np.flatnonzero(there):
        out[i] = verdict(float(values[i]), at)
    return out
