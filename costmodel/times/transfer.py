"""Which constants a kernel is timed with: its own GPU's group, or the nearest sibling's.

Every group of every calibration has a distance to what is wanted: how unlike the GPUs are (by
generation, kind of memory and datasheet ratios) plus how unlike the kernels are (types, stack,
kernel). The nearest wins. Constants are shares of datasheet rates, so they scale by themselves; the
one exception is memory bandwidth, which few SMs cannot fill (`scaled`). What is not the GPU's own
group says so, with a wider error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import log2
from typing import Any, NamedTuple

from ...hardware.calibration import Calibration, Group, Key
from ...hardware.spec import Gpu
from .device import Device, device
from .family import Family
from .share import SHARE

GENERATIONS = {"ampere": 0.0, "ada": 1.25, "hopper": 1.5, "blackwell-rtx": 2.5, "blackwell": 2.75}
"""Where generations stand on one line; parts with HBM are nearer to each other than to the rest.

All distances here are judgements of likeness and not measured; what they lead to is: the error that each
states, against the one found with a GPU's or a group's own constants left out (docs/times.md).
"""
UNKNOWN_GENERATION = 2.0
RATIO_WEIGHT = 0.2
MEMORY_KIND = 1.5
OTHER_STACK, OTHER_VERSION, OTHER_KERNEL, OTHER_KV, NOT_DEFAULT = 0.6, 0.1, 0.5, 0.4, 1.2
OTHER_DTYPE = {
    frozenset(("fp16", "bf16")): 0.05,
    frozenset(("half", "bfloat16")): 0.05,
    frozenset(("fp32", "bf16")): 2.5,
    frozenset(("fp32", "fp16")): 2.5,
    frozenset(("tf32", "bf16")): 2.0,
    frozenset(("fp8", "fp8_block")): 1.0,
    frozenset(("int8", "fp8")): 2.0,
    frozenset(("sq", "fp8")): 1.5,
    frozenset(("nvfp4", "fp8")): 2.0,
    frozenset(("int4_wo", "int8_wo")): 1.0,
    frozenset(("int8_wo", "bf16")): 2.0,
    frozenset(("w4a16_mxfp4", "int4_wo")): 0.3,
    frozenset(("w4a8_mxfp4_mxfp8", "fp8_block")): 1.0,
    frozenset(("w4a8_mxfp4_mxfp8", "fp8")): 1.2,
    frozenset(("w4a8_mxfp4_mxfp8", "nvfp4")): 1.2,
    frozenset(("w4a16_mxfp4", "bf16")): 2.0,
    frozenset(("int4_wo", "bf16")): 2.5,
}
FAR = 6.0
LEAST_ERROR, ERROR_PER_DISTANCE = 0.04, 0.12
"""What a borrowed group's error is stated as at least: it grows with the distance it was borrowed over, as
the medians of `--leave-gpu-out` do; `abroad`, where it was measured, and its own error if larger."""
LIKE_ERROR = 0.15
ASSUMED_ERROR = 0.5
LINK_FAMILIES = ("collective", "collective_pcie", "custom_all_reduce", "custom_pcie")
LIKE_VENDORS = ("AMD",)
"""Whose parts are taken to be like those that were measured, though of none of their generations."""
SM_SLACK = 1.2
"""How many times the bytes in flight that its sibling's SMs have, a part's SMs may be asked for in full."""
USUAL_SHARE = 0.82
"""Share of the bandwidth that is not exceeded by having more SMs for it."""


class Confidence(NamedTuple):
    """`kind`: calibrated, transferred or assumed; `error` the median relative error to expect."""

    kind: str
    error: float
    group: str = ""
    gpu: str = ""

    def __str__(self) -> str:
        if self.kind == "calibrated":
            return f"calibrated (median {self.error:.0%})"
        if self.kind == "transferred":
            return f"transferred (~{self.error:.0%}, from {self.gpu})"
        return f"assumed (~{self.error:.0%})"

    def as_json(self) -> dict[str, str | float]:
        return {**self._asdict(), "text": str(self)}

    def loosened(self) -> Confidence:
        """The same constants for something that was not measured but is like it."""
        kind = "transferred" if self.kind == "calibrated" else self.kind
        return self._replace(kind=kind, error=max(1.5 * self.error, LIKE_ERROR))


class Choice(NamedTuple):
    """Complete parameters of a family for one group, and how far to trust them."""

    params: Mapping[str, Any]
    confidence: Confidence


class Calibrated(NamedTuple):
    """A GPU that has a calibration, and the calibration."""

    gpu: Gpu
    calibration: Calibration


def choose(family: Family, wanted: Key, gpu: Gpu, library: Iterable[Calibrated]) -> Choice:
    """Constants for `wanted` on `gpu`; empty fields of `wanted` mean the default of the calibration.

    With nothing in `library` that resembles it, the family's assumed constants.
    """
    ranked = [
        (gpu_distance(gpu, one.gpu) + key_distance(wanted, group.key, first), one, group)
        for one in library
        for group, first in defaults(one.calibration.groups(family.name))
    ]
    best = min(ranked, key=lambda each: each[0], default=None)
    if best is None or best[0] >= FAR:
        return assumed(family, wanted, gpu)
    _, source, group = best
    family = SHARE if group.form == "share" else family
    known: dict[str, Any] = {"key": group.key, "form": group.form}
    params: dict[str, Any] = {**family.complete(dict(group.params)), **known}
    if source.gpu == gpu and fits(wanted, group):
        return Choice(params, Confidence("calibrated", group.error.median, str(group.key), gpu.name))
    error = max(group.error.median, LEAST_ERROR + ERROR_PER_DISTANCE * best[0])
    if source.gpu != gpu:
        params = {**family.lent(dict(group.params)), **known}
        if family.name == "gemm" and gpu.generation:
            params = scaled(params, device(source.gpu), device(gpu))
        error = max(error, group.abroad.median if group.abroad else 0.0)
        if not gpu.generation and gpu.vendor not in LIKE_VENDORS:
            return Choice(
                params, Confidence("assumed", max(error, ASSUMED_ERROR), str(group.key), source.gpu.name)
            )
    return Choice(params, Confidence("transferred", error, str(group.key), source.gpu.name))


def defaults(groups: Iterable[Group]) -> list[tuple[Group, bool]]:
    """Each group of a family, and whether it is a default; all are where none is stated."""
    every = list(groups)
    stated = any(group.default for group in every)
    return [(group, group.default or not stated) for group in every]


def special(key: Key) -> bool:
    """Kernels of vision encoders and of ungated experts: like no others of their type."""
    return "encoder:" in key.kernel or "nongated" in key.kernel


def assumed(family: Family, wanted: Key, gpu: Gpu) -> Choice:
    """Constants where nothing like it was measured: the family's, or two shares for a CPU's kernels."""
    known: dict[str, Any] = {"key": wanted}
    shares = gpu.is_cpu and family.name not in LINK_FAMILIES
    known |= {**SHARE.complete({}), "form": "share"} if shares else family.complete({})
    return Choice(known, Confidence("assumed", ASSUMED_ERROR))


def fits(wanted: Key, group: Group) -> bool:
    """Whether a group is what was asked for: every field that was named agrees, of a stack named without a
    version (`vllm`) any version."""
    whose = group.key.stack if "-" in wanted.stack else stack_name(group.key.stack)
    pairs = zip(wanted, group.key._replace(stack=whose), strict=True)
    return all(not want or want == have or same_type(want, have) for want, have in pairs)


def stack_name(stack: str) -> str:
    """`vllm` of `vllm-0.24.0`."""
    return stack.split("-")[0]


def same_type(a: object, b: object) -> bool:
    return OTHER_DTYPE.get(frozenset((str(a), str(b))), FAR) < 0.1


def gpu_distance(a: Gpu, b: Gpu) -> float:
    """0 for the same GPU; grows with generations apart, another kind of memory, and datasheet ratios."""
    if a.name == b.name:
        return 0.0
    if a.is_cpu != b.is_cpu:
        return FAR
    one, other = device(a), device(b)
    apart = UNKNOWN_GENERATION
    if one.generation and other.generation:
        apart = abs(GENERATIONS[one.generation] - GENERATIONS[other.generation])
    kinds = {gpu.memory.type.startswith("HBM") for gpu in (a, b)}
    ratios = abs(log2(one.bandwidth / other.bandwidth)) + abs(log2(one.peak("bf16") / other.peak("bf16")))
    return apart + (MEMORY_KIND if len(kinds) > 1 else 0.0) + RATIO_WEIGHT * (ratios + 0.01)


def key_distance(wanted: Key, have: Key, default: bool = False) -> float:
    """0 for the same group of kernels; what is not named costs nothing, but the default goes first."""
    total = 0.0
    if wanted.dtype and wanted.dtype != have.dtype:
        total += OTHER_DTYPE.get(frozenset((wanted.dtype, have.dtype)), FAR)
    if wanted.op and wanted.op != have.op:
        total += FAR
    if wanted.world and wanted.world != have.world:
        total += 0.3 * abs(log2(wanted.world / have.world)) if have.world else 0.2
    if wanted.kv and wanted.kv != have.kv:
        total += OTHER_KV
    if special(wanted) != special(have):
        total += FAR / 2
    if not wanted.stack:
        total += OTHER_KERNEL if wanted.kernel and wanted.kernel != have.kernel else 0.0
        named = wanted.kernel and wanted.kernel == have.kernel
        return total + (0.0 if default or named else NOT_DEFAULT)
    if wanted.stack != have.stack:
        family = stack_name(wanted.stack) == stack_name(have.stack)
        total += OTHER_VERSION if family else OTHER_STACK + (0.0 if default else OTHER_VERSION)
    if wanted.kernel != have.kernel:
        total += OTHER_KERNEL + (0.0 if default else OTHER_VERSION)
    return total


def scaled(params: Mapping[str, Any], source: Device, target: Device) -> dict[str, Any]:
    """Constants of `source` for `target`: memory bandwidth is also bounded by how much an SM can ask for.

    Each SM keeps so many bytes in flight (Little's law), so a part with few SMs for its memory does
    not reach the share that its sibling does, and the other way round.
    """
    out = dict(params)
    share = out.get("memory_share")
    if share is not None:
        ratio = (source.bandwidth / source.cores) / (target.bandwidth / target.cores)
        if ratio > 1:
            share = max(share, min(share * ratio, USUAL_SHARE))
        out["memory_share"] = share * min(1.0, ratio * SM_SLACK)
    return out
