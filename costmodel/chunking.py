"""A prompt in chunks: what the cuts cost, and how long a chunk may be to hide behind the decodes.

Every chunk is a pass over the weights and reads the cache of those before it; a chunk of ridge·b/2 tokens has
as much arithmetic as its weights have bytes. Source: seed ledger, cb.splitfuse; DeepSpeed-FastGen, arXiv
2401.08671; Sarathi-Serve, arXiv 2403.02310.
"""

from __future__ import annotations

from typing import NamedTuple

from .. import InputError
from ..models.formats import Format
from ..models.spec import Model
from .arith import ceil_div
from .kv import cache_groups
from .op import Attend
from .roofline import compute_s, touched_bytes, turning_tokens
from .search import most_within
from .serving import Workload
from .setting import Setting, step_cost
from .step import Segment, Step
from .weights import weight_bill

MOST_PIECES = 4096


class ChunkBill(NamedTuple):
    """A prompt in `pieces` passes of `chunk` tokens, one after the other, no decodes riding along.

    `weights_s`: the passes' reads of the weights at full bandwidth; `linear_s` and `attention_s`: the
    prompt's matrix products at peak; `reread_bytes`: cache rows read again by later chunks; `whole_s` and
    `chunked_s`: the prefill in one step and in pieces; `ridge_tokens`: the least chunk to hide its weights.
    """

    chunk: int
    pieces: int
    ridge_tokens: float
    weights_s: float
    linear_s: float
    attention_s: float
    reread_bytes: int
    whole_s: float
    chunked_s: float

    @property
    def hidden(self) -> bool:
        """Whether reading the weights so often takes no longer than the arithmetic."""
        return self.weights_s <= self.linear_s + self.attention_s


def chunk_bill(setting: Setting, work: Workload, chunk: int) -> ChunkBill:
    """The bill of one mean prompt. Raises InputError where it is cut into more than 4,096 pieces."""
    count = ceil_div(work.fresh, chunk)
    if count > MOST_PIECES:
        raise InputError(
            f"--chunk {chunk:,} cuts {work.fresh:,} tokens into {count:,} pieces; at most {MOST_PIECES:,}"
        )
    whole = step_cost(setting, work.prefill())
    bandwidth, gpu = setting.gpu.bandwidth, setting.gpu
    total = weights = 0.0
    for start in range(0, work.fresh, chunk):
        new = min(chunk, work.fresh - start)
        cost = step_cost(setting, Step("prefill", (Segment(1, new, work.shared + start),)))
        total, weights = total + cost.best, weights + cost.weight_bytes / bandwidth
    attention = 0.0
    for _, kernels, _ in setting.stages(work.prefill()):
        attention += float(compute_s([op for op in kernels if isinstance(op.work, Attend)], gpu))
    return ChunkBill(
        chunk,
        count,
        ridge_tokens(setting),
        weights,
        whole.compute_s - attention,
        attention,
        reread_bytes(setting.model, setting.run.kv, work.fresh, chunk, work.shared),
        whole.best,
        total,
    )


def ridge_tokens(setting: Setting) -> float:
    """Tokens of a step whose arithmetic takes as long as reading the weights: ridge·b/2, and of a mixture of
    experts so many times more as it has weights for each that a token uses.

    b: bytes of a weight in the mean; the ridge is that of the types the products are done in.
    """
    step = step_cost(setting._replace(clock=None), Step("prefill", (Segment(1, 1024),)))
    ridge = step.matmul_flops / step.compute_s / setting.gpu.bandwidth
    bill = weight_bill(setting.model, setting.recipe)
    return float(turning_tokens(ridge, bill.weight_bytes / bill.active_parameters))


def reread_bytes(model: Model, fmt: Format, prompt: int, chunk: int, shared: int = 0) -> int:
    """Rows that a chunk needs of what was cached before it, summed over chunks and layers: kv·c·n(n-1)/2,
    less where a window or an indexer's choice caps what a layer reads; the first chunk's shared prefix is
    none of the cuts' doing."""
    total = 0
    for cache, layers in cache_groups(model):
        if cache.of_encoder:
            continue
        for start in range(chunk, prompt, chunk):
            new = min(chunk, prompt - start)
            needed, own = (touched_bytes(cache, Segment(1, new, past), fmt) for past in (shared + start, 0))
            total += layers * (needed - own)
    return total


def free_chunk(setting: Setting, work: Workload, batch: int) -> int:
    """Most prompt tokens that ride with `batch` decodes while the whole step still waits for memory; they are
    of the middle of a prompt."""
    past = work.shared + work.fresh // 2

    def waits(tokens: int) -> bool:
        cost = step_cost(setting._replace(clock=None), work.mixed(batch, 1, tokens, past))
        return bool(cost.compute_s <= cost.memory_s)

    return most_within(waits, work.fresh)


def chunk_within(setting: Setting, work: Workload, batch: int, limit_s: float) -> int:
    """Most prompt tokens that ride with `batch` decodes in a step of at most `limit_s`."""
    past = work.shared + work.fresh // 2

    def quick(tokens: int) -> bool:
        return bool(step_cost(setting, work.mixed(batch, 1, tokens, past)).best <= limit_s)

    return most_within(quick, work.fresh)
