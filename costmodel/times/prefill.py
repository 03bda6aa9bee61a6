"""Time of prefill attention: blocks of query rows against tiles of keys, causal blocks cut short.

A CTA takes a block of query rows of one head (or of grouped heads packed together) through its key
tiles; a tile costs its two products, partly hidden behind the exponentials. The blocks are spread
over the SMs, the longest sets a bound; Q, K, V and O come on top, hardly overlapped. Kernels differ
in their blocks and tiles: a `Layout` each.
Source: FlashAttention-2 (2307.08691) and -3 (2407.08608) for blocks, tiles and packing; the layouts
and terms were found on ../shared/measured/attention_prefill.csv and mla.csv.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...hardware.calibration import Key
from ..arith import Kit, kit, power_norm, some
from ..op import Attend, Bytes
from .device import Device
from .family import US, Family, Parameter, Params, forms, switched

WEAK = 0.01
"""Pull of every constant towards its start: some groups have few rows."""
PREFILL = Family(
    "prefill",
    {
        "launch_us": Parameter(6, 0.5, 400, 8, "launch, RoPE and cache kernels, epilogue", WEAK),
        "mma_share": Parameter(
            0.6, 0.05, 2, 0.6, "share of the dense peak (above 1: an fp8 cache computed in fp8)", WEAK
        ),
        "exp_cost": Parameter(0.5, 0.01, 6, 0.5, "softmax per score, in units of 1/16 clock of an SM", WEAK),
        "wave_us": Parameter(0.5, 0.001, 30, 1.0, "prologue and epilogue of a wave of CTAs", WEAK),
        "tail": Parameter(0.5, 0.01, 3, 1.0, "how much of an uneven end is waited for", WEAK),
        "memory_share": Parameter(0.7, 0.1, 3, 0.8, "share of the memory rate of Q, K, V and O", WEAK),
        "update_share": Parameter(0.7, 0.05, 8, 0.8, "the same of writing the cache", WEAK),
        "off_path": Parameter(1, 0.2, 3, 1.0, "MMA share of head widths without a tuned kernel", WEAK),
    },
    forms(
        blocks="launch_us mma_share exp_cost wave_us tail memory_share update_share off_path",
    ),
)
MLA_PREFILL = PREFILL._replace(name="mla_prefill")

MEMORY_NORM, SOFTMAX_NORM, L2_SHARPNESS = 1.2, 1.5, 4
"""Powers of the norms that join tiles with memory and products with exponentials, and of the step from L2 to
memory. Structural, as every bare number of this file is: the same for all GPUs, and chosen on the measured
rows (docs/times.md)."""
L2_BYTES_PER_CLOCK = 12
"""Of one SM."""
EXP_PER_CLOCK = 16
"""Exponentials of one SM: the unit of `exp_cost`."""
FALLBACK_SHARE = 0.09
"""Share of the peak of TensorRT-LLM's fallback for vision heads of 72 on Blackwell."""
ALWAYS, FEWER = 1.01, 0.75
"""Grouped heads are packed in any case, or where that saves a quarter of the blocks."""
OLDER = ("ampere", "ada", "blackwell-rtx")
ADA = ("ada", "blackwell-rtx")
ANY = float("inf")

Steps = tuple[tuple[float, int], ...]
"""(widest head, keys of a tile), the narrowest first."""
KEYS: Mapping[str, Steps] = {
    "fa2": ((64, 256), (128, 128), (ANY, 64)),
    "fa2 encoder": ((64, 128), (ANY, 64)),
    "fa3": ((128, 128), (192, 112), (ANY, 80)),
    "fa3 fp8": ((64, 160), (96, 128), (128, 192), (192, 160), (ANY, 128)),
    "trt": ((64, 256), (128, 128), (ANY, 64)),
    "trt fp8": ((128, 256), (ANY, 128)),
}
"""Tiles that FlashAttention-2, -3 and TensorRT-LLM on Hopper are compiled for, by the width of a head."""
HEADS = (64, 96, 128, 192, 256)
"""Widths that FlashAttention and FlashInfer are compiled for: heads are padded to the next one up."""


class Layout(NamedTuple):
    """`rows` of a query block, `keys` of a tile, `width` of a head as padded; grouped heads are packed
    where that leaves fewer than `pack` of the blocks; `off_path` 1 where the width has no tuned kernel,
    `fallback` where it runs none at all; `skips`: whether tiles outside a window are skipped;
    `rereads`: whether K and V are read again by each block. Numbers, or arrays with one a measured row."""

    rows: Any = 128
    keys: Any = 128
    width: Any = 128
    pack: float = 0.0
    off_path: Any = 0
    fallback: Any = 0
    skips: bool = True
    rereads: bool = False


LATENT: Mapping[str, Layout] = {
    "fa3": Layout(64, 64, pack=ALWAYS),
    "triton": Layout(32, 64, rereads=True, skips=False),
    "gen": Layout(256, 128),
    "trt": Layout(128, 128),
    "fa2": Layout(128, 64),
    "flashinfer": Layout(128, 128, pack=ALWAYS),
    "xpu": Layout(128, 128),
}
"""Of heads whose K and V differ in width: MLA absorbed (one KV head) or expanded, and MiMo-V2's."""


@dataclass(frozen=True)
class PrefillKernel:
    """What the measured kernels are: attention, the write of `appended` cache bytes, and `prepared`
    bytes of quantising what goes in. Its floor is the attention's."""

    attend: Attend
    appended: Any = 0
    prepared: Any = 0

    kind = "attend"

    @property
    def math(self) -> str:
        return self.attend.math

    @property
    def matmul_flops(self) -> Any:
        return self.attend.matmul_flops

    @property
    def vector_flops(self) -> Any:
        return self.attend.vector_flops

    @property
    def bytes(self) -> Bytes:
        return self.attend.bytes


def style_of(key: Key, device: Device, latent: bool) -> str:
    """Which kernel runs, from the stack and the kernel's name as the measuring project gave them; the first
    line that holds decides."""
    kernel, stack = key.kernel, key.stack
    if device.generation == "ampere" and stack.startswith("sglang") and not latent:
        return "fa3"
    if "triton" in kernel and not (latent and stack.startswith("vllm")):
        return "triton"
    if device.generation == "blackwell":
        return "gen"
    if stack.startswith("trtllm"):
        return "trt"
    if "flashinfer" in kernel and "trtllmprefill" not in kernel:
        return "flashinfer"
    if device.generation == "hopper":
        return "fa3"
    return "xpu" if device.gpu.architecture.startswith("Xe") else "fa2"


def prefill_start(key: Key, device: Device) -> dict[str, float]:
    """Where a fit begins: Triton's products are slower, and some kernels start late or off their path."""
    out = {}
    if style_of(key, device, False) == "triton":
        out["mma_share"] = 0.35
    if key.kernel == "vllm_triton_mla":
        out["launch_us"] = 250.0
    if key.stack.startswith("trtllm") and key.dtype == "fp8" and device.generation in ADA:
        out["off_path"] = 0.33
    return out


def stepped(width: Any, steps: Steps, k: Kit) -> Any:
    """What `steps` hold for heads of `width`."""
    *narrower, (_, found) = steps
    for widest, value in reversed(narrower):
        found = k.where(width <= widest, value, found)
    return found


def padded_to(width: Any, sizes: tuple[int, ...], k: Kit) -> Any:
    """The least of `sizes` that is no less than `width`; beyond the last, the width itself."""
    found = width
    for size in reversed(sizes):
        found = k.where(width <= size, size, found)
    return found


def layout_of(work: Attend, key: Key, device: Device, k: Kit) -> Layout:
    """Blocks and tiles of the kernel that `key` names for heads of this shape."""
    if not same_widths(work):
        style, width = style_of(key, device, True), (work.qk_dim + work.v_dim) / 2
        older = style == "trt" and device.generation in OLDER
        return (Layout(64, 64) if older else LATENT[style])._replace(width=width)
    # Tuned are heads of up to 128, and of a vision encoder those of 64.
    off = (work.qk_dim != 64) if _of_encoder(key) else (work.qk_dim > 128)
    return LAYOUTS[style_of(key, device, False)](work, key, device, off, k)


def same_widths(work: Attend) -> bool:
    """Whether K and V are equally wide; MLA's are not, nor MiMo-V2's."""
    return not some(work.qk_dim - work.v_dim)


def _of_encoder(key: Key) -> bool:
    return key.kernel.startswith("encoder:")


def _narrow(work: Attend, key: Key) -> bool:
    return work.math == "fp8" or key.kv == "fp8"


def _sixteens(width: Any, k: Kit) -> Any:
    """Padded to whole sixteens."""
    return 16 * k.ceil(width / 16)


def _triton(work: Attend, key: Key, device: Device, off: Any, k: Kit) -> Layout:
    """Triton pads heads to a power of two and walks the grid heads first: K and V are read again."""
    width = work.qk_dim
    padded = k.where(width == 192, 192, 2.0 ** k.ceil(k.log2(width)))
    if _of_encoder(key):
        side = 64 if device.generation == "ada" else 128
        return Layout(side, side, padded, off_path=width % 16 != 0, skips=False, rereads=True)
    if key.stack.startswith("vllm"):
        return Layout(16, 32, padded, ALWAYS, off, skips=False, rereads=True)
    rows = k.where(width <= 256, 64, 32) if device.generation in ADA else 128
    return Layout(rows, 64, padded, off_path=off, skips=False, rereads=True)


def _trtllm_gen(work: Attend, key: Key, device: Device, off: Any, k: Kit) -> Layout:
    stuck = (work.qk_dim == 72) & key.stack.startswith("trtllm")
    return Layout(256, 128, _sixteens(work.qk_dim, k), off_path=off, fallback=stuck)


def _trtllm(work: Attend, key: Key, device: Device, off: Any, k: Kit) -> Layout:
    padded = _sixteens(work.qk_dim, k)
    if device.generation == "hopper":
        keys = KEYS["trt fp8" if _narrow(work, key) else "trt"]
        return Layout(128, stepped(work.qk_dim, keys, k), padded, off_path=off)
    if device.generation not in OLDER:
        return Layout(128, 128, padded, off_path=off)
    padded = k.where(work.qk_dim > 160, 256, padded)
    if work.math == "fp8" and device.generation in ADA:
        return Layout(64, 64, k.most(padded, 128), off_path=work.qk_dim > 192)
    return Layout(64, 64, padded, off_path=off)


def _flashinfer(work: Attend, key: Key, device: Device, off: Any, k: Kit) -> Layout:
    packed = work.new * work.heads / work.kv_heads
    rows = k.where((packed > 64) & (work.qk_dim < 256), 128, k.where(packed > 16, 64, 16))
    skips = not key.stack.startswith("sglang")
    return Layout(rows, 64, padded_to(work.qk_dim, HEADS, k), ALWAYS, off, skips=skips)


def _fa2(work: Attend, key: Key, device: Device, off: Any, k: Kit) -> Layout:
    rows, name = (128, "fa2 encoder") if _of_encoder(key) else (64, "fa2")
    return Layout(rows, stepped(work.qk_dim, KEYS[name], k), padded_to(work.qk_dim, HEADS, k), off_path=off)


def _fa3(work: Attend, key: Key, device: Device, off: Any, k: Kit) -> Layout:
    rows = k.where(work.qk_dim <= 96, 192, 128) if device.generation == "hopper" else 128
    keys = stepped(work.qk_dim, KEYS["fa3 fp8" if _narrow(work, key) else "fa3"], k)
    return Layout(rows, keys, padded_to(work.qk_dim, HEADS, k), FEWER, off)


def _xpu(work: Attend, key: Key, device: Device, off: Any, k: Kit) -> Layout:
    return Layout(128, 128, padded_to(work.qk_dim, HEADS, k), FEWER, off, skips=False)


LAYOUTS: Mapping[str, Callable[[Attend, Key, Device, Any, Kit], Layout]] = {
    "triton": _triton,
    "gen": _trtllm_gen,
    "trt": _trtllm,
    "flashinfer": _flashinfer,
    "fa2": _fa2,
    "fa3": _fa3,
    "xpu": _xpu,
}
"""By style; `off`, the fourth argument, is whether no kernel is tuned for the width."""


def prefill_s(work: Attend, device: Device, p: Params, working_set: Any = None) -> Any:
    """Seconds of attention alone; `working_set` None: Q, K and V come from cold memory.

    launch + (tiles ⊕ memory), where a ⊕ b is a p-norm: what overlaps hides in part.
    """
    k = kit(work.sequences, work.new, work.context, work.heads, work.qk_dim, *p.values())
    key: Key = p.get("key", Key())
    lay = layout_of(work, key, device, k)
    tiles_s = _tiles_s(work, lay, device, p, key, k)
    moved = work.sequences * work.context * work.row_bytes
    if lay.rereads:
        # The grid walks heads first: once K and V outgrow L2, every block reads them from memory again.
        spilt = switched(moved / device.l2_bytes, L2_SHARPNESS)
        blocks = k.ceil(work.new / lay.rows)
        moved = moved * (1 + (blocks - 1) * k.where(_causal(work), 0.5, 1.0) * spilt)
    wide = work.activation_bytes
    row = (1 if work.math == "fp8" else wide) * work.qk_dim + wide * work.v_dim
    moved = moved + work.sequences * work.new * work.heads * row
    memory_s = moved * _byte_s(device, working_set) / p["memory_share"]
    return p["launch_us"] * US + power_norm(tiles_s, memory_s, MEMORY_NORM)


def prefill_kernel_s(work: PrefillKernel, device: Device, p: Params, working_set: Any = None) -> Any:
    """Seconds of attention with its cache write, as measured."""
    update = (work.appended + work.prepared) * _byte_s(device, working_set) / p["update_share"]
    return prefill_s(work.attend, device, p, working_set) + update


def append_s(appended: Any, device: Device, p: Params) -> Any:
    """Seconds of the cache write that goes with a prefill's attention, from cold memory."""
    return appended * _byte_s(device, None) / p["update_share"]


def _byte_s(device: Device, working_set: Any) -> Any:
    """Seconds per byte: memory's where the working set misses L2, L2's where it fits."""
    if not device.generation:
        return 1 / device.bandwidth
    inside = 1 / (device.cores * device.clock_hz * L2_BYTES_PER_CLOCK)
    outside = max(1 / device.bandwidth, inside)
    if working_set is None:
        return outside
    hit = 1 - 1 / (1 + (device.l2_bytes / working_set) ** L2_SHARPNESS)
    return outside * (1 - hit) + inside * hit


def _causal(work: Attend) -> Any:
    return work.pairs < work.new * work.context


def _tiles_s(work: Attend, lay: Layout, device: Device, p: Params, key: Key, k: Kit) -> Any:
    """The SMs' part: tile · max(longest, average + waited) + wave · waves.

    `tile` seconds: its two products (4·rows·keys·width FLOPs) ⊕ its exponentials; `longest`: key tiles of the
    longest block; `average`: tiles of an SM, spread evenly; `waited`: of what an uneven end leaves idle, the
    share `tail`; a CTA is one block of one head (or of the grouped heads that are packed together).
    """
    group = work.heads / work.kv_heads
    together = k.ceil(work.new * group / lay.rows) * work.kv_heads
    packs = together < lay.pack * k.ceil(work.new / lay.rows) * work.heads
    rows = k.where(packs, lay.rows / group, lay.rows)
    blocks = k.ceil(work.new / rows)
    heads = k.where(packs, work.kv_heads, work.heads)
    longest, total = _key_tiles(work, lay, rows, blocks, k)
    ctas = work.sequences * heads * blocks
    waves = k.ceil(ctas / device.cores)
    average = work.sequences * heads * total / device.cores
    # A causal schedule ends on blocks of all lengths; an even one on a part-filled wave.
    idle = average * (waves * device.cores / ctas - 1)
    waited = k.where(_causal(work), p["tail"] * 0.5 * longest, k.least(p["tail"], 1) * idle)
    flops = 4 * lay.rows * lay.keys * lay.width * device.cores / device.peak(work.math)
    share = k.where(lay.off_path, p["mma_share"] * p["off_path"], p["mma_share"])
    scores_s = p["exp_cost"] * lay.rows * lay.keys / (EXP_PER_CLOCK * device.clock_hz)
    tuned = power_norm(flops / share, scores_s, SOFTMAX_NORM)
    tile_s = k.where(lay.fallback, flops / FALLBACK_SHARE, tuned)
    wave_us = p["wave_us"]
    if _of_encoder(key) and style_of(key, device, False) in ("triton", "fa3"):
        # Where they have no tuned kernel, the ends of these two are as slow as their products.
        wave_us = k.where(lay.off_path, wave_us / p["off_path"], wave_us)
    return tile_s * k.most(longest, average + waited) + wave_us * US * waves


EVERYTHING = 1e12
"""A window that leaves out no key."""


def _key_tiles(work: Attend, lay: Layout, rows: Any, blocks: Any, k: Kit) -> tuple[Any, Any]:
    """(tiles of the longest block, tiles of all blocks) of one sequence and head.

    Causal block j of `rows` rows visits the tiles up to its own last row, at most a window's: without one,
    the blocks' tiles grow by ratio = rows / keys, and n blocks have ratio·n(n+1)/2 of them together (where
    blocks are shorter than a tile, whole tiles: n(ratio·n + 1)/2), and a past adds its tiles to each.
    `whole`: tiles of all keys; `full`: those of a block whose window is full; `inside`: blocks before that.
    """
    ratio, whole = rows / lay.keys, k.ceil(work.context / lay.keys)
    past = work.context - work.new
    window = EVERYTHING + 0 * work.new  # an array where the work is one
    if lay.skips:
        window = k.where(work.window > 0, work.window, EVERYTHING)
    full = k.least(whole, k.ceil((window + rows) / lay.keys))
    inside = k.least(blocks - 1, k.most(0, k.floor((window - past) / rows)))
    steps = inside * (inside + 1) / 2
    growing = k.where(ratio >= 1, ratio * steps, k.most(inside, inside * (ratio * inside + 1) / 2))
    growing = growing + inside * past / lay.keys
    causal = k.least(growing, inside * full) + (blocks - inside) * full
    masked = _causal(work)
    # Keys chosen by an indexer: fewer pairs than the triangle, in tiles that are skipped.
    kept = k.where(work.window > 0, 1.0, k.least(1.0, work.pairs / dense_pairs(work)))
    return k.where(masked, full * kept, whole), k.where(masked, causal * kept, blocks * whole)


def dense_pairs(work: Attend) -> Any:
    """Query-key pairs of causal attention that leaves none out."""
    return work.new * (work.context - work.new) + work.new * (work.new + 1) / 2
