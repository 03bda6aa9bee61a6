"""A HuggingFace config.json into a `Model`: the file's facts, the class's implications, nothing else.

What a key says is read; what its absence means (a class default, hidden / heads) is filled in and
listed under `Model.inferred`; an unknown model_type, or a set key that may change a count and that
the family's reader does not know, is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

from .. import InputError
from ..sheets import nearest, parse_json
from .hf.class_defaults import CLASS_DEFAULTS, NESTED_DEFAULTS, NOT_COUNTED
from .hf.decoder import Style, context_of, stack
from .hf.families import FAMILIES
from .hf.fields import Fields
from .hf.parts import Parts
from .hf.plain import STYLES
from .hf.quantisation import published_cache, published_weights
from .hf.towers import towers_of
from .spec import Model

QUANTISATION_FILE = "hf_quant_config.json"
_TEXT_PARTS = ("text_config", "llm_config", "language_config")


def read_config(text: str, origin: str) -> dict[str, Any]:
    """The JSON object in `text`. Raises InputError for anything else, however deep or large."""
    data = parse_json(text, origin, _bounded_int)
    if not isinstance(data, dict):
        raise InputError(f"{origin}: a config.json is an object, not a {type(data).__name__}")
    return data


def with_quantisation(data: dict[str, Any], read: Callable[[], str], origin: str) -> dict[str, Any]:
    """`data` with the hf_quant_config.json that ModelOpt writes beside a config.json; `read` gets its
    text, where `data` does not say itself how it is quantised."""
    if data.get("quantization_config"):
        return data
    return {**data, "quantization_config": read_config(read(), origin)}


def _bounded_int(text: str) -> int:
    if len(text) > 20:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def model_from_config(data: dict[str, Any], origin: str, name: str = "", source: str = "") -> Model:
    """The model a config.json describes.

    Raises InputError naming the key and what is missing, or the unknown model_type and the nearest.
    """
    inferred: list[str] = []
    outer = Fields(data, origin, inferred)
    family = outer.text("model_type")
    text, inner_family = _text_part(outer, family)
    try:
        parts = _decode(text, inner_family)
        tied = _tied(outer, text, parts)
        dtype = _dtype(outer, text)
        text.refuse_unread(inner_family)
        return Model(
            **{**vars(parts), "tied": tied},
            name=name or _name(data) or family,
            source=source or f"config.json ({origin}), model_type {family}",
            dtype=dtype,
            weights=published_weights(outer, text, len(parts.layers)),
            kv=published_cache(outer, text),
            towers=towers_of(outer, family, parts.hidden),
            inferred=tuple(inferred),
        )
    except InputError as error:
        if str(error).startswith(origin):
            raise
        raise InputError(f"{origin}: {error}") from None


def _text_part(outer: Fields, family: str) -> tuple[Fields, str]:
    """The mapping with the language model's keys, and its model_type."""
    thinker = outer.section("thinker_config")
    holder = thinker if thinker is not None else outer
    for part in _TEXT_PARTS:
        if isinstance(holder.data.get(part), dict) and holder.data[part]:
            inner = holder.section(part)
            assert inner is not None
            kind = inner.text("model_type", default=family)
            if not inner.has("hidden_size", "d_model", "n_embd") and holder.has("hidden_size"):
                return holder, family  # Qwen2-VL keeps its text keys at the top
            if kind in NESTED_DEFAULTS and not inner.has("hidden_size"):
                shapes = NESTED_DEFAULTS[kind]
                inner = Fields({**shapes, **inner.data}, outer.origin, outer.inferred, part)
                inner.infer(f"shapes not in {part}: the class defaults of {kind} (7B)")
            return inner, kind
    known = family in STYLES or family in FAMILIES
    return outer, family if known or f"{family}_text" not in STYLES else f"{family}_text"


def _decode(f: Fields, family: str) -> Parts:
    f.class_defaults = CLASS_DEFAULTS.get(family, {})
    for key, idle in NOT_COUNTED.get(family, {}).items():
        if f.raw(key) not in (None, idle):
            raise f.error(
                f"is {str(f.raw(key)).lower()}, which is not counted for '{family}'; write a sheet", key
            )
    read: Callable[[Fields], Parts] | None = FAMILIES.get(family)
    if read is not None:
        return read(f)
    if family in STYLES:
        style = STYLES[family]
        if style.parallel_key and f.flag(style.parallel_key):
            style = replace(style, parallel=True, norms=1)
        hidden = f.integer("hidden_size", "n_embd", "n_embed", "d_model")
        return Parts(
            hidden=hidden,
            vocab=f.integer("vocab_size", "padded_vocab_size"),
            layers=stack(f, hidden, style),
            norm=style.norm,
            tied=style.tied,
            head_bias=f.flag("lm_head_bias", default=style.head_bias),
            embedding_norm=style.embedding_norm,
            positions=_positions(f, style),
            context=context_of(f),
        )
    return _unknown(f, family)


def _positions(f: Fields, style: Style) -> int:
    """Rows of a learned position table: as many as positions, and what the class adds."""
    if style.extra_positions is None:
        return 0
    return f.integer("max_position_embeddings", "n_positions") + style.extra_positions


def _unknown(f: Fields, family: str) -> NoReturn:
    known = sorted({*STYLES, *FAMILIES})
    if not family:
        raise f.error("'model_type' is missing; without it the class's own defaults are not known")
    raise f.error(
        f"model_type '{family}' is not known{nearest(family, known) or '.'} If it is built as a known "
        "one, set model_type to that (llama, qwen3_moe, glm4_moe ...); else write a sheet (`infercost models "
        "show` prints examples)"
    )


def _tied(outer: Fields, text: Fields, parts: Parts) -> bool:
    """Tied embeddings: the text part's flag, the wrapper's, else the class default."""
    for f in (text, outer):
        if f.raw("tie_word_embeddings") is not None:
            return f.flag("tie_word_embeddings")
    text.infer(f"tie_word_embeddings = {str(parts.tied).lower()}: the class default")
    return parts.tied


_DTYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "half": "fp16", "float": "fp32"}


def _dtype(outer: Fields, text: Fields) -> str:
    named = [f.raw("torch_dtype", "dtype") for f in (text, outer)]
    words = [value.removeprefix("torch.") for value in named if isinstance(value, str)]
    known = [_DTYPES[word] for word in words if word in _DTYPES]
    if known:
        return known[0]
    why = f"the file's '{words[0][:40]}' is no type of activations" if words else "the file names none"
    text.infer(f"dtype = bf16: {why}")
    return "bf16"


def _name(data: dict[str, Any]) -> str:
    given = data.get("_name_or_path")
    if isinstance(given, str) and given.isprintable() and 0 < len(given) <= 200:
        return given.rstrip("/").rsplit("/", 1)[-1]
    return ""
