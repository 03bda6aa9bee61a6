"""How matrices with zeros are stored: a bitmap, compressed rows, or two of every four."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from .. import InputError
from .dimensions import rounded_up

STORAGES = ("2:4", "bitmap", "csr16", "csr32")
_SUFFIX = re.compile(r"(?P<base>.+)-(?:(?P<two>2:4)|(?P<kind>bitmap|csr16|csr32)-(?P<share>0(?:\.\d{1,9})?))")


class Sparse(NamedTuple):
    """`kept` is the share of the values that are stored, each with `index_bits` of where it stood.

    `mask_bits` are paid for every position, `row_bits` for every row (and once more at the end), and
    columns pad to whole groups of `group`.
    bitmap: 1 + b(1-s) bits a weight. csr: (b + 16 or 32)(1-s), and a 32-bit pointer a row. 2:4: two of
    every four values, each with a 2-bit index: 2(b + 2)/4. Source: seed ledger, prune.unstructured and
    prune.24; NVIDIA's 2:4, arXiv 2104.08378, section 3.
    """

    kind: str
    kept: float
    index_bits: int = 0
    mask_bits: int = 0
    row_bits: int = 0
    group: int = 1

    def bits(self, value_bits: float) -> float:
        """Bits per weight of values of `value_bits`, without what is paid a row."""
        return self.kept * (value_bits + self.index_bits) + self.mask_bits

    def matrix_bytes(self, rows: int, cols: int, value_bits: float) -> int:
        """Bytes of a [rows, cols] matrix. Raises InputError where its columns outgrow the indexes."""
        if self.kind == "csr16" and cols > 1 << 16:
            raise InputError(f"csr16 indexes reach 65,536 columns, not {cols:,}; csr32 does")
        values = rows * rounded_up(cols, self.group)
        kept = round(values * self.kept)
        bits = kept * (value_bits + self.index_bits) + values * self.mask_bits
        bits += (rows + 1) * self.row_bits if self.row_bits else 0
        return int(-(-bits // 8))

    def dense_from(self, value_bits: float) -> float | None:
        """The sparsity from which it takes less than the dense matrix; None where that is fixed."""
        if self.kind == "2:4":
            return None
        return 1 - (value_bits - self.mask_bits) / (value_bits + self.index_bits)


def storage(kind: str, sparsity: float) -> Sparse:
    """The storage called `kind` of a matrix of which a share `sparsity` is zero (2:4: always a half).

    Raises InputError for another name or a share that is not between 0 and 1.
    """
    if not 0 <= sparsity < 1:
        raise InputError(f"sparsity is the share that is zero, from 0 to below 1, not {sparsity:g}")
    kept = 1 - sparsity
    match kind:
        case "2:4":
            return Sparse(kind, 0.5, index_bits=2, group=4)
        case "bitmap":
            return Sparse(kind, kept, mask_bits=1)
        case "csr16":
            return Sparse(kind, kept, index_bits=16, row_bits=32)
        case "csr32":
            return Sparse(kind, kept, index_bits=32, row_bits=32)
    raise InputError(f"storage is one of {', '.join(STORAGES)}, not '{kind[:40]}'")


def parse_sparse(name: str) -> tuple[str, Sparse] | None:
    """The base and the storage of `bf16-2:4` or `bf16-bitmap-0.6`; None for a name of another kind."""
    match = _SUFFIX.fullmatch(name)
    if match is None:
        return None
    if match["two"]:
        return match["base"], storage("2:4", 0.5)
    return match["base"], storage(match["kind"], float(match["share"]))


@cache
def pattern(name: str) -> str:
    """How a format of this name stores its zeros; "" for a dense one."""
    found = parse_sparse(name) if "-" in name else None
    return found[1].kind if found else ""
