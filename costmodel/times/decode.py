"""Time of decode attention: one query row a sequence against its whole cache.

The cache is cut into splits until the SMs are full; each CTA streams its chunk of keys and values
and multiplies them with the query heads that share them; a second pass merges the splits. Against
that stands the cache's own bytes over memory bandwidth. Kernels differ in how they split, in the
size of their tiles and in whether grouped heads share one CTA: a `Style` each.
Source: FlashDecoding (pytorch.org/blog/flash-decoding), the split heuristics of FlashAttention-2 and
-3 and the dispatch rules of TensorRT-LLM's XQA and MMHA kernels, all public; the terms were found on
../shared/measured/attention_decode.csv and mla.csv.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...hardware.calibration import Key
from ..arith import Kit, kit, power_norm, some
from ..op import Attend
from .device import Device
from .family import US, Family, Parameter, Params, cold_share, forms

_SHARED = {
    "launch_us": Parameter(5, 0.1, 80, 6, "launch, and what runs once whatever the shape"),
    "wave_us": Parameter(3, 0.01, 50, 1.5, "latency of a CTA, per wave of them"),
    "sm_share": Parameter(2, 0.02, 40, 2.5, "what one SM can stream, in shares of bandwidth per SM"),
    "memory_share": Parameter(0.8, 0.2, 1, 0.85, "share of the datasheet bandwidth"),
    "l2_gain": Parameter(1, 0.01, 30, 0.01, "how much faster than memory L2 is, less one"),
    "merge_us": Parameter(1, 0.01, 40, 1.5, "merging the splits"),
}
DECODE = Family(
    "decode",
    {
        **_SHARED,
        "mma_share": Parameter(0.3, 0.003, 5, 0.3, "share of the dense peak of the products"),
        "sequence_us": Parameter(0.05, 0.003, 20, 0.05, "SM time of each sequence's bookkeeping"),
    },
    forms(
        split="launch_us wave_us sm_share memory_share l2_gain merge_us mma_share sequence_us",
    ),
)
XQA = Family(
    "decode_xqa",
    {
        **_SHARED,
        "sm_share": Parameter(4, 0.02, 40, 4, "what one SM can stream, in shares of bandwidth per SM"),
        "l2_gain": Parameter(3, 0.01, 30, 0.01, "how much faster than memory L2 is, less one"),
        "merge_us": Parameter(2, 0.01, 40, 2, "merging the splits"),
        "vector_share": Parameter(0.05, 0.003, 5, 0.05, "share of the fp32 peak, heads one by one"),
        "head_wave_us": Parameter(2.4, 0.003, 20, 2.4, "latency of a wave of CTAs, heads one by one"),
    },
    forms(
        xqa="launch_us wave_us sm_share memory_share l2_gain merge_us vector_share head_wave_us",
    ),
)
"""TensorRT-LLM: grouped heads packed on the tensor cores (XQA, trtllm-gen), or each head on its own on
the vector units (MMHA)."""
MLA_DECODE = Family(
    "mla_decode",
    {
        **_SHARED,
        "launch_us": Parameter(6, 0.1, 400, 6, "launch, and what runs once whatever the shape"),
        "mma_share": Parameter(0.3, 0.003, 5, 0.3, "share of the dense peak of the products"),
        "head_us": Parameter(0.05, 0.003, 20, 0.05, "SM time of 64 heads' bookkeeping"),
    },
    forms(
        split="launch_us wave_us sm_share memory_share l2_gain merge_us mma_share head_us",
    ),
)

SHARE_OF = "bf16"
"""What `mma_share` is a share of the peak of, whatever the type of the products: so it was fitted."""
JOIN_NORM = 3
L2_SHARPNESS = 8
"""Powers of the norm that joins the SMs' part with memory, and of the step from L2 to memory. Structural, as
the bare numbers of this file are that no source gives: the same for every GPU, and chosen on the measured
rows (docs/times.md)."""
L2_SHARE = {"ada": 1.0, "blackwell-rtx": 1.1}
PARTITIONED_L2 = 0.5
"""Part of L2 that one stream can fill: half where L2 is two partitions (A100, Hopper, Blackwell)."""
MERGED_AT_ONCE = 32
"""Splits whose merge costs one more `merge_us`."""
MERGE_BYTES = 4
"""Of a partial output: fp32."""
KEY_TILE = 128


class Style(NamedTuple):
    """How a kernel is laid out.

    `split`: its rule (fill, fa2, fa3, none, fixed); `ctas` an SM holds at once; `keys` and `rows` of a
    tile; `least_rows` that are paid for; `lone`: share of an SM's stream that a CTA alone still pays
    (1: its latency is not hidden by neighbours).
    """

    split: str = "fill"
    ctas: float = 1
    aim: float = 0
    keys: int = 64
    rows: int = 64
    least_rows: int = 8
    lone: float = 0.5
    most_splits: float = float("inf")
    split_beyond: int = 0


DEFAULT_STYLE = Style()
STYLES = {
    "fa3": Style(least_rows=64),
    "fa2": Style(split="fa2", keys=128, least_rows=64, lone=1),
    "flashinfer": Style(least_rows=16),
    "trtllm": Style(keys=256),
    "triton": Style(split="none"),
    "xpu": Style(ctas=4, aim=1, lone=1, most_splits=8, split_beyond=4096),
    "sm80": Style(split="fa3", keys=128),
}
FLASHINFER_CTAS = 2
"""FlashInfer decodes groups of fewer than four heads on the vector units, two CTAs an SM."""
FEW_HEADS = 4


def style_of(kernel: str, device: Device) -> str:
    """The name of a kernel's style, from what the measuring project called it; "" where unknown."""
    if device.gpu.architecture.startswith("Xe"):
        return "xpu"
    if "fa3" in kernel or "fa4" in kernel:
        return "fa3"
    if kernel in ("vllm_flash_attn", "vllm_flash_attn_fa2"):
        return "fa2"
    if kernel in ("trtllm_mha", "vllm_flashinfer_trtllmdecode"):
        return "trtllm"
    if "triton" in kernel:
        return "triton"
    if kernel in ("flashinfer", "vllm_flashinfer_fidecode"):
        return "flashinfer"
    return "sm80"


def splits(style: Style, ctas: Any, context: Any, device: Device, at_once: Any, k: Kit) -> Any:
    """Into how many parts each sequence's keys are cut, `ctas` CTAs being there without any cut."""
    tiles = k.most(k.ceil(context / style.keys), 1)
    if style.split == "fill":
        wanted = k.floor((style.aim or at_once) * device.cores / ctas)
    elif style.split == "fa2":
        wanted = _fa2_splits(ctas / (2.0 * device.cores), k)
    elif style.split == "fa3":
        wanted = k.ceil(tiles / k.ceil(1.1 * ctas * tiles / device.cores))
    else:
        return 1 + 0 * tiles
    wanted = k.most(1, k.least(wanted, k.least(tiles, style.most_splits)))
    return k.where(context > style.split_beyond, wanted, 1)


def _fa2_splits(filled: Any, k: Kit) -> Any:
    """FlashAttention-2's num_splits_heuristic: the fewest splits within 85 % of the best filling."""
    found, settled = 1 + 0 * filled, filled >= 0.8
    for i in range(1, 9):
        good = (i * filled / k.ceil(i * filled) >= 0.825) & (settled < 1)
        found, settled = k.where(good, i, found), settled | good
    return k.where(filled >= 0.2, found, k.ceil(0.825 / filled))


def _cache_s(moved: Any, device: Device, p: Params, working_set: Any) -> Any:
    """Bytes over a share of memory bandwidth, less what a replayed cache finds in L2."""
    seconds = moved / (p["memory_share"] * device.bandwidth)
    if working_set is None:
        return seconds
    l2 = L2_SHARE.get(device.generation, PARTITIONED_L2) * device.l2_bytes
    return seconds * cold_share(moved, l2, L2_SHARPNESS, p["l2_gain"])


def _merge_s(work: Attend, parts: Any, device: Device, p: Params, k: Kit) -> Any:
    """The pass that adds up the splits: fp32 partial outputs in, one row a head out."""
    moved = MERGE_BYTES * work.sequences * work.heads * parts * work.v_dim / device.bandwidth
    return k.where(parts > 1, p["merge_us"] * US * (1 + parts / MERGED_AT_ONCE) + moved, 0)


def _moved(work: Attend) -> Any:
    """Cache, queries and output; learned sinks are left out."""
    return work.bytes.total - work.weight_bytes


def decode_s(work: Attend, device: Device, p: Params, working_set: Any = None) -> Any:
    """Seconds of one decode attention of a softmax kernel."""
    k = kit(work.sequences, work.context, work.heads, work.kv_heads, *p.values())
    name = style_of(p.get("key", Key()).kernel, device)
    style = STYLES.get(name, DEFAULT_STYLE)
    group = work.heads * work.new / work.kv_heads
    windowed = work.window > 0
    at_once: Any = style.ctas
    if name == "flashinfer":
        lean = (group < FEW_HEADS) & (work.bytes_per_value == 2)
        at_once = k.where(lean, FLASHINFER_CTAS, style.ctas)
    packed = work.sequences * work.kv_heads * k.ceil(group / style.rows)
    rows = k.least(k.most(group, style.least_rows), style.rows)
    if name == "fa2":
        # With a window FlashAttention-2 neither packs heads nor splits; nor does it split without groups.
        packed = k.where(windowed, work.sequences * work.heads, packed)
        rows = k.where(windowed, style.least_rows, rows)
    parts = splits(style, packed, work.context, device, at_once, k)
    if name == "fa2":
        parts = k.where((group == 1) | windowed, 1, parts)
    chunk = style.keys * k.ceil(work.context / parts / style.keys)
    if name == "fa2":
        chunk = chunk + k.where(windowed, style.keys / 2, 0)
    ctas = packed * parts
    busy = k.least(1, k.most(ctas / device.cores / at_once, style.lone))
    waves = k.most(1, k.ceil(ctas / device.cores) / at_once)
    stream = p["sm_share"] * device.bandwidth / device.cores
    mma = p["mma_share"] * device.peak(SHARE_OF) / device.cores
    width = work.qk_dim + work.v_dim
    per_key = width * work.bytes_per_value / stream + rows * width * at_once / mma
    sm_s = waves * (p["wave_us"] * US + chunk * busy * per_key)
    fixed = p["launch_us"] * US + p["sequence_us"] * US * work.sequences / device.cores
    joined = power_norm(sm_s, _cache_s(_moved(work), device, p, working_set), JOIN_NORM)
    return fixed + joined + _merge_s(work, parts, device, p, k)


XQA_ROWS, XQA_ROW_BYTES, MOST_GROUPED = 32, 8, 32
XQA_KEYS = {"blackwell": 256, "hopper": 128}


def xqa_s(work: Attend, device: Device, p: Params, working_set: Any = None) -> Any:
    """Seconds of TensorRT-LLM's decode attention, by the kernel that its dispatcher takes."""
    k = kit(work.sequences, work.context, work.heads, work.kv_heads, *p.values())
    group, stored = work.heads * work.new / work.kv_heads, work.bytes_per_value
    older = device.generation in ("ada", "blackwell-rtx")
    packs = group <= MOST_GROUPED
    if device.generation != "blackwell":
        packs = packs & (group > 1)
        # XQA's mayHavePerfGain, for 16-bit caches: enough blocks to fill the SMs.
        blocks = 4 * work.sequences * work.kv_heads * k.most(1, k.floor(work.context / KEY_TILE))
        packs = packs & ((stored < 2) | (blocks >= device.cores))
    style = Style(
        split="none" if older and not some(stored - 1) else "fill",
        keys=XQA_KEYS.get(device.generation, 64),
        rows=XQA_ROWS,
        lone=1 if older else 0.5,
    )
    ctas = work.sequences * work.kv_heads * k.ceil(group / XQA_ROWS)
    parts = splits(style, ctas, work.context, device, 1, k)
    chunk = style.keys * k.ceil(work.context / parts / style.keys)
    ctas = ctas * parts
    busy = k.least(1, k.most(ctas / device.cores, style.lone))
    rows = k.least(k.most(group, style.least_rows), XQA_ROWS)
    width = work.qk_dim + work.v_dim
    stream = p["sm_share"] * device.bandwidth / device.cores
    per_key = width * (stored + (0 if older else rows / XQA_ROW_BYTES)) / stream
    packed_s = k.most(1, k.ceil(ctas / device.cores)) * (p["wave_us"] * US + chunk * busy * per_key)
    alone_s, alone_parts = _mmha(work, device, p, k)
    parts = k.where(packs, parts, alone_parts)
    sm_s = k.where(packs, packed_s, alone_s)
    joined = power_norm(sm_s, _cache_s(_moved(work), device, p, working_set), JOIN_NORM)
    return p["launch_us"] * US + joined + _merge_s(work, parts, device, p, k)


MMHA_CTAS, MMHA_KEYS = 2, 16


def _mmha(work: Attend, device: Device, p: Params, k: Kit) -> tuple[Any, Any]:
    """One CTA for each query head, on the vector units: (seconds, splits)."""
    heads = work.sequences * work.heads
    parts = k.floor(MMHA_CTAS * device.cores / heads)
    parts = k.most(1, k.least(parts, k.ceil(work.context / KEY_TILE)))
    chunk = MMHA_KEYS * k.ceil(work.context / parts / MMHA_KEYS)
    ctas = heads * parts
    waves = k.most(1, k.ceil(ctas / device.cores) / MMHA_CTAS)
    busy = k.least(1, k.most(ctas / device.cores / MMHA_CTAS, 0.5))
    vector = p["vector_share"] * device.vector_flops / device.cores
    flops = 2 * chunk * (work.qk_dim + work.v_dim)
    return waves * (p["head_wave_us"] * US + flops / vector * busy), parts


MLA_STYLES = {
    "flash_attention": Style(rows=128, split="fa3", least_rows=16),
    "trtllm_mla": Style(rows=128, keys=256, least_rows=128),
    "default": Style(keys=128, least_rows=64),
    "triton": Style(rows=16, split="fixed", most_splits=8, least_rows=16, lone=0.25),
    "vllm_triton_mla": Style(rows=16, split="fixed", most_splits=4, keys=32, least_rows=16),
    "flashinfer": Style(least_rows=16),
}
MLA_BLACKWELL = Style(rows=128, keys=256, least_rows=128)
MLA_UNSPLIT = Style(keys=128, least_rows=64, split="none", lone=1)
HEADS_128, HEADS_128_SHARE = 128, 0.3
"""The fp8 kernel of Ada and RTX Blackwell has a fast path for 128 heads: this share of a tile's time."""


def mla_decode_s(work: Attend, device: Device, p: Params, working_set: Any = None) -> Any:
    """Seconds of absorbed MLA: one KV head whose rows hold K and V, read once for all query heads."""
    k = kit(work.sequences, work.context, work.heads, *p.values())
    kernel = p.get("key", Key()).kernel
    heads, stored = work.heads * work.new, work.bytes_per_value
    style = MLA_STYLES.get(kernel, DEFAULT_STYLE)
    tensor = device.generation == "blackwell"
    if kernel == "default" and tensor:
        style = MLA_BLACKWELL
    elif kernel == "default" and device.generation != "hopper":
        style = MLA_UNSPLIT
    head_tiles, rereads = k.ceil(heads / style.rows), 1.0
    if tensor:
        # Tiles of 16 rows up to 32 heads, which read the cache twice, half of it from L2; of 64 above.
        head_tiles = k.where(heads <= 16, 1, k.where(heads <= 32, 2, k.ceil(heads / 64)))
        rereads = k.where((heads > 16) & (heads <= 32), 1.5, 1.0)
    elif "triton" in kernel:
        rereads = 0.5 + 0.5 * head_tiles
    ctas = work.sequences * head_tiles
    tiles = k.most(k.ceil(work.context / style.keys), 1)
    if style.split == "fixed":
        parts = k.least(tiles, style.most_splits)
        launched = ctas * style.most_splits
    else:
        parts = splits(style, ctas, work.context, device, style.ctas, k)
        launched = ctas * parts
    chunk = style.keys * k.ceil(tiles / parts)
    busy = k.least(1, k.most(launched / device.cores, style.lone))
    rows = k.least(k.most(style.least_rows, 16 * k.ceil(heads / 16)), style.rows)
    share: Any = 1.0
    if kernel == "default" and device.generation in ("ada", "blackwell-rtx"):
        share = k.where((heads == HEADS_128) & (stored == 1), HEADS_128_SHARE, 1.0)
    stream = p["sm_share"] * device.bandwidth / device.cores
    mma = p["mma_share"] * device.peak(SHARE_OF) / device.cores
    per_key = work.row_bytes / stream + 2 * rows * (work.qk_dim + work.v_dim) / mma
    keys = k.least(chunk, style.keys) + k.most(chunk - style.keys, 0) * share
    sm_s = k.most(1, k.ceil(launched / device.cores)) * (p["wave_us"] * US + keys * busy * per_key)
    moved = _moved(work) + (rereads - 1) * work.sequences * work.context * work.row_bytes
    memory_s = _cache_s(moved, device, p, working_set) * share**0.5
    fixed = p["launch_us"] * US + p["head_us"] * US * work.sequences * heads / 64 / device.cores
    return fixed + power_norm(sm_s, memory_s, JOIN_NORM) + _merge_s(work, parts, device, p, k)
