"""One request: prompt, prefill, decode steps, output; and what the KV cache saves of it.

The first token comes out of the prefill, so G tokens take G - 1 decode steps, the i-th at a context of
P + i tokens. A step is its kernels one after the other, on every pipeline stage in turn; what the host
does between launches is not in it. Source: the seed ledger, decode.steps and seed3.recount.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from .. import InputError
from ..hardware.engine import Engine
from ..hardware.spec import Gpu
from ..models.ffn import Experts
from ..models.recipes import Recipe, default_recipe
from ..models.spec import Model
from .arith import mean, most
from .collective_time import launch_floor_s
from .engine_time import engine_s, step_parts
from .expected import Clock, Expected, pooled
from .forward import ops
from .limits import positive_counts
from .offload import LINK_SHARE, Offload
from .op import Op
from .parallel import link_ops, rank_step, shard
from .roofline import compulsory_bytes, compute_s, totals
from .sharding import Parallel
from .step import Plan, Run, Segment, Step, decode, prefill
from .transfer import Confidence

Number = Any


class Request(NamedTuple):
    """`batch` equal requests at once: `prompt` tokens each, `cached` of them in a prefix cache already,
    `gen` tokens out; `encoder` positions of an encoder-decoder.

    With data-parallel attention (ep > 1, tp = 1) `batch` is that of one rank.
    """

    prompt: int
    gen: int
    batch: int = 1
    cached: int = 0
    encoder: int = 0

    def checked(self) -> Request:
        """Raises InputError where a count is out of bounds or the whole prompt is cached."""
        positive_counts(prompt=self.prompt, gen=self.gen, batch=self.batch)
        if not 0 <= self.cached < self.prompt:
            raise InputError(
                f"{self.cached:,} cached tokens of a prompt of {self.prompt:,}: all but one at most, for "
                "the logits come from computing the last"
            )
        return self

    @property
    def decode_steps(self) -> int:
        """G - 1: the first token is the prefill's."""
        return self.gen - 1

    @property
    def held_tokens(self) -> int:
        """Tokens in the cache at the end: the last one out is never put in."""
        return self.prompt + self.gen - 1

    def prefill(self) -> Step:
        """What of the prompt is not cached, after what is."""
        new = Segment(self.batch, self.prompt - self.cached, self.cached, 1, encoder_new=self.encoder)
        return Step("prefill", (new,))

    def decode(self, contexts: Number) -> Step:
        """The step, or an array of them, at `contexts` tokens, the new one counted."""
        return decode(self.batch, contexts, self.encoder)

    def recount(self, lengths: Number) -> Step:
        """A pass without a cache: everything so far, again."""
        return prefill(self.batch, lengths, encoder=self.encoder)

    def token_passes(self, cache: bool = True) -> int:
        """Tokens of one sequence that go through the model: P + G - 1, or G·P + G(G-1)/2 without a cache."""
        if cache:
            return self.prompt - self.cached + self.gen - 1
        return self.gen * self.prompt + self.gen * (self.gen - 1) // 2


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
        return Expected(seconds, Confidence("transferred", times.gpu_error, gpu="other machines"))


class Cost(NamedTuple):
    """Seconds of a step, or of many: bound, floor and expected (None without a clock).

    `compute_s` and `memory_s`: what the matrix products and the compulsory bytes alone would take of all
    devices together; they make MFU and MBU. FLOPs and bytes are those of one rank of each stage, summed.
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
    bound = floor = expected = compute = memory = 0.0
    flops = everything = weights = 0
    parts = []
    for plan, built, links in setting.stages(step):
        kernels = built if rewrite is None else rewrite(plan, built)
        products = compute_s(kernels, setting.gpu)
        moved = compulsory_bytes(plan, kernels) / setting.gpu.bandwidth
        launched = sum(op.count * launch_floor_s(op.work, setting.gpu) for op in (*kernels, *links))
        over_link = setting.offload.seconds(plan) if setting.offload else 0.0
        bound = bound + most(most(products, moved), over_link)
        floor = floor + most(launched, over_link)
        compute, memory = compute + products, memory + moved
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


class Dollars(NamedTuple):
    """What the devices cost while they work: of one request, and per million tokens of each kind.

    `cached_input`: what a token costs that is found in a prefix cache, because later tokens attend to it.
    """

    request: float
    input: float | None
    cached_input: float | None
    output: float | None


def dollars(
    setting: Setting, request: Request, ttft: Cost | None, decoding: Cost | None, usd_per_hour: float
) -> Dollars:
    """Price × devices × time, shared evenly by the requests; input (encoder positions with it) pays the
    prefill, output the decode.

    request = input × computed tokens + cached_input × cached ones + output × decode steps.
    """
    per_s = usd_per_hour / 3600 * setting.devices / (request.batch * setting.replicas)
    million = 1e6 * per_s
    computed = request.prompt - request.cached + request.encoder
    reading = fresh = ttft.best if ttft else 0.0
    if request.cached and ttft:
        alone = request._replace(prompt=computed, cached=0)
        fresh = min(reading, step_cost(setting, alone.prefill()).best)
    generating = decoding.best if decoding else 0.0
    return Dollars(
        per_s * (reading + generating),
        million * fresh / computed if ttft else None,
        million * (reading - fresh) / request.cached if request.cached else None,
        million * generating / request.decode_steps if decoding else None,
    )


def energy_j(setting: Setting, request: Request, seconds: float) -> float | None:
    """Board power × devices × time, shared by the requests: at most this much for each; None where the sheet
    names no power."""
    power = setting.gpu.power_w
    return None if power is None else power * setting.devices * seconds / (request.batch * setting.replicas)
