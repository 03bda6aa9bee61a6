"""One setting of `infercost serve` with everything asked about it: points, limits, explanations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from .. import InputError
from ..costmodel.arith import ceil_div
from ..costmodel.batching import Lengths
from ..costmodel.chunking import ChunkBill, chunk_bill, chunk_within, free_chunk
from ..costmodel.engines import engine_flags
from ..costmodel.kv import Allocation, allocate
from ..costmodel.memory import CHUNK_TOKENS, Load, Reserve, largest_batch, shared_bytes
from ..costmodel.search import most_within
from ..costmodel.serving import (
    Asymptote,
    Handover,
    Steady,
    Workload,
    asymptote,
    handover,
    knee,
    steady,
    usd_per_million,
)
from ..costmodel.setting import Setting, step_cost
from ..hardware.spec import Price
from .price import price_of

if TYPE_CHECKING:
    from ..costmodel.simulation import Job, Outcome

LIMIT = 1024
"""The largest batch of a sweep that nothing else bounds: an engine's usual most."""
DEFAULT_BATCHES = tuple(1 << i for i in range(LIMIT.bit_length()))
NOT_FITTING = 64
"""Batches are shown up to this where not even one sequence fits."""


class Point(NamedTuple):
    """One steady state, whether it fits (None: no capacity known), and whether it keeps the limits."""

    steady: Steady
    fits: bool | None
    meets: bool


class Chunks(NamedTuple):
    """A prompt in chunks, and how long a chunk may be beside the decodes of `batch` sequences."""

    bill: ChunkBill
    batch: int
    free: int
    within: int
    limit_s: float


class Prefix(NamedTuple):
    """What a shared prefix saves: its bytes are kept once, its prefill is not computed."""

    bytes_once: int
    most_without: int | None
    prefill_s: float
    prefill_without_s: float


class Simulated(NamedTuple):
    """A simulation at one point."""

    point: Point
    outcome: Outcome


class Study(NamedTuple):
    """One setting with everything asked about it."""

    setting: Setting
    work: Workload
    price: Price | None
    points: list[Point]
    most: int | None
    allocators: list[tuple[Allocation, int | None]]
    asymptote: Asymptote
    chunks: Chunks | None
    handover: Handover | None
    runs: list[Simulated]
    prefix: Prefix | None

    def usd(self, point: Steady) -> float | None:
        if self.price is None:
            return None
        return usd_per_million(self.price.usd_per_hour, point.devices, point.output_tokens_per_s)

    @property
    def best(self) -> Point | None:
        return best_of(self.points)


class Asked(NamedTuple):
    """What is the same for every setting."""

    policies: list[str]
    batches: list[int] | None
    users: list[int] | None
    chunk: int
    ttft_s: float | None
    tpot_s: float | None
    slack: float
    share: float
    block: int
    max_len: int | None
    link_bytes_per_s: float | None
    price: float | None
    rate: float | None
    simulated: bool
    requests: int
    seed: int
    jobs: list[Job] | None

    def within(self, ttft_s: float, tpot_s: float | None) -> bool:
        """Whether these keep --ttft and --tpot."""
        late = self.ttft_s is not None and ttft_s > self.ttft_s
        slow = self.tpot_s is not None and tpot_s is not None and tpot_s > self.tpot_s
        return not late and not slow


def best_of(points: list[Point]) -> Point | None:
    """Most tokens per second and device of what fits and keeps the limits."""
    good = [point for point in points if point.meets and point.fits is not False]
    return max(good, key=lambda p: p.steady.output_tokens_per_s / p.steady.devices, default=None)


def study(setting: Setting, work: Workload, asked: Asked) -> Study:
    """Every point of one setting, and what explains them."""
    known = setting.gpu.capacity_bytes is not None
    held = work.held_tokens
    reserve = None if work.shared else _reserve(setting)
    own_chunk = reserve.how.in_flight if reserve else CHUNK_TOKENS
    load = Load(
        ceil_div(held, asked.block) * asked.block,
        1,
        asked.share,
        max(own_chunk, asked.chunk),
        work.encoder,
        shared=work.shared,
        reserve=reserve,
    )
    most = largest_batch(load, setting) if known else None
    points = list(_points(setting, work, asked, most, known))
    return Study(
        setting,
        work,
        price_of(setting.gpu, asked.price),
        points,
        most,
        _allocators(setting, work, asked, load, known),
        asymptote(setting, work),
        _chunks(setting, work, asked, points) if "chunked" in asked.policies else None,
        _handover(setting, work, asked, points) if "disaggregated" in asked.policies else None,
        _simulated(setting, work, asked, points) if asked.simulated else [],
        _prefix(setting, work, load, known) if work.shared else None,
    )


def _reserve(setting: Setting) -> Reserve | None:
    """The allocator of the engine whose times these are, where it is modelled."""
    engine = setting.engine
    if engine is None or engine.memory is None:
        return None
    return Reserve(engine.name, engine.memory, engine_flags(engine.memory, setting.gpu))


def _prefix(setting: Setting, work: Workload, load: Load, known: bool) -> Prefix:
    without = work._replace(shared=0)
    return Prefix(
        shared_bytes(setting.model, load.tokens, work.shared, setting.run.kv),
        largest_batch(load._replace(shared=0), setting) if known else None,
        step_cost(setting, work.prefill()).best,
        step_cost(setting, without.prefill()).best,
    )


def _meets(asked: Asked, point: Steady) -> bool:
    return asked.within(point.ttft_s, point.tpot_s)


def _points(setting: Setting, work: Workload, asked: Asked, most: int | None, known: bool) -> Iterator[Point]:
    limit = LIMIT if most is None else min(most, LIMIT)
    for policy in asked.policies:

        def at(batch: int, users: int | None = None, policy: str = policy) -> Steady:
            return steady(policy, setting, work, batch, users, asked.chunk, asked.link_bytes_per_s)

        if asked.users is not None:
            slots = asked.batches[0] if asked.batches else max(1, limit)
            found = [at(min(slots, users), users) for users in asked.users]
        elif asked.batches is not None:
            found = [at(batch) for batch in asked.batches]
        else:
            tried = {batch for batch in DEFAULT_BATCHES if batch <= (limit or NOT_FITTING)} | {limit}
            if asked.ttft_s is not None or asked.tpot_s is not None:
                tried.add(most_within(lambda b: _meets(asked, at(b)), limit))
            found = [at(batch) for batch in sorted(tried - {0})]
        for one in found:
            fits = None if not known else most is None or one.batch <= most
            yield Point(one, fits, _meets(asked, one))


def _allocators(
    setting: Setting, work: Workload, asked: Asked, load: Load, known: bool
) -> list[tuple[Allocation, int | None]]:
    """A paged cache and a contiguous one: what a mean request takes at its end, and how many fit."""
    one, kv, held = setting.model, setting.run.kv, work.held_tokens
    reserve = asked.max_len if asked.max_len is not None else max(held, one.context or 0)
    if reserve < held:
        raise InputError(f"--max-len {reserve:,} is shorter than the {held:,} tokens a mean request holds")
    out = []
    for policy, length in (("paged", load.tokens), ("static", reserve)):
        taken = allocate(one, policy, held, 1, kv, asked.block, reserve, encoder=work.encoder)
        unshared = load._replace(tokens=length, shared=load.shared if policy == "paged" else 0)
        out.append((taken, largest_batch(unshared, setting) if known else None))
    return out


def chosen_point(points: list[Point], policy: str) -> Point:
    """The best point of a policy, or the knee of its curve where none is good."""
    mine = [point for point in points if point.steady.policy == policy]
    reached = best_of(mine)
    if reached is not None:
        return reached
    bend = knee(point.steady for point in mine)
    return next(point for point in mine if point.steady is bend)


def _chunks(setting: Setting, work: Workload, asked: Asked, points: list[Point]) -> Chunks:
    batch = chosen_point(points, "chunked").steady.batch
    alone = step_cost(setting, work.decode(batch)).best
    limit = asked.tpot_s if asked.tpot_s is not None else (1 + asked.slack) * alone
    free, within = free_chunk(setting, work, batch), chunk_within(setting, work, batch, limit)
    return Chunks(chunk_bill(setting, work, asked.chunk), batch, free, within, limit)


def _handover(setting: Setting, work: Workload, asked: Asked, points: list[Point]) -> Handover:
    batch = chosen_point(points, "disaggregated").steady.batch
    return handover(setting, work, batch, asked.link_bytes_per_s)


def _simulated(setting: Setting, work: Workload, asked: Asked, points: list[Point]) -> list[Simulated]:
    from ..costmodel import simulation
    from ..costmodel.step_times import StepTimes

    jobs = asked.jobs or _drawn(work.lengths, asked)
    closed = asked.jobs is None and asked.rate is None
    if not closed:
        # Of an open system each replica is sent its share.
        jobs = jobs[:: setting.replicas]
    times, out = StepTimes(setting, work), []
    for policy in asked.policies:
        if policy not in simulation.POLICIES:
            continue
        point = chosen_point(points, policy)
        slots = point.steady.batch
        users = point.steady.users // setting.replicas if closed else None
        # Users of a static batch come together, or its batches would never be full.
        ramp_s = 0.0 if policy == "static" else point.steady.e2e_s
        found = simulation.simulate(jobs, times, policy, slots, users, asked.chunk, ramp_s)
        out.append(Simulated(point, found))
    return out


def _drawn(lengths: Lengths, asked: Asked) -> list[Job]:
    """Requests with lengths of the distribution, coming by themselves (Poisson) where a rate is given."""
    from random import Random

    from ..costmodel.simulation import Job

    random, now, jobs = Random(asked.seed), 0.0, []
    for _ in range(asked.requests):
        now += random.expovariate(asked.rate) if asked.rate is not None else 0.0
        jobs.append(Job(now, round(lengths.prompt), lengths.out(random.random())))
    return jobs
