"""The roofs of one run, as they were measured: what its floors are of, and at what pace it ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import exp, log
from typing import NamedTuple

from ..hardware.spec import Gpu


class Ceilings(NamedTuple):
    """The roofs of this run: FLOP/s by type, bytes/s by kind, and the launch of an empty kernel."""

    flops: dict[str, float]
    bandwidth: dict[str, float]
    launch_s: float

    def sheet(self, gpu: Gpu) -> Gpu:
        """The GPU's sheet with the ceilings in place of the datasheet: what floors of this run are of."""
        peaks = {**dict(gpu.peaks), **{name: max(rate, 1e9) for name, rate in self.flops.items()}}
        best = max(self.bandwidth.values())
        memory = replace(gpu.memory, bandwidth_gb_per_s=max(best / 1e9, 1.0))
        return replace(gpu, peaks=tuple(peaks.items()), memory=memory)

    def as_fast_as(self, other: Ceilings) -> Ceilings:
        """These ceilings at the other's pace: by the geometric mean over those that both have, for one alone
        is as noisy as any reading."""
        compute, memory = (
            _pace(a, b) for a, b in ((self.flops, other.flops), (self.bandwidth, other.bandwidth))
        )
        flops = {name: rate * compute for name, rate in self.flops.items()}
        return self._replace(flops=flops, bandwidth={k: v * memory for k, v in self.bandwidth.items()})

    @classmethod
    def read(cls, saved: Mapping[str, float]) -> Ceilings:
        """What `as_mapping` wrote."""
        parts: dict[str, dict[str, float]] = {"flops": {}, "bandwidth": {}, "latency": {}}
        for name, value in saved.items():
            kind, _, key = name.partition(".")
            parts.setdefault(kind, {})[key] = value
        return cls(parts["flops"], parts["bandwidth"], parts["latency"].get("launch", 0.0))

    def as_mapping(self) -> dict[str, float]:
        out = {f"flops.{name}": rate for name, rate in self.flops.items()}
        out |= {f"bandwidth.{name}": rate for name, rate in self.bandwidth.items()}
        return {**out, "latency.launch": self.launch_s}


def _pace(now: Mapping[str, float], then: Mapping[str, float]) -> float:
    ratios = [log(then[name] / now[name]) for name in now if then.get(name, 0) > 0]
    return exp(sum(ratios) / len(ratios)) if ratios else 1.0
