"""A calibration out of a run: shares of the roofs, class by class, kept where they predict what was held out.

On a device whose kernels have constants already (shipped, or a sibling's) those are only scaled, by one
factor for what is bound by products and one for what is bound by bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from math import exp, log
from statistics import median
from typing import Any

from ..costmodel.expected import Clock
from ..costmodel.kernel_time import TIMES
from ..costmodel.op import Gather, Pointwise
from ..costmodel.pointwise_time import RowKernel
from ..costmodel.prefill_time import prefill_s
from ..costmodel.roofline import math_dtype, peak_flops, work_math
from ..costmodel.transfer import Choice
from ..hardware.calibration import Calibration, Group, Key, Spread
from ..hardware.spec import Gpu
from .classes import STANDS_FOR, group_of
from .session import Result, Session
from .target import software
from .verdict import FAIL, INCONCLUSIVE, SKIPPED

LEAST_SHARE = 1e-3


def calibration_of(session: Session, clock: Clock) -> Calibration:
    """The calibration that a run's results make; partial where the run was."""
    families: dict[str, list[Group]] = defaultdict(list)
    launch_s = session.ceilings.launch_s if session.ceilings else 0.0
    stack = f"torch-{software(session.target)['torch']}"
    for (family, key), results in _by_group(session.results).items():
        made = _group(family, key._replace(stack=stack), results, launch_s, clock)
        if made is not None:
            families[family] += [replace(made, key=k) for k in _names(made.key)]
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


def _by_group(results: Iterable[Result]) -> dict[tuple[str, Key], list[Result]]:
    out: dict[tuple[str, Key], list[Result]] = defaultdict(list)
    for result in results:
        usable = result.timing is not None and result.verdict not in (FAIL, INCONCLUSIVE, SKIPPED)
        if usable and result.probe.part != "report":
            out[group_of(result.probe, result.work)].append(result)
    return out


def _names(key: Key) -> list[Key]:
    return [key._replace(op=op) for op in STANDS_FOR.get(key.op, (key.op,))]


def _group(family: str, key: Key, results: list[Result], launch_s: float, clock: Clock) -> Group | None:
    """Constants of one class, and their error on what was held out; None where they do not help."""
    fitted = [r for r in results if r.probe.part in ("fit", "ceiling")]
    held = [r for r in results if r.probe.part == "held"] or fitted
    if not fitted:
        return None
    choice = clock.choice(family, key._replace(stack=""))
    if choice.confidence.kind == "assumed":
        form, params = "share", _shares(fitted, launch_s, clock.gpu)
    else:
        form, params = str(choice.params["form"]), _scaled(family, fitted, choice, clock)
    errors = [abs(_predicted(family, r, form, params, clock) / _time(r) - 1) for r in held]
    before = [abs(_predicted(family, r, "", dict(choice.params), clock) / _time(r) - 1) for r in held]
    if choice.confidence.kind != "assumed" and median(errors) >= median(before):
        return None
    ordered = sorted(errors)
    p90 = ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]
    error = Spread(round(sum(errors) / len(errors), 4), round(median(errors), 4), round(p90, 4))
    kept = tuple((name, float(f"{value:.5g}")) for name, value in params.items())
    return Group(key, form, kept, len(results), error, default=True)


def _time(result: Result) -> float:
    assert result.timing is not None
    return result.timing.median_s


def _shares(results: list[Result], launch_s: float, gpu: Gpu) -> dict[str, float]:
    """Median share of the sheet's peak and bandwidth, each over the probes that it binds."""
    compute: list[float] = []
    memory: list[float] = []
    for result in results:
        left = max(_time(result) - launch_s, 0.01 * _time(result))
        math, moved = work_math(result.work), _moved(result.work, gpu)
        flops_s = result.work.matmul_flops / peak_flops(gpu, math_dtype(gpu, math)) if math else 0.0
        if result.floor_s and _bound_by_products(result):
            compute.append(flops_s / left)
        else:
            memory.append(moved / gpu.bandwidth / left)
    mma = median(compute) if compute else 10.0
    share = median(memory) if memory else 10.0
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


def _bound_by_products(result: Result) -> bool:
    return result.probe.cls.startswith(("gemm", "attn.prefill"))


def _scaled(family: str, results: list[Result], choice: Choice, clock: Clock) -> dict[str, float]:
    """The constants at hand, their shares moved by the median ratio of expected to measured."""
    known = {name: each for name, each in choice.params.items() if isinstance(each, (int, float))}
    for name, bound in (("mma_share", True), ("memory_share", False)):
        some = [r for r in results if _bound_by_products(r) == bound]
        if name in known and some:
            ratios = [log(_predicted(family, r, "", dict(choice.params), clock) / _time(r)) for r in some]
            known[name] *= exp(median(ratios))
    return known


def _predicted(family: str, result: Result, form: str, params: dict[str, Any], clock: Clock) -> float:
    work: Any = result.work
    if isinstance(work, (Gather, Pointwise)):
        rows = work.rows
        columns = work.width if isinstance(work, Gather) else work.values // work.rows
        work = RowKernel(rows, columns, work.bytes.total)
    given = {**params, "form": form} if form else params
    times = TIMES[family]
    if family == "prefill" and given.get("form") != "share":
        return float(prefill_s(work, clock.device, given))
    return float(times.time_s(work, clock.device, given))
