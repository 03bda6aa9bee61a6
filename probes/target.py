"""The device that is probed: torch's name for it, the sheet that is of it, and what software is there."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
import sys
from typing import Any, NamedTuple

from .. import DeviceError, InputError, __version__
from ..hardware.catalogue import load_builtin, load_gpu, torch_names
from ..hardware.spec import MIB, Gpu

INSTALL = 'probing needs torch; install it with: pip install "infercost[probe]"'
START = "torchrun --standalone --nproc-per-node 2 -m infercost.probes.distributed"
"""How probes of collectives are started: each rank is a process of its own."""
CPU_SHEET = "cpu-generic-2ch"


class Target(NamedTuple):
    """`spec` as torch takes it (cpu, cuda:0); `gpu` its sheet; `l2_bytes` what one core or card caches."""

    spec: str
    kind: str
    ordinal: int
    name: str
    gpu: Gpu
    l2_bytes: float
    memory_bytes: int

    def as_json(self) -> dict[str, Any]:
        return {**self._asdict(), "gpu": self.gpu.name}


def torch_module() -> Any:
    """torch, or the line that says how to install it (exit 3)."""
    for name in ("torch", "numpy"):
        if importlib.util.find_spec(name) is None:
            raise DeviceError(INSTALL)
    try:
        import torch
    except (ImportError, OSError) as error:
        said = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise DeviceError(f"torch is there and does not load ({said}); {INSTALL}") from None
    return torch


def targets(asked: str | None, sheet: str | None) -> list[Target]:
    """The devices of `--device`: cpu, cuda, cuda:1 or all; without it the first CUDA device, else the CPU.

    Raises DeviceError (exit 3) for a device that is not here.
    """
    torch = torch_module()
    there = int(torch.cuda.device_count()) if torch.cuda.is_available() else 0
    if asked is None:
        asked = "cuda" if there else "cpu"
    if asked == "all":
        return [cuda_target(torch, i, sheet) for i in range(there)] or [cpu_target(torch, sheet)]
    if asked == "cpu":
        return [cpu_target(torch, sheet)]
    found = re.fullmatch(r"cuda(?::(\d{1,3}))?", asked)
    if found is None:
        raise InputError(f"--device is cpu, cuda, cuda:N or all, not '{asked[:40]}'")
    index = int(found[1] or 0)
    if index >= there:
        raise DeviceError(f"{asked} is not here: torch sees {there} CUDA devices; --device cpu is there")
    return [cuda_target(torch, index, sheet)]


def cpu_target(torch: Any, sheet: str | None) -> Target:
    """The CPU with one thread: what its clock then counts is this process's work alone."""
    torch.set_num_threads(1)
    gpu = load_gpu(sheet or CPU_SHEET)
    return Target("cpu", "cpu", 0, cpu_name(), gpu, (gpu.memory.l2_mib or 32) * MIB, _available_bytes())


def cuda_target(torch: Any, index: int, sheet: str | None) -> Target:
    """One CUDA device and the sheet that is of it."""
    properties = torch.cuda.get_device_properties(index)
    gpu = load_gpu(sheet) if sheet else sheet_of(str(properties.name))
    free, _ = torch.cuda.mem_get_info(index)
    l2 = float(getattr(properties, "L2_cache_size", 0) or (gpu.memory.l2_mib or 40) * MIB)
    return Target(f"cuda:{index}", "cuda", index, str(properties.name), gpu, l2, int(free))


def sheet_of(name: str) -> Gpu:
    """The sheet of a card by the name that CUDA gives it: the one that says the most of that name."""
    found = [
        (len(match[0]), sheet)
        for pattern, sheet in torch_names().items()
        if (match := re.search(rf"\b(?:{pattern})\b", name))
    ]
    if not found:
        raise InputError(f"no sheet is of '{name}'; say which is nearest with --gpu, or give a sheet.yaml")
    return load_builtin(max(found)[1])


def cpu_name() -> str:
    """What the processor calls itself."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _available_bytes() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) << 10
    except (OSError, ValueError):
        pass
    return 4 << 30


def software(target: Target) -> dict[str, str]:
    """Versions that decide which kernels run."""
    torch = torch_module()
    out = {
        "infercost": __version__,
        "torch": str(torch.__version__),
        "python": ".".join(map(str, sys.version_info[:3])),
        "numpy": importlib.metadata.version("numpy"),
    }
    if target.kind == "cuda":
        out |= {
            "cuda": str(torch.version.cuda),
            "cudnn": str(torch.backends.cudnn.version()),
            "capability": ".".join(map(str, torch.cuda.get_device_capability(target.ordinal))),
        }
    return out


def uuid_of(target: Target) -> str:
    """What NVML calls the card; "" where torch does not say."""
    uuid = getattr(torch_module().cuda.get_device_properties(target.ordinal), "uuid", None)
    return f"GPU-{uuid}" if uuid else ""


def nvml_module(target: Target) -> Any:
    """`pynvml` where the device is CUDA's and the module is there."""
    if target.kind != "cuda" or importlib.util.find_spec("pynvml") is None:
        return None
    import pynvml

    return pynvml
