"""Rows of each kind of file as works of the cost model: a shape, its group, its family of shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..costmodel.attention import visited_pairs
from ..costmodel.op import Attend, Collective, Gemm
from ..costmodel.times.collectives import over_pcie
from ..costmodel.times.device import Device
from ..costmodel.times.experts import TILES, ExpertLayer
from ..costmodel.times.pointwise import RowKernel
from ..costmodel.times.prefill import (
    PrefillKernel,
    style_of,
)
from ..hardware.calibration import Key
from ..models.formats import find_format
from .moe_routing import SHARES, balanced, power_law

LATENT_QK, LATENT_V = 192, 128
LATENT_WIDTH, LATENT_VALUES = 576, 512
"""Widths of DeepSeek's rebuilt heads (keys, values), and of the cached row and the values in it."""
QUANTISER_TOKEN_BYTES = 1536
"""Floor per token of quantising Q and the cache beside FlashAttention-3."""

Rows = dict[str, Any]
"""Columns of one group as arrays."""


class Part(NamedTuple):
    """Rows of one family among those of a group; `keep` selects them."""

    family: str
    key: Key
    work: Any
    working_set: Any
    shape: Any
    keep: Any = slice(None)


def anything(rows: Rows) -> Any:
    """No row of this kind can contradict itself."""
    return np.full(len(next(iter(rows.values()))), True)


class Reader(NamedTuple):
    """One kind of file: `columns` that tell it, `group` those that tell groups apart, `numbers` and
    `texts` those of a row; `refuse` says why a group is left out ("" where it is not), `sensible` which
    rows make sense."""

    name: str
    group: tuple[str, ...]
    numbers: tuple[str, ...]
    texts: tuple[str, ...]
    refuse: Callable[[Mapping[str, Any]], str]
    read: Callable[[Mapping[str, Any], Rows, Device], Iterator[Part]]
    sensible: Callable[[Rows], Any] = anything

    @property
    def columns(self) -> tuple[str, ...]:
        return ("gpu", *self.group, *self.numbers, *self.texts, "time_us")


def joined(*columns: Any) -> Any:
    """One text a row from columns of numbers: the name of its shape family."""
    names = ["/".join(f"{value:g}" for value in row) for row in zip(*columns, strict=True)]
    return np.array(names, dtype=object)


WIDE = 1 << 15


def each_of(name: str) -> float:
    """Bytes of each value in a format of ours, scales included, in a matrix so wide that one scale of a whole
    tensor is nothing."""
    return find_format(name).bits_per_weight(WIDE, WIDE) / 8


GEMM_TYPES = {
    "bf16": ("bf16", 2.0),
    "fp16": ("fp16", 2.0),
    "fp8": ("fp8", 1.0),
    "fp8_block": ("fp8", each_of("fp8-block")),
    "nvfp4": ("fp4", each_of("nvfp4")),
    "sq": ("int8", 1.0),
    "int8_wo": ("bf16", 1.0),
    "int4_wo": ("bf16", each_of("int4-g128")),
}
"""Type of the matrix units and bytes per weight, scales included, by the files' name of a type."""


def refuse_gemm(named: Mapping[str, Any]) -> str:
    if str(named["framework"]).endswith("-eager"):
        return "GEMM rows taken without a CUDA graph (-eager): bound by the host"
    if named["dtype"] not in GEMM_TYPES:
        return f"GEMM rows of a type not modelled ({str(named['dtype'])[:40]})"
    return ""


def read_gemm(named: Mapping[str, Any], rows: Rows, device: Device) -> Iterator[Part]:
    """[m, k] x [k, n]; how many copies of the weights the collector cycled through decides what L2 kept."""
    m, n, k = rows["m"], rows["n"], rows["k"]
    math, weight = GEMM_TYPES[named["dtype"]]
    size = n * k * weight
    work = Gemm(m, k, n, size, math)
    copies = weight_copies(str(named["framework"]), size, device)
    replayed = None if copies is None else copies * size + m * k * min(weight, 2.0) + 2 * m * n
    key = Key(stack=str(named["framework"]), dtype=str(named["dtype"]))
    yield Part("gemm", key, work, replayed, joined(n, k))


COPIES = {"vllm": 6, "sglang": 6, "vidur": 1}
MOST_COPIES = 5


def weight_copies(stack: str, size: Any, device: Device) -> Any:
    """Weight buffers a collector rotates: 6 (vLLM, SGLang), 1 to 5 until they exceed L2 (TensorRT-LLM),
    1 (Vidur); None where they were cold. Source: ../shared/measured/PROVENANCE.md."""
    family = stack.split("-")[0]
    if family == "trtllm":
        return np.clip(np.ceil(device.l2_bytes / size), 1, MOST_COPIES)
    return COPIES.get(family)


COLLECTIVES = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "all_to_all": "all_to_all",
    "send_recv": "send",
    "send": "send",
}


def sensible_collective(rows: Rows) -> Any:
    return rows["world"] >= 2


def refuse_collective(named: Mapping[str, Any]) -> str:
    if str(named["framework"]).startswith("nccl-torch"):
        return "Vidur's collectives: rows within and across nodes are not told apart"
    if named["op"] not in COLLECTIVES:
        return f"collectives of a kind not modelled ({str(named['op'])[:40]})"
    return ""


def read_collective(named: Mapping[str, Any], rows: Rows, device: Device) -> Iterator[Part]:
    """`bytes` as nccl-tests counts them (total of an all-gather's output); oneCCL rows of all-gather hold
    one rank's input."""
    stack, _, path = str(named["framework"]).partition("/")
    kernel = path.rpartition("/")[2]
    op = COLLECTIVES[named["op"]]
    size, world = rows["bytes"], rows["world"]
    if stack.startswith("oneccl") and op == "all_gather":
        size = size * world
    pcie = over_pcie(device, world.max())
    if stack.startswith(("nccl", "oneccl")):
        family = "collective_pcie" if pcie else "collective"
    else:
        family = "custom_pcie" if pcie else "custom_all_reduce"
    work = Collective(op, size, world, eager="eager" in kernel)
    key = Key(stack=stack, kernel=kernel, op=op)
    yield Part(family, key, work, None, np.array([f"{op}/{w:g}" for w in world], dtype=object))


ROW_BYTES = {
    "gelu": 4,
    "layernorm": 4,
    "softmax": 4,
    "add": 6,
    "attn_rope": 4,
    "mlp_act": 6,
    "emb": 4,
    "input_layernorm": 4,
    "post_attention_layernorm": 4,
    "scale_matrix": 3,
}
"""Bytes moved per value: read and write in 16 bit (a second read for add and gated activations), or
16 bit in and 8 out."""
GELU_ROW = 1024
PROJECTIONS = {"mla_gen_pre": (128, 512), "mla_gen_post": (512, 128)}
"""(inner, outer) of absorbed MLA's projections of each head, into and out of the latent space."""


def refuse_other(named: Mapping[str, Any]) -> str:
    if named["op"] == "computescale":
        return "computescale rows: the difference of two timings, at times below a launch"
    if named["op"] not in ROW_BYTES and named["op"] not in PROJECTIONS:
        return f"kernels of a kind not modelled ({str(named['op'])[:40]})"
    return ""


def read_other(named: Mapping[str, Any], rows: Rows, device: Device) -> Iterator[Part]:
    """`rows` x `cols` of an elementwise kernel; or tokens x heads of MLA's projections."""
    op, dtype = str(named["op"]), str(named["dtype"])
    count, width = rows["rows"], rows["cols"]
    key = Key(stack=str(named["framework"]), op=op, dtype=dtype)
    if op in PROJECTIONS:
        inner, outer = PROJECTIONS[op]
        size = width * inner * outer * (1 if dtype == "fp8" else 2)
        work = Gemm(count, inner, outer, size, "fp8" if dtype == "fp8" else "bf16", batch=width)
        yield Part("head_projection", key, work, work.bytes.total, joined(width))
        return
    if op == "gelu":
        count, width = np.maximum(count / GELU_ROW, 1 / GELU_ROW), np.full(len(count), float(GELU_ROW))
    moved = ROW_BYTES[op] * count * width
    if op == "add":
        # Phi-2 runs attention and MLP side by side: two adds in one figure.
        moved = moved * np.where(["phi-2" in str(note) for note in rows["note"]], 2, 1)
    yield Part("pointwise", key, RowKernel(count, width, moved), moved, joined(width))


BARE_STACKS = ("fa3",)
"""Measured as kernels alone (InferSim), without a serving stack's cache write."""
STORED = {"bf16": 2, "fp16": 2, "fp8": 1}


def refuse_attention(named: Mapping[str, Any]) -> str:
    unknown = [named[name] for name in ("dtype", "kv_dtype") if named[name] not in STORED]
    return f"attention rows of a type not modelled ({str(unknown[0])[:40]})" if unknown else ""


def sensible_attention(rows: Rows) -> Any:
    """Query heads share KV heads evenly, and a sequence has no more new tokens than tokens."""
    grouped = rows["q_heads"] % rows["kv_heads"] == 0
    return grouped & (rows["q_len"] <= rows["kv_len"]) & (rows["causal"] <= 1)


def sensible_mla(rows: Rows) -> Any:
    return rows["q_len"] <= rows["kv_len"]


def refuse_mla(named: Mapping[str, Any]) -> str:
    if named["phase"] not in ("prefill", "decode"):
        return f"MLA rows of no known phase ({str(named['phase'])[:40]})"
    return refuse_attention(named)


def _attention_key(named: Mapping[str, Any]) -> Key:
    texts = {name: str(named[name]) for name in ("framework", "kernel", "dtype", "kv_dtype")}
    return Key(texts["framework"], texts["kernel"], dtype=texts["dtype"], kv=texts["kv_dtype"])


def read_attention(named: Mapping[str, Any], rows: Rows, device: Device) -> Iterator[Part]:
    """Decode where one new token meets older ones, prefill otherwise."""
    key, shape = _attention_key(named), joined(rows["q_heads"], rows["kv_heads"], rows["head_dim"])
    single = (rows["q_len"] == 1) & (rows["kv_len"] > 1)
    for keep, read in ((single, _decode_rows), (~single, _prefill_rows)):
        if keep.any():
            chosen = {name: column[keep] for name, column in rows.items()}
            family, work, working_set = read(key, chosen, device)
            yield Part(family, key, work, working_set, shape[keep], keep)


def _attend(key: Key, rows: Rows, context: Any, pairs: Any) -> Attend:
    width, stored = rows["head_dim"], STORED[key.kv]
    return Attend(
        rows["batch"],
        rows["q_len"],
        context,
        pairs,
        rows["q_heads"],
        rows["kv_heads"],
        width,
        width,
        2 * rows["kv_heads"] * width * stored,
        key.dtype,
        window=rows["window"],
    )


def _decode_rows(key: Key, rows: Rows, device: Device) -> tuple[str, Attend, Any]:
    length, window = rows["kv_len"], rows["window"]
    context = np.where(window > 0, np.minimum(length, window), length)
    work = _attend(key, rows, context, context)
    return "decode_xqa" if key.kernel == "torch_flow" else "decode", work, work.bytes.total


def _prefill_rows(key: Key, rows: Rows, device: Device) -> tuple[str, PrefillKernel, Any]:
    """Times of serving stacks hold the write of the cache, and of quantising what an fp8 cache takes."""
    new, past = rows["q_len"], rows["kv_len"] - rows["q_len"]
    window = np.where(rows["window"] > 0, rows["window"], 1e12)
    causal = rows["causal"] > 0
    pairs = np.where(causal, visited_pairs(new, past, window), new * rows["kv_len"])
    work = _attend(key, rows, rows["kv_len"], pairs)
    fresh = rows["batch"] * new
    cached = 2 * fresh * rows["kv_heads"] * rows["head_dim"]
    moved = work.bytes.total
    if key.kernel.startswith("encoder:") or key.stack in BARE_STACKS:
        return "prefill", PrefillKernel(work), moved
    prepared: Any = 0
    style = style_of(key, device, False)
    if key.kv == "fp8" and key.dtype != "fp8" and style in ("gen", "fa3"):
        each = QUANTISER_TOKEN_BYTES if style == "fa3" else 0
        prepared = fresh * (rows["q_heads"] * rows["head_dim"] + each)
    kernel = PrefillKernel(work, (2 + STORED[key.kv]) * cached, prepared)
    return "prefill", kernel, moved + 2 * cached


def read_mla(named: Mapping[str, Any], rows: Rows, device: Device) -> Iterator[Part]:
    """DeepSeek's MLA: absorbed in decode, and in prefill where the kernel does so; else K and V rebuilt."""
    key, stored = _attention_key(named), STORED[str(named["kv_dtype"])]
    new, length, heads, batch = rows["q_len"], rows["kv_len"], rows["heads"], rows["batch"]
    shape = joined(heads)
    if named["phase"] == "decode":
        work = _absorbed(batch, new, length, new * length, heads, key)
        yield Part("mla_decode", key, work, work.bytes.total, shape)
        return
    pairs = visited_pairs(new, length - new)
    absorbed = style_of(key, device, True) in ("fa3", "triton")
    fresh = batch * new
    appended = (2 + stored) * fresh * LATENT_WIDTH
    prepared: Any = 0
    if absorbed:
        work = _absorbed(batch, new, length, pairs, heads, key)
    else:
        row = heads * (LATENT_QK + LATENT_V) * stored
        work = Attend(batch, new, length, pairs, heads, heads, LATENT_QK, LATENT_V, row, key.dtype)
        if stored == 1:
            prepared = (2 + stored) * fresh * heads * LATENT_VALUES
    kernel = PrefillKernel(work, appended, prepared)
    yield Part("mla_prefill", key, kernel, work.bytes.total + 2 * fresh * LATENT_WIDTH, shape)


def _absorbed(batch: Any, new: Any, length: Any, pairs: Any, heads: Any, key: Key) -> Attend:
    """Attention to the latent rows themselves: one KV head, whose values are in its keys."""
    widths, row = (LATENT_WIDTH, LATENT_VALUES), LATENT_WIDTH * STORED[key.kv]
    return Attend(batch, new, length, pairs, heads, 1, *widths, row, key.dtype, v_in_k=True)


MOE_TYPES = {
    "bf16": ("bf16", 2.0, 2.0),
    "fp16": ("fp16", 2.0, 2.0),
    "fp8": ("fp8", 1.0, 1.0),
    "fp8_block": ("fp8", 1.0, each_of("fp8-block")),
    "nvfp4": ("fp4", each_of("nvfp4"), each_of("nvfp4")),
    "w4a16_mxfp4": ("bf16", 2.0, each_of("mxfp4")),
    "w4a8_mxfp4_mxfp8": ("fp8", 1.03, each_of("mxfp4")),
    "int4_wo": ("bf16", 2.0, each_of("int4-g128")),
}
"""Type of the matrix units, bytes per activation and per weight with their scales."""
REPEATED_SLOTS = "sglang-0.5.10"
"""In these rows every token of a rank seems to go to top_k of its local experts: loads are top_k-fold."""


def refuse_moe(named: Mapping[str, Any]) -> str:
    if named["dtype"] not in MOE_TYPES:
        return f"MoE rows of a type not modelled ({str(named['dtype'])[:40]})"
    if _skew(str(named["distribution"])) is None:
        return f"MoE rows of a distribution not modelled ({str(named['distribution'])[:40]})"
    return ""


def sensible_moe(rows: Rows) -> Any:
    """No more experts a token, and no more ranks, than there are experts."""
    return (rows["topk"] <= rows["experts"]) & (rows["moe_ep"] <= rows["experts"])


def read_moe(named: Mapping[str, Any], rows: Rows, device: Device) -> Iterator[Part]:
    """A whole layer on the rank that was timed, as the collector dealt the tokens."""
    math, activation, weight = MOE_TYPES[named["dtype"]]
    tokens, top_k, experts = rows["num_tokens"], rows["topk"], rows["experts"]
    ranks = rows["moe_ep"]
    alpha = _skew(str(named["distribution"])) or 0.0
    if alpha:
        each, touched = power_law(tokens, top_k, experts, ranks, alpha)
    else:
        each, touched = balanced(tokens, top_k, experts, ranks)
        each, touched = np.repeat(each, len(SHARES), 0), touched * SHARES
    touched = touched * np.maximum(1, 1 / np.maximum(touched.sum(0), 1e-9))
    if named["framework"] == REPEATED_SLOTS:
        each = np.where(ranks > 1, each * top_k, each)
    tiles = {high: (np.ceil(each / high - 1e-9) * touched).sum(0) for high in {h for h, _ in TILES}}
    work = ExpertLayer(
        tokens,
        top_k,
        rows["hidden"],
        rows["inter"] / rows["moe_tp"],
        (each * touched).sum(0),
        touched.sum(0),
        tiles,
        2 if "nongated" in str(named["kernel"]) else 3,
        weight,
        activation,
        math,
    )
    key = Key(str(named["framework"]), str(named["kernel"]), dtype=str(named["dtype"]))
    shape = joined(rows["hidden"], rows["inter"], experts)
    yield Part("moe", key, work, work.bytes.total, shape)


STEEPEST = 4.0


def _skew(text: str) -> float | None:
    """Exponent of `power_law_1.2`; 0 of what is balanced; None of anything else."""
    if text.startswith("balanced"):
        return 0.0
    try:
        alpha = float(text.removeprefix("power_law_"))
    except ValueError:
        return None
    return alpha if text.startswith("power_law_") and 0 < alpha <= STEEPEST else None


READERS = (
    Reader("GEMM", ("framework", "dtype"), ("m", "n", "k"), (), refuse_gemm, read_gemm),
    Reader(
        "collective",
        ("framework", "op"),
        ("bytes", "world"),
        (),
        refuse_collective,
        read_collective,
        sensible_collective,
    ),
    Reader(
        "attention",
        ("framework", "kernel", "dtype", "kv_dtype"),
        ("batch", "q_len", "kv_len", "q_heads", "kv_heads", "head_dim", "causal", "window"),
        (),
        refuse_attention,
        read_attention,
        sensible_attention,
    ),
    Reader(
        "MLA",
        ("framework", "phase", "kernel", "dtype", "kv_dtype"),
        ("batch", "q_len", "kv_len", "heads"),
        (),
        refuse_mla,
        read_mla,
        sensible_mla,
    ),
    Reader(
        "MoE",
        ("framework", "kernel", "dtype", "distribution"),
        ("num_tokens", "hidden", "inter", "topk", "experts", "moe_tp", "moe_ep"),
        (),
        refuse_moe,
        read_moe,
        sensible_moe,
    ),
    Reader("other", ("framework", "op", "dtype"), ("rows", "cols"), ("note",), refuse_other, read_other),
)
