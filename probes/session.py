"""One run of probes: ceilings first, then each probe between two readings of the ceiling it stands under.

Results come as they are made, so that an interrupted run keeps what it has.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from math import ceil, inf
from statistics import median
from typing import Any, NamedTuple

from ..costmodel.op import Pointwise, Work
from ..costmodel.roofline import floor_s, math_dtype, peak_flops, step_floor_s, totals, work_math
from ..costmodel.times.expected import Clock, Expected
from ..hardware.spec import Gpu
from ..models.spec import Model
from .ceilings import Ceilings
from .classes import expected_of
from .conditions import Conditions, CpuWatch, GpuWatch
from .kernels import CannotRunError, Kernel, backend_context, build, check, out_of_memory
from .result import Result, Whole, skipped
from .shapes import halved
from .stack import Stack
from .suite import Probe
from .target import Target, nvml_module, torch_module, uuid_of
from .timing import GRAPH_BELOW_S, ROTATED_L2S, Budget, Sampler, Timing, cpu_sampler, cuda_sampler, measure
from .verdict import PASS, RULES, judge

CEILING_S = {"quick": 0.6, "default": 1.0, "full": 1.0}
PROBE_S = {"quick": 0.3, "default": 1.5, "full": 3.0}
BUDGET_S = {
    "cpu": {"quick": 25.0, "default": 90.0, "full": 240.0},
    "cuda": {"quick": 55.0, "default": 240.0, "full": 470.0},
}
ANCHOR_S = 0.06
MEMORY_SHARE, MOST_MEMORY = 0.5, 16 << 30
HALVINGS = 2
ATTEMPTS = {"quick": 2, "default": 3, "full": 3}
MOST_COPIES = 256
WARM_UP_S, WARM_UP_STEP_S, STEADY = 3.0, 0.25, 0.01
"""A clock is steady where it moves by less than `STEADY` from one step of warming up to the next."""
SETS = 0.999
"""Share of the ceiling above which a probe is the one that sets it (the rest is rounding)."""
STACK_S, STACK_BAND = 3.0, 0.15


class StackOf(NamedTuple):
    """A model whose layers are stacked, for how many sequences of how many tokens."""

    model: Model
    batch: int
    seq: int


class Session:
    """Everything a run needs and what it has found; `each()` yields results as they come."""

    def __init__(
        self,
        target: Target,
        probes: Sequence[Probe],
        mode: str,
        clock: Clock | None,
        layers: StackOf | None = None,
    ) -> None:
        self.target, self.probes, self.mode, self.clock = target, probes, mode, clock
        self.layers = layers
        self.torch = torch_module()
        self.budget = Budget(BUDGET_S[target.kind][mode])
        self.ceilings: Ceilings | None = None
        self.conditions: Conditions | None = None
        self.results: list[Result] = []
        self.partial = False
        self._sheet = target.gpu
        self._ceiling_results: list[Result] = []
        self._ceiling_trouble = ""
        self._anchors: dict[str, tuple[Sampler, float]] = {}
        self._stream: Any = None

    def each(self) -> Iterator[Result]:
        """Run: ceilings, then every other probe, then stacked layers."""
        self.torch.manual_seed(0)
        watch: Any = CpuWatch()
        if self.target.kind == "cuda":
            watch = GpuWatch(self.target.ordinal, nvml_module(self.target), uuid_of(self.target))
        try:
            with watch, self.torch.no_grad():
                self._warm_up(watch)
                for probe in self.probes:
                    if probe.part == "ceiling":
                        self._ceiling_results.append(self._ceiling(probe))
                        self._ceiling_trouble = self._ceiling_trouble or self._trouble(watch)
                self._set_ceilings(self._launch_s())
                self._choose_anchors()
                for result in self._ceiling_results:
                    yield self._keep(self._judged(result, ""))
                for probe in self.probes:
                    if probe.part == "ceiling":
                        continue
                    if self.budget.left_s <= 0:
                        yield self._keep(skipped(probe, "the time for this mode is used up"))
                        continue
                    yield self._keep(self._judged(self._run(probe), self._trouble(watch)))
                for phase in ("decode", "prefill") if self.layers else ():
                    yield self._keep(self._stacked(phase, watch))
        except KeyboardInterrupt:
            self.interrupted()
        finally:
            self.conditions = watch.whole()

    def interrupted(self) -> None:
        """Keep what there is: ceilings that were measured are results, too."""
        self.partial = True
        if self.ceilings is None and any(each.timing for each in self._ceiling_results):
            self._set_ceilings(0.0)
        if self.ceilings is not None:
            kept = {result.probe.id for result in self.results}
            left = [each for each in self._ceiling_results if each.probe.id not in kept]
            self.results += [self._judged(each, "") for each in left]

    def _trouble(self, watch: Any) -> str:
        """What voids a reading: conditions now, or those under which the ceilings were measured."""
        if self.target.kind != "cuda":
            return ""
        now = str(watch.conditions().trouble)
        before = self._ceiling_trouble
        return now or (f"the ceilings were measured under trouble: {before}" if before else "")

    def _keep(self, result: Result) -> Result:
        self.results.append(result)
        return result

    # --- stacked layers ---

    def _stacked(self, phase: str, watch: Any) -> Result:
        """Real layers of a model, one after the other: the sum of the parts against the whole."""
        assert self.layers is not None
        name = f"e2e.{phase}"
        nothing = Probe(name, name, Pointwise(name, 1, 1, 1, 0), "report")
        try:
            return self._stack_timed(phase, watch)
        except CannotRunError as error:
            return skipped(nothing, str(error))
        except Exception as error:  # torch raises what it likes; a probe that cannot run is no reason to stop
            return skipped(nothing, _said(error))
        finally:
            self._free()

    def _stack_timed(self, phase: str, watch: Any) -> Result:
        assert self.layers is not None
        stack = Stack(*self.layers, self.target)
        every = stack.ops(phase)
        total = totals(every)
        # A decode step is replayed whole, as engines do; else its 400 launches are what is timed.
        sampler = self._sampler([stack.launch(phase)], inf if phase == "decode" else GRAPH_BELOW_S)
        roof = "memory" if phase == "decode" else "compute"
        timing, slower, drift = self._between_anchors(sampler, roof, Budget(STACK_S), STACK_S)
        # One work that stands for all of the layers' ops: their FLOPs and bytes, summed.
        work = Whole(total.matmul_flops, total.vector_flops, total.bytes)
        name = f"e2e.{phase}"
        probe = Probe(f"{name}.{stack.model.name}.{len(stack.model.layers)}-layers", name, work, "held")
        floor = step_floor_s(every, self._sheet) * slower
        result = Result(probe, work, floor, None, timing, drift, "", "", slower)
        expected = self.clock.total(every) if self.clock else None
        return self._held(
            result,
            lambda sheet: float(step_floor_s(every, sheet)),
            expected,
            STACK_BAND,
            0.0,
            self._trouble(watch),
        )

    # --- ceilings and anchors ---

    def _warm_up(self, watch: Any) -> None:
        """Run the first ceiling until the SM clock holds still (or has had its time), so that it is not
        read while clocks ramp."""
        probe = next((each for each in self.probes if each.part == "ceiling"), None)
        if probe is None or self.target.kind != "cuda":
            return
        try:
            sampler = self._sampler([build(probe.work, probe.backend, self.target, self.torch).launch])
        except Exception:  # whatever it is, the probe itself will say it
            return
        begun, before = time.monotonic(), -1.0
        while time.monotonic() - begun < WARM_UP_S:
            until = time.monotonic() + WARM_UP_STEP_S
            while time.monotonic() < until:
                sampler(8)
            now = watch.sm_mhz()
            if now and abs(now - before) <= STEADY * now:
                break
            before = now

    def _ceiling(self, probe: Probe) -> Result:
        """The best of a few readings where the first is wide: a ceiling read low breaks every floor."""
        widest = RULES[self.target.kind].widest_ci
        best = self._time(probe, None, CEILING_S[self.mode])
        for _ in range(ATTEMPTS[self.mode] - 1):
            if best.timing is None or best.timing.reading().half_width <= widest or self.budget.left_s <= 0:
                break
            again = self._time(probe, None, CEILING_S[self.mode])
            if again.timing and again.timing.median_s < best.timing.median_s:
                best = again
        return best

    def _set_ceilings(self, launch_s: float) -> None:
        """The roofs: the quickest reading of each type."""
        flops: dict[str, float] = {}
        bandwidth: dict[str, float] = {}
        for result in self._ceiling_results:
            if result.timing is None:
                continue
            math = work_math(result.work)
            if result.probe.cls.startswith("gemm"):
                rate = result.work.matmul_flops / result.timing.median_s
                flops[math] = max(flops.get(math, 0.0), rate)
            else:
                name = result.probe.cls.removeprefix("bw.")
                moved = result.work.bytes.total / result.timing.median_s
                bandwidth[name] = max(bandwidth.get(name, 0.0), moved)
        if not bandwidth:
            bandwidth["sheet"] = self.target.gpu.bandwidth
        self.ceilings = Ceilings(flops, bandwidth, launch_s)
        self._sheet = self.ceilings.sheet(self.target.gpu)

    def _launch_s(self) -> float:
        """An add of one element: what a launch costs whatever it does."""
        one = self.torch.zeros(1, device=self.target.spec)
        out = self.torch.zeros(1, device=self.target.spec)
        sampler = self._sampler([lambda: self.torch.add(one, 1, out=out)])
        return measure(sampler, self.budget, 0.2).median_s

    def _choose_anchors(self) -> None:
        """The quickest ceiling under each roof, read again around every probe."""
        for roof in ("compute", "memory"):
            own = [
                r
                for r in self._ceiling_results
                if r.timing and (r.probe.cls.startswith("gemm") == (roof == "compute"))
            ]
            if own:
                chosen = min(own, key=lambda r: r.timing.median_s if r.timing else 0.0)
                kernels = self._build(chosen.work, chosen.probe.backend)
                sampler = self._sampler([kernel.launch for kernel in kernels])
                now = median(self._anchor_of(sampler) for _ in range(3))
                self._anchors[roof] = (sampler, now)
                assert chosen.timing is not None
                self._raise_ceilings(roof, chosen.timing.median_s / now)

    def _raise_ceilings(self, roof: str, quicker: float) -> None:
        """Where a ceiling reads quicker than it did, all under its roof were read in a slow moment."""
        if quicker <= 1 or self.ceilings is None:
            return
        flops, bandwidth = self.ceilings.flops, self.ceilings.bandwidth
        if roof == "compute":
            flops = {name: rate * quicker for name, rate in flops.items()}
        else:
            bandwidth = {name: rate * quicker for name, rate in bandwidth.items()}
        self.ceilings = self.ceilings._replace(flops=flops, bandwidth=bandwidth)
        self._sheet = self.ceilings.sheet(self.target.gpu)

    def _anchor_of(self, sampler: Sampler) -> float:
        launches = max(1, round(ANCHOR_S / 3 / max(sampler(1), 1e-7)))
        readings = sorted(sampler(launches) / launches for _ in range(3))
        return readings[1]

    # --- one probe ---

    def _run(self, probe: Probe) -> Result:
        """Measure, and once more where the first reading was too wide or the ceiling moved under it."""
        roof, rules = self.roof(probe.work), RULES[self.target.kind]
        best: Result | None = None
        for _ in range(ATTEMPTS[self.mode]):
            result = self._time(probe, roof, PROBE_S[self.mode])
            if result.timing is None:
                return result
            wide = result.timing.reading().half_width > rules.widest_ci or result.drift > rules.widest_drift
            best = result if best is None or result.drift < best.drift or not wide else best
            if not wide or self.budget.left_s <= 0:
                break
        assert best is not None
        return best

    def roof(self, work: Work) -> str:
        """Which ceiling a work stands under."""
        math = work_math(work)
        if not math:
            return "memory"
        compute = work.matmul_flops / peak_flops(self._sheet, math_dtype(self._sheet, math))
        return "compute" if compute > work.bytes.total / self._sheet.bandwidth else "memory"

    def _time(self, probe: Probe, roof: str | None, most_s: float) -> Result:
        """Build, check, and time between two anchors; halve the shape where memory runs out."""
        work = probe.work
        for _ in range(HALVINGS + 1):
            try:
                self._fits(work)
                check(work, probe.backend, self.target, self.torch)
                return self._timed(probe, work, roof, most_s)
            except CannotRunError as error:
                return skipped(probe, str(error))
            except Exception as error:  # torch raises what it likes; one probe is no reason to stop
                if not out_of_memory(error):
                    return skipped(probe, _said(error))
                work = halved(work)
            finally:
                self._free()
        return skipped(probe, "out of memory, even at a quarter of the shape")

    def _timed(self, probe: Probe, work: Work, roof: str | None, most_s: float) -> Result:
        kernels = self._build(work, probe.backend)
        with backend_context(probe.backend, self.torch):
            sampler = self._sampler([kernel.launch for kernel in kernels])
            timing, slower, drift = self._between_anchors(sampler, roof, self.budget, most_s)
        floor = floor_s(work, self._sheet) * slower if self.ceilings else 0.0
        return Result(probe, work, floor, None, timing, drift, "", "", slower)

    def _between_anchors(
        self, sampler: Sampler, roof: str | None, budget: Budget, most_s: float
    ) -> tuple[Timing, float, float]:
        """A timing, how much slower the ceiling around it was than at first, and how far it moved."""
        before = self._anchor(roof)
        timing = measure(sampler, budget, most_s)
        after = self._anchor(roof)
        if not (before and after and roof):
            return timing, 1.0, 0.0
        return timing, min(before, after) / self._anchors[roof][1], abs(after / before - 1)

    def _paced(self, expected: Expected, floor: Callable[[Gpu], float], slower: float) -> Expected:
        """An expected time at the pace of this run: the part of it that is at a roof goes with the ceilings,
        which are no longer those that the machine's constants were measured under. The rest stays.

        `floor`: the floor of what is expected, under the ceilings of a sheet.
        """
        saved = self.clock.ceilings if self.clock else {}
        assert self.ceilings is not None
        then = self.ceilings.as_fast_as(Ceilings.read(saved)).sheet(self.target.gpu) if saved else self._sheet
        was, now = floor(then), floor(self._sheet) * slower
        if expected.seconds <= was:
            return expected._replace(seconds=expected.seconds * now / was)
        return expected._replace(seconds=expected.seconds - was + now)

    def _anchor(self, roof: str | None) -> float | None:
        known = self._anchors.get(roof or "")
        return self._anchor_of(known[0]) if known else None

    def _build(self, work: Work, backend: str) -> list[Kernel]:
        """Copies enough that a round through them passes the last cache; on a CPU only where bytes bound."""
        first = build(work, backend, self.target, self.torch)
        if self.target.kind == "cpu" and self.roof(work) == "compute":
            return [first]
        rotated = ROTATED_L2S[self.target.kind] * self.target.l2_bytes
        copies = min(MOST_COPIES, max(1, ceil(rotated / max(first.moved, 1))))
        return [first, *(build(work, backend, self.target, self.torch) for _ in range(copies - 1))]

    def _sampler(self, launches: list[Callable[[], Any]], graph_below_s: float = GRAPH_BELOW_S) -> Sampler:
        if self.target.kind == "cpu":
            return cpu_sampler(launches)
        self._stream = self._stream or self.torch.cuda.Stream(self.target.spec)
        return cuda_sampler(launches, self.torch, self._stream, graph_below_s)

    def _fits(self, work: Work) -> None:
        if work.bytes.total > min(MEMORY_SHARE * self.target.memory_bytes, MOST_MEMORY):
            raise MemoryError("out of memory")

    def _free(self) -> None:
        gc.collect()
        if self.target.kind == "cuda":
            self.torch.cuda.empty_cache()

    def _judged(self, result: Result, trouble: str) -> Result:
        if result.timing is None:
            return result
        probe, work = result.probe, result.work
        result = result._replace(floor_s=result.floor_s or floor_s(work, self._sheet))
        expected = expected_of(probe, work, self.clock) if self.clock else None
        trouble = trouble or (self._ceiling_trouble if probe.part == "ceiling" else "")
        spread = expected.confidence.error / 2 if expected else 0.0
        band = probe.band(self.target.kind)
        return self._held(result, lambda sheet: float(floor_s(work, sheet)), expected, band, spread, trouble)

    def _held(
        self,
        result: Result,
        floor: Callable[[Gpu], float],
        expected: Expected | None,
        band: float,
        spread: float,
        trouble: str,
    ) -> Result:
        """A measured result held to its floor, and to what was expected where its class has constants.

        `floor`: its floor under the ceilings of a sheet.
        """
        assert result.timing is not None
        part = result.probe.part
        expected = expected and self._paced(expected, floor, result.slower)
        known = expected and expected.confidence.kind != "assumed" and part not in ("ceiling", "report")
        soft = expected.seconds if expected and known else None
        reading, rules = result.timing.reading(result.drift), RULES[self.target.kind]
        verdict, why = judge(reading, result.floor_s, soft, band, spread, rules, trouble)
        if verdict == PASS and part == "ceiling":
            quickest = result.floor_s / result.timing.median_s > SETS
            why = "sets the ceiling" if quickest else "under the ceiling of its type"
        return result._replace(expected=expected, verdict=verdict, why=why)


def _said(error: Exception) -> str:
    """The first line of what went wrong."""
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
