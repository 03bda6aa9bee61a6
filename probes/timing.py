"""Times that can be trusted: samples long enough to be read, a median with an interval without assumptions.

On a CPU the process's CPU clock and one thread: neighbours do not count against it. On CUDA the
device's own events, short kernels replayed from a graph.
Source: ../shared/probes/probes.md, sections 0, 3 and 4 (estimators compared under load).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import comb
from typing import Any, NamedTuple

import numpy as np

from .verdict import Reading

SAMPLE_S = 0.02
"""A sample repeats a kernel until it takes this long: far above the clock's resolution."""
FEWEST, MOST = 7, 41
TARGET_CI = 0.02
OUTLIER_Z = 14.8
"""Median absolute deviations (scaled) beyond which a sample is counted as an outlier; it stays in."""
MAD_TO_SD = 1.4826
CONFIDENCE = 0.95

Sampler = Callable[[int], float]
"""Seconds of so many launches, back to back."""


class Timing(NamedTuple):
    """Seconds of one launch: median, order-statistic interval, samples, outliers, launches in each."""

    median_s: float
    low_s: float
    high_s: float
    n: int
    outliers: int
    launches: int

    def reading(self, drift: float = 0.0) -> Reading:
        return Reading(self.median_s, self.low_s, self.high_s, drift)


class Budget:
    """Seconds left for a run; every probe asks before it takes another sample."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._end = clock, clock() + seconds

    @property
    def left_s(self) -> float:
        return self._end - self._clock()


def interval(samples: Any) -> tuple[float, float]:
    """The order statistics that hold the median with 95 % confidence, whatever the distribution; the
    range where there are too few samples for it."""
    ordered, n = np.sort(samples), len(samples)
    tail = (1 - CONFIDENCE) / 2
    below, chance = 0, 0.0
    while below < n // 2:
        chance += comb(n, below) * 0.5**n
        if chance > tail:
            break
        below += 1
    first = max(below - 1, 0)
    return float(ordered[first]), float(ordered[n - 1 - first])


def outliers(samples: Any) -> int:
    """How many samples are far from the median; a sign of trouble, not a reason to drop them."""
    middle = np.median(samples)
    spread = MAD_TO_SD * np.median(np.abs(samples - middle))
    return int((np.abs(samples - middle) > OUTLIER_Z * spread).sum()) if spread > 0 else 0


def measure(sample: Sampler, budget: Budget, most_s: float = 2.0, sample_s: float = SAMPLE_S) -> Timing:
    """Time one launch: warm up, choose how many launches a sample is, sample until the interval is narrow.

    Stops at a half-width of 2 %, at `most_s`, at `MOST` samples or with the budget.
    """
    first = sample(1)
    launches = max(1, min(100_000, round(sample_s / max(first, 1e-7))))
    warm = sample(launches) / launches
    launches = max(1, min(100_000, round(sample_s / max(warm, 1e-7))))
    begun = time.monotonic()
    times: list[float] = []
    while len(times) < MOST:
        times.append(sample(launches) / launches)
        if len(times) < FEWEST:
            if budget.left_s <= 0 and len(times) >= 3:
                break
            continue
        low, high = interval(np.array(times))
        narrow = (high - low) / 2 <= TARGET_CI * float(np.median(times))
        if narrow or budget.left_s <= 0 or time.monotonic() - begun > most_s:
            break
    samples = np.array(times)
    low, high = interval(samples)
    return Timing(float(np.median(samples)), low, high, len(samples), outliers(samples), launches)


def cpu_sampler(launches_of: list[Callable[[], Any]]) -> Sampler:
    """Process CPU seconds, the copies of the inputs in turn: what the machine's other work takes is not in
    them."""
    many, done = len(launches_of), 0

    def sample(launches: int) -> float:
        nonlocal done
        begin = time.process_time()
        for i in range(done, done + launches):
            launches_of[i % many]()
        done = (done + launches) % many
        return time.process_time() - begin

    return sample


ROTATED_L2S = {"cuda": 5, "cpu": 3}
"""How often a round through the copies of the inputs passes the last cache."""
GRAPH_BELOW_S = 200e-6
MOST_IN_GRAPH = 32


def cuda_sampler(
    launches_of: list[Callable[[], Any]], torch: Any, stream: Any, graph_below_s: float = GRAPH_BELOW_S
) -> Sampler:
    """Seconds between two events on `stream`; what is shorter than `graph_below_s` is replayed from one
    CUDA graph, taking the copies of its inputs in turn, so that nothing is found in L2."""
    many = len(launches_of)
    # Inputs are made on another stream, which this one does not wait for.
    torch.cuda.synchronize(stream.device)

    def eager(launches: int) -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record(stream)
        for i in range(launches):
            launches_of[i % many]()
        end.record(stream)
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3

    with torch.cuda.stream(stream):
        for launch in launches_of:
            launch()
        stream.synchronize()
        round_s = eager(many)
        if round_s / many > graph_below_s:
            return _on(stream, torch, eager)
        graph = torch.cuda.CUDAGraph()
        rounds = max(1, min(MOST_IN_GRAPH // many, round(SAMPLE_S / round_s)))
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(rounds):
                for launch in launches_of:
                    launch()
    each = many * rounds

    def replay(launches: int) -> float:
        times = max(1, round(launches / each))
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record(stream)
        for _ in range(times):
            graph.replay()
        end.record(stream)
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3 * launches / (times * each)

    return _on(stream, torch, replay)


def _on(stream: Any, torch: Any, sample: Sampler) -> Sampler:
    def run(launches: int) -> float:
        with torch.cuda.stream(stream):
            return sample(launches)

    return run
