"""Levers on the cache and on attention: other formats, fewer heads, a window, fused kernels."""

from __future__ import annotations

from dataclasses import replace

from ... import InputError
from ...models.attention import Attention
from ...models.block import Block
from ...models.formats import Format, find_format
from ..deployment import Deployment
from ..kv import cache_bill
from ..setting import Setting
from .registry import lever, with_run, with_setting


def _attentions(setting: Setting) -> list[Attention]:
    """The plain attention of a model. Raises InputError where there is none."""
    blocks = [block for layer, _ in setting.model.groups for block in layer.blocks]
    found = [block for block in blocks if isinstance(block, Attention)]
    if not found:
        raise InputError(f"{setting.model.name} has no plain attention")
    return found


def _cached_in(plan: Deployment, fmt: Format) -> Deployment:
    """The cache in `fmt`; InputError where that is no fewer bytes."""
    model, own = plan.setting.model, plan.setting.run.kv
    held = [cache_bill(model, plan.held_tokens, 1, each).logical_bytes for each in (fmt, own)]
    if held[0] >= held[1]:
        raise InputError(f"the cache is in {own.name}: {fmt.name} takes no fewer bytes")
    return with_run(plan, kv=fmt)


@lever(
    "kv-fp8",
    attacks="cache",
    does="an 8-bit cache is half the bytes, held and read",
    price="quality: near 16 bit; FP8 attention kernels",
    options="--kv fp8",
)
def kv_fp8(plan: Deployment) -> Deployment:
    return _cached_in(plan, find_format("fp8"))


@lever(
    "kv-int4",
    attacks="cache",
    does="a 4-bit cache with a scale for 32 values is 0.28 of the bytes, held and read",
    price="quality: a measurable loss on long contexts (KIVI, KVQuant); kernels of its own",
    options="--kv int4-g32",
)
def kv_int4(plan: Deployment) -> Deployment:
    return _cached_in(plan, find_format("int4-g32"))


@lever(
    "kv",
    takes="format",
    attacks="cache",
    does="the cache in another format",
    price="quality: by the format",
    options="--kv {value}",
)
def kv(plan: Deployment, fmt: Format) -> Deployment:
    return _cached_in(plan, fmt)


def _kv_heads(plan: Deployment, count: int) -> Deployment:
    have = [block.kv_heads for block in _attentions(plan.setting)]
    if min(have) <= count:
        raise InputError(f"{plan.setting.model.name} has {min(have)} KV heads already")
    return with_setting(plan, model=plan.setting.model.with_attention(kv_heads=count))


@lever(
    "gqa",
    takes="count",
    tries=("8",),
    attacks="cache",
    does="query heads share K and V heads: fewer rows held and read, smaller K and V matrices",
    price="training: up-training with mean-pooled heads, about 5 % of the pre-training (arXiv 2305.13245)",
    options="--kv-heads {value}",
)
def gqa(plan: Deployment, kv_heads: int) -> Deployment:
    return _kv_heads(plan, kv_heads)


@lever(
    "mqa",
    attacks="cache",
    does="one K and V head for all queries: the smallest cache that attention has",
    price="training: up-training; quality below GQA's (arXiv 2305.13245); a copy on each rank of tp",
    options="--kv-heads 1",
)
def mqa(plan: Deployment) -> Deployment:
    return _kv_heads(plan, 1)


@lever(
    "window",
    takes="count",
    tries=("4k", "1k"),
    attacks="cache scores",
    does="attention sees no further back than the window: rows beyond are neither held nor read",
    price="training: with the window (Mistral 7B, arXiv 2310.06825); further back only through layers",
)
def window(plan: Deployment, tokens: int) -> Deployment:
    seen = [block.window or plan.work.held_tokens for block in _attentions(plan.setting)]
    if max(seen) <= tokens:
        raise InputError(f"no layer sees more than {max(seen):,} tokens")

    def narrowed(block: Block) -> Block:
        if not isinstance(block, Attention):
            return block
        return replace(block, window=min(tokens, block.window or tokens))

    model = plan.setting.model
    layers = tuple(
        replace(layer, blocks=tuple(narrowed(block) for block in layer.blocks)) for layer in model.layers
    )
    return with_setting(plan, model=replace(model, layers=layers))


@lever(
    "flash",
    attacks="activations",
    does="attention in one kernel: the scores stay on the chip, not written and read",
    price="none: the same results; a kernel for this GPU and head width",
)
def flash(plan: Deployment) -> Deployment:
    if plan.setting.run.attention == "flash":
        raise InputError("attention is fused (flash) already")
    return with_run(plan, attention="flash")


@lever(
    "fusion",
    attacks="launches activations",
    does="elementwise kernels run with their neighbours: fewer starts, fewer passes over activations",
    price="none: the same results; an engine or a compiler that does it",
)
def fusion(plan: Deployment) -> Deployment:
    if plan.setting.run.fusion != "none":
        raise InputError(f"kernels are fused already ({plan.setting.run.fusion})")
    return with_run(plan, fusion="engine")
