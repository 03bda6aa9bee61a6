"""Time of a collective: latency steps, protocol switches, and the wire.

Three kinds, each a family: NCCL over NVLink, NCCL or oneCCL over PCIe, and the engines' own
all-reduce kernels over NVLink. Source: NCCL's ring and tree algorithms and its LL, LL128 and Simple
protocols (nccl-tests, doc/PERFORMANCE.md, for the bus-bandwidth factors); the shapes of the terms
were found on ../shared/measured/collective.csv. `working_set` changes nothing here: it is there for the
formulas of all families to be called alike.
"""

from __future__ import annotations

from typing import Any

from ..arith import kit, power_norm
from ..op import Collective
from ..roofline import BRIDGED
from .device import Device
from .family import US, Family, Parameter, Params, forms, switched

RING = Family(
    "collective",
    {
        "launch_us": Parameter(5, 0.3, 60, 5, "launch and synchronisation", 0.3),
        "step_us": Parameter(1, 0.05, 10, 1, "latency of one step of the ring", 0.3),
        "low_latency_us": Parameter(2, 0.01, 30, 2, "extra once past the LL protocol", 0.3),
        "low_latency_kb": Parameter(16, 2, 300, 16, "message where LL ends", 0.3),
        "simple_us": Parameter(20, 0.5, 500, 20, "extra once the Simple protocol is on", 0.3),
        "simple_mb": Parameter(2, 0.1, 60, 2, "message where Simple begins", 0.3),
        "local_share": Parameter(0.6, 0.02, 1, 0.6, "of a rank's own part, what stays off the wire", 1.0),
        "link_share": Parameter(0.7, 0.02, 1.2, 0.7, "share of the one-way link bandwidth", 0.6),
    },
    forms(ring="launch_us step_us low_latency_us low_latency_kb simple_us simple_mb local_share link_share"),
)
PCIE = Family(
    "collective_pcie",
    {
        "launch_us": Parameter(5, 0.3, 150, 5, "launch and synchronisation, the host's where eager", 0.3),
        "step_us": Parameter(1.2, 0.05, 15, 1.2, "latency of one step of the ring", 0.3),
        "ramp": Parameter(0.5, 0.01, 8, 0.5, "slow-down of messages below 256 kB", 0.3),
        "beyond_2": Parameter(1.6, 0.7, 15, 1.6, "slow-down of the link past two ranks", 0.3, travels=False),
        "simple_us": Parameter(5, 0.01, 500, 5, "extra once the Simple protocol is on", 0.3),
        "simple_mb": Parameter(1, 0.05, 30, 1, "message where Simple begins", 0.3),
        "beyond_4": Parameter(
            1.2, 0.7, 8, 1.2, "slow-down again past four ranks (another socket)", 0.3, travels=False
        ),
        "link_share": Parameter(0.6, 0.1, 1.1, 0.6, "share of the one-way link bandwidth", 0.6),
    },
    forms(pcie="launch_us step_us ramp beyond_2 simple_us simple_mb beyond_4 link_share"),
)
CUSTOM_PCIE = PCIE._replace(name="custom_pcie")
CUSTOM = Family(
    "custom_all_reduce",
    {
        "launch_us": Parameter(5, 1, 150, 5, "launch, the host's where eager", 0.1),
        "step_us": Parameter(0.1, 0.005, 4, 0.1, "signalling each further rank", 0.1),
        "one_shot_share": Parameter(0.5, 0.05, 1.5, 0.5, "share of the link, every rank reading all", 0.1),
        "two_shot_us": Parameter(4, 0.3, 200, 4, "second barrier of reduce-scatter plus all-gather", 0.1),
        "two_shot_share": Parameter(0.7, 0.15, 1.2, 0.7, "share of the link in two shots", 0.1),
        "fallback_us": Parameter(10, 0.3, 200, 10, "extra once NCCL takes over", 0.1),
        "fallback_mb": Parameter(8, 0.5, 80, 8, "message where NCCL takes over", 0.1),
    },
    forms(
        custom="launch_us step_us one_shot_share two_shot_us two_shot_share fallback_us fallback_mb",
    ),
)

LOCAL_WEIGHT = {"all_reduce": 1.3, "reduce_scatter": 0.75}
"""How `local_share` counts in a collective, 1 in the others. Structural, as the bare numbers of this file are
that no source gives: the same for every GPU, and chosen on the measured rows (docs/times.md)."""
MOST_LOCAL = 1.5
ALL_TO_ALL_BUMP, ALL_TO_ALL_LL, ALL_TO_ALL_SIMPLE = 3.0, 4.0, 3.0
"""Of an all-to-all, in those of a ring: its extra past the LL protocol, and the messages where LL ends and
Simple begins."""
RAMP_BYTES = 256e3
TWO_SHOT_LOCAL = 0.75
"""Of a rank's own part, what two shots leave off the links."""
SWITCHED_SHARE = {"hopper": 0.80, "blackwell": 0.90}
"""Wire bytes of an all-reduce that the NVSwitch itself adds up (NVLink SHARP), from eight ranks on."""
SHARP_RANKS = 8
SHOT_NORM, HOST_NORM = 12, 8
"""Powers: how sharp the corner between one shot and two is, and how well a launch hides."""
EAGER_DEVICE_US = 3.0
"""Of an eager collective, what the device takes besides the message."""
COPY_SHARE = 0.87
"""Share of memory bandwidth of the copy, in and out, of what an eager kernel leaves to NCCL."""
PCIE_BYTES_PER_S = 64e9
"""One way, of PCIe 5.0 x16: a link that is no faster, and no bridge, is the host's PCIe."""
KB, MB = 1e3, 1e6


def over_pcie(device: Device, ranks: int) -> bool:
    """Whether so many ranks meet on the host's PCIe."""
    bridged = device.gpu.link == "bridge" and ranks <= BRIDGED
    return not bridged and device.link_bytes_per_s <= PCIE_BYTES_PER_S


def steps(work: Collective, k: Any) -> Any:
    """Steps one after another: 2(n-1) round a ring to reduce, n-1 to gather or scatter, log2 n of an
    all-to-all, one to send."""
    if work.name == "send":
        return 1
    if work.name == "all_to_all":
        return k.log2(work.world)
    return (2 if work.name == "all_reduce" else 1) * (work.world - 1)


def ring_s(work: Collective, device: Device, p: Params, working_set: Any = None) -> Any:
    """NCCL over NVLink or NVSwitch."""
    k = kit(work.message_bytes, work.world, *p.values())
    spread = work.name == "all_to_all"
    low = work.message_bytes / (p["low_latency_kb"] * KB * (ALL_TO_ALL_LL if spread else 1))
    simple = work.message_bytes / (p["simple_mb"] * MB * (ALL_TO_ALL_SIMPLE if spread else 1))
    latency_us = p["launch_us"] + p["step_us"] * steps(work, k)
    latency_us = latency_us + p["low_latency_us"] * (ALL_TO_ALL_BUMP if spread else 1) * switched(low, 2)
    latency_us = latency_us + p["simple_us"] * switched(simple, 2)
    crossing = 1
    if work.name != "send":
        local = k.least(p["local_share"] * LOCAL_WEIGHT.get(work.name, 1.0), MOST_LOCAL)
        crossing = (2 if work.name == "all_reduce" else 1) * (1 - local / work.world)
    return latency_us * US + crossing * work.message_bytes / (p["link_share"] * device.link_bytes_per_s)


def pcie_s(work: Collective, device: Device, p: Params, working_set: Any = None) -> Any:
    """NCCL or oneCCL over PCIe, where ranks past two share the host's lanes, and past four a socket."""
    k = kit(work.message_bytes, work.world, *p.values())
    slower = k.where(work.world > 2, p["beyond_2"], 1.0) * k.where(work.world > 4, p["beyond_4"], 1.0)
    crossing = (work.wire_bytes / work.message_bytes) * slower
    ramp = work.message_bytes / RAMP_BYTES
    moved = work.message_bytes + p["ramp"] * RAMP_BYTES * ramp / (1 + ramp)
    wire_s = crossing * moved / (p["link_share"] * device.link_bytes_per_s)
    simple = work.message_bytes / (p["simple_mb"] * MB)
    extra_us = p["step_us"] * steps(work, k) + p["simple_us"] * crossing * switched(simple, 2)
    if not work.eager:
        return (p["launch_us"] + extra_us) * US + wire_s
    return host_bound(p["launch_us"] * US, (EAGER_DEVICE_US + extra_us) * US + wire_s)


def custom_s(work: Collective, device: Device, p: Params, working_set: Any = None) -> Any:
    """An engine's own all-reduce: every rank reads all others (one shot) or its share of them (two)."""
    k = kit(work.message_bytes, work.world, *p.values())
    link, size = device.link_bytes_per_s, work.message_bytes
    one = (work.world - 1) * size / (p["one_shot_share"] * link)
    shared = SWITCHED_SHARE.get(device.generation, 1.0)
    crossing = 2 * (1 - TWO_SHOT_LOCAL / work.world) * k.where(work.world >= SHARP_RANKS, shared, 1.0)
    two = p["two_shot_us"] * US * k.log2(work.world) + crossing * size / (p["two_shot_share"] * link)
    # The quicker of the two, with a rounded corner: a norm of negative power, scaled against overflow.
    quick = k.least(one, two)
    quick = quick * (1 + (quick / k.most(one, two)) ** SHOT_NORM) ** (-1 / SHOT_NORM)
    taken = switched(size / (p["fallback_mb"] * MB), 6)
    body = p["step_us"] * US * (work.world - 1) + quick + p["fallback_us"] * US * taken
    if not work.eager:
        return p["launch_us"] * US + body
    copy_s = taken * 2 * size / (COPY_SHARE * device.bandwidth)
    return host_bound(p["launch_us"] * US, EAGER_DEVICE_US * US + body) + copy_s


def host_bound(host_s: Any, device_s: Any) -> Any:
    """Without a CUDA graph the host's launch hides whatever is shorter than it."""
    return power_norm(host_s, device_s, HOST_NORM)
