"""Measured requests beside what is predicted of them: their steps' bound, floor and expected time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..costmodel.kv import cache_bill
from ..costmodel.roofline import bound_s
from ..costmodel.setting import Setting
from ..costmodel.step import Step
from ..costmodel.times.engine import StepParts, engine_s, step_parts
from ..costmodel.times.expected import Clock
from ..costmodel.weights import weight_bill
from ..hardware.engine import EngineTimes, engine_names, load_engine
from ..hardware.spec import Gpu
from .request_rows import Row, Term

KERNELS_ALONE = EngineTimes("kernels back to back", 0.5, 0.5)
"""No engine's host and no gaps."""
SLACK = 0.98
"""A row is called impossible below this share of the bound."""


@dataclass(frozen=True)
class Steps:
    """Steps taken apart, stage by stage, and their bound: all that a profile needs."""

    gpu: str
    terms: tuple[tuple[Term, tuple[StepParts, ...]], ...]
    bound_s: float

    @property
    def floor_s(self) -> float:
        return sum(
            term.times * term.share(len(stages)) * sum(float(part.floor_s) for part in stages)
            for term, stages in self.terms
            if not term.mixed
        )

    def seconds(self, times: EngineTimes) -> float:
        """What `times` makes of them."""
        total = 0.0
        for term, stages in self.terms:
            weight = term.times * term.share(len(stages)) * (times.mixing if term.mixed else 1.0)
            total += weight * sum(float(engine_s(part, times, self.gpu)) for part in stages)
        return total


@dataclass(frozen=True)
class Parts(Steps):
    """Those of a row."""

    row: Row


def beside(setting: Setting, terms: tuple[Term, ...]) -> dict[str, float | None] | None:
    """Bound, floor and expected seconds of a run of these steps on `setting`; None where it has no steps.

    Without an engine the expected time is of kernels back to back.
    """
    if not terms:
        return None
    profile = setting.engine.name if setting.engine else ""
    steps = Evaluator(lambda gpu: setting.clock).steps(setting, terms, profile)
    expected = None
    if setting.clock is not None:
        times = setting.engine.times if setting.engine else None
        expected = max(steps.seconds(times or KERNELS_ALONE), steps.floor_s)
    return {"bound": steps.bound_s, "floor": steps.floor_s, "expected": expected}


class Evaluator:
    """Rows into parts; equal steps of equal settings are built once."""

    def __init__(self, clock_of: Callable[[Gpu], Clock | None]) -> None:
        self._clock_of = clock_of
        self._known: dict[Any, tuple[tuple[StepParts, ...], float]] = {}

    def parts(self, row: Row) -> Parts:
        """Raises InputError where the model cannot be shared out so."""
        steps = self.steps(row.setting, row.terms, row.profile)
        return Parts(steps.gpu, steps.terms, steps.bound_s, row)

    def steps(self, setting: Setting, terms: tuple[Term, ...], profile: str) -> Steps:
        """`terms` on `setting` with the kernels of the engine whose `profile` it is ("" for none)."""
        found, bound = [], 0.0
        stack = load_engine(profile).stack if profile in engine_names() else ""
        for term in terms:
            stages, least = self._step(setting, term.step, stack)
            found.append((term, stages))
            bound += 0.0 if term.mixed else term.times * term.share(len(stages)) * least
        return Steps(setting.gpu.name, tuple(found), bound)

    def _step(self, setting: Setting, step: Step, stack: str) -> tuple[tuple[StepParts, ...], float]:
        run = setting.run
        key = (
            setting.model.name,
            setting.recipe.name,
            run.kv.name,
            setting.gpu.name,
            setting.parallel,
            step,
            stack,
        )
        if key not in self._known:
            clock = self._clock_of(setting.gpu)
            clock = clock and clock.of(stack)
            stages, bound = [], 0.0
            for plan, kernels, links in setting.stages(step):
                ranks = setting.parallel.world // setting.parallel.pp
                stages.append(step_parts(plan, kernels, links, setting.gpu, clock, ranks))
                bound += float(bound_s(plan, kernels, setting.gpu))
            self._known[key] = (tuple(stages), bound)
        return self._known[key]


def impossible(parts: Parts) -> str:
    """Why a row cannot be what it says, or "": faster than the bound, or more than the memory holds."""
    row = parts.row
    setting = row.setting
    narrow, wide = dict(setting.gpu.fp16_accumulate_peaks).get("fp16"), setting.gpu.peak("fp16")
    # A GeForce multiplies faster where it adds up in fp16, as llama.cpp and ExLlamaV2 do.
    quicker = narrow / wide if narrow and wide else 1.0
    if row.measured_s < SLACK * parts.bound_s / quicker:
        return "faster than the bound"
    capacity = setting.gpu.capacity_bytes
    if capacity is None:
        return ""
    plan = setting.plan(row.terms[0].step)
    held = weight_bill(plan.model, plan.recipe, 1, 0.0).weight_bytes
    context = max(segment.context for term in row.terms for segment in term.step.segments)
    count = max(segment.count for term in row.terms for segment in term.step.segments)
    cache = cache_bill(setting.model, context, count, setting.run.kv).logical_bytes
    if held + cache > capacity * setting.devices:
        return "more than the memory holds"
    return ""
