"""One request on one setting, evaluated: its times, memory, dollars, time line."""

from __future__ import annotations

from typing import NamedTuple

from .. import InputError
from ..costmodel.disaggregated import Prefiller
from ..costmodel.kv import cache_bill
from ..costmodel.memory import Memory, peak_memory, request_memory, within_room
from ..costmodel.request import Dollars, Request, dollars, energy_j
from ..costmodel.setting import Cost, Setting, step_cost, summed
from .price import usd_per_hour
from .steps import steps_at
from .timeline import Block, blocks


class Answer(NamedTuple):
    """One request on one setting, evaluated; `filling`: memory of the GPUs that prefill apart."""

    setting: Setting
    request: Request
    phase: str
    ttft: Cost | None
    decoding: Cost | None
    memory: Memory
    usd: Dollars | None
    blocks: list[Block]
    no_cache: Cost | None
    prefiller: Prefiller | None = None
    filling: Memory | None = None

    @property
    def whole(self) -> Cost:
        """Prefill, transfer and decode."""
        cost = summed([(cost, 1) for cost in (self.ttft, self.decoding) if cost])
        return self.prefiller.delayed(cost, self.request) if self.prefiller else cost

    @property
    def fits(self) -> bool | None:
        """None where the sheet has no capacity."""
        own = within_room(self.memory.total, self.setting.gpu.capacity_bytes)
        if own is False or self.filling is None or self.prefiller is None:
            return own
        apart = within_room(self.filling.total, self.prefiller.setting.gpu.capacity_bytes)
        return apart if own or apart is False else None

    @property
    def energy_j(self) -> float | None:
        """At most so much for each request; None where a sheet names no power."""
        if self.prefiller and self.ttft:
            return self.prefiller.energy_j(self.setting, self.request, self.ttft, self.decoding)
        return energy_j(self.setting, self.request, self.whole.best)

    @property
    def tpot(self) -> dict[str, float | None]:
        if self.decoding is None:
            return {"bound": None, "floor": None, "expected": None}
        return self.decoding.times(1 / self.request.decode_steps)


def answer_of(
    setting: Setting,
    asked: Request,
    phase: str,
    no_cache: bool,
    price: float | None,
    prefiller: Prefiller | None = None,
) -> Answer:
    """Prefill, every decode step, and what follows from them."""
    if phase == "prefill":
        asked = asked._replace(gen=1)
    if phase == "decode":
        if asked.prompt < 2:
            raise InputError("--phase decode at a context of 1: the new token needs one before it")
        asked = asked._replace(prompt=asked.prompt - 1, gen=2)
    asked.checked()
    first_on = prefiller.setting if prefiller else setting
    ttft = None if phase == "decode" else step_cost(first_on, asked.prefill())
    first = asked.prompt + 1
    steps = steps_at(setting, asked, range(first, first + asked.decode_steps), recount=False)
    decoding = summed(steps) if steps else None
    rate = usd_per_hour(setting.gpu, price)
    usd = None if rate is None else dollars(setting, asked, ttft, decoding, rate)
    if usd and prefiller and ttft:
        usd = prefiller.dollars(setting, asked, ttft, decoding, price)
    if ttft:
        memory = request_memory(setting, asked)
    else:
        memory = peak_memory(setting, asked.held_tokens, asked.batch, asked.decode(first), asked.encoder)
    passes = None
    if no_cache:
        passes = summed(steps_at(setting, asked, range(asked.prompt, asked.prompt + asked.gen), recount=True))

    def held(context: int) -> int:
        return cache_bill(setting.model, context, asked.batch, setting.run.kv, asked.encoder).logical_bytes

    drawn = blocks(asked, ttft.best if ttft else 0.0, steps, held)
    filling = request_memory(prefiller.setting, asked._replace(gen=1)) if prefiller else None
    return Answer(setting, asked, phase, ttft, decoding, memory, usd, drawn, passes, prefiller, filling)
