"""Collectives between processes, started by torchrun; rank 0 writes a line of JSON for each size.

    torchrun --standalone --nproc-per-node 2 -m infercost.probes.distributed

nccl where every rank has a CUDA device of its own, gloo else. A time is the slowest rank's.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from typing import Any

from ..costmodel.op import Collective
from .target import START, torch_module

SIZES = tuple(1 << power for power in (16, 20, 24))
REPEATS, WARM = 7, 2
WATCHDOG = timedelta(seconds=300)


def bus_bandwidth(work: Collective, time_s: float) -> float:
    """Bytes per second that each rank's link carries: wire bytes over time (nccl-tests, PERFORMANCE.md)."""
    return float(work.wire_bytes) / time_s


def main() -> int:
    if "RANK" not in os.environ:
        sys.stderr.write(f"infercost: start it with: {START}\n")
        return 2
    torch = torch_module()
    distributed = torch.distributed
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    cuda = torch.cuda.is_available() and torch.cuda.device_count() >= ranks_here
    distributed.init_process_group("nccl" if cuda else "gloo", timeout=WATCHDOG)
    rank, world = distributed.get_rank(), distributed.get_world_size()
    spec = f"cuda:{os.environ.get('LOCAL_RANK', rank)}" if cuda else "cpu"
    if cuda:
        torch.cuda.set_device(spec)
    try:
        for name in ("all_reduce", "all_gather"):
            for size in SIZES:
                times = [_once(torch, name, size, world, spec) for _ in range(WARM + REPEATS)][WARM:]
                slowest = sorted(_slowest(torch, each, spec) for each in times)
                if rank == 0:
                    work = Collective(name, 4 * values_of(size, world), world, eager=True)
                    typical = slowest[len(slowest) // 2]
                    line = {
                        "op": name,
                        "bytes": work.message_bytes,
                        "world": world,
                        "backend": distributed.get_backend(),
                        "measured_s": typical,
                        "bus_bytes_per_s": bus_bandwidth(work, typical),
                        "right": _right(torch, name, world, spec),
                    }
                    sys.stdout.write(json.dumps(line) + "\n")
                    sys.stdout.flush()
                else:
                    _right(torch, name, world, spec)
    finally:
        distributed.destroy_process_group()
    return 0


def values_of(size: int, world: int) -> int:
    """Values of 4 bytes in a buffer of about `size` bytes that every rank has an equal part of."""
    return size // 4 // world * world


def _once(torch: Any, name: str, size: int, world: int, spec: str) -> float:
    """Seconds of one collective on this rank; `size` bytes is the whole buffer, as nccl-tests counts."""
    values = values_of(size, world)
    whole = torch.randn(values, device=spec)
    part = torch.randn(values // world, device=spec)
    torch.distributed.barrier()
    _settle(torch, spec)
    begin = time.perf_counter()
    if name == "all_reduce":
        torch.distributed.all_reduce(whole)
    else:
        torch.distributed.all_gather_into_tensor(whole, part)
    _settle(torch, spec)
    return time.perf_counter() - begin


def _settle(torch: Any, spec: str) -> None:
    if spec != "cpu":
        torch.cuda.synchronize()


def _slowest(torch: Any, seconds: float, spec: str) -> float:
    value = torch.tensor(seconds, dtype=torch.float64, device=spec)
    torch.distributed.all_reduce(value, op=torch.distributed.ReduceOp.MAX)
    return float(value)


def _right(torch: Any, name: str, world: int, spec: str) -> bool:
    """Whether the collective computes what it says, on a small buffer."""
    rank = torch.distributed.get_rank()
    if name == "all_reduce":
        value = torch.full((4,), float(rank + 1), device=spec)
        torch.distributed.all_reduce(value)
        return bool((value == world * (world + 1) / 2).all())
    out = torch.empty(world, device=spec)
    torch.distributed.all_gather_into_tensor(out, torch.full((1,), float(rank), device=spec))
    return bool((out == torch.arange(world, device=spec)).all())


if __name__ == "__main__":
    sys.exit(main())
