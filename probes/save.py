"""A calibration out of a run: shares of the roofs, class by class, kept where they predict what was held out.

On a device whose kernels have constants already (shipped, or a sibling's) those are only scaled, by one
factor for what is bound by products and one for what is bound by bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import date
from math import exp, log
from statistics import median
from typing import Any

from ..costmodel.op import Gather, Pointwise
from ..costmodel.roofline import math_dtype, peak_flops, work_math
from ..costmodel.times.expected import Clock
from ..costmodel.times.families import TIMES
from ..costmodel.times.prefill import prefill_s
from ..costmodel.times.transfer import LIKE_ERROR, Choice
from ..hardware.calibration import Calibration, Group, Key, Spread
from ..hardware.spec import Gpu
from .classes import group_of, kept_as, row_kernel
from .result import Result
from .session import Session
from .target import software
from .verdict import FAIL, INCONCLUSIVE, SKIPPED

LEAST_SHARE = 1e-3
NEVER_BINDS = 10.0
"""The share of a roof that no probe stood under: so fast that it is never what binds."""
FEW_HELD = 2
"""Held-out probes below which an error is not known."""


def calibration_of(session: Session, clock: Clock) -> Calibration:
    """The calibration that a run's results make; partial where the run was."""
    families: dict[str, list[Group]] = defaultdict(list)
    launch_s = session.ceilings.launch_s if session.ceilings else 0.0
    stack = f"torch-{software(session.target)['torch']}"
    for (family, key), results in _by_group(session.results, session.target.gpu).items():
        products = {r.probe.id for r in results if session.roof(r.work) == "compute"}
        for name in kept_as(key.op):
            mine = key._replace(stack=stack, op=name)
            made = _group(family, mine, results, launch_s, clock, products)
            if made is not None:
                families[family].append(made)
    versions = ", ".join(f"{name} {v}" for name, v in software(session.target).items())
    seen = session.conditions
    return Calibration(
        session.target.gpu.name,
        f"infercost probe on {session.target.name}",
        date.today().isoformat(),
        versions,
        f"{seen.verdict if seen else 'unknown'}; mode {session.mode}",
        session.partial,
        session.ceilings.as_mapping() if session.ceilings else {},
        {name: tuple(groups) for name, groups in families.items()},
    )


def _by_group(results: Iterable[Result], gpu: Gpu) -> dict[tuple[str, Key], list[Result]]:
    out: dict[tuple[str, Key], list[Result]] = defaultdict(list)
    for result in results:
        usable = result.timing is not None and result.verdict not in (FAIL, INCONCLUSIVE, SKIPPED)
        if usable and result.probe.part != "report":
            out[group_of(result.probe, result.work, gpu)].append(result)
    return out


def _group(
    family: str, key: Key, results: list[Result], launch_s: float, clock: Clock, products: set[str]
) -> Group | None:
    """Constants of one class, and their error on what was held out; None where they do not help.

    `products`: ids of those that the products' roof binds. The error of a class of which too little was
    held out is not known, and is stated as at least what like kernels differ by.
    """
    fitted = [r for r in results if r.probe.part in ("fit", "ceiling")]
    held = [r for r in results if r.probe.part == "held"] or fitted
    if not fitted:
        return None
    choice = clock.choice(family, key._replace(stack=""))
    if choice.confidence.kind == "assumed":
        form, params = "share", _shares(fitted, launch_s, clock.gpu, products)
    else:
        form, params = str(choice.params["form"]), _scaled(family, fitted, choice, clock, products)
    errors = [abs(_predicted(family, r, form, params, clock) / _time(r) - 1) for r in held]
    before = [abs(_predicted(family, r, "", dict(choice.params), clock) / _time(r) - 1) for r in held]
    if choice.confidence.kind != "assumed" and median(errors) >= median(before):
        return None
    ordered = sorted(errors)
    p90 = ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]
    least = 0.0 if sum(r.probe.part == "held" for r in results) >= FEW_HELD else LIKE_ERROR
    spread = (sum(errors) / len(errors), median(errors), p90)
    error = Spread(*(round(max(each, least), 4) for each in spread))
    kept = tuple((name, float(f"{value:.5g}")) for name, value in params.items())
    return Group(key, form, kept, len(results), error, default=True)


def _time(result: Result) -> float:
    assert result.timing is not None
    return result.timing.median_s


def _shares(results: list[Result], launch_s: float, gpu: Gpu, products: set[str]) -> dict[str, float]:
    """Median share of the sheet's peak and bandwidth, each over the probes that it binds."""
    compute: list[float] = []
    memory: list[float] = []
    for result in results:
        left = max(_time(result) - launch_s, 0.01 * _time(result))
        math, moved = work_math(result.work), _moved(result.work, gpu)
        flops_s = result.work.matmul_flops / peak_flops(gpu, math_dtype(gpu, math)) if math else 0.0
        if result.probe.id in products:
            compute.append(flops_s / left)
        else:
            memory.append(moved / gpu.bandwidth / left)
    mma = median(compute) if compute else NEVER_BINDS
    share = median(memory) if memory else NEVER_BINDS
    return {
        "launch_us": launch_s * 1e6,
        "mma_share": max(mma, LEAST_SHARE),
        "memory_share": max(share, LEAST_SHARE),
    }


def _moved(work: Any, gpu: Gpu) -> float:
    """Bytes as `share_s` counts them: a CPU's attention reads K and V for every query head."""
    extra = 0.0
    if gpu.is_cpu and work.kind == "attend":
        extra = work.sequences * work.context * work.row_bytes * (work.heads / work.kv_heads - 1)
    return float(work.bytes.total + extra)


def _scaled(
    family: str, results: list[Result], choice: Choice, clock: Clock, products: set[str]
) -> dict[str, float]:
    """The constants at hand, their shares moved by the median ratio of expected to measured."""
    known = {name: each for name, each in choice.params.items() if isinstance(each, (int, float))}
    for name, bound in (("mma_share", True), ("memory_share", False)):
        some = [r for r in results if (r.probe.id in products) == bound]
        if name in known and some:
            ratios = [log(_predicted(family, r, "", dict(choice.params), clock) / _time(r)) for r in some]
            known[name] *= exp(median(ratios))
    return known


def _predicted(family: str, result: Result, form: str, params: dict[str, Any], clock: Clock) -> float:
    work: Any = result.work
    if isinstance(work, (Gather, Pointwise)):
        work = row_kernel(work)
    given = {**params, "form": form} if form else params
    times = TIMES[family]
    if family == "prefill" and given.get("form") != "share":
        return float(prefill_s(work, clock.device, given))
    return float(times.time_s(work, clock.device, given))
