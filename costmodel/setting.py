"""A setting: a model, how and on what it runs; and what a step of it costs, over every stage and rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from .. import InputError
from ..hardware.engine import Engine
from ..hardware.spec import Gpu
from ..models.ffn import Experts
from ..models.recipes import Recipe, default_recipe
from ..models.spec import Model
from .arith import mean, most
from .forward import ops
from .offload import LINK_SHARE, Offload
from .op import Number, Op
from .parallel import link_ops, rank_step, shard
from .roofline import compulsory_bytes, compute_s, step_floor_s, totals
from .sharding import Parallel
from .step import Plan, Run, Step
from .times.engine import engine_s, step_parts
from .times.expected import Clock, Expected, pooled
from .times.transfer import Confidence


class Setting(NamedTuple):
    """What runs the request: a model, how, on which and how many GPUs; `clock` None expects nothing.

    `engine`: whose profile the expected times follow (None: its kernels alone, back to back); `offload`: what
    stays in the host's memory.
    """

    model: Model
    run: Run
    gpu: Gpu
    parallel: Parallel = Parallel()
    clock: Clock | None = None
    engine: Engine | None = None
    offload: Offload | None = None

    @property
    def devices(self) -> int:
        return self.parallel.world

    @property
    def replicas(self) -> int:
        """Ranks that each have a batch of their own."""
        return self.parallel.ep if self.parallel.tp == 1 else 1

    @property
    def recipe(self) -> Recipe:
        return self.run.recipe or default_recipe(self.model)

    def checked(self) -> Setting:
        """Raises InputError for expert parallelism of a model without experts, an engine of which no request
        was measured, or more layers left on the host than there are."""
        experts = any(isinstance(block, Experts) for layer in self.model.layers for block in layer.blocks)
        if self.parallel.ep > 1 and not experts:
            raise InputError(f"ep {self.parallel.ep}: {self.model.name} has no experts to share out")
        if self.engine is not None and self.engine.times is None:
            raise InputError(f"no request of {self.engine.name} was measured: its times are not known")
        if self.offload is not None:
            self.offload.checked(self.model)
        return self

    def plan(self, step: Step) -> Plan:
        return Plan(self.model, step, self.run, self.gpu)

    def stages(self, step: Step) -> Iterable[tuple[Plan, tuple[Op, ...], tuple[Op, ...]]]:
        """Per pipeline stage: one rank's plan, its kernels, and its collectives."""
        plan = self.plan(rank_step(step, self.parallel))
        for stage in range(self.parallel.pp):
            one = shard(plan, self.parallel, stage)
            yield one, ops(one), link_ops(plan, self.parallel, stage)

    def expected(self, plan: Plan, kernels: tuple[Op, ...], links: tuple[Op, ...], floor: Number) -> Expected:
        """Of one stage: kernels back to back, or as the engine runs them; never below the floor."""
        assert self.clock is not None
        if self.engine is None or self.engine.times is None:
            return self.clock.total((*kernels, *links))
        times, ranks = self.engine.times, self.parallel.world // self.parallel.pp
        parts = step_parts(plan, kernels, links, self.gpu, self.clock.of(self.engine.stack), ranks)
        seconds = most(engine_s(parts, times, self.gpu.name), floor)
        error = times.prefill_error if parts.prefill else times.error
        if times.assumed:
            return Expected(seconds, Confidence("assumed", error))
        if times.machine(self.gpu.name) is not None:
            return Expected(seconds, Confidence("calibrated", error, group=self.engine.name))
        return Expected(seconds, Confidence("transferred", max(error, times.gpu_error), gpu="other machines"))


class Cost(NamedTuple):
    """Seconds of a step, or of many: bound, floor and expected (None without a clock).

    `compute_s` and `memory_s`: what the matrix products and the compulsory bytes alone would take of all
    devices together; they make MFU and MBU. FLOPs and bytes are those of one rank of each stage, summed.
    `host_link_s`: what crosses the link to the host's memory, beside the kernels.
    """

    bound: Number
    floor: Number
    expected: Number | None
    confidence: Confidence | None
    compute_s: Number
    memory_s: Number
    matmul_flops: Number
    moved_bytes: Number
    weight_bytes: Number
    host_link_s: Number = 0.0

    @property
    def best(self) -> Number:
        """Expected seconds, or the floor where nothing is expected."""
        return self.floor if self.expected is None else self.expected

    @property
    def mfu(self) -> Number:
        """Matrix FLOPs over those the devices could have done. Source: PaLM, arXiv 2204.02311, 4.1."""
        return self.compute_s / self.best

    @property
    def mbu(self) -> Number:
        """Compulsory bytes over those the devices could have moved. Source: Databricks, "LLM Inference
        Performance Engineering: Best Practices" (model bandwidth utilization)."""
        return self.memory_s / self.best

    def times(self, share: float = 1.0) -> dict[str, float | None]:
        """bound, floor and expected, or a share of each."""
        expected = None if self.expected is None else float(self.expected * share)
        return {"bound": float(self.bound * share), "floor": float(self.floor * share), "expected": expected}


Rewrite = Callable[[Plan, tuple[Op, ...]], tuple[Op, ...]]
"""A rank's kernels into those that run instead: what a quantisation scheme adds to them."""


def step_cost(setting: Setting, step: Step, rewrite: Rewrite | None = None) -> Cost:
    """A step through every pipeline stage. Arrays of steps give arrays of seconds."""
    bound = floor = expected = compute = memory = crossing = 0.0
    flops = everything = weights = 0
    parts = []
    for plan, built, links in setting.stages(step):
        kernels = built if rewrite is None else rewrite(plan, built)
        products = compute_s(kernels, setting.gpu)
        moved = compulsory_bytes(plan, kernels) / setting.gpu.bandwidth
        launched = step_floor_s((*kernels, *links), setting.gpu)
        over_link = setting.offload.seconds(plan) if setting.offload else 0.0
        bound = bound + most(most(products, moved), over_link)
        floor = floor + most(launched, over_link)
        compute, memory, crossing = compute + products, memory + moved, crossing + over_link
        total = totals(kernels)
        flops, everything = flops + total.matmul_flops, everything + total.bytes
        weights = weights + total.weights
        if setting.clock:
            time = setting.expected(plan, kernels, links, launched)
            seconds = most(time.seconds, over_link / LINK_SHARE)
            expected = expected + seconds
            parts.append((mean(seconds), time.confidence))
    stages = setting.parallel.pp
    known = setting.clock is not None
    return Cost(
        bound,
        floor,
        expected if known else None,
        pooled(parts) if known else None,
        compute / stages,
        memory / stages,
        flops,
        everything,
        weights,
        crossing,
    )


def summed(costs: Iterable[tuple[Cost, int]]) -> Cost:
    """Steps one after the other: each cost with how many steps it is of, which are the elements of its
    arrays; what is no array is the same for all of them."""
    every = list(costs)
    names = [name for name in Cost._fields if name not in ("expected", "confidence")]
    sums = {name: sum(_sum(getattr(cost, name), steps) for cost, steps in every) for name in names}
    parts = [(_sum(c.expected, steps), c.confidence) for c, steps in every if c.confidence is not None]
    known = len(parts) == len(every)
    expected = sum(seconds for seconds, _ in parts) if known else None
    return Cost(expected=expected, confidence=pooled(parts) if known else None, **sums)


def _sum(value: Number, steps: int) -> Number:
    return value.sum().item() if hasattr(value, "ndim") else value * steps
