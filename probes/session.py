"""One run of probes: ceilings first, then each probe between two readings of the ceiling it stands under.

Results come as they are made, so that an interrupted run keeps what it has.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

from ..costmodel.expected import Clock, Expected
from ..costmodel.op import Attend, Bytes, Gather, Gemm, Pointwise, Work
from ..costmodel.roofline import floor_s, math_dtype, peak_flops, step_floor_s, totals, work_math
from ..hardware.spec import Gpu
from ..models.spec import Model
from .classes import expected_of
from .conditions import Conditions, CpuWatch, GpuWatch
from .kernels import CannotRunError, Kernel, build, check
from .stack import Stack
from .suite import Probe
from .target import Target, nvml_module, torch_module, uuid_of
from .timing import GRAPH_BELOW_S, ROTATED_L2S, Budget, Sampler, Timing, cpu_sampler, cuda_sampler, measure
from .verdict import PASS, RULES, SKIPPED, judge

CEILING_S = 1.0
PROBE_S = {"quick": 0.35, "default": 1.5, "full": 3.0}
BUDGET_S = {
    "cpu": {"quick": 28.0, "default": 90.0, "full": 240.0},
    "cuda": {"quick": 55.0, "default": 240.0, "full": 470.0},
}
ANCHOR_S = 0.06
MEMORY_SHARE, MOST_MEMORY = 0.5, 16 << 30
HALVINGS = 2
ATTEMPTS = 3
MOST_COPIES = 16
STACK_S, STACK_BAND = 3.0, 0.15


class Result(NamedTuple):
    """One probe: what the ceilings of the run allow, what was expected, what was measured, the verdict."""

    probe: Probe
    work: Any
    floor_s: float
    expected: Expected | None
    timing: Timing | None
    drift: float
    verdict: str
    why: str

    @property
    def flops_per_s(self) -> float | None:
        done = self.work.matmul_flops + self.work.vector_flops
        return done / self.timing.median_s if self.timing and done else None

    @property
    def bytes_per_s(self) -> float | None:
        return self.work.bytes.total / self.timing.median_s if self.timing else None

    @property
    def efficiency(self) -> float | None:
        """Share of the ceiling: the floor over the measured time."""
        return self.floor_s / self.timing.median_s if self.timing else None


@dataclass(frozen=True)
class Whole:
    """What several ops come to, as one."""

    matmul_flops: float
    vector_flops: float
    total_bytes: float

    kind = "stack"

    @property
    def bytes(self) -> Bytes:
        return Bytes(activations=self.total_bytes)


class Ceilings(NamedTuple):
    """The roofs of this run: FLOP/s by type, bytes/s by kind, and the launch of an empty kernel."""

    flops: dict[str, float]
    bandwidth: dict[str, float]
    launch_s: float

    def sheet(self, gpu: Gpu) -> Gpu:
        """The GPU's sheet with the ceilings in place of the datasheet: what floors of this run are of."""
        peaks = {**dict(gpu.peaks), **{name: max(rate, 1e9) for name, rate in self.flops.items()}}
        best = max(self.bandwidth.values())
        memory = replace(gpu.memory, bandwidth_gb_per_s=max(best / 1e9, 1.0))
        return replace(gpu, peaks=tuple(peaks.items()), memory=memory)

    def as_mapping(self) -> dict[str, float]:
        out = {f"flops.{name}": rate for name, rate in self.flops.items()}
        out |= {f"bandwidth.{name}": rate for name, rate in self.bandwidth.items()}
        return {**out, "latency.launch": self.launch_s}


class Session:
    """Everything a run needs and what it has found; `each()` yields results as they come."""

    def __init__(self, target: Target, probes: Sequence[Probe], mode: str, clock: Clock | None) -> None:
        self.target, self.probes, self.mode, self.clock = target, probes, mode, clock
        self.torch = torch_module()
        self.budget = Budget(BUDGET_S[target.kind][mode])
        self.ceilings: Ceilings | None = None
        self.conditions: Conditions | None = None
        self.results: list[Result] = []
        self.partial = False
        self._anchors: dict[str, tuple[Sampler, float]] = {}
        self._rates: dict[str, list[float]] = {}

    def each(self) -> Iterator[Result]:
        """Run: ceilings, then every other probe, then the ceilings' own verdicts."""
        torch, target = self.torch, self.target
        torch.manual_seed(0)
        watch: Any = CpuWatch()
        if target.kind == "cuda":
            watch = GpuWatch(target.ordinal, nvml_module(target), uuid_of(target))
        try:
            with watch, torch.no_grad():
                self._measure_ceilings()
                rest = [probe for probe in self.probes if probe.part != "ceiling"]
                for probe in rest:
                    if self.budget.left_s <= 0:
                        yield self._keep(_skipped(probe, "the time for this mode is used up"))
                        continue
                    yield self._keep(self._judged(self._run(probe), watch))
                for result in self._ceiling_results:
                    yield self._keep(self._judged(result, watch))
        except KeyboardInterrupt:
            self.partial = True
        finally:
            self.conditions = watch.conditions()

    def run_stack(self, model: Model, batch: int, seq: int) -> None:
        """Real layers of a model, one after the other: the sum of the parts against the whole."""
        for phase in ("decode", "prefill"):
            name = f"e2e.{phase}"
            try:
                stack = Stack(model, self.target, batch, seq)
                self.results.append(self._stacked(name, stack, phase))
            except CannotRunError as error:
                probe = Probe(name, name, Pointwise(name, 1, 1, 1, 0), "report")
                self.results.append(_skipped(probe, str(error)))
            except (MemoryError, RuntimeError) as error:
                probe = Probe(name, name, Pointwise(name, 1, 1, 1, 0), "report")
                self.results.append(_skipped(probe, str(error).splitlines()[0][:120]))
            finally:
                self._free()

    def _stacked(self, name: str, stack: Stack, phase: str) -> Result:
        every = stack.ops(phase)
        total = totals(every)
        with self.torch.no_grad():
            # A decode step is replayed whole, as engines do; else its 400 launches are what is timed.
            graph_below_s = inf if phase == "decode" else GRAPH_BELOW_S
            sampler = self._sampler([stack.launch(phase)], graph_below_s)
            timing = measure(sampler, Budget(STACK_S), STACK_S)
        # One work that stands for all of the layers' ops: their FLOPs and bytes, summed.
        work = Whole(total.matmul_flops, total.vector_flops, total.bytes)
        expected = self.clock.total(every) if self.clock else None
        floor = step_floor_s(every, self._sheet)
        known = expected if expected and expected.confidence.kind != "assumed" else None
        verdict, why = judge(
            timing.reading(),
            floor,
            known.seconds if known else None,
            STACK_BAND,
            0.0,
            RULES[self.target.kind],
        )
        layers = len(stack.model.layers)
        probe = Probe(f"{name}.{stack.model.name}.{layers}-layers", name, work, "held")
        return Result(probe, work, floor, expected, timing, 0.0, verdict, why)

    def _keep(self, result: Result) -> Result:
        self.results.append(result)
        return result

    # --- ceilings and anchors ---

    def _measure_ceilings(self) -> None:
        flops: dict[str, float] = {}
        bandwidth: dict[str, float] = {}
        self._ceiling_results: list[Result] = []
        for probe in self.probes:
            if probe.part != "ceiling":
                continue
            result = self._time(probe, None, CEILING_S)
            self._ceiling_results.append(result)
            if result.timing is None:
                continue
            math = work_math(result.work)
            rate = result.work.matmul_flops / result.timing.median_s if math else 0.0
            if rate and probe.cls.startswith("gemm"):
                flops[math] = max(flops.get(math, 0.0), rate)
            moved = result.work.bytes.total / result.timing.median_s
            if not probe.cls.startswith("gemm"):
                bandwidth[probe.cls.removeprefix("bw.")] = moved
        if not bandwidth:
            bandwidth["sheet"] = self.target.gpu.bandwidth
        self.ceilings = Ceilings(flops, bandwidth, self._launch_s())
        self._sheet = self.ceilings.sheet(self.target.gpu)
        self._choose_anchors()

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
                self._anchors[roof] = (sampler, self._anchor_of(sampler))

    def _anchor_of(self, sampler: Sampler) -> float:
        launches = max(1, round(ANCHOR_S / 3 / max(sampler(1), 1e-7)))
        readings = sorted(sampler(launches) / launches for _ in range(3))
        return readings[1]

    # --- one probe ---

    def _run(self, probe: Probe) -> Result:
        """Measure, and once more where the first reading was too wide or the ceiling moved under it."""
        roof, rules = self._roof(probe.work), RULES[self.target.kind]
        best: Result | None = None
        for _ in range(ATTEMPTS):
            result = self._time(probe, roof, PROBE_S[self.mode])
            if result.timing is None:
                return result
            wide = result.timing.reading().half_width > rules.widest_ci or result.drift > rules.widest_drift
            best = result if best is None or result.drift < best.drift or not wide else best
            if not wide or self.budget.left_s <= 0:
                break
        assert best is not None
        return best

    def _roof(self, work: Work) -> str:
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
                return _skipped(probe, str(error))
            except (MemoryError, RuntimeError) as error:
                if not _out_of_memory(error):
                    return _skipped(probe, str(error).splitlines()[0][:120])
                work = halved(work)
            finally:
                self._free()
        return _skipped(probe, "out of memory, even at a quarter of the shape")

    def _timed(self, probe: Probe, work: Work, roof: str | None, most_s: float) -> Result:
        from .kernels import backend_context

        kernels = self._build(work, probe.backend)
        with backend_context(probe.backend, self.torch):
            sampler = self._sampler([kernel.launch for kernel in kernels])
            before = self._anchor(roof)
            timing = measure(sampler, self.budget, most_s)
            after = self._anchor(roof)
        slower, drift = 1.0, 0.0
        if before and after and roof:
            slower = min(before, after) / self._anchors[roof][1]
            drift = abs(after / before - 1)
        floor = floor_s(work, self._sheet) * slower if self.ceilings else 0.0
        return Result(probe, work, floor, None, timing, drift, "", "")

    def _anchor(self, roof: str | None) -> float | None:
        known = self._anchors.get(roof or "")
        return self._anchor_of(known[0]) if known else None

    def _build(self, work: Work, backend: str) -> list[Kernel]:
        """Copies enough that a round through them passes L2 five times; one on a CPU."""
        first = build(work, backend, self.target, self.torch)
        if self.target.kind == "cpu":
            return [first]
        copies = min(MOST_COPIES, max(1, round(ROTATED_L2S * self.target.l2_bytes / max(first.moved, 1)) + 1))
        return [first, *(build(work, backend, self.target, self.torch) for _ in range(copies - 1))]

    def _sampler(self, launches: list[Callable[[], Any]], graph_below_s: float = GRAPH_BELOW_S) -> Sampler:
        if self.target.kind == "cpu":
            return cpu_sampler(launches[0])
        stream = self.torch.cuda.Stream(self.target.spec)
        return cuda_sampler(launches, self.torch, stream, graph_below_s)

    def _fits(self, work: Work) -> None:
        needed = 3 * work.bytes.total
        if needed > min(MEMORY_SHARE * self.target.memory_bytes, MOST_MEMORY) * 3:
            raise MemoryError("out of memory")

    def _free(self) -> None:
        gc.collect()
        if self.target.kind == "cuda":
            self.torch.cuda.empty_cache()

    def _judged(self, result: Result, watch: Any) -> Result:
        if result.timing is None:
            return result
        floor = result.floor_s or floor_s(result.work, self._sheet)
        probe, rules = result.probe, RULES[self.target.kind]
        expected = expected_of(probe, result.work, self.clock) if self.clock else None
        soft = expected.seconds if expected and expected.confidence.kind != "assumed" else None
        if probe.part in ("ceiling", "report"):
            soft = None
        trouble = watch.conditions().trouble if self.target.kind == "cuda" else ""
        spread = expected.confidence.error if expected else 0.0
        verdict, why = judge(
            result.timing.reading(result.drift),
            floor,
            soft,
            probe.band(self.target.kind),
            spread / 2,
            rules,
            trouble,
        )
        if verdict == PASS and probe.part == "ceiling":
            why = "sets the ceiling"
        return result._replace(floor_s=floor, expected=expected, verdict=verdict, why=why)


def halved(work: Work) -> Work:
    """The same kernel at half the size."""
    match work:
        case Gemm() if work.rows > 1:
            return replace(work, rows=work.rows // 2)
        case Gemm():
            outer = max(1, work.outer // 2)
            return replace(work, outer=outer, weight_bytes=work.weight_bytes * outer // work.outer)
        case Pointwise():
            rows = max(1, work.rows // 2)
            each = work.values // work.rows
            return replace(work, rows=rows, values=rows * each, kv_bytes=work.kv_bytes * rows // work.rows)
        case Gather():
            return replace(work, rows=max(1, work.rows // 2))
        case Attend() if work.sequences > 1:
            return replace(work, sequences=work.sequences // 2)
        case Attend() if work.new == 1:
            context = max(2, work.context // 2)
            return replace(work, context=context, pairs=context)
        case Attend():
            new = max(1, work.new // 2)
            causal = work.pairs < work.new * work.context
            return replace(work, new=new, context=new, pairs=new * (new + 1) // 2 if causal else new * new)
    return work


def _out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or "out of memory" in str(error).lower()


def _skipped(probe: Probe, why: str) -> Result:
    return Result(probe, probe.work, 0.0, None, None, 0.0, SKIPPED, why)
