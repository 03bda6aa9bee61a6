"""Unstructured pruning as it is asked for and shown: shares of zeros, and how they are stored."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import InputError
from ..models.sparsity import STORAGES, Sparse, storage
from .inputs import choice, document, grid
from .output.report import Report, Table
from .sizes import words
from .text import number, percent, plural

MAX_SHARES = 200
DENSE = "dense"
KINDS = (DENSE, *STORAGES)
DENSE_BITS = 16
CONVENTIONS = {
    "storages": "bits per weight of the pruned matrices, without 4 bytes a row of csr: bitmap 1 + b(1-s), "
    "csr16 (b+16)(1-s), 2:4 two values of four with 2-bit indexes. Pruned are the layers' matrices; tables, "
    "head, routers and norms stay whole",
    "runs_as": "dense: zeros are multiplied, nothing is gained but the file; sparse: a kernel reads what is "
    "stored (assumed of bitmap and csr, which compute as dense: Flash-LLM, arXiv 2309.10285); 2:4 does half "
    "the products where the GPU's sheet has a sparsity factor",
    "decode_speedup_at_most": "dense bits over stored bits: of the pruned matrices while memory-bound",
}


class Zeros(NamedTuple):
    """Unstructured pruning asked for: a share of zeros, and how they are stored."""

    sparsity: float
    kind: str

    @property
    def sparse(self) -> Sparse | None:
        return None if self.kind == DENSE else storage(self.kind, self.sparsity)

    def recipe_name(self, base: str) -> str:
        """`bf16-bitmap-0.6`, `bf16-2:4`."""
        share = "" if self.kind == "2:4" else f"-{self.sparsity:.9f}".rstrip("0").rstrip(".")
        return f"{base}-{self.kind}{share}"


def zeros_of(sparsity: str | None, stored: str | None) -> list[Zeros]:
    """Every share of zeros with every storage of it; 2:4 is its own share."""
    kinds = [DENSE] if stored is None else [_kind(word) for word in words(stored, "--storage")]
    if sparsity is None:
        if stored is None:
            return []
        if kinds != ["2:4"]:
            raise InputError(f"--storage {stored[:40]} needs --sparsity: the share that is zero, such as 0.6")
        return [Zeros(0.5, "2:4")]
    shares = [_share(word) for word in words(sparsity, "--sparsity")]
    if "2:4" in kinds and shares != [0.5]:
        raise InputError("2:4 is a sparsity of a half: leave --sparsity out, or give 0.5")
    return [Zeros(share, kind) for share, kind in grid(shares, kinds, most=MAX_SHARES)]


def _kind(word: str) -> str:
    return choice({"csr": "csr16"}.get(word.lower(), word.lower()), KINDS, "--storage")


def _share(word: str) -> float:
    try:
        value = float(word.removesuffix("%")) / (100 if word.endswith("%") else 1)
    except ValueError:
        value = -1.0
    # A NaN fails the comparison, too; nine digits are what the name of a format holds.
    if not 1e-9 <= value <= 1 - 1e-9:
        raise InputError(
            f"--sparsity '{word[:40]}' is no share; give one between 0 and 1, such as 0.6 or 60%"
        )
    return round(value, 9)


def storages(sparsity: float, dense_bits: float) -> list[dict[str, Any]]:
    """Each way to store so many zeros; 2:4 where they are a half."""
    kinds = [kind for kind in STORAGES if kind != "2:4" or sparsity == 0.5]
    rows: list[tuple[str, float, float | None]] = [(DENSE, dense_bits, None)]
    for kind in kinds:
        one = storage(kind, sparsity)
        rows.append((kind, one.bits(dense_bits), one.dense_from(dense_bits)))
    return [
        {
            "storage": kind,
            "bits_per_weight": bits,
            "of_dense": bits / dense_bits,
            "pays_from_sparsity": pays,
            "decode_speedup_at_most": dense_bits / bits,
        }
        for kind, bits, pays in rows
    ]


def stored_as(kind: str) -> str:
    return {DENSE: "dense", "bitmap": "as a bitmap"}.get(kind, f"as {kind}")


def storage_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(("stored", "bits/weight", "of dense", "pays from", "decode gains at most"), "<>>>>")
    for row in rows:
        pays = row["pays_from_sparsity"]
        table.rows.append(
            (
                row["storage"],
                number(row["bits_per_weight"]),
                percent(row["of_dense"]),
                "-" if pays is None else percent(pays),
                f"{row['decode_speedup_at_most']:.2f}x",
            )
        )
    return table


def bare(zeros: list[Zeros]) -> Report:
    """Storages alone, of 16-bit weights and no model."""
    points = []
    for each in zeros:
        rows = storages(each.sparsity, DENSE_BITS)
        mine = next(row for row in rows if row["storage"] == each.kind)
        points.append({"inputs": {"sparsity": each.sparsity, "storage": each.kind}, **mine, "storages": rows})
    listed = len(points) > 1
    first, rows = points[0], points[0]["storages"]
    best = first if first["storage"] != DENSE else min(rows, key=lambda row: row["bits_per_weight"])
    if listed:
        rows = [
            {**row, "storage": f"{p['inputs']['sparsity']:.4g} {row['storage']}"}
            for p in points
            for row in _once(p)
        ]
        answer = f"{plural(len(points), 'point')}: bits per weight of 16-bit matrices, by storage"
    else:
        share = first["inputs"]["sparsity"]
        bits = f"{number(best['bits_per_weight'])} bits per weight {stored_as(best['storage'])}"
        answer = f"{percent(share)} zeros: {bits}, of 16 dense ({percent(best['of_dense'])})"
    notes = [
        "without a kernel that reads them so, zeros are multiplied like any value: only the file is smaller"
    ]
    made = document("compress", {"command": "compress"}, CONVENTIONS, {}, points, listed)
    records = [
        {**p["inputs"], **{k: v for k, v in p.items() if k not in ("inputs", "storages")}} for p in points
    ]
    quiet = [repr(p["bits_per_weight"]) for p in points]
    return Report(made, [answer], [storage_table(rows)], notes, records=records, quiet=quiet)


def _once(point: dict[str, Any]) -> list[dict[str, Any]]:
    """All storages of a sparsity where none was named, else the one that was."""
    if point["storage"] == DENSE:
        return list(point["storages"])
    return [row for row in point["storages"] if row["storage"] == point["storage"]]
