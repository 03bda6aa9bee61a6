"""A `Model` written as the sheet that `models.sheet` reads back to the same model."""

from __future__ import annotations

from dataclasses import MISSING
from typing import Any

from .attention import Attention, CrossAttention
from .block import Block, Mixer
from .ffn import Experts
from .sheet import unplaced
from .spec import Layer, Model, usual_norms

_OUTER = (
    *("hidden", "vocab", "context", "dtype", "weights", "kv", "tied", "final_norm", "embedding_norm"),
    *("positions", "position_biases", "head_bias", "embedding_width", "side_width", "side_rows"),
)


def sheet_text(model: Model) -> str:
    """YAML of `model`: fields at their defaults are left out, equal layers are one kind."""
    out = [f"name: {_scalar(model.name)}"]
    if model.title and model.title != model.name:
        out.append(f"title: {_scalar(model.title)}")
    if model.aliases:
        out.append(f"aliases: [{', '.join(_scalar(alias) for alias in model.aliases)}]")
    out.append(f"source: {_scalar(model.source)}")
    if model.notes:
        out.append(f"notes: {_scalar(model.notes)}")
    if model.inferred:
        out.append("inferred:")
        out += [f"  - {_scalar(item)}" for item in model.inferred]
    fields = Model.__dataclass_fields__
    for name in _OUTER:
        value = getattr(model, name)
        if fields[name].default is MISSING or value != fields[name].default:
            out.append(f"{name}: {_scalar(value)}")
    if model.norm.kind != "rms" or model.norm.bias:
        bias = ", bias: true" if model.norm.bias else ""
        out.append(f"norm: {{kind: {model.norm.kind}{bias}}}")
    out += _stack(model.layers, "")
    if model.encoder is not None:
        out += ["encoder:", f"  hidden: {model.encoder.hidden}"]
        for name in ("positions", "extra"):
            if getattr(model.encoder, name):
                out.append(f"  {name}: {getattr(model.encoder, name)}")
        if not model.encoder.final_norm:
            out.append("  final_norm: false")
        if model.encoder.stem:
            out.append("  stem:")
            out += [
                f"    conv{i + 1}: {_mapping({'inner': s.inner, 'outer': s.outer, 'rate': s.rate})}"
                for i, s in enumerate(model.encoder.stem)
            ]
        out += _stack(model.encoder.layers, "  ")
    if model.towers:
        out += ["towers:", *(f"  {_scalar(tower.name)}: {tower.parameters}" for tower in model.towers)]
    return "\n".join(out) + "\n"


def _stack(layers: tuple[Layer, ...], indent: str) -> list[str]:
    """Kinds and their pattern; caches shared with the n-th layer before where that takes fewer kinds."""
    relative = tuple(unplaced(layer, index) for index, layer in enumerate(layers))
    layers = relative if len(set(relative)) < len(set(layers)) else layers
    kinds: dict[Layer, str] = {}
    for layer in layers:
        if layer not in kinds:
            name = _kind_name(layer)
            taken = sum(other.rstrip("0123456789") == name for other in kinds.values())
            kinds[layer] = f"{name}{taken + 1}" if taken else name
    out = [f"{indent}layers: {len(layers)}"]
    if len(kinds) == 1:
        return [*out, f"{indent}layer:", *_layer(layers[0], indent + "  ")]
    out.append(f"{indent}kinds:")
    for layer, name in kinds.items():
        out += [f"{indent}  {name}:", *_layer(layer, indent + "    ")]
    return [*out, f"{indent}pattern: {_pattern([kinds[layer] for layer in layers])}"]


def _kind_name(layer: Layer) -> str:
    """A word for a kind of layer: `window`, `full_moe`, `state_space`, `dense`."""
    words = []
    for block in layer.blocks:
        if isinstance(block, Attention):
            words.append("window" if block.window else "full")
        elif isinstance(block, Experts):
            words.append("moe")
        elif isinstance(block, Mixer) and not isinstance(block, CrossAttention):
            words.append(block.key.removesuffix("_attention"))
    return "_".join(words) or "dense"


def _layer(layer: Layer, indent: str) -> list[str]:
    out = [f"{indent}{block.key}: {_mapping(stated_fields(block))}" for block in layer.blocks]
    if layer.norms != usual_norms(layer.blocks):
        out.append(f"{indent}norms: {layer.norms}")
    if layer.parallel:
        out.append(f"{indent}parallel: true")
    return out


def stated_fields(block: Block) -> dict[str, Any]:
    """Fields of a block that are not at their defaults."""
    out = {}
    for name, field in block.__dataclass_fields__.items():
        value = getattr(block, name)
        if field.default is MISSING or value != field.default:
            out[name] = value
    return out


def _pattern(names: list[str]) -> str:
    """The shortest period that repeats to the whole, with runs written as name*count."""
    period = next(
        n for n in range(1, len(names) + 1) if all(names[i] == names[i % n] for i in range(len(names)))
    )
    words: list[tuple[str, int]] = []
    for name in names[:period]:
        if words and words[-1][0] == name:
            words[-1] = (name, words[-1][1] + 1)
        else:
            words.append((name, 1))
    return " ".join(name if count == 1 else f"{name}*{count}" for name, count in words)


def _mapping(values: dict[str, Any]) -> str:
    return "{" + ", ".join(f"{key}: {_scalar(value)}" for key, value in values.items()) + "}"


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if str(value).replace("_", "").isalnum() and not str(value)[0].isdigit():
        word = str(value)
        return (
            f'"{word}"'
            if word.lower() in ("null", "true", "false", "yes", "no", "on", "off", "y", "n")
            else word
        )
    text = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'
