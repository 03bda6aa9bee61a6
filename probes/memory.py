"""Bytes held to bytes: the cache and the weights that were predicted, allocated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from ..costmodel.kv import cache_bill
from ..costmodel.weights import weight_bill
from ..models.cache import CacheSpec
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
    positions = (model.encoder.positions or tokens) if model.encoder else 0
    cache = cache_bill(small, tokens, 1, find_format("fp16"), positions).logical_bytes
    weights = weight_bill(small, find_recipe("fp16"), 1, 0.0).weight_bytes
    owned = [t for layer in small.layers for t in small.layer_tensors(layer, owned=True)]
    owned += small.encoder_tensors()
    caches = [cache for layer in small.layers for cache in layer.caches()]
    return [
        _held("mem.kv", cache, [t for c in caches for t in _tensors(c, tokens, positions)], target),
        _held("mem.weights", weights, [((t.copies, t.rows, t.cols), 2) for t in owned], target),
    ]


Shaped = tuple[tuple[int, ...], int]
"""The shape of a tensor, and bytes of each of its values."""


def _tensors(cache: CacheSpec, tokens: int, positions: int) -> list[Shaped]:
    """What a layer keeps of one sequence: rows of those tokens that its window holds, and its state."""
    kept = cache.row_shapes(cache.counted(tokens, positions)) if cache.stored else []
    rows: list[Shaped] = [(shape, 2) for shape in kept]
    return rows + [((part.values, part.columns), part.value_bytes or 2) for part in cache.state]


def _held(name: str, predicted: int, shapes: list[Shaped], target: Target) -> MemoryResult:
    torch = torch_module()
    of_size = {1: torch.uint8, 2: torch.float16, 4: torch.float32, 8: torch.float64}
    if predicted > min(MOST_BYTES, target.memory_bytes // 2):
        return MemoryResult(name, predicted, 0, None, SKIPPED, "larger than a probe may take")
    before = _allocated(torch, target)
    tensors = [torch.empty(shape, dtype=of_size[each], device=target.spec) for shape, each in shapes]
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
