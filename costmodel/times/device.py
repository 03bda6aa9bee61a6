"""What the time formulas need of a GPU: rates of its sheet, per SM where that is what a tile sees."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ...hardware.spec import MIB, Gpu
from ..roofline import link_bytes_per_s, peak_flops, vector_peak

USUAL_CLOCK_GHZ = 1.5
ASSUMED_L2_MIB = 40
ASSUMED_FLOPS_PER_CORE = 5e12
FLOPS_PER_CORE = {
    "ampere": 2.9e12,
    "ada": 2.55e12,
    "hopper": 7.5e12,
    "blackwell": 15.2e12,
    "blackwell-rtx": 2.5e12,
}
"""For a sheet that names none: the L2 of an A100, cores as fast as those of its generation (dense 16 bit).
A part of no known generation is cut into cores between an A100's and an H100's, whatever it calls one."""


class Device(NamedTuple):
    """Rates in bytes and FLOPs per second; `link_bytes_per_s` one way; `cores` SMs or CUs.

    `generation`: ampere, ada, hopper, blackwell (tcgen05, data centre) or blackwell-rtx, else "".
    """

    gpu: Gpu
    bandwidth: float
    cores: int
    l2_bytes: float
    link_bytes_per_s: float
    vector_flops: float
    generation: str

    @property
    def clock_hz(self) -> float:
        """Of a core; the usual one where the sheet names none."""
        return (self.gpu.compute.clock_ghz or USUAL_CLOCK_GHZ) * 1e9

    def among(self, ranks: int) -> Device:
        """The device with the link that so many of it meet on."""
        return self._replace(link_bytes_per_s=link_bytes_per_s(self.gpu, ranks))

    def peak(self, math: str) -> float:
        """Dense FLOP/s of `math`, or of what the part computes it in where it has no such unit."""
        return peak_flops(self.gpu, math)


@lru_cache(maxsize=256)
def device(gpu: Gpu) -> Device:
    """The device of a sheet; what the sheet does not say is assumed, as the constants above state."""
    peak = peak_flops(gpu, "bf16")
    family = gpu.generation
    each = FLOPS_PER_CORE.get(family, ASSUMED_FLOPS_PER_CORE)
    cores = (gpu.compute.cores if family else None) or max(1, round(peak / each))
    l2 = (gpu.memory.l2_mib or ASSUMED_L2_MIB) * MIB
    vector = vector_peak(gpu) or peak / 16
    return Device(gpu, gpu.bandwidth, cores, l2, link_bytes_per_s(gpu), vector, family)
