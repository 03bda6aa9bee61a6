"""A calibration from measured times: fitted group by group, its error from shapes kept out of each fit.

Protocol: the rows of a group are split into five folds by whole shape families (`fit.fold_of`); each
fold is predicted with constants fitted to the other four, the form chosen on those alone. The
constants kept are fitted to all rows.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from ..costmodel.times.device import device
from ..costmodel.times.families import TIMES
from ..costmodel.times.transfer import Calibrated, choose, gpu_distance, key_distance, special
from ..hardware.calibration import FAMILIES, Calibration, Group, Key, Spread
from ..hardware.spec import Gpu
from .fit import FOLDS, Fitted, fit, fold_of, spread
from .measured import Batch
from .validate import predict

FEWEST_ROWS = 8
"""A group of fewer rows than parameters says nothing about them."""
MANY_ROWS = 60
"""From here on a group says enough: some seven rows a constant."""
POOR, WORST = 0.2, 0.3
SLOW = 2.0
"""A kernel whose work another stack's does in less than half the time stands for its type only where none
else does: an engine would not choose it (SGLang's FlashAttention over an fp8 MLA cache on Hopper takes four
times as long as TensorRT-LLM's)."""
STACK_ORDER = ("vllm", "sglang", "trtllm")
"""Whose group is a type's default where several were measured: the engine most people run first."""


class Weight(NamedTuple):
    """What makes a group fit to stand for its type: how many rows of how many shape families, how well they
    are predicted, and how many times longer its kernels take than the quickest like them."""

    rows: int
    mape: float
    shapes: int = 2
    slow: float = 1.0


class Cross(NamedTuple):
    """One group: constants fitted to all rows, and every row as predicted from the other folds.

    `held_out`: whether whole shape families were; a group of one family has only its rows.
    """

    batch: Batch
    fitted: Fitted
    predicted_s: Any
    held_out: bool

    @property
    def error(self) -> Spread:
        """Errors of the rows as predicted from the other folds; twice that where only rows, and not whole
        shape families, could be held out."""
        found = spread(self.predicted_s, self.batch.time_s)
        return found if self.held_out else Spread(*(2 * each for each in found))

    @property
    def weight(self) -> Weight:
        return Weight(len(self.batch.time_s), self.error.mape, len(set(self.batch.shape)))


def cross_fit(batch: Batch, others: Sequence[Batch] = (), begin: Mapping[str, float] | None = None) -> Cross:
    """Fit one group, and predict each of its folds from the others.

    `others`: groups of the same stack whose rows say where the fit begins (families that share);
    `begin`: constants of other groups that say so.
    """
    times, folds = TIMES[batch.family], folds_of(batch)
    whole = _fit(batch, others, np.full(folds.shape, True), begin)
    predicted = np.full(batch.time_s.shape, np.nan)
    for fold in range(FOLDS):
        held = folds == fold
        if held.any():
            kept = ~held if (~held).sum() >= FEWEST_ROWS or others else held
            part = _fit(batch, others, kept, begin)
            predicted[held] = predict(batch, times.family.complete(part.params))[held]
    return Cross(batch, whole, predicted, len(set(batch.shape)) > 1)


def _fit(
    batch: Batch, others: Sequence[Batch], kept: Any, begin: Mapping[str, float] | None = None
) -> Fitted:
    """Constants from the `kept` rows, pulled to what the whole stack shows where the family shares."""
    times, forms = TIMES[batch.family], TIMES[batch.family].forms(batch.work)

    def seconds(params: Any) -> Any:
        return predict(batch, params)

    start: dict[str, float] = dict(times.begin(batch.key, device(batch.gpu))) if times.begin else {}
    start |= begin or {}
    if others:
        every = [batch, *others]
        sizes = [len(each.time_s) for each in others]
        keep = np.concatenate([kept, np.full(sum(sizes), True)])

        def pooled(params: Any) -> Any:
            return np.concatenate([predict(each, params) for each in every], axis=-1)

        time_s = np.concatenate([each.time_s for each in every])
        start = fit(times.family, pooled, time_s, forms, keep).params
        if not kept.any():
            return Fitted(forms[0], start, 0.0)
    return fit(times.family, seconds, batch.time_s, forms, kept, start)


def folds_of(batch: Batch) -> Any:
    """The fold of every row; where all shapes are of one family, rows are spread by turns."""
    names = {name: fold_of(str(name)) for name in set(batch.shape)}
    if len(set(names.values())) == 1:
        return np.arange(len(batch.time_s)) % FOLDS
    return np.array([names[name] for name in batch.shape])


def cross_fit_all(groups: Iterable[Batch], workers: int | None = None) -> list[Cross]:
    """Every group with rows enough, in parallel; the result does not depend on how many workers."""
    wanted = [batch for batch in groups if len(batch.time_s) >= FEWEST_ROWS]
    beside = [_same_stack(batch, wanted) if TIMES[batch.family].shared else [] for batch in wanted]
    workers = workers or os.cpu_count() or 1
    if workers == 1 or len(wanted) < 2:
        begins = _begins(wanted, map(whole_fit, wanted))
        return [cross_fit(*each) for each in zip(wanted, beside, begins, strict=True)]
    with ProcessPoolExecutor(workers) as pool:
        begins = _begins(wanted, pool.map(whole_fit, wanted))
        return list(pool.map(cross_fit, wanted, beside, begins))


def whole_fit(batch: Batch) -> dict[str, float]:
    """Constants of a group on its own, where its neighbours will ask for them."""
    if not TIMES[batch.family].neighbours:
        return {}
    return _fit(batch, (), np.full(batch.time_s.shape, True)).params


NEARNESS = 0.6
"""Distance (see `costmodel.times.transfer`) at which a neighbour's weight has fallen to a third."""


def _begins(batches: list[Batch], fits: Iterable[dict[str, float]]) -> list[dict[str, float]]:
    """Where each fit begins: for families that ask their neighbours, the weighted median of the
    constants of all other groups."""
    known = list(zip(batches, fits, strict=True))
    return [_middle(batch, known) if params else {} for batch, params in known]


def _middle(batch: Batch, known: Sequence[tuple[Batch, dict[str, float]]]) -> dict[str, float]:
    near = [(b, params) for b, params in known if b is not batch and b.family == batch.family]
    if not near:
        return {}
    away = [gpu_distance(batch.gpu, b.gpu) + key_distance(batch.key, b.key) for b, _ in near]
    weights = np.exp(-np.array(away) / NEARNESS) * np.sqrt([len(b.time_s) for b, _ in near])
    out = {}
    for name in near[0][1]:
        values = np.array([params[name] for _, params in near])
        order = np.argsort(values)
        reached = np.cumsum(weights[order])
        out[name] = float(values[order[np.searchsorted(reached, reached[-1] / 2)]])
    return out


def _same_stack(batch: Batch, groups: Iterable[Batch]) -> list[Batch]:
    """Other groups of the same family, GPU and stack."""
    same = (batch.family, batch.gpu.name, batch.key.stack)
    return [b for b in groups if b is not batch and (b.family, b.gpu.name, b.key.stack) == same]


def calibrations(
    crosses: Sequence[Cross], source: str, date: str, software: str = "", conditions: str = ""
) -> dict[str, Calibrated]:
    """One calibration a GPU, with default groups and with errors at home and abroad."""
    plain = _assemble(crosses, {}, source, date, software, conditions)
    return _assemble(crosses, abroad(crosses, plain), source, date, software, conditions)


Where = tuple[str, str, Key]


def _assemble(
    crosses: Sequence[Cross],
    away: Mapping[Where, Any],
    source: str,
    date: str,
    software: str,
    conditions: str,
) -> dict[str, Calibrated]:
    gpus = {cross.batch.gpu.name: cross.batch.gpu for cross in crosses}
    out = {}
    for name, gpu in sorted(gpus.items()):
        families = {}
        for family in FAMILIES:
            own = [c for c in crosses if c.batch.gpu.name == name and c.batch.family == family]
            if own:
                defaults = default_keys({c.batch.key: c.weight._replace(slow=slowness(c, own)) for c in own})
                families[family] = tuple(_group(c, away, c.batch.key in defaults) for c in own)
        made = Calibration(name, source, date, software, conditions, families=families)
        out[name] = Calibrated(gpu, made)
    return out


def _group(cross: Cross, away: Mapping[Where, Any], default: bool) -> Group:
    batch, fitted = cross.batch, cross.fitted
    where = (batch.family, batch.gpu.name, batch.key)
    params = tuple((name, value) for name, value in fitted.params.items())
    return Group(batch.key, fitted.form, params, len(batch.time_s), cross.error, away.get(where), default)


def slowness(cross: Cross, own: Sequence[Cross]) -> float:
    """How many times longer a group's kernels take on its own shapes than the quickest of like groups: the
    median ratio of predictions."""
    mine, batch, family = alike_fields(cross.batch.key), cross.batch, TIMES[cross.batch.family].family

    def seconds(one: Cross) -> Any:
        return predict(batch, {**family.complete(dict(one.fitted.params)), "key": one.batch.key})

    others = [
        seconds(other)
        for other in own
        if other is not cross and alike_fields(other.batch.key) == mine and not special(other.batch.key)
    ]
    if not others:
        return 1.0
    quickest = np.minimum.reduce([np.broadcast_to(each, batch.time_s.shape) for each in others])
    return float(np.median(seconds(cross) / quickest))


def alike_fields(key: Key) -> tuple[object, ...]:
    """What groups must share for one to stand for the others: op, types, ranks."""
    return key.op, key.dtype, key.kv, key.world


def default_keys(weights: Mapping[Key, Weight]) -> set[Key]:
    """The group that stands for each (op, types, ranks): predicted well enough, of rows enough, no kernel
    that another stack's does in half the time, by the order of stacks, then the one with most rows.

    None where there is only what a sibling's group is better than: one shape family, errors beyond
    `WORST`, or a kernel of encoders or ungated experts.
    """
    alike: dict[Any, list[Key]] = defaultdict(list)
    for key in weights:
        alike[alike_fields(key)].append(key)

    def rank(key: Key) -> tuple[bool, bool, bool, bool, int, int, Key]:
        stack, weight = key.stack.split("-")[0], weights[key]
        order = STACK_ORDER.index(stack) if stack in STACK_ORDER else len(STACK_ORDER)
        poor = weight.mape > POOR or weight.shapes < 2
        slow = weight.slow > SLOW
        return special(key), poor, weight.rows < MANY_ROWS, slow, order, -weight.rows, key

    def stands(key: Key) -> bool:
        return weights[key].shapes > 1 and weights[key].mape <= WORST and not special(key)

    best = (min(same, key=rank) for same in alike.values())
    return {key for key in best if stands(key)}


def abroad(crosses: Sequence[Cross], library: Mapping[str, Calibrated]) -> dict[Where, Any]:
    """What each group's constants did on the rows of siblings, of its own generation, that borrow them.

    A sibling's group is predicted with the library less the sibling's own calibration; the error goes
    to the group that was borrowed.
    """
    pooled: dict[Where, list[Any]] = defaultdict(list)
    for cross, choice in leave_gpu_out(crosses, library):
        if cross.batch.gpu.generation != library[choice.confidence.gpu].gpu.generation:
            continue
        lender = next(
            group.key
            for group in library[choice.confidence.gpu].calibration.groups(cross.batch.family)
            if str(group.key) == choice.confidence.group
        )
        ratio = predict(cross.batch, choice.params) / cross.batch.time_s
        pooled[(cross.batch.family, choice.confidence.gpu, lender)].append(ratio)
    return {where: spread(np.concatenate(ratios), 1.0) for where, ratios in pooled.items()}


def leave_gpu_out(crosses: Sequence[Cross], library: Mapping[str, Calibrated]) -> Iterable[tuple[Cross, Any]]:
    """Every group with the constants that the transfer rule gives its GPU once it has none of its own."""
    for cross in crosses:
        gpu: Gpu = cross.batch.gpu
        rest = [one for name, one in library.items() if name != gpu.name]
        choice = choose(TIMES[cross.batch.family].family, cross.batch.key, gpu, rest)
        if choice.confidence.kind == "transferred":
            yield cross, choice
