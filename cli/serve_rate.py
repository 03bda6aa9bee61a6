"""What a rate of requests takes: how many units, how busy they are, what a token then costs."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from ..costmodel.search import most_within
from ..costmodel.serving import Steady, steady, usd_per_million
from .serve_study import Asked, Point, Study

BUSY = 0.8
"""Of what they could do at most, what devices are given to do: beyond it a queue grows without much warning
(an M/M/1 queue of 80 % has four waiting for each one served)."""


class AtRate(NamedTuple):
    """`requests_per_s` spread evenly over whole units of a setting, each at most `BUSY`.

    `units` decode, `devices` all GPUs with those that prefill apart; `busy`: of what the units could serve;
    `running`: the fewest sequences at once that keep up (`steady` is that state; Little's law).
    """

    requests_per_s: float
    units: int
    devices: int
    busy: float
    output_tokens_per_s: float
    usd_per_million_output: float | None
    running: int
    steady: Steady


def at_rate(each: Study, best: Point, rate: float, asked: Asked) -> AtRate:
    """`rate` requests a second on as many units of `each` as that takes, each no fuller than `best`."""
    most, setting = best.steady, each.setting
    wanted = rate / (BUSY * most.requests_per_s)
    apart = most.devices / setting.devices - 1
    units = ceil(wanted)
    devices = setting.devices * (units + ceil(wanted * apart))
    share, full = rate / units, most.batch

    def running(batch: int) -> Steady:
        return steady(most.policy, setting, each.work, batch, None, asked.chunk, asked.link_bytes_per_s)

    fewer = most_within(lambda batch: running(batch).requests_per_s < share, full - 1) if full > 1 else 0
    tokens_per_s = rate * each.work.lengths.gen
    return AtRate(
        rate,
        units,
        devices,
        rate / (units * most.requests_per_s),
        tokens_per_s,
        usd_per_million(each.price.usd_per_hour, devices, tokens_per_s) if each.price else None,
        fewer + 1,
        running(fewer + 1),
    )
