"""Two shares and a launch: what a few probes can say of any kernel on any device.

The form of calibrations made from a handful of measurements, and of devices whose kernels no formula
here describes (CPUs). Source: the roofline, each roof lowered to the share that was reached.
"""

from __future__ import annotations

from typing import Any

from ..arith import most
from ..op import Attend
from .device import Device
from .family import US, Family, Parameter, Params, forms

SHARE = Family(
    "share",
    {
        "launch_us": Parameter(10, 0.01, 1e4, 10, "launch, and what runs once whatever the shape"),
        "mma_share": Parameter(0.5, 1e-4, 10, 0.5, "share of the peak"),
        "memory_share": Parameter(0.5, 1e-4, 10, 0.5, "share of the bandwidth"),
    },
    forms(share="launch_us mma_share memory_share"),
)


def share_s(work: Any, device: Device, p: Params) -> Any:
    """Seconds of `work`: launch, and the slower of its products and its bytes at their shares.

    A CPU's attention kernel reads K and V once for every query head, grouped or not
    (../shared/probes/probes.md, finding 6).
    """
    moved = work.bytes
    total = moved.total
    if isinstance(work, Attend) and device.gpu.is_cpu:
        total = total + work.sequences * work.context * work.row_bytes * (work.heads / work.kv_heads - 1)
    seconds = total / (p["memory_share"] * device.bandwidth)
    math = getattr(work, "math", "")
    if math:
        seconds = most(seconds, work.matmul_flops / (p["mma_share"] * device.peak(math)))
    return p["launch_us"] * US + seconds
