"""The accelerators infercost knows by name, a sheet into a `Gpu`, and the lint of sheets."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .. import InputError
from ..sheets import AT_HAND, Section, nearest, read_file, read_yaml
from .spec import DTYPES, MIB, Compute, Gpu, Memory, Price

SHEETS = Path(__file__).parent / "sheets"
PEAK_TOLERANCE = 0.02

# The aliases people type; they stand here and not in the sheets so that a name costs one file read.
ALIASES = {
    "v100": "v100-sxm2-32g",
    "v100-16g": "v100-sxm2-16g",
    "v100-32g": "v100-sxm2-32g",
    "a100": "a100-80g-sxm",
    "a100-80g": "a100-80g-sxm",
    "a100-sxm": "a100-80g-sxm",
    "a100-40g": "a100-40g-sxm",
    "a100-pcie": "a100-80g-pcie",
    "a800": "a800-80g-sxm",
    "a6000": "rtx-a6000",
    "h100": "h100-sxm",
    "h200": "h200-sxm",
    "h800": "h800-sxm",
    "gh200": "gh200-96g",
    "gh200-480g": "gh200-96g",
    "rtx-pro-6000": "rtx-pro-6000-bw",
    "rtx-3060": "rtx3060-12g",
    "rtx3060": "rtx3060-12g",
    "rtx-3070": "rtx3070",
    "rtx-3080": "rtx3080",
    "rtx-3080-ti": "rtx3080ti",
    "rtx-3090": "rtx3090",
    "3090": "rtx3090",
    "rtx-4060-ti": "rtx4060ti-16g",
    "rtx-4080": "rtx4080",
    "4080": "rtx4080",
    "rtx-4090": "rtx4090",
    "4090": "rtx4090",
    "rtx-5090": "rtx5090",
    "5090": "rtx5090",
    "6000-ada": "rtx6000-ada",
    "rtx4000ada": "rtx4000-ada",
    "rtxa6000": "rtx-a6000",
    "b60": "arc-pro-b60",
    "orin": "jetson-agx-orin-64g",
    "agx-orin": "jetson-agx-orin-64g",
    "gb10": "gb10-dgx-spark",
    "dgx-spark": "gb10-dgx-spark",
    "tpu-v7x": "tpu-v7",
    "trillium": "tpu-v6e",
    "ironwood": "tpu-v7",
    "groq": "groq-lpu-v1",
    "m1": "apple-m1",
    "m2": "apple-m2",
    "m3": "apple-m3",
    "m4": "apple-m4",
    "m4-max": "apple-m4-max",
    "cpu": "cpu-generic-2ch",
}


@cache
def gpu_names() -> tuple[str, ...]:
    """Names of the built-in sheets, sorted; no sheet is read."""
    return tuple(sorted(path.stem for path in SHEETS.glob("*.yaml")))


@cache
def load_builtin(name: str) -> Gpu:
    """A built-in accelerator by its exact name."""
    text = (SHEETS / f"{name}.yaml").read_text(encoding="utf-8")
    return gpu_from_text(text, f"{name}.yaml", trusted=True)


def is_known(name: str) -> bool:
    """Whether `name` is a built-in sheet or an alias of one."""
    return ALIASES.get(name, name) in gpu_names()


def load_gpu(given: str) -> Gpu:
    """An accelerator by name, alias or path of a sheet.

    Raises InputError for an unknown name (with the nearest) and SheetError for a bad sheet.
    """
    held = AT_HAND.get().get(given)
    if isinstance(held, Gpu):
        return held
    name = given.strip().lower().replace(" ", "-")
    name = ALIASES.get(name, name)
    if name in gpu_names():
        return load_builtin(name)
    product = find_product(given)
    if product is not None:
        return product
    if given.endswith((".yaml", ".yml")) or "/" in given:
        return gpu_from_text(read_file(Path(given)), given)
    if name == "all":
        raise InputError("--gpu all, every GPU that is known, is of fit, request, serve and sweep")
    several = re.fullmatch(
        r"(?P<n>\d{1,4})\s*[x×*]\s*(?P<one>.+)|(?P<first>.+?)\s*[x×*]\s*(?P<m>\d{1,4})", given, re.I
    )
    if several:
        one, many = several["one"] or several["first"], several["n"] or several["m"]
        plain = one.strip().lower().replace(" ", "-")
        if is_known(plain) or find_product(one) is not None:
            raise InputError(f"'{given}' is {many} of one GPU; give --gpu {plain} --tp {many}")
    hint = nearest(name, [*gpu_names(), *ALIASES]) or "; `infercost gpus` lists them"
    raise InputError(f"unknown GPU '{given}'{hint}")


MAKERS = ("nvidia", "geforce", "tesla", "quadro", "amd", "instinct", "radeon", "intel", "generation", "gpu")
"""Words of a product's name that say who makes it and not which it is."""
NEAR_CAPACITY = 0.15


def find_product(given: str) -> Gpu | None:
    """The sheet of a product's name as a driver prints it (`NVIDIA A100-SXM4-80GB`), or None.

    A name and an alias are of the same words, whatever their order; a size that no name has is that of the
    sheet's memory.
    """
    wanted = _words(given)
    by_words = {_words(name): name for name in (*ALIASES, *gpu_names())}
    found = by_words.get(wanted)
    if found is not None:
        return load_builtin(ALIASES.get(found, found))
    sizes = [word for word in wanted if re.fullmatch(r"\d+g", word)]
    found = by_words.get(tuple(word for word in wanted if word not in sizes)) if len(sizes) == 1 else None
    if found is None:
        return None
    gpu, held = load_builtin(ALIASES.get(found, found)), int(sizes[0][:-1]) * 1e9
    nominal = gpu.memory.nominal_bytes or 0
    return gpu if abs(nominal / held - 1) < NEAR_CAPACITY else None


@cache
def _words(name: str) -> tuple[str, ...]:
    """The words of a name without makers, kinds of memory and versions of sockets: `rtx4090` is two words."""
    plain = re.sub(r"(\d)\s*gi?b\b", r"\1g", name.lower())
    plain = re.sub(r"\bhbm\d?e?\b|\(.*?\)", " ", plain)
    plain = re.sub(r"\bsxm\d?\b", "sxm", plain)
    parts = [part for part in re.split(r"[-_\s]+", plain) if part and part not in MAKERS]
    split = [
        word
        for part in parts
        for word in ([part] if re.fullmatch(r"\d+g", part) else re.findall(r"[a-z]+|\d+", part))
    ]
    return tuple(sorted(split))


def gpu_from_text(text: str, origin: str, trusted: bool = False) -> Gpu:
    """The accelerator a sheet describes. Raises SheetError naming file, line and what is allowed."""
    sheet = Section(read_yaml(text, origin, trusted), origin, text)
    memory, compute, price = sheet.section("memory"), sheet.section("compute"), sheet.section("price")
    if memory is None:
        raise sheet.error("'memory' is missing; it is required")
    gpu = sheet.build(
        Gpu,
        peaks=_peaks(sheet, "peak_tflops"),
        fp16_accumulate_peaks=_peaks(sheet, "fp16_accumulate_tflops"),
        memory=memory.build(Memory),
        compute=compute.build(Compute) if compute else Compute(),
        price=price.build(Price) if price else None,
    )
    if not gpu.source.strip():
        raise sheet.error("'source' is empty; a sheet says where its figures come from", "source")
    return gpu


def _peaks(sheet: Section, key: str) -> tuple[tuple[str, float], ...]:
    section = sheet.section(key)
    if section is None:
        return ()
    return tuple((dtype, section.take(dtype, "float") * 1e12) for dtype in section.data)


class Lint(NamedTuple):
    """What the lint says of one sheet: `problems` fail it, `exceptions` are explained, `absent` is
    what no source gave."""

    name: str
    problems: tuple[str, ...]
    exceptions: tuple[str, ...]
    absent: tuple[str, ...]


def lint(gpu: Gpu) -> Lint:
    """Hold a sheet to itself: the 16-bit peak follows from cores, clock and FLOP/clock within 2 %,
    capacities are in order, and what is missing is named."""
    problems: list[str] = []
    exceptions: list[str] = []
    derived = gpu.compute.flops_per_s
    stated = max(gpu.peak("fp16") or 0.0, gpu.peak("bf16") or 0.0)
    if derived is not None and stated:
        off = derived / stated - 1
        if abs(off) > PEAK_TOLERANCE:
            said = f"16-bit peak {stated / 1e12:g} TFLOP/s, derived {derived / 1e12:.1f} ({off:+.1%})"
            if gpu.derivation_exception:
                exceptions.append(f"{said}: {gpu.derivation_exception}")
            else:
                problems.append(said)
    memory = gpu.memory
    if memory.driver_mib and memory.nominal_bytes and memory.driver_mib * MIB > memory.nominal_bytes * 1.001:
        problems.append("the driver reports more memory than the label means")
    if memory.usable_bytes and memory.driver_mib and memory.usable_bytes > memory.driver_mib * MIB:
        problems.append("more memory is usable than the driver reports")
    fp16, fp32 = gpu.peak("fp16"), gpu.peak("fp32")
    if fp16 and fp32 and fp16 < fp32:
        problems.append("the fp16 matrix peak is below the fp32 vector peak")
    return Lint(gpu.name, tuple(problems), tuple(exceptions), tuple(absent(gpu)))


def absent(gpu: Gpu) -> list[str]:
    """Facts the sheet leaves out because no source gave them (or the part has no such unit)."""
    out = [
        f"compute.{n}"
        for n in ("cores", "clock_ghz", "flops_per_clock_per_core")
        if getattr(gpu.compute, n) is None
    ]
    out += [
        f"memory.{n}"
        for n in ("nominal_bytes", "driver_mib", "usable_bytes", "l2_mib")
        if getattr(gpu.memory, n) is None
    ]
    out += [n for n in ("link_gb_per_s", "power_w", "price") if getattr(gpu, n) is None]
    out += [f"peak_tflops.{dtype}" for dtype in DTYPES if gpu.peak(dtype) is None]
    return out
