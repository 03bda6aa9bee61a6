"""Requests that keep coming: what a device makes of them at a batch, by how it schedules them.

Steady states in closed form, all of one kind: a slot is a place in the batch, and by Little's law the
requests in the system are their rate times the seconds each spends there. Steps are timed at the mean
context of the running sequences. Source: Orca, OSDI 2022 (continuous); Sarathi-Serve, arXiv 2403.02310, and
DeepSpeed-FastGen, arXiv 2401.08671 (chunked, SplitFuse); DistServe, arXiv 2401.09670 (disaggregated).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .. import InputError
from .arith import ceil_div
from .batching import Lengths
from .disaggregated import transfer_s
from .kv import cache_bill
from .op import Number
from .roofline import Ridge, default_dtype, ridge, verdict
from .setting import Cost, Setting, step_cost
from .step import Segment, Step, decode
from .times.device import device
from .times.expected import pooled
from .times.transfer import Confidence

POLICIES = ("static", "continuous", "chunked", "disaggregated")
CHUNK = 512
"""Prompt tokens of a step where no other number is asked for: Sarathi-Serve's under tight latencies."""
SO_MANY = 1 << 20
"""A batch at which weights are no longer seen beside the cache."""


class Workload(NamedTuple):
    """Requests of `lengths`, the first `shared` tokens of every prompt in a prefix cache; `encoder`
    positions each of an encoder-decoder."""

    lengths: Lengths
    shared: int = 0
    encoder: int = 0

    def checked(self) -> Workload:
        """Raises InputError where lengths are out of bounds or the whole prompt is shared."""
        self.lengths.checked()
        if not 0 <= self.shared < self.lengths.prompt:
            raise InputError(
                f"{self.shared:,} shared tokens of a prompt of {self.lengths.prompt:,.0f}: all but one at "
                "most, for the logits come from computing the last"
            )
        return self

    @property
    def fresh(self) -> int:
        """Prompt tokens to compute."""
        return max(1, round(self.lengths.prompt) - self.shared)

    @property
    def held_tokens(self) -> int:
        """Tokens of a mean request in the cache at its end: the last one out is never put in."""
        return max(1, round(self.lengths.prompt + self.lengths.gen - 1))

    def prefill(self, batch: int = 1) -> Step:
        """The fresh part of `batch` mean prompts in one step."""
        return Step("prefill", (Segment(batch, self.fresh, self.shared, encoder_new=self.encoder),))

    def decode(self, batch: int, context: float | None = None) -> Step:
        """A step of `batch` sequences at the mean context, or at `context` tokens."""
        at = self.lengths.mean_context if context is None else context
        return decode(batch, max(2, round(at)), self.encoder)

    def mixed(self, decodes: int, pieces: int, tokens: int, past: int) -> Step:
        """`pieces` of prompts, `tokens` long each after `past` others, with `decodes` riding along."""
        riding = self.decode(decodes).segments if decodes else ()
        return Step("mixed", (*riding, Segment(pieces, tokens, past)))


class Steady(NamedTuple):
    """A device in its steady state with `batch` slots, `users` in the system.

    `ttft_s` begins with `queue_s` of waiting for a slot; `tpot_s` is the mean between tokens (None where one
    comes out), `gap_s` the longest between two that the schedule makes usual; `requests_per_s` of all
    replicas together; `used` the share of slot steps with a token; `step` the one that decodes.
    """

    policy: str
    batch: int
    users: int
    queue_s: float
    ttft_s: float
    tpot_s: float | None
    gap_s: float
    requests_per_s: float
    devices: float
    used: float
    step: Cost
    confidence: Confidence | None
    gen: float

    @property
    def e2e_s(self) -> float:
        return self.ttft_s + (self.tpot_s or 0.0) * (self.gen - 1)

    @property
    def output_tokens_per_s(self) -> float:
        return self.requests_per_s * self.gen

    @property
    def power(self) -> float:
        """Throughput over latency, which is greatest at the knee of their curve.

        Of steps that take a + b·B it is B = a/b: the cache takes as long as the weights.
        Source: Kleinrock, "Power and deterministic rules of thumb", ICC 1979.
        """
        return self.output_tokens_per_s / self.devices / self.e2e_s


def steady(
    policy: str,
    setting: Setting,
    work: Workload,
    batch: int,
    users: int | None = None,
    chunk: int = CHUNK,
    link_bytes_per_s: float | None = None,
) -> Steady:
    """The steady state of `policy` with `batch` slots; `users` in the system (default: as many as slots).

    Raises InputError for chunked prefill of an encoder-decoder, and for a policy that is none.
    """
    match policy:
        case "static":
            return static(setting, work, batch, users)
        case "continuous":
            return continuous(setting, work, batch, users)
        case "chunked":
            return chunked(setting, work, batch, chunk, users)
        case "disaggregated":
            return disaggregated(setting, work, batch, link_bytes_per_s, users)
    raise InputError(f"a policy is one of {', '.join(POLICIES)}, not '{policy}'")


class _Course(NamedTuple):
    """One request in a schedule: seconds to its first token once it has a slot, between the others, the
    longest usual gap; the rate of one replica, its used slot steps, and which steps make up its time (the
    last one decodes)."""

    first_s: float
    between_s: float
    gap_s: float
    requests_per_s: float
    used: float
    parts: tuple[tuple[Cost, float], ...]


def static(setting: Setting, work: Workload, batch: int, users: int | None = None) -> Steady:
    """All prompts of a batch in one step, then steps until the longest is done; the rest of the slots idle.

    A batch takes t_prefill(B) + (E[longest] - 1)·t_decode(B). Source: seed ledger, cb.static.
    """
    longest = work.lengths.longest(batch)
    reading = step_cost(setting, work.prefill(batch))
    step = step_cost(setting, work.decode(batch, work.lengths.prompt + longest / 2))
    rate = batch / (reading.best + (longest - 1) * step.best)
    parts = ((reading, 1.0), (step, longest - 1))
    course = _Course(reading.best, step.best, step.best, rate, work.lengths.utilisation(batch), parts)
    return _steady("static", setting, work, batch, users, course)


def continuous(setting: Setting, work: Workload, batch: int, users: int | None = None) -> Steady:
    """A free slot is refilled at once; a prompt is computed in a step of its own, in which the others wait.

    In the time a slot serves a request there are E[G] - 1 steps of all slots and a prefill for each:
    rate = B / (B·t_prefill + (E[G] - 1)·t_decode(B)).
    """
    reading, step = step_cost(setting, work.prefill()), step_cost(setting, work.decode(batch))
    steps = work.lengths.steps
    rate = batch / (batch * reading.best + steps * step.best)
    between = step.best + (batch - 1) * reading.best / steps if steps else 0.0
    gap = step.best + (reading.best if batch > 1 else 0.0)
    parts = ((reading, float(batch)), (step, steps))
    course = _Course(reading.best, between, gap, rate, 1.0, parts)
    return _steady("continuous", setting, work, batch, users, course)


class Pieces(NamedTuple):
    """How prompts go through in chunks: a prompt in `each` pieces of `tokens`, the mean one after `past`
    others; a step takes up to `most` pieces, of several prompts where they are shorter than a chunk."""

    each: int
    tokens: float
    past: int
    most: float


def pieces(work: Workload, chunk: int) -> Pieces:
    each = ceil_div(work.fresh, chunk)
    tokens = work.fresh / each
    return Pieces(each, tokens, work.shared + round((each - 1) * tokens / 2), chunk / tokens)


def chunked(setting: Setting, work: Workload, batch: int, chunk: int, users: int | None = None) -> Steady:
    """Pieces of at most `chunk` prompt tokens ride along with the decodes (chunked prefill, SplitFuse).

    A request is in the batch for n pieces and E[G] - 1 decode steps, so of B slots B·n / (n + E[G] - 1) hold
    a piece; where that is more than a step takes, prompts queue. Steps with a piece and steps without
    alternate in these shares. Source: Sarathi-Serve, arXiv 2403.02310, section 4.
    """
    if work.encoder:
        raise InputError("chunked prefill of an encoder-decoder is not modelled; use --policy continuous")
    cut, steps = pieces(work, chunk), work.lengths.steps
    wanted = batch * cut.each / (cut.each + steps)
    at_once = min(max(1.0, wanted), cut.most)
    share = min(1.0, wanted / at_once)
    per_step = share * at_once / cut.each
    riding = batch - at_once if wanted <= cut.most else per_step * steps
    whole = round(at_once)
    taken = round(at_once * cut.tokens / whole)
    full = step_cost(setting, work.mixed(round(riding), whole, taken, cut.past))
    step = step_cost(setting, work.decode(batch)) if share < 1 else full
    mean = share * full.best + (1 - share) * step.best
    seen = share * riding * full.best + (1 - share) * batch * step.best
    between = seen / (per_step * steps) if steps else 0.0
    first, rate = cut.each * full.best, per_step / mean
    gap = full.best if riding else step.best
    used = per_step * work.lengths.gen / batch
    course = _Course(first, between, gap, rate, used, ((full, share), (step, 1 - share)))
    return _steady("chunked", setting, work, batch, users, course)


class Handover(NamedTuple):
    """Disaggregated prefill: `kv_bytes` of a request go over in `seconds`; `prefill_units` work for each
    unit that decodes; `link_bytes_per_s` it needs of one link in the mean."""

    kv_bytes: int
    seconds: float
    prefill_units: float
    link_bytes_per_s: float


def handover(setting: Setting, work: Workload, batch: int, link_bytes_per_s: float | None) -> Handover:
    """What one decoding unit of `batch` slots asks of those that prefill, and of the link between.

    The link is the sheet's by default; the shared part of a prompt is there already.
    Source: DistServe, arXiv 2401.09670, section 3; Splitwise, arXiv 2311.18677.
    """
    kv, steps = setting.run.kv, work.lengths.steps
    whole = cache_bill(setting.model, work.fresh + work.shared, 1, kv, work.encoder).logical_bytes
    there = cache_bill(setting.model, work.shared, 1, kv).logical_bytes if work.shared else 0
    rate = link_bytes_per_s or device(setting.gpu).link_bytes_per_s
    seconds = transfer_s(setting, max(0, whole - there), rate)
    reading = step_cost(setting, work.prefill()).best
    served = batch / (steps * step_cost(setting, work.decode(batch)).best) if steps else 1 / reading
    return Handover(max(0, whole - there), seconds, served * reading, served * seconds * rate)


def disaggregated(
    setting: Setting,
    work: Workload,
    batch: int,
    link_bytes_per_s: float | None = None,
    users: int | None = None,
) -> Steady:
    """Prompts are computed elsewhere, one at a time, and their cache is sent: no decode step waits for one.

    `devices` are those of one decoding unit and of as much of prefilling ones as it keeps busy; the first
    token comes from the prefill, the second after the cache is there.
    """
    reading, step = step_cost(setting, work.prefill()), step_cost(setting, work.decode(batch))
    passed, steps = handover(setting, work, batch, link_bytes_per_s), work.lengths.steps
    rate = batch / (steps * step.best) if steps else 1 / reading.best
    between = step.best + passed.seconds / steps if steps else 0.0
    parts = ((reading, float(batch)), (step, steps))
    course = _Course(reading.best, between, step.best + passed.seconds, rate, 1.0, parts)
    found = _steady("disaggregated", setting, work, batch, users, course)
    return found._replace(devices=setting.devices * (1 + passed.prefill_units))


def _steady(
    policy: str, setting: Setting, work: Workload, batch: int, users: int | None, course: _Course
) -> Steady:
    """What follows from a course by Little's law: who is not being served waits."""
    steps = work.lengths.steps
    served_s = course.first_s + course.between_s * steps
    inside = batch if users is None else users
    queue = max(0.0, inside / course.requests_per_s - served_s)
    sure = [(cost.best * times, cost.confidence) for cost, times in course.parts if cost.confidence]
    return Steady(
        policy,
        batch,
        inside * setting.replicas,
        queue,
        queue + course.first_s,
        course.between_s if steps else None,
        course.gap_s,
        course.requests_per_s * setting.replicas,
        float(setting.devices),
        course.used,
        course.parts[-1][0],
        pooled(sure) if sure else None,
        work.lengths.gen,
    )


def usd_per_million(usd_per_hour: float, devices: float, tokens_per_s: float) -> float:
    """Dollars of a million tokens: price × devices / (3600 × tokens/s) × 10^6."""
    return usd_per_hour * devices / (3600 * tokens_per_s) * 1e6


def compulsory_intensity(setting: Setting, step: Cost) -> float:
    """Matrix FLOPs over compulsory bytes of a whole step: weights read and cache touched. Not a kernel's
    intensity (`roofline.intensity`), which has all its FLOPs over all that it moves."""
    return float(step.matmul_flops / (step.memory_s * setting.gpu.bandwidth))


def step_verdict(setting: Setting, step: Cost) -> str:
    """memory-bound, compute-bound or near the ridge: compute over memory time of a whole step."""
    at = ridge(setting.gpu, default_dtype(setting.gpu))
    return verdict(float(balance(step, at)), at)


def balance(step: Cost, at: Ridge) -> Number:
    """Compute over memory time of a whole step, as the FLOP per byte where an operation would have it."""
    return step.compute_s / step.memory_s * at.datasheet


class Asymptote(NamedTuple):
    """FLOP per byte of one more sequence as the batch grows: of the cache alone, and with activations."""

    kv: float | None
    all_bytes: float
    verdict: str


def asymptote(setting: Setting, work: Workload) -> Asymptote:
    """I_max = FLOP of a sequence / bytes of its cache: the weights' share goes to nothing, the cache's stays.

    Source: seed ledger, dec.asymptote.
    """
    counted = setting._replace(clock=None)
    some, twice = (step_cost(counted, work.decode(many)) for many in (SO_MANY, 2 * SO_MANY))
    flops = twice.matmul_flops - some.matmul_flops
    memory_s = twice.memory_s - some.memory_s
    more = twice._replace(compute_s=twice.compute_s - some.compute_s, memory_s=memory_s)
    touched = memory_s * setting.gpu.bandwidth
    return Asymptote(
        flops / touched if touched else None,
        flops / (twice.moved_bytes - some.moved_bytes),
        step_verdict(setting, more) if touched else "compute-bound",
    )


def knee(points: Iterable[Steady]) -> Steady:
    """The point of greatest throughput over latency."""
    return max(points, key=lambda point: point.power)
