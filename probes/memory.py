"""Bytes held to bytes: the cache and the weights that were predicted, allocated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from ..costmodel.kv import cache_bill
from ..costmodel.weights import weight_bill
from ..models.formats import find_format
from ..models.recipes import find_recipe
from ..models.spec import Model
from .target import Target, torch_module
from .verdict import FAIL, PASS, SKIPPED

SLACK_BYTES = 2 << 20
"""What the CUDA allocator rounds a block up to."""
MOST_BYTES = 2 << 30
LAYERS = 2


class MemoryResult(NamedTuple):
    """Predicted bytes against those the tensors take; `allocated` is what the allocator holds for them."""

    id: str
    predicted_bytes: int
    tensor_bytes: int
    allocated_bytes: int | None
    verdict: str
    why: str


def memory_results(model: Model, target: Target, tokens: int) -> list[MemoryResult]:
    """The cache of `tokens` tokens and the weights of two layers of `model`, in 16 bit, as real tensors."""
    small = replace(model, layers=model.layers[:LAYERS], input_end=False, output_end=False)
    cache = cache_bill(small, tokens, 1, find_format("fp16")).logical_bytes
    weights = weight_bill(small, find_recipe("fp16"), 1, 0.0).weight_bytes
    shapes = [tensor for layer in small.layers for tensor in small.layer_tensors(layer)]
    rows = [(row.heads, row.width) for layer in small.layers for c in layer.caches() for row in c.rows]
    return [
        _held("mem.kv", cache, [(tokens, heads, width) for heads, width in rows], target),
        _held("mem.weights", weights, [(t.copies, t.rows, t.cols) for t in shapes], target),
    ]


def _held(name: str, predicted: int, shapes: list[tuple[int, ...]], target: Target) -> MemoryResult:
    torch = torch_module()
    if predicted > min(MOST_BYTES, target.memory_bytes // 2):
        return MemoryResult(name, predicted, 0, None, SKIPPED, "larger than a probe may take")
    before = _allocated(torch, target)
    tensors = [torch.empty(shape, dtype=torch.float16, device=target.spec) for shape in shapes]
    taken = sum(each.numel() * each.element_size() for each in tensors)
    after = _allocated(torch, target)
    held = None if before is None or after is None else after - before
    if taken != predicted:
        return MemoryResult(name, predicted, taken, held, FAIL, f"{taken - predicted:+,} bytes")
    if held is not None and held - taken > SLACK_BYTES * len(tensors):
        return MemoryResult(
            name, predicted, taken, held, FAIL, f"the allocator holds {held - taken:+,} bytes"
        )
    return MemoryResult(name, predicted, taken, held, PASS, "")


def _allocated(torch: Any, target: Target) -> int | None:
    return int(torch.cuda.memory_allocated(target.ordinal)) if target.kind == "cuda" else None
