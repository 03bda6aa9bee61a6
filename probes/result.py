"""What one probe came to: the ceilings it stands under, what was expected, what was measured, the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ..costmodel.op import Bytes
from ..costmodel.times.expected import Expected
from .suite import Probe
from .timing import Timing
from .verdict import SKIPPED


class Result(NamedTuple):
    """One probe: what the ceilings of the run allow, what was expected, what was measured, the verdict."""

    probe: Probe
    work: Any
    floor_s: float
    expected: Expected | None
    timing: Timing | None
    drift: float
    verdict: str
    why: str
    slower: float = 1.0
    """How much slower the ceiling was read around it than at first."""

    @property
    def flops_per_s(self) -> float | None:
        done = self.work.matmul_flops + self.work.vector_flops
        return done / self.timing.median_s if self.timing and done else None

    @property
    def bytes_per_s(self) -> float | None:
        return self.work.bytes.total / self.timing.median_s if self.timing else None

    @property
    def efficiency(self) -> float | None:
        """Share of the ceiling: the floor over the measured time."""
        return self.floor_s / self.timing.median_s if self.timing else None


@dataclass(frozen=True)
class Whole:
    """What several ops come to, as one."""

    matmul_flops: float
    vector_flops: float
    total_bytes: float

    kind = "stack"

    @property
    def bytes(self) -> Bytes:
        return Bytes(activations=self.total_bytes)


def skipped(probe: Probe, why: str) -> Result:
    return Result(probe, probe.work, 0.0, None, None, 0.0, SKIPPED, why)
