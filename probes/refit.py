"""A calibration from someone's own measurements, kept only where it helps.

A group with many rows (`MANY_ROWS`) is fitted in full; one with few only moves three constants
(launch, share of the peak or link, share of bandwidth) from those it would be timed with anyway.
Either is accepted only if rows held back from the fit are predicted better than they are without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import InputError
from ..costmodel.times.families import TIMES
from ..costmodel.times.family import Family, Parameter
from ..costmodel.times.transfer import Calibrated, choose
from ..hardware.calibration import Calibration, Group, Spread
from ..hardware.spec import Gpu
from .calibrate import MANY_ROWS, Weight, cross_fit, default_keys
from .fit import FOLDS, fit, spread
from .measured import Batch
from .validate import predict

FEWEST = 4
MOVED = (
    "launch_us",
    "mma_share",
    "link_share",
    "one_shot_share",
    "memory_share",
)


class Refit(NamedTuple):
    """One group: its error with the constants at hand, with its own, and which were kept."""

    family: str
    group: Group
    before: Spread
    after: Spread
    accepted: bool
    instead: str


def refit(
    batches: Iterable[Batch],
    library: Callable[[Gpu], Iterable[Calibrated]],
    source: str,
    date: str,
    software: str = "",
) -> tuple[list[Refit], Calibration | None]:
    """Every group of one GPU's measurements, and the calibration of those accepted (None: none was)."""
    wanted = [batch for batch in batches if len(batch.time_s) >= FEWEST]
    if not wanted:
        raise InputError(f"nothing to fit: no group has {FEWEST} rows or more")
    tried = [_one(batch, list(library(batch.gpu))) for batch in wanted]
    kept = [each for each in tried if each.accepted]
    if not kept:
        return tried, None
    families: dict[str, tuple[Group, ...]] = {}
    for each in kept:
        families[each.family] = (*families.get(each.family, ()), each.group)
    for name, groups in families.items():
        defaults = default_keys({group.key: Weight(group.rows, group.error.mape) for group in groups})
        families[name] = tuple(_marked(group, group.key in defaults) for group in groups)
    made = Calibration(wanted[0].gpu.name, source, date, software, families=families)
    return tried, made


def _marked(group: Group, default: bool) -> Group:
    return Group(group.key, group.form, group.params, group.rows, group.error, group.abroad, default)


def _one(batch: Batch, library: Sequence[Calibrated]) -> Refit:
    times = TIMES[batch.family]
    choice = choose(times.family, batch.key, batch.gpu, library)
    before = spread(predict(batch, choice.params), batch.time_s)
    if len(batch.time_s) >= MANY_ROWS:
        cross = cross_fit(batch)
        form, params, held_back = cross.fitted.form, cross.fitted.params, cross.predicted_s
    else:
        base = {name: value for name, value in choice.params.items() if name not in ("key", "form")}
        form, (params, held_back) = "few", _few(batch, times.family, base)
    after = spread(held_back, batch.time_s)
    group = Group(batch.key, form, tuple(params.items()), len(batch.time_s), after)
    better = after.mape < before.mape and after.median <= before.median
    said = choice.confidence
    instead = f"{said.gpu} {said.group}".strip() or "assumed constants"
    return Refit(batch.family, group, before, after, better, instead)


def _few(batch: Batch, family: Family, base: dict[str, Any]) -> tuple[dict[str, float], Any]:
    """Few rows: three constants moved from `base`, each row predicted from the other folds' fit."""
    moved = tuple(name for name in MOVED if name in family.parameters)
    pinned = {
        name: each if name in moved else Parameter(base[name], each.low, each.high, base[name], each.meaning)
        for name, each in family.parameters.items()
    }
    small = Family(family.name, pinned, {"few": moved})

    def seconds(params: Any) -> Any:
        return predict(batch, params)

    def fitted(kept: Any) -> dict[str, float]:
        found = fit(small, seconds, batch.time_s, ("few",), kept, base).params
        return {**{name: float(f"{value:.5g}") for name, value in base.items()}, **found}

    folds = np.arange(len(batch.time_s)) % min(FOLDS, len(batch.time_s))
    held_back = np.empty(len(batch.time_s))
    for fold in range(folds.max() + 1):
        held_back[folds == fold] = predict(batch, fitted(folds != fold))[folds == fold]
    return fitted(np.full(len(batch.time_s), True)), held_back
