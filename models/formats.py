"""Number formats: how many bytes a matrix, or a row of a KV cache, takes with its scales."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from .. import InputError
from .dimensions import ceil_div as ceil_div
from .sparsity import Sparse, parse_sparse


class Scale(NamedTuple):
    """`bits` kept once per tile of `rows` x `cols` values; 0 spans the whole dimension.

    `flat`: tiles of `cols` values run over the flattened tensor (bitsandbytes).
    """

    bits: int
    cols: int
    rows: int = 1
    flat: bool = False


class Format(NamedTuple):
    """`block` values packed in `block_bytes`, plus `scales`.

    `math` is the type the matrix units compute in with weights of this format; "" means the
    activations' own type, the weights being converted on the way (weight-only formats).
    `published`: a type checkpoints are stored in whole, embeddings and norms included.
    `wide_share`: share of the columns kept in 16 bit instead (outliers of LLM.int8(), 2208.07339).
    `sparse`: how the values are stored where some are zero; scales stay as they are.
    `in_files`: a type of GGUF files' tensors, which no recipe stores a whole model's matrices in.
    """

    name: str
    block: int
    block_bytes: int
    scales: tuple[Scale, ...] = ()
    math: str = ""
    published: bool = False
    note: str = ""
    wide_share: float = 0.0
    sparse: Sparse | None = None
    in_files: bool = False

    def matrix_bytes(self, rows: int, cols: int) -> int:
        """Bytes of a [rows, cols] matrix with its scales; rows pad to whole blocks."""
        if self.sparse:
            stored = self.sparse.matrix_bytes(rows, cols, self.value_bits)
            return stored + sum(self._scale_bytes(scale, rows, cols) for scale in self.scales)
        wide = round(cols * self.wide_share)
        total = rows * (ceil_div(cols - wide, self.block) * self.block_bytes + wide * 2)
        return total + sum(self._scale_bytes(scale, rows, cols) for scale in self.scales)

    def row_bytes(self, width: int) -> int:
        """Bytes of one KV row of `width` values (one token, one head), its own scales included.

        A scale for the whole tensor is kept once per layer and counts for nothing here. Raises
        InputError for formats of whole matrices, and for rows that are not whole blocks.
        """
        if self.wide_share or self.sparse or any(scale.flat or scale.rows > 1 for scale in self.scales):
            raise InputError(f"{self.name} is a format of weight matrices, not of KV rows")
        # Blocks of up to 8 values are bits packed into bytes, to which a row pads; longer ones hold scales.
        if self.block > 8 and width % self.block:
            raise InputError(f"KV rows of {width} values are not whole blocks of {self.block} ({self.name})")
        bits = sum(
            scale.bits * (ceil_div(width, scale.cols) if scale.cols else 1)
            for scale in self.scales
            if scale.rows == 1
        )
        return ceil_div(width, self.block) * self.block_bytes + ceil_div(bits, 8)

    @property
    def value_bits(self) -> float:
        """Bits of one value, before scales."""
        return self.block_bytes * 8 / self.block

    def bits_per_weight(self, rows: int = 4096, cols: int = 4096) -> float:
        """Bits per value of a [rows, cols] matrix, scales and zero points included."""
        return self.matrix_bytes(rows, cols) * 8 / (rows * cols)

    def _scale_bytes(self, scale: Scale, rows: int, cols: int) -> int:
        if scale.flat:
            tiles = ceil_div(rows * cols, scale.cols)
        else:
            down = ceil_div(rows, scale.rows) if scale.rows else 1
            tiles = down * (ceil_div(cols, scale.cols) if scale.cols else 1)
        return ceil_div(tiles * scale.bits, 8)


PER_TENSOR = Scale(32, 0, 0)
PER_ROW = Scale(32, 0)

_FORMATS = (
    Format("fp32", 1, 4, math="fp32", published=True),
    Format("tf32", 1, 4, math="tf32", note="fp32 storage, tensor cores round to 10 bits"),
    Format("fp16", 1, 2, math="fp16", published=True),
    Format("bf16", 1, 2, math="bf16", published=True),
    Format("fp8", 1, 1, (PER_TENSOR,), "fp8", note="one fp32 scale per tensor"),
    Format("fp8-row", 1, 1, (PER_ROW,), "fp8", note="one fp32 scale per output row"),
    Format("fp8-block", 1, 1, (Scale(32, 128, 128),), "fp8", note="fp32 scale per 128 x 128 tile"),
    Format("int8", 1, 1, (), "int8", note="bare, no scales"),
    Format("int8-row", 1, 1, (PER_ROW,), "int8", note="one fp32 scale per row"),
    Format("int4", 2, 1, (), note="bare, no scales"),
    Format("int4-row", 2, 1, (Scale(16, 0),), note="one fp16 scale per output row"),
    Format("nf4", 2, 1, (Scale(32, 64, flat=True),), note="fp32 absmax per 64 (QLoRA, arXiv 2305.14314)"),
    Format(
        "nf4-dq",
        2,
        1,
        (Scale(8, 64, flat=True), Scale(32, 64 * 256, flat=True)),
        note="nf4 with its scales quantised to 8 bit in groups of 256",
    ),
    Format("mxfp4", 2, 1, (Scale(8, 32),), note="e8m0 scale per 32 (OCP Microscaling v1.0)"),
    Format("nvfp4", 2, 1, (Scale(8, 16), PER_TENSOR), "fp4", note="e4m3 scale per 16, fp32 per tensor"),
    Format("nvfp4-row", 2, 1, (Scale(8, 16), PER_ROW), "fp4", note="e4m3 scale per 16, fp32 per row"),
)

# Values per block and bytes per block: GGML_QUANT_SIZES of the gguf package; a test compares them.
_GGUF = {
    "q4_0": (32, 18),
    "q4_1": (32, 20),
    "q5_0": (32, 22),
    "q5_1": (32, 24),
    "q8_0": (32, 34),
    "q8_1": (32, 40),
    "q2_k": (256, 84),
    "q3_k": (256, 110),
    "q4_k": (256, 144),
    "q5_k": (256, 176),
    "q6_k": (256, 210),
    "q8_k": (256, 292),
    "iq2_xxs": (256, 66),
    "iq2_xs": (256, 74),
    "iq3_xxs": (256, 98),
    "iq1_s": (256, 50),
    "iq4_nl": (32, 18),
    "iq3_s": (256, 110),
    "iq2_s": (256, 82),
    "iq4_xs": (256, 136),
    "iq1_m": (256, 56),
    "tq1_0": (256, 54),
    "tq2_0": (256, 66),
}


@cache
def formats() -> dict[str, Format]:
    """Every named format by its name."""
    table = {fmt.name: fmt for fmt in _FORMATS}
    for name, (block, block_bytes) in _GGUF.items():
        table[name] = Format(name, block, block_bytes, note="GGUF", in_files=True)
    return table


_GROUPED = r"int(?P<bits>[2348])-g(?P<group>[1-9]\d{0,4})(?P<asym>-asym)?"
_OUTLIERS = r"llm-int8-([01](?:\.\d{1,9})?)"
_ALIASES = {"fp8-e4m3": "fp8", "fp8-e5m2": "fp8", "half": "fp16", "float16": "fp16", "bfloat16": "bf16"}


def find_format(name: str) -> Format:
    """The format called `name`: a listed one, or a grouped integer such as `int4-g128-asym`.

    A grouped integer keeps an fp16 scale per group along the input (and a zero point of the
    weight's own width when asymmetric), as GPTQ and AWQ checkpoints do. `llm-int8-0.001` is int8
    by row with that share of the columns in 16 bit. `bf16-2:4`, `bf16-bitmap-0.6` and `bf16-csr16-0.6` store
    the values of a format that are not zero (`models.sparsity`).

    Raises InputError for an unknown name, with the nearest ones.
    """
    key = name.strip().lower().replace("_", "-")
    key = _ALIASES.get(key, key)
    table = formats()
    for spelling in (key, key.replace("-", "_")):
        if spelling in table:
            return table[spelling]
    grouped = re.fullmatch(_GROUPED, key)
    if grouped:
        return _grouped_integer(key, grouped)
    outliers = re.fullmatch(_OUTLIERS, key)
    if outliers and float(outliers[1]) <= 1:
        share = float(outliers[1])
        return Format(key, 1, 1, (PER_ROW,), "int8", note="outlier columns in 16 bit", wide_share=share)
    pruned = parse_sparse(key)
    if pruned:
        return _sparse_format(key, *pruned)
    from ..sheets import nearest

    known = [*table, "int8-g64", "int4-g128", "int4-g128-asym", "llm-int8-0.001"]
    hint = nearest(key, known) or "; `infercost weights --formats` lists them"
    raise InputError(f"unknown number format '{name}'{hint}")


def _sparse_format(name: str, base: str, sparse: Sparse) -> Format:
    dense = find_format(base)
    if dense.sparse or dense.wide_share or dense.in_files:
        raise InputError(f"{dense.name} is stored whole; '{name}' needs a plain format, such as bf16")
    if sparse.kind == "2:4" and dense.math in ("fp32", "tf32", "fp4"):
        raise InputError(f"2:4 is a pattern of fp16, bf16, fp8 and int8 products, not of {dense.math}")
    note = f"{dense.name}, zeros left out ({sparse.kind})"
    return dense._replace(name=name, sparse=sparse, published=False, note=note)


def _grouped_integer(name: str, match: re.Match[str]) -> Format:
    bits, group = int(match["bits"]), int(match["group"])
    scales = [Scale(16, group)]
    if match["asym"]:
        scales.append(Scale(bits, group))
    block = {2: 4, 3: 8, 4: 2, 8: 1}[bits]
    return Format(name, block, block * bits // 8, tuple(scales), note=f"fp16 scale per {group}")
