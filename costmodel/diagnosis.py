"""What binds a deployment, and what each lever would gain: diagnose first, then choose.

The time of a step is divided among what it waits for: an operation whose products take longest at the peak
waits for arithmetic, any other for its bytes, by their class. A lever's gain is the difference of two
evaluations, before and after; the reason for it is the share of what it attacks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from ..hardware.spec import Gpu
from .deployment import Deployment, Figures, evaluate
from .levers import RESOURCES, Lever
from .op import Attend, Collective, Gather, Op, Pointwise, Scan
from .roofline import default_dtype, floor_s, peak_flops, vector_peak, work_math, work_peak
from .serving import compulsory_intensity, step_verdict
from .setting import Setting, step_cost
from .step import Step

OBJECTIVES = {
    "ttft": "ttft_s",
    "tpot": "tpot_s",
    "memory": "memory_bytes",
    "usd": "usd_per_million_output",
}
"""What levers are ranked by, and the figure that is."""
LITTLE = 0.02
"""A lever that gains less than this share attacks what does not bind."""
WORTH_NAMING = 0.005

BOUND = {
    "arithmetic": "compute-bound",
    "scores": "compute-bound",
    "weights": "memory-bound",
    "cache": "memory-bound",
    "activations": "memory-bound",
    "launches": "launch-bound",
    "links": "link-bound",
    "host": "host-bound",
    "waiting": "prefill-bound",
}
"""The verdict on a phase whose time goes most to a resource."""

Shares = dict[str, float]
"""By resource; they add up to one."""


class Limits(NamedTuple):
    """What one phase waits for: its seconds (of a prefill, or between two tokens), and the shares of its time
    by resource, the largest first.

    `intensity` of its step, FLOP/byte, and how that stands to the ridge: of the whole step, whose operations
    may stand on both sides.
    """

    seconds: float
    shares: Shares
    intensity: float
    intensity_verdict: str

    @property
    def binds(self) -> str:
        return next(iter(self.shares))

    @property
    def verdict(self) -> str:
        return BOUND[self.binds]


class Diagnosis(NamedTuple):
    """A deployment with its figures and what binds each phase; `decode` None where one token comes out.

    `memory`: shares of the fullest rank; `prefill_share` of a request's time.
    """

    plan: Deployment
    figures: Figures
    prefill: Limits
    decode: Limits | None
    memory: Shares
    prefill_share: float

    @property
    def fits(self) -> bool | None:
        budget = self.plan.budget_bytes
        return None if budget is None else self.figures.memory_bytes <= budget

    @property
    def objective(self) -> str:
        """What to work on: memory where it does not fit, else the phase that takes most of a request."""
        if self.fits is False:
            return "memory"
        return "ttft" if self.prefill_share > 0.5 else "tpot"

    def share(self, phase: str, resources: Iterable[str]) -> float:
        """Part of a phase's time (of `memory`: its bytes) that goes to these resources; what is waited for
        between tokens are prefills, and goes to what they go to."""
        names = tuple(resources)
        limits = {"prefill": self.prefill, "decode": self.decode}.get(phase)
        shares = self.memory if phase == "memory" else limits.shares if limits else {}
        own = sum(shares.get(name, 0.0) for name in names)
        if phase != "decode" or "waiting" in names:
            return own
        return own + shares.get("waiting", 0.0) * self.share("prefill", names)


def diagnose(plan: Deployment) -> Diagnosis:
    """Figures and limits. Raises InputError where the deployment cannot be."""
    figures = evaluate(plan)
    at = figures.steady
    prefill = _limits(plan.setting, plan.prefill_step(), at.ttft_s, {})
    decode = None
    if figures.tpot_s is not None:
        # Other requests' prompts: whole ones between two tokens, or pieces that ride along with them.
        alone = step_cost(plan.setting, plan.work.decode(plan.batch)).best / figures.decode_speedup
        waits = max(0.0, 1 - alone / figures.tpot_s)
        decode = _limits(plan.setting, plan.decode_step(), figures.tpot_s, {"waiting": waits})
    memory = figures.memory
    held = {"weights": memory.weights, "cache": memory.cache, "activations": memory.activations}
    reading = at.ttft_s / at.e2e_s
    return Diagnosis(plan, figures, prefill, decode, _ordered(held), float(reading))


def _ordered(amounts: dict[str, float] | dict[str, int]) -> Shares:
    whole = sum(amounts.values())
    falling = sorted(amounts.items(), key=lambda pair: -pair[1])
    return {name: float(value / whole) for name, value in falling if value}


def _limits(setting: Setting, step: Step, seconds: float, beside: Shares) -> Limits:
    """Limits of a step; `beside`: shares of the time that are none of the step's."""
    left = 1 - sum(beside.values())
    inside = {name: left * share for name, share in step_shares(setting, step).items()}
    cost, shares = step_cost(setting, step), _ordered({**inside, **beside})
    balance, verdict = compulsory_intensity(setting, cost), step_verdict(setting, cost)
    return Limits(float(seconds), shares, balance, verdict)


def step_shares(setting: Setting, step: Step) -> Shares:
    """Shares of a step's expected time (else its floor) by what its operations wait for.

    An elementwise kernel beyond its floor waits for its own start, collectives for their link; an engine's
    host is what the step takes longer than with a host that takes no time, and copies from the host's memory
    what it takes longer than without them.
    """
    spent = dict.fromkeys(RESOURCES, 0.0)
    for _, kernels, links in setting.stages(step):
        every = (*kernels, *links)
        if setting.clock is None:
            times = [float(op.count * floor_s(op.work, setting.gpu)) for op in every]
        else:
            times = [float(one.seconds) for one in setting.clock.each(every)]
        for op, time in zip(every, times, strict=True):
            for name, part in op_shares(op, time, setting.gpu).items():
                spent[name] += part
    inside = _ordered(spent)
    whole, here = float(step_cost(setting, step).best), setting._replace(offload=None)
    alone = float(step_cost(here, step).best)
    device = float(step_cost(_without_host(here), step).best)
    out = {name: share * device / whole for name, share in inside.items()}
    out["host"] = max(0.0, alone - device) / whole
    out["links"] = out.get("links", 0.0) + max(0.0, whole - alone) / whole
    return _ordered(out)


def _without_host(setting: Setting) -> Setting:
    """The same with an engine whose host takes no time."""
    engine = setting.engine
    if engine is None or engine.times is None:
        return setting
    return setting._replace(engine=replace(engine, times=engine.times.without_host()))


def op_shares(op: Op, time: float, gpu: Gpu) -> Shares:
    """Seconds of an operation that takes `time` by resource."""
    work = op.work
    if isinstance(work, Collective):
        return {"links": time}
    moved = op.bytes
    least = float(op.count * floor_s(work, gpu))
    out: Shares = {}
    if isinstance(work, Pointwise | Gather) and time > least:
        out["launches"], time = time - least, least
    if _waits_for_arithmetic(op, gpu) or not moved.total:
        out["scores" if isinstance(work, Attend | Scan) else "arithmetic"] = time
        return out
    each = time / moved.total
    parts = {"weights": moved.weights, "cache": moved.kv + moved.state, "activations": moved.activations}
    return out | {name: float(each * size) for name, size in parts.items()}


def _waits_for_arithmetic(op: Op, gpu: Gpu) -> bool:
    vector = vector_peak(gpu)
    products = op.matmul_flops / work_peak(op.work, gpu) if work_math(op.work) else 0.0
    scalars = op.vector_flops / vector if vector is not None else 0.0
    return bool(max(products, scalars) > op.bytes.total / gpu.bandwidth)


class Effect(NamedTuple):
    """A lever on a deployment: `name` as a person would write it, the figures and the GPUs before and after.

    `fits`: whether the changed deployment does.
    """

    name: str
    lever: Lever
    before: Figures
    after: Figures
    gpus: tuple[Gpu, Gpu]
    fits: bool | None

    def gain(self, figure: str) -> float | None:
        """before - after: seconds, bytes or dollars saved; None where one of them is not known."""
        before, after = getattr(self.before, figure), getattr(self.after, figure)
        return None if before is None or after is None else before - after

    def saved(self, figure: str) -> float | None:
        """The gain as a share of what there was."""
        gained, before = self.gain(figure), getattr(self.before, figure)
        return None if gained is None or not before else gained / before


def effect(base: Diagnosis, name: str, lever: Lever, changed: Deployment) -> Effect:
    """Evaluate the changed deployment. Raises InputError where it cannot be."""
    after, budget = evaluate(changed), changed.budget_bytes
    gpus = (base.plan.setting.gpu, changed.setting.gpu)
    fits = None if budget is None else after.memory_bytes <= budget
    return Effect(name, lever, base.figures, after, gpus, fits)


def ranked(effects: Iterable[Effect], objective: str) -> list[Effect]:
    """By the share saved of the objective's figure, the largest first; what does not fit comes last."""

    def key(one: Effect) -> tuple[bool, float]:
        saved = one.saved(OBJECTIVES[objective])
        return one.fits is False, -saved if saved is not None else 0.0

    return sorted(effects, key=key)


LABELS = {
    "ttft": "the time to first token",
    "tpot": "the time per token",
    "memory": "memory",
    "usd": "dollars",
}


PLACES = (
    ("decode", "tpot_s", "a token's time"),
    ("prefill", "ttft_s", "a prefill"),
    ("memory", "memory_bytes", "memory"),
)
WIDE = 5
"""A lever that attacks so many resources attacks everything: what binds says more than their shares."""


def reason(base: Diagnosis, one: Effect, objective: str) -> str:
    """One sentence: what the lever does, how much of each phase that is, and whether it binds."""
    lever, facts = one.lever, []
    for phase, figure, place in PLACES:
        share = base.share(phase, lever.attacks)
        touched = OBJECTIVES[objective] == figure or (one.saved(figure) or 0.0) >= WORTH_NAMING
        if touched and share >= WORTH_NAMING:
            facts.append(f"{share:.0%} of {place}")
    if len(lever.attacks) >= WIDE:
        said = f"{lever.does}; {_goes_to(base)}"
    elif facts:
        what = _listed([RESOURCES[name] for name in lever.attacks if _seen(base, name)])
        said = f"{lever.does}; {what}: {', '.join(facts)}"
    else:
        said = lever.does
    return f"{said}{_ratios(one)}{_judged(base, one, objective)}"


def _goes_to(base: Diagnosis) -> str:
    """What each phase goes to most."""
    said = f"prefill goes to {_most(base.prefill)}"
    return said if base.decode is None else f"{said}, decode to {_most(base.decode)}"


def _most(limits: Limits) -> str:
    return f"{RESOURCES[limits.binds]} ({limits.shares[limits.binds]:.0%})"


def _ratios(one: Effect) -> str:
    """What another GPU has of what this one has."""
    gpu, other = one.gpus
    if gpu == other:
        return ""
    peak = peak_flops(other, default_dtype(other)) / peak_flops(gpu, default_dtype(gpu))
    return f"; {other.bandwidth / gpu.bandwidth:.2g} times the bandwidth, {peak:.2g} times the 16-bit peak"


def _seen(base: Diagnosis, name: str) -> bool:
    return any(base.share(phase, (name,)) >= WORTH_NAMING for phase in ("decode", "prefill", "memory"))


def _listed(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else ""


def _judged(base: Diagnosis, one: Effect, objective: str) -> str:
    saved = one.saved(OBJECTIVES[objective])
    if one.fits is False:
        return "; it does not fit"
    if saved is None or saved >= LITTLE:
        return ""
    if base.fits is False and one.fits:
        return "; it fits"
    binding = _binding(base, objective)
    if saved < -LITTLE:
        return f"; {LABELS[objective]} loses by it"
    return f"; it attacks what does not bind {LABELS[objective]}{binding}"


def _binding(base: Diagnosis, objective: str) -> str:
    if objective == "memory":
        return f" (bound by {RESOURCES[next(iter(base.memory))]})"
    phase = base.prefill if objective == "ttft" or base.decode is None else base.decode
    if objective == "usd":
        phase = base.prefill if base.prefill_share > 0.5 or base.decode is None else base.decode
    return f" (bound by {RESOURCES[phase.binds]})"
