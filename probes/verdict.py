"""What a measurement says of a prediction: two tests, never mixed.

Nobody beats the floor (a broken one means a wrong count, a wrong ceiling or a cache hit): hard. The
time is near what was expected: soft, within a band. A measurement under bad conditions says nothing.
Source: ../shared/probes/probes.md, section 4.
"""

from __future__ import annotations

from math import exp, log, log1p
from typing import NamedTuple

PASS, SLOW, FAST, FAIL, INCONCLUSIVE, SKIPPED = "PASS", "SLOW", "FAST", "FAIL", "INCONCLUSIVE", "SKIPPED"


class Rules(NamedTuple):
    """`floor_slack`: a time below this share of the floor breaks it; `widest_ci` and `widest_drift` as
    shares beyond which a reading says nothing; `sigmas` of a class's spread that its band allows."""

    floor_slack: float
    widest_ci: float
    widest_drift: float = 0.10
    sigmas: float = 3.0


RULES = {"cuda": Rules(0.95, 0.05), "cpu": Rules(0.85, 0.10)}
"""A shared CPU is noisier: its own ceilings move by what separates these."""


class Reading(NamedTuple):
    """A measured time: median and its 95 % interval, `drift` between the anchors around it."""

    median_s: float
    low_s: float
    high_s: float
    drift: float = 0.0

    @property
    def half_width(self) -> float:
        """Half the confidence interval as a share of the median."""
        return (self.high_s - self.low_s) / 2 / self.median_s


class Judgement(NamedTuple):
    verdict: str
    why: str


def judge(
    reading: Reading,
    floor_s: float,
    expected_s: float | None,
    band: float,
    log_sd: float,
    rules: Rules,
    trouble: str = "",
) -> Judgement:
    """PASS, SLOW, FAST, FAIL or INCONCLUSIVE, and why.

    `trouble`: what was wrong with the conditions ("" where they were clean); nothing measured under it
    can fail or pass, nor what was read while the ceiling moved. `expected_s` None: nothing is known of
    the class, only the floor is held.
    """
    if trouble:
        return Judgement(INCONCLUSIVE, trouble)
    if reading.drift > rules.widest_drift:
        return Judgement(INCONCLUSIVE, f"the ceiling moved by {reading.drift:.0%} around it")
    if reading.high_s < rules.floor_slack * floor_s:
        beaten = floor_s / reading.high_s
        return Judgement(FAIL, f"floor_broken: {beaten:.2f}x faster than the ceilings of this run allow")
    if reading.half_width > rules.widest_ci:
        return Judgement(INCONCLUSIVE, f"the 95 % interval is ±{reading.half_width:.0%} wide")
    if expected_s is None:
        return Judgement(PASS, "the floor holds; nothing is calibrated to expect more")
    allowed = log1p(max(band, exp(rules.sigmas * log_sd) - 1))
    off = log(reading.median_s / expected_s)
    if abs(off) <= allowed:
        return Judgement(PASS, "")
    return Judgement(SLOW if off > 0 else FAST, f"{exp(off):.2f}x the expected time")
