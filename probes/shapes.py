"""The same kernel at another size: small enough to be checked, or half of what memory did not hold."""

from __future__ import annotations

from dataclasses import replace

from ..costmodel.attention import visited_pairs
from ..costmodel.op import Attend, Gather, Gemm, Number, Pointwise, Work

SMALL_TOKENS, SMALL_WIDTH = 48, 256


def is_causal(work: Attend) -> bool:
    """Whether queries see no key after their own: fewer pairs than the full square."""
    return bool(work.pairs < work.new * work.context)


def pairs_of(new: Number, context: Number, masked: bool) -> Number:
    """Query-key pairs of the last `new` of `context` tokens."""
    return visited_pairs(new, context - new) if masked else new * context


def small(work: Work) -> Work:
    """The same kernel on a shape that float64 answers at once."""
    match work:
        case Gemm():
            inner, outer = min(work.inner, SMALL_WIDTH), min(work.outer, SMALL_WIDTH)
            return _gemm(work, min(work.rows, SMALL_TOKENS), inner, outer)
        case Attend():
            new, past = min(work.new, SMALL_TOKENS), min(work.context - work.new, SMALL_TOKENS)
            return _attend(work, min(work.sequences, 2), new, new + past)
        case Pointwise():
            columns = min(work.values // work.rows, SMALL_WIDTH)
            return _pointwise(work, min(work.rows, SMALL_TOKENS), columns)
        case Gather():
            return replace(work, rows=min(work.rows, SMALL_TOKENS))
    return work


def halved(work: Work) -> Work:
    """The same kernel at half the size."""
    match work:
        case Gemm() if work.rows > 1:
            return _gemm(work, work.rows // 2, work.inner, work.outer)
        case Gemm():
            return _gemm(work, work.rows, work.inner, max(1, work.outer // 2))
        case Pointwise():
            return _pointwise(work, max(1, work.rows // 2), work.values // work.rows)
        case Gather():
            return replace(work, rows=max(1, work.rows // 2))
        case Attend() if work.sequences > 1:
            return _attend(work, work.sequences // 2, work.new, work.context)
        case Attend() if work.new == 1:
            return _attend(work, 1, 1, max(2, work.context // 2))
        case Attend():
            new = max(1, work.new // 2)
            return _attend(work, 1, new, new)
    return work


def _gemm(work: Gemm, rows: Number, inner: int, outer: int) -> Gemm:
    size = work.weight_bytes * inner * outer // (work.inner * work.outer)
    return replace(work, rows=rows, inner=inner, outer=outer, weight_bytes=size)


def _attend(work: Attend, sequences: Number, new: Number, context: Number) -> Attend:
    pairs = pairs_of(new, context, is_causal(work))
    return replace(work, sequences=sequences, new=new, context=context, pairs=pairs)


def _pointwise(work: Pointwise, rows: Number, columns: Number) -> Pointwise:
    kv = work.kv_bytes * rows * columns // work.values
    return replace(work, values=rows * columns, rows=rows, kv_bytes=kv)
