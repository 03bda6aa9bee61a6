"""GGUF metadata and tensor names into a `Model`: shapes by the tensors, heads and windows by the keys."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Protocol

from .. import InputError
from ..sheets import nearest
from .attention import Attention, LatentAttention
from .block import Block
from .ffn import Dense, Experts
from .recurrent import ShortConvolution, StateSpace
from .spec import Layer, Model, Norm


class TensorInfo(Protocol):
    """Name, shape (row length first) and type of one tensor."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def type(self) -> str: ...
    @property
    def elements(self) -> int: ...


ARCHITECTURES = frozenset(
    [
        "arcee",
        "baichuan",
        "bailingmoe",
        "bloom",
        "chatglm",
        "codeshell",
        "cohere2",
        "command-r",
        "dbrx",
        "deepseek",
        "deepseek2",
        "dots1",
        "ernie4_5",
        "ernie4_5-moe",
        "exaone",
        "exaone4",
        "falcon",
        "gemma",
        "gemma2",
        "gemma3",
        "glm4",
        "glm4moe",
        "gpt-oss",
        "gpt2",
        "gptneox",
        "granite",
        "granitehybrid",
        "granitemoe",
        "hunyuan-dense",
        "hunyuan-moe",
        "internlm2",
        "jais",
        "jamba",
        "lfm2",
        "llama",
        "mamba",
        "mamba2",
        "minicpm",
        "mistral3",
        "mixtral",
        "mpt",
        "nemotron",
        "olmo",
        "olmo2",
        "olmoe",
        "orion",
        "phi2",
        "phi3",
        "phimoe",
        "plamo",
        "qwen",
        "qwen2",
        "qwen2moe",
        "qwen2vl",
        "qwen3",
        "qwen3moe",
        "qwen3vl",
        "qwen3vlmoe",
        "refact",
        "seed_oss",
        "smollm3",
        "stablelm",
        "starcoder",
        "starcoder2",
        "xverse",
    ]
)
"""Architectures whose layers are made of tensors known here, with one cache a layer."""
FORMATS = {"f32": "fp32", "f16": "fp16"}
# Which layers slide where the file has a window and no pattern: period, and how many of it slide first.
_PATTERNS = {"gemma2": (2, 1), "gemma3": (6, 5), "gpt-oss": (2, 1), "cohere2": (4, 3), "exaone4": (4, 3)}
_NO_WINDOW = ("llama", "qwen2", "qwen3")
# GGUF tensor to (component, name) here; one of theirs may be several of ours.
_NAMES: dict[str, tuple[tuple[str, str], ...]] = {
    "attn_q": (("attention", "q"),),
    "attn_k": (("attention", "k"),),
    "attn_v": (("attention", "v"),),
    "attn_qkv": (("attention", "q"), ("attention", "k"), ("attention", "v")),
    "attn_output": (("attention", "o"),),
    "attn_q_a": (("attention", "q_a"),),
    "attn_q_b": (("attention", "q_b"),),
    "attn_kv_a_mqa": (("attention", "kv_a"),),
    "attn_kv_b": (("attention", "kv_b"),),
    "attn_k_b": (("attention", "kv_b"),),
    "ffn_gate": (("mlp", "gate"),),
    "ffn_up": (("mlp", "up"),),
    "ffn_down": (("mlp", "down"),),
    "ffn_gate_inp": (("router", "router"),),
    "ffn_gate_exps": (("experts", "gate"),),
    "ffn_up_exps": (("experts", "up"),),
    "ffn_down_exps": (("experts", "down"),),
    "ffn_gate_shexp": (("shared_experts", "gate"),),
    "ffn_up_shexp": (("shared_experts", "up"),),
    "ffn_down_shexp": (("shared_experts", "down"),),
    "ffn_gate_inp_shexp": (("shared_experts", "shared_gate"),),
    "ssm_in": (("recurrent", "in"),),
    "ssm_x": (("recurrent", "x"),),
    "ssm_dt": (("recurrent", "dt"),),
    "ssm_out": (("recurrent", "out"),),
    "shortconv.in_proj": (("recurrent", "in"),),
    "shortconv.out_proj": (("recurrent", "out"),),
}


class Reader:
    """Keys of one architecture, checked; tensors of each layer by their short name."""

    def __init__(self, metadata: dict[str, Any], tensors: Iterable[TensorInfo], origin: str) -> None:
        self.metadata, self.origin, self.inferred = metadata, origin, list[str]()
        arch = metadata.get("general.architecture")
        if not isinstance(arch, str) or not arch.isprintable():
            raise self.error("'general.architecture' is missing")
        if arch not in ARCHITECTURES:
            hint = nearest(arch, ARCHITECTURES) or "; a config.json or a sheet can say what it is"
            raise self.error(f"architecture '{arch[:40]}' is not known{hint}")
        self.arch = arch
        if self.key("attention.shared_kv_layers"):
            raise self.error("layers that share a KV cache are not read from GGUF; use the config.json")
        if isinstance(metadata.get("split.count"), int) and metadata["split.count"] > 1:
            raise self.error(f"one of {metadata['split.count']} parts; join them (llama-gguf-split --merge)")
        self.layers: dict[int, dict[str, TensorInfo]] = {}
        self.outer: dict[str, TensorInfo] = {}
        for tensor in tensors:
            parts = tensor.name.split(".", 2)
            if parts[0] == "blk" and len(parts) == 3 and parts[1].isdecimal() and len(parts[1]) < 6:
                self.layers.setdefault(int(parts[1]), {})[parts[2]] = tensor
            else:
                self.outer[tensor.name] = tensor

    def error(self, problem: str) -> InputError:
        return InputError(f"{self.origin}: {problem}")

    def key(self, name: str, default: Any = None) -> Any:
        return self.metadata.get(f"{self.arch}.{name}", default)

    def count(self, name: str, default: int | None = None, layer: int = 0) -> int:
        """A whole number of `name`; of an array, the value of `layer`."""
        value = self.key(name)
        if isinstance(value, list):
            if layer >= len(value):
                raise self.error(f"'{self.arch}.{name}' has {len(value)} values, and layer {layer} wants one")
            value = value[layer]
        if value is None:
            if default is None:
                raise self.error(f"'{self.arch}.{name}' is missing")
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
            raise self.error(f"'{self.arch}.{name}' is not a sound count: {str(value)[:40]}")
        return value


def model_from_header(
    metadata: dict[str, Any], tensors: Iterable[TensorInfo], origin: str, name: str
) -> Model:
    """The model that metadata and tensors describe.

    Raises InputError where a key is missing or a shape contradicts another.
    """
    listed = tuple(tensors)
    r = Reader(metadata, listed, origin)
    count = r.count("block_count")
    if not 1 <= count <= 4096:
        raise r.error(f"block_count {count} is not between 1 and 4096")
    table = r.outer.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        raise r.error("there is no token_embd.weight")
    hidden, vocab = table.shape
    extra = [i for i in r.layers if i >= count]
    if extra:
        r.inferred.append(f"{len(extra)} layers beyond block_count (prediction heads) are not counted")
    try:
        layers = tuple(_layer(r, i, hidden) for i in range(count))
        model = Model(
            name=name if name.isprintable() and name else r.arch,
            hidden=hidden,
            vocab=vocab,
            layers=layers,
            source=f"GGUF header of {origin}, architecture {r.arch}",
            tied="output.weight" not in r.outer,
            norm=_norm(r),
            final_norm="output_norm.weight" in r.outer,
            embedding_norm="token_embd_norm.weight" in r.outer,
            positions=r.outer["position_embd.weight"].shape[1] if "position_embd.weight" in r.outer else 0,
            head_bias="output.bias" in r.outer,
            context=r.count("context_length", 0) or None,
            dtype="fp16",
            stored=_stored(r, count),
            inferred=tuple(r.inferred),
        )
    except InputError as error:
        if str(error).startswith(origin):
            raise
        raise r.error(str(error)) from None
    missed = sum(t.elements for t in listed) - model.parameters
    if missed < 0:
        raise r.error(f"the file holds {-missed:,} values fewer than its keys imply; it is not read rightly")
    if missed:
        note = f"{missed:,} values of the file's tensors are in no component known here (tables, biases)"
        return replace(model, inferred=(*model.inferred, note))
    return model


def _norm(r: Reader) -> Norm:
    first = r.layers.get(0, {})
    bias = any(name.endswith("norm.bias") for name in first)
    weight = any(name.endswith("norm.weight") for name in first)
    return Norm("layer" if bias else "rms" if weight else "none", bias)


def _layer(r: Reader, index: int, hidden: int) -> Layer:
    tensors = r.layers.get(index)
    if not tensors:
        raise r.error(f"layer {index} has no tensors")
    blocks: list[Block] = []
    if "attn_kv_a_mqa.weight" in tensors:
        blocks.append(_latent(r))
    elif "attn_q.weight" in tensors or "attn_qkv.weight" in tensors:
        blocks.append(_attention(r, index, tensors, hidden))
    if "ssm_in.weight" in tensors or "ssm_out.weight" in tensors:
        blocks.append(_state_space(r, tensors))
    if "shortconv.conv.weight" in tensors:
        kernel, width = tensors["shortconv.conv.weight"].shape[:2]
        blocks.append(ShortConvolution(width, kernel))
    if "ffn_gate_inp.weight" in tensors:
        blocks.append(_experts(r, tensors))
    elif "ffn_up.weight" in tensors:
        blocks.append(_dense(tensors))
    if not blocks:
        raise r.error(f"layer {index} of '{r.arch}' has neither attention, state space nor MLP known here")
    norms = [n for n, t in tensors.items() if n.endswith("norm.weight") and t.shape == (hidden,)]
    inner = ("attn_q_norm", "attn_k_norm", "ssm_norm", "attn_q_a_norm", "attn_kv_a_norm")
    return Layer(tuple(blocks), norms=len([n for n in norms if n.removesuffix(".weight") not in inner]))


def _bias_letters(tensors: dict[str, TensorInfo]) -> str:
    if "attn_qkv.bias" in tensors:
        return "qkv" + ("o" if "attn_output.bias" in tensors else "")
    names = {"q": "attn_q.bias", "k": "attn_k.bias", "v": "attn_v.bias", "o": "attn_output.bias"}
    return "".join(letter for letter, name in names.items() if name in tensors)


def _attention(r: Reader, index: int, tensors: dict[str, TensorInfo], hidden: int) -> Attention:
    """Heads by head_count and head_count_kv (a number, or one a layer), widths by key_length."""
    heads = r.count("attention.head_count", layer=index)
    kv_heads = r.count("attention.head_count_kv", heads, layer=index)
    if not heads or not kv_heads:
        raise r.error(f"layer {index} has attention tensors and no heads")
    window = _window(r, index)
    suffix = "_swa" if window and r.key("attention.key_length_swa") else ""
    head_dim = r.count(f"attention.key_length{suffix}", hidden // heads)
    v_dim = r.count(f"attention.value_length{suffix}", head_dim)
    query = tensors.get("attn_q.weight")
    gated = query is not None and query.shape[1] == 2 * heads * head_dim
    if query is not None and not gated and query.shape[1] != heads * head_dim:
        raise r.error(f"layer {index}: attn_q has {query.shape[1]} rows, not {heads} heads of {head_dim}")
    norm = tensors.get("attn_q_norm.weight")
    qk_norm = "" if norm is None else "head" if norm.shape[0] == head_dim else "full"
    rotated = r.count("rope.dimension_count", head_dim)
    return Attention(
        heads,
        kv_heads,
        head_dim,
        None if v_dim == head_dim else v_dim,
        window=window,
        bias=_bias_letters(tensors),
        qk_norm=qk_norm,
        rope_dim=rotated if rotated < head_dim else None,
        gated=gated,
        sinks="attn_sinks.weight" in tensors,
    )


def _window(r: Reader, index: int) -> int | None:
    window = r.count("attention.sliding_window", 0)
    if not window or r.arch in _NO_WINDOW:
        return None
    pattern = r.key("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        return window if index < len(pattern) and pattern[index] else None
    period, first = _PATTERNS.get(r.arch, (1, 1))
    if isinstance(pattern, int) and pattern > 0:
        period, first = pattern, max(pattern - 1, 1)
    elif r.arch in _PATTERNS and index == 0:
        r.inferred.append(f"windows: {first} of every {period} layers (architecture {r.arch})")
    return window if index % period < first else None


def _latent(r: Reader) -> LatentAttention:
    heads, rank = r.count("attention.head_count"), r.count("attention.kv_lora_rank")
    rope = r.count("rope.dimension_count")
    key = r.count("attention.key_length_mla", r.count("attention.key_length"))
    value = r.count("attention.value_length_mla", r.count("attention.value_length"))
    low = r.count("attention.q_lora_rank", 0)
    return LatentAttention(heads, rank, key - rope, rope, value, low or None)


def _state_space(r: Reader, tensors: dict[str, TensorInfo]) -> StateSpace:
    rank = r.count("ssm.time_step_rank")
    inner, state, kernel = r.count("ssm.inner_size"), r.count("ssm.state_size"), r.count("ssm.conv_kernel")
    if "ssm_x.weight" in tensors:
        return StateSpace(inner, state, kernel, dt_rank=rank, inner_norms="ssm_dt_norm.weight" in tensors)
    groups = r.count("ssm.group_count", 1)
    return StateSpace(inner, state, kernel, heads=rank, groups=max(groups, 1))


def _experts(r: Reader, tensors: dict[str, TensorInfo]) -> Experts:
    up = tensors.get("ffn_up_exps.weight") or tensors.get("ffn_down_exps.weight")
    if up is None or len(up.shape) != 3:
        raise r.error("a layer has a router and no stacked experts (ffn_up_exps)")
    width = up.shape[1] if "ffn_up_exps.weight" in tensors else up.shape[0]
    shared = tensors.get("ffn_up_shexp.weight")
    return Experts(
        up.shape[2],
        r.count("expert_used_count"),
        width,
        gated="ffn_gate_exps.weight" in tensors or "ffn_gate_up_exps.weight" in tensors,
        shared=0 if shared is None else 1,
        shared_width=None if shared is None else shared.shape[1],
        shared_gate="ffn_gate_inp_shexp.weight" in tensors,
        bias="ffn_up_exps.bias" in tensors,
        router_bias="ffn_gate_inp.bias" in tensors,
    )


def _dense(tensors: dict[str, TensorInfo]) -> Dense:
    up, down = tensors["ffn_up.weight"], tensors.get("ffn_down.weight")
    width = down.shape[0] if down is not None else up.shape[1]
    gated = "ffn_gate.weight" in tensors or up.shape[1] == 2 * width
    return Dense(width, gated, bias="ffn_up.bias" in tensors)


def _stored(r: Reader, count: int) -> tuple[tuple[int, str, str, str], ...]:
    """(layer, component, name, format) of every matrix; -1 is outside the layers."""
    out = []
    outside = (("token_embd.weight", "embedding", "embedding"), ("output.weight", "head", "head"))
    for name, component, ours in (*outside, ("position_embd.weight", "embedding", "positions")):
        if name in r.outer:
            out.append((-1, component, ours, _format(r.outer[name])))
    if "output_norm.weight" in r.outer:
        out.append((-1, "norms", "final_norm", _format(r.outer["output_norm.weight"])))
    for index in range(count):
        tensors = r.layers.get(index, {})
        wide = tensors.get("ffn_up.weight")
        for name, tensor in tensors.items():
            short = name.removesuffix(".weight")
            for component, ours in _NAMES.get(short, ()):
                out.append((index, component, ours, _format(tensor)))
            if short == "ffn_up" and tensor is wide and "ffn_gate.weight" not in tensors:
                out.append((index, "mlp", "gate", _format(tensor)))
    return tuple(out)


def _format(tensor: TensorInfo) -> str:
    return FORMATS.get(tensor.type, tensor.type)
