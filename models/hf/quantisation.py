"""quantization_config into the name of a recipe, with the modules it leaves alone."""

from __future__ import annotations

import re
from typing import Any

from ..recipes import FIRST_LAYER, LAST_LAYER
from .fields import Fields

# Words in the names of modules a checkpoint leaves alone, and the components they stand for here.
# Embeddings, head, router and norms are left alone by every recipe.
_COMPONENTS = {
    "mlp.experts": "experts",
    "self_attn": "attention",
    "attention": "attention",
    "linear_attn": "recurrent",
    "mamba": "recurrent",
    "mixer": "recurrent",
    "shared_expert": "shared_experts",
    "shared_mlp": "shared_experts",
}
_ALWAYS = ("lm_head", "embed", "norm", "gate", "router", "bias", "visual", "vision", "mtp", "proj_out")


def published_weights(outer: Fields, text: Fields, layers: int) -> str:
    """The recipe of a checkpoint of so many `layers` as published; "" where the file names none.

    Raises InputError for a method or a shape of scales that is not known.
    """
    q = _section(outer, text)
    if q is None:
        return ""
    method = q.text("quant_method", default="")
    if not method and (q.has("quant_algo") or isinstance(q.data.get("quantization"), dict)):
        method = "modelopt"
    readers = {
        "fp8": _fp8,
        "fbgemm_fp8": lambda _: "fp8-row",
        "mxfp4": lambda _: "mxfp4-experts",
        "gptq": _grouped,
        "awq": _grouped,
        "bitsandbytes": _bitsandbytes,
        "compressed-tensors": _compressed,
        "modelopt": _modelopt,
    }
    if method not in readers:
        raise q.error(f"quant_method '{method}' is not known; known are {', '.join(readers)}")
    name = readers[method](q)
    if method == "mxfp4":
        return name
    kept = _left_alone(q.section("quantization") or q, layers)
    return f"{name} except {','.join(kept)}" if kept and name else name


def published_cache(outer: Fields, text: Fields) -> str:
    """The format the checkpoint asks its cache to be kept in; "" where it asks for none.

    ModelOpt's kv_cache_quant_algo and compressed-tensors' kv_cache_scheme: the checkpoint holds scales for
    it. A format that is not known is named in `inferred`, and 16 bit is counted.
    """
    q = _section(outer, text)
    if q is None:
        return ""
    algorithm = (q.section("quantization") or q).text("kv_cache_quant_algo", default="").upper()
    scheme = q.section("kv_cache_scheme")
    if scheme is not None and scheme.data:
        bits, kind = scheme.integer("num_bits", default=8), scheme.text("type", default="float")
        algorithm = f"{'FP' if kind == 'float' else 'INT'}{bits}"
    if algorithm in ("", "NONE"):
        return ""
    if algorithm not in _CACHES:
        q.infer(f"the checkpoint asks for a cache in {algorithm[:20]}, which is not known: 16 bit (see --kv)")
        return ""
    return _CACHES[algorithm]


_CACHES = {"FP8": "fp8", "INT8": "int8", "NVFP4": "nvfp4", "FP8_E4M3": "fp8"}


def _section(outer: Fields, text: Fields) -> Fields | None:
    """The mapping that says how the checkpoint is quantised."""
    section = None
    for f in (outer, text):
        section = section or f.section("quantization_config", "compression_config")
    return section


def _fp8(q: Fields) -> str:
    block = q.items("weight_block_size")
    if block is None:
        return "fp8"
    if block != [128, 128]:
        raise q.error(f"weight_block_size {block} is not known; [128, 128] is")
    return "fp8-block"


def _grouped(q: Fields) -> str:
    bits = q.integer("bits", "w_bit", default=4, why="no key says so")
    group = q.integer("group_size", "q_group_size", default=128, why="no key says so", least=-1)
    symmetric = q.flag("sym", default=True) and not q.flag("zero_point")
    for key in ("dynamic", "modules_in_block_to_quantize"):
        if q.has(key):
            q.infer(f"quantization_config.{key} is not read: every module of a layer is counted as quantised")
    if q.raw("lm_head") is True:
        raise q.error("a quantised lm_head is not known; write a sheet", "lm_head")
    return _integer(q, bits, group, symmetric)


def _integer(q: Fields, bits: int, group: int, symmetric: bool) -> str:
    if bits not in (2, 3, 4, 8):
        raise q.error(f"integers of {bits} bits are not known; 2, 3, 4 and 8 are")
    if group < 1:
        return "int8-row" if bits == 8 else "int4-row" if bits == 4 else _refuse_row(q, bits)
    return f"int{bits}-g{group}" + ("" if symmetric else "-asym")


def _refuse_row(q: Fields, bits: int) -> str:
    raise q.error(f"{bits}-bit integers with one scale a row are not known")


def _bitsandbytes(q: Fields) -> str:
    if q.flag("load_in_4bit"):
        if q.text("bnb_4bit_quant_type", default="fp4") not in ("nf4", "fp4"):
            raise q.error("bnb_4bit_quant_type is nf4 or fp4")
        return "bnb-nf4-dq" if q.flag("bnb_4bit_use_double_quant") else "bnb-nf4"
    if q.flag("load_in_8bit"):
        return "bnb-int8"
    raise q.error("neither load_in_4bit nor load_in_8bit is set")


def _compressed(q: Fields) -> str:
    groups = q.section("config_groups")
    if groups is None or not groups.data:
        raise q.error("'config_groups' is missing; it says how weights are stored")
    if len(groups.data) > 1:
        raise q.error(f"config_groups has {len(groups.data)} groups; one format for all is known")
    if q.text("format", default="").startswith("sparse"):
        raise q.error("sparse weights are not known")
    first = groups.section(next(iter(groups.data)))
    weights = first.section("weights") if first is not None else None
    if weights is None:
        raise q.error("the first of config_groups has no 'weights'")
    bits, kind = weights.integer("num_bits"), weights.text("type", default="int")
    strategy = weights.text("strategy", default="tensor")
    group = weights.integer("group_size", default=-1, least=-1)
    if kind == "float" and bits == 8:
        names = {"tensor": "fp8", "channel": "fp8-row", "block": "fp8-block"}
        if strategy not in names:
            raise q.error(f"fp8 weights by '{strategy}' are not known")
        if strategy == "block" and weights.items("block_structure") not in (None, [128, 128]):
            raise q.error("block_structure: blocks of 128 x 128 are known")
        return names[strategy]
    if kind == "float" and bits == 4:
        if group not in (16, 32):
            raise q.error(f"fp4 weights in groups of {group} are not known; 16 (nvfp4) and 32 (mxfp4) are")
        return "nvfp4" if group == 16 else "mxfp4"
    return _integer(q, bits, group if strategy == "group" else -1, weights.flag("symmetric", default=True))


def _modelopt(q: Fields) -> str:
    inner = q.section("quantization") or q
    algorithm = inner.text("quant_algo", default="").upper()
    names = {"FP8": "fp8", "NVFP4": "nvfp4", "W4A16_AWQ": "awq", "INT8_SQ": "int8-row", "MXFP4": "mxfp4"}
    if algorithm not in names:
        raise q.error(f"quant_algo '{algorithm}' is not known; known are {', '.join(names)}")
    return names[algorithm]


def _left_alone(q: Fields, layers: int) -> list[str]:
    """Components, and layers at the ends, that the lists of ignored modules name; other single layers among
    them are only noted."""
    patterns: list[Any] = []
    for key in (
        "modules_to_not_convert",
        "ignore",
        "ignored_layers",
        "exclude_modules",
        "llm_int8_skip_modules",
    ):
        patterns += q.items(key) or []
    texts = [pattern for pattern in patterns if isinstance(pattern, str)]
    kept, single = _by_layer(texts, layers)
    partly = 0
    for pattern in texts:
        if pattern in single:
            continue
        words = [name for word, name in _COMPONENTS.items() if word in pattern]
        numbered = any(part.isdigit() for part in pattern.replace("\\", "").split("."))
        if words and not numbered:
            kept += [name for name in words if name not in kept]
        elif words or not any(word in pattern for word in _ALWAYS):
            partly += 1
    if partly:
        q.infer(f"{partly} modules left alone one by one are counted as quantised like the rest")
    return kept


_MLP = {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}


def _by_layer(patterns: list[str], layers: int) -> tuple[list[str], set[str]]:
    """What full names such as `model.layers.7.self_attn.q_proj` come to, and the names accounted for.

    A component is left alone where its modules are named in every layer; a layer at an end where its MLP is
    named beside it. Meta's 405B in FP8 is written so: self_attn of all 126 layers, and the MLP of two.
    """
    named: dict[int, dict[str, str]] = {}
    for pattern in patterns:
        match = re.fullmatch(r"(?:[\w.]+\.)?layers\.(\d{1,6})\.([\w.]+)", pattern)
        if match:
            named.setdefault(int(match[1]), {})[match[2]] = pattern
    everywhere = set.intersection(*(set(named.get(i, {})) for i in range(layers))) if named else set()
    kept: list[str] = []
    done: set[str] = set()
    for word, component in _COMPONENTS.items():
        modules = {module for inner in named.values() for module in inner if module.startswith(f"{word}.")}
        if modules and modules <= everywhere:
            kept += [component] if component not in kept else []
            done |= {inner[module] for inner in named.values() for module in modules & set(inner)}
    whole = [i for i in sorted({0, layers - 1}) if set(named.get(i, {})) >= _MLP]
    if "attention" in kept and whole:
        kept += [FIRST_LAYER] * (0 in whole) + [LAST_LAYER] * (layers - 1 in whole)
        done |= {named[i][module] for i in whole for module in _MLP}
    return kept, done
