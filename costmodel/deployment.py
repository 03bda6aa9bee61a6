"""A deployment: a model on a GPU, the requests it serves and how it schedules them; and what comes of that.

Four figures are what levers are judged by: the time to first token, the time per output token, the memory of
the fullest rank, and the dollars of a million tokens out. They are those of `serve`'s steady states; of one
request at a time those are the request's own, decode steps taken at their mean context.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from .. import InputError
from ..models.spec import Model
from .arith import ceil_div, rounded_up
from .early_exit import Exits, at_every, early_exit
from .kv import BLOCK_TOKENS
from .memory import SHARE, Memory, peak_memory, room_bytes, widest_prefill
from .search import most_within
from .serving import CHUNK, Steady, Workload, pieces, steady, usd_per_million
from .setting import Setting
from .speculative import LOOKUP, Draft, Speculation, layer_draft, medusa_draft, model_draft
from .step import Step

LARGEST_BATCH = 1 << 16
"""Batches are looked for up to here: beyond, any number fits."""


class Drafting(NamedTuple):
    """Speculation: a round yields `tokens` in the mean, of `gamma` drafted ones; `verify_tokens` of each
    sequence go through the target.

    `draft`: eagle or mtp (a layer like the target's last), medusa (heads, `gamma` of them), lookup (nothing
    on the device), or model, which is the one given.
    """

    draft: str
    tokens: float
    gamma: int
    verify_tokens: int
    model: Model | None = None

    def on(self, target: Setting) -> Draft:
        """The draft beside this target, run as that is. Raises InputError where it cannot stand there."""
        target = target._replace(offload=None)
        if self.model is not None:
            own = replace(target.run, recipe=None)
            return model_draft(target._replace(model=self.model, run=own))
        if self.draft == "medusa":
            return medusa_draft(target, self.gamma)
        return LOOKUP if self.draft == "lookup" else layer_draft(target, self.draft)


class Exiting(NamedTuple):
    """Early exit: a head is asked after `every` so many layers, and a token leaves there with `chance`."""

    chance: float
    every: int

    def of(self, model: Model) -> Exits:
        return at_every(len(model.layers), self.every, self.chance)


class Deployment(NamedTuple):
    """`batch` slots of `setting` serve requests like `work` by `policy` (`serving.POLICIES`).

    `usd_per_hour` of one GPU; `reserved`: tokens that a contiguous cache takes for each sequence (None: it is
    paged); `share` of the card is the budget.
    """

    setting: Setting
    work: Workload
    batch: int = 1
    policy: str = "continuous"
    chunk: int = CHUNK
    usd_per_hour: float | None = None
    reserved: int | None = None
    share: float = SHARE
    drafting: Drafting | None = None
    exiting: Exiting | None = None

    @property
    def held_tokens(self) -> int:
        """Tokens a sequence's cache has room for at its end: whole blocks, or what is reserved.

        Raises InputError where less is reserved than a request needs.
        """
        held = self.work.held_tokens
        if self.reserved is None:
            return rounded_up(held, BLOCK_TOKENS)
        if self.reserved < held:
            raise InputError(f"{self.reserved:,} reserved tokens are fewer than the {held:,} a request holds")
        return self.reserved

    @property
    def budget_bytes(self) -> int | None:
        """None where the sheet has no capacity."""
        return room_bytes(self.setting.gpu.capacity_bytes, self.share)

    def speculation(self, batch: int | None = None, context: int | None = None) -> Speculation | None:
        if self.drafting is None:
            return None
        at = context or max(2, round(self.work.lengths.mean_context))
        return Speculation(self.setting, self.drafting.on(self.setting), batch or self.batch, at)

    def prefill_step(self) -> Step:
        """The step that a first token comes out of; of chunked prefill a chunk in the middle of a prompt."""
        if self.policy == "chunked":
            cut = pieces(self.work, self.chunk)
            return self.work.mixed(0, 1, max(1, round(cut.tokens)), cut.past)
        return self.work.prefill(self.batch if self.policy == "static" else 1)

    def decode_step(self, batch: int | None = None) -> Step:
        """The step that yields tokens: of speculation the one that verifies."""
        many = batch or self.batch
        spec = self.speculation(many)
        if spec is None or self.drafting is None:
            return self.work.decode(many)
        return spec.step(self.drafting.verify_tokens)


class Figures(NamedTuple):
    """What a deployment is judged by; `steady` has the rest. None: one token out, or no price known.

    `decode_speedup`: what drafts or early exits make of its decode steps.
    """

    ttft_s: float
    tpot_s: float | None
    memory_bytes: int
    usd_per_million_output: float | None
    memory: Memory
    steady: Steady
    decode_speedup: float = 1.0


FIGURES = ("ttft_s", "tpot_s", "memory_bytes", "usd_per_million_output")


def evaluate(plan: Deployment) -> Figures:
    """The figures of a deployment. Raises InputError where something of it cannot be."""
    plan.setting.checked()
    plan.work.checked()
    at = steady(plan.policy, plan.setting, plan.work, plan.batch, chunk=plan.chunk)
    speedup = 1.0
    if plan.drafting or plan.exiting:
        speedup = _decode_speedup(plan)
        at = _faster(plan, at, speedup)
    usd = plan.usd_per_hour
    memory = memory_of(plan, plan.batch)
    return Figures(
        float(at.ttft_s),
        None if at.tpot_s is None else float(at.tpot_s),
        memory.total,
        None if usd is None else usd_per_million(usd, at.devices, at.output_tokens_per_s),
        memory,
        at,
        speedup,
    )


def _decode_speedup(plan: Deployment) -> float:
    """How many times as fast tokens come out of the decode steps."""
    if plan.policy == "chunked":
        raise InputError("drafts and early exits beside chunks of prompts are not modelled")
    spec, drafting = plan.speculation(), plan.drafting
    if spec is not None and drafting is not None:
        if plan.exiting:
            raise InputError("drafts and early exits at once are not modelled")
        passes = spec.passes(drafting.verify_tokens)
        return spec.verified(drafting.tokens, drafting.gamma, drafting.verify_tokens, passes).best.speedup
    assert plan.exiting is not None
    context = max(2, round(plan.work.lengths.mean_context))
    found = early_exit(plan.setting, plan.exiting.of(plan.setting.model), plan.batch, context)
    faster = found.speedup("floor" if found.full.expected is None else "expected")
    assert faster is not None
    return faster


def _faster(plan: Deployment, at: Steady, speedup: float) -> Steady:
    """The steady state with decode steps that take 1/speedup of their time for each token: prefills, and what
    waits for them, stay as they are; devices that prefill for others grow with the rate."""
    if at.tpot_s is None:
        return at
    saved = at.step.best * (1 - 1 / speedup)
    longest = plan.work.lengths.longest(plan.batch) if plan.policy == "static" else plan.work.lengths.gen
    each_s = plan.batch * plan.setting.replicas / at.requests_per_s
    rate = plan.batch * plan.setting.replicas / (each_s - (longest - 1) * saved)
    apart = (at.devices - plan.setting.devices) * rate / at.requests_per_s
    devices = plan.setting.devices + apart
    return at._replace(tpot_s=at.tpot_s - saved, gap_s=at.gap_s - saved, requests_per_s=rate, devices=devices)


def memory_of(plan: Deployment, batch: int) -> Memory:
    """The fullest rank with `batch` sequences at their end, at the widest moment of the plan's steps; a
    draft's weights and cache are shared out over its ranks."""
    work, setting, held = plan.work, plan.setting, plan.held_tokens
    if plan.policy == "chunked":
        filling = work.mixed(batch - 1, 1, min(plan.chunk, work.fresh), work.shared)
    else:
        filling = widest_prefill(work.fresh, batch if plan.policy == "static" else 1, encoder=work.encoder)
    shared = work.shared if plan.reserved is None else 0
    bills = [
        peak_memory(setting, held, batch, step, work.encoder, shared=shared)
        for step in (filling, plan.decode_step(batch))
    ]
    fullest = max(bills, key=lambda bill: bill.total)
    spec = plan.speculation(batch, held)
    if spec is None or spec.draft.setting is None:
        return fullest
    own, ranks = spec.memory(), spec.draft.setting.parallel.world
    weights, cache = ceil_div(own.weights, ranks), ceil_div(own.cache, ranks)
    return fullest._replace(weights=fullest.weights + weights, cache=fullest.cache + cache)


def fits(plan: Deployment, batch: int) -> bool | None:
    """Whether `batch` sequences fit the budget; None where the sheet has no capacity."""
    budget = plan.budget_bytes
    return None if budget is None else memory_of(plan, batch).total <= budget


def largest_batch(plan: Deployment) -> int | None:
    """Most sequences that fit; 0 where none does, None where any number does or no capacity is known."""
    if plan.budget_bytes is None:
        return None
    most = most_within(lambda batch: bool(fits(plan, batch)), LARGEST_BATCH)
    return None if most == LARGEST_BATCH else most
