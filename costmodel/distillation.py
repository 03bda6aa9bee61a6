"""What a smaller model costs to train: again after pruning, or on what a larger one teaches it.

A teacher that shows its distribution (soft labels) adds its own forward pass; one that is only seen through
the text it writes (answers, chains of thought) adds the requests that write it.
"""

from __future__ import annotations

from typing import NamedTuple

from ..hardware.spec import Gpu
from .arith import ceil_div
from .roofline import default_dtype, peak_flops

LABEL_BYTES = 2
"""A logit is kept in 16 bit."""


def training_flops(parameters: float, tokens: float) -> float:
    """6·N·D: 2 FLOPs a parameter and token forward, 4 backward; attention's scores are not in it.

    `parameters` that work on a token (MoE: the active ones). Source: Scaling laws, arXiv 2001.08361,
    section 2.1; seed ledger, prune.sheared.
    """
    return 6 * parameters * tokens


def teaching_flops(parameters: float, tokens: float) -> float:
    """2·N·D: the teacher's forward pass over the student's tokens. Source: seed ledger, distil."""
    return 2 * parameters * tokens


def soft_label_bytes(vocab: int, top_k: int | None = None) -> int:
    """Bytes of one token's soft label where it is kept: a 16-bit logit for each of `vocab` words, or for the
    `top_k` likeliest with their indexes (16 bit where those reach). Source: seed ledger, distil."""
    if top_k is None:
        return vocab * LABEL_BYTES
    return top_k * (LABEL_BYTES + ceil_div((vocab - 1).bit_length(), 16) * 2)


class Compute(NamedTuple):
    """FLOPs as hours of one GPU, and what those cost (None without a price)."""

    flops: float
    gpu_hours: float
    usd: float | None


def compute_bill(flops: float, gpu: Gpu, mfu: float, usd_per_hour: float | None) -> Compute:
    """FLOPs / (MFU · dense 16-bit peak): `mfu` is assumed, not predicted. Source: PaLM, arXiv 2204.02311,
    4.1, for MFU; seed ledger, prune.sheared, for 40 %."""
    hours = flops / (mfu * peak_flops(gpu, default_dtype(gpu))) / 3600
    return Compute(flops, hours, None if usd_per_hour is None else hours * usd_per_hour)


def repaid_after(spent: float | None, before: float | None, after: float | None) -> float | None:
    """How many requests earn back what the training cost; None where a request is not cheaper, or no price
    is known."""
    if spent is None or before is None or after is None or after >= before:
        return None
    return spent / (before - after)
