"""The accelerators infercost knows by name, a sheet into a `Gpu`, and the lint of sheets."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .. import InputError
from ..sheets import AT_HAND, Section, nearest, read_file, read_yaml
from .spec import DTYPES, GENERATIONS, MIB, Compute, Gpu, Memory, Price

SHEETS = Path(__file__).parent / "sheets"
PEAK_TOLERANCE = 0.02


@cache
def gpu_names() -> tuple[str, ...]:
    """Names of the built-in sheets, sorted; no sheet is read."""
    return tuple(sorted(path.stem for path in SHEETS.glob("*.yaml")))


@cache
def gpu_aliases() -> dict[str, str]:
    """Every alias to its sheet's name."""
    return {
        alias.strip().strip('"'): name
        for name, listed in _stated("aliases: [", "]").items()
        for alias in listed.split(",")
    }


@cache
def torch_names() -> dict[str, str]:
    """What torch calls a card, as a pattern, to the name of its sheet."""
    return {pattern: name for name, pattern in _stated('torch_name: "', '"').items()}


def _stated(start: str, end: str) -> dict[str, str]:
    """What the sheets say on a line that begins and ends so, by name: they are scanned, none is parsed."""
    out, mark = {}, f"\n{start}".encode()
    for name in gpu_names():
        with open(f"{SHEETS}/{name}.yaml", "rb", buffering=0) as file:
            _, found, rest = file.read().partition(mark)
        if found:
            out[name] = rest.partition(b"\n")[0].decode().removesuffix(end)
    return out


@cache
def load_builtin(name: str) -> Gpu:
    """A built-in accelerator by its exact name."""
    text = (SHEETS / f"{name}.yaml").read_text(encoding="utf-8")
    return gpu_from_text(text, f"{name}.yaml", trusted=True)


def is_known(name: str) -> bool:
    """Whether `name` is a built-in sheet or an alias of one."""
    return name in gpu_names() or name in gpu_aliases()


def load_gpu(given: str) -> Gpu:
    """An accelerator by name, alias or path of a sheet.

    Raises InputError for an unknown name (with the nearest) and SheetError for a bad sheet.
    """
    held = AT_HAND.get().get(given)
    if isinstance(held, Gpu):
        return held
    name = given.strip().lower().replace(" ", "-")
    if is_known(name):
        return load_builtin(name if name in gpu_names() else gpu_aliases()[name])
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
    hint = nearest(name, [*gpu_names(), *gpu_aliases()]) or "; `infercost gpus` lists them"
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
    aliases = gpu_aliases()
    by_words = {_words(name): name for name in (*aliases, *gpu_names())}
    found = by_words.get(wanted)
    if found is not None:
        return load_builtin(aliases.get(found, found))
    sizes = [word for word in wanted if re.fullmatch(r"\d+g", word)]
    found = by_words.get(tuple(word for word in wanted if word not in sizes)) if len(sizes) == 1 else None
    if found is None:
        return None
    gpu, held = load_builtin(aliases.get(found, found)), int(sizes[0][:-1]) * 1e9
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
    family = next((word for word in gpu.architecture.lower().split() if word in GENERATIONS), "")
    if family and not gpu.generation:
        problems.append(f"architecture says {family}, generation nothing: every time would be assumed")
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
