"""A calibration: the fitted constants of a GPU's kernels, family by family, and how far to trust them.

The same schema holds what ships (`hardware/calibrations/`), what `infercost calibrate` fits and
what a probe measures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .. import InputError

SCHEMA = "infercost.calibration/1"
FAMILIES = (
    "gemm",
    "prefill",
    "decode",
    "decode_xqa",
    "mla_prefill",
    "mla_decode",
    "moe",
    "pointwise",
    "head_projection",
    "collective",
    "collective_pcie",
    "custom_all_reduce",
    "custom_pcie",
)


class Key(NamedTuple):
    """What tells one group of kernels from another: stack and version, kernel, op, types, ranks."""

    stack: str = ""
    kernel: str = ""
    op: str = ""
    dtype: str = ""
    kv: str = ""
    world: int = 0

    def __str__(self) -> str:
        parts = [self.stack, self.kernel, self.op, self.dtype]
        parts += [f"kv-{self.kv}"] if self.kv else []
        parts += [f"x{self.world}"] if self.world else []
        return " ".join(part for part in parts if part)


class Spread(NamedTuple):
    """Relative errors |predicted / measured - 1|: mean, median and 90th percentile."""

    mape: float
    median: float
    p90: float


@dataclass(frozen=True)
class Group:
    """Constants of one group: `form` names those fitted; `error` is of shapes kept out of the fit,
    `abroad` of siblings' rows predicted with these constants (None where no sibling has the group)."""

    key: Key
    form: str
    params: tuple[tuple[str, float], ...]
    rows: int
    error: Spread
    abroad: Spread | None = None
    default: bool = False


@dataclass(frozen=True)
class Calibration:
    """Every group of one GPU. `software`, `conditions` and `source` say where the rows came from."""

    device: str
    source: str
    date: str
    software: str = ""
    conditions: str = ""
    partial: bool = False
    ceilings: Mapping[str, float] = field(default_factory=dict)
    families: Mapping[str, tuple[Group, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.families:
            if name not in FAMILIES:
                raise InputError(f"'{name}' is not a family of kernels; allowed: {', '.join(FAMILIES)}")

    def groups(self, family: str) -> tuple[Group, ...]:
        return self.families.get(family, ())
