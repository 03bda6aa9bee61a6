"""Recipes: which number format each tensor of a model is stored in.

A checkpoint is seldom one format: bitsandbytes and GPTQ leave embeddings, head and norms in 16 bit,
gpt-oss quantises its experts only, GGUF mixes types by tensor and by layer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from .. import InputError
from .formats import Format, find_format, formats
from .spec import Model
from .tensor import Tensor

Rule = Callable[[Tensor, int, Model], str]
"""(tensor, index of its layer or -1, model) to the name of a format."""


class Recipe(NamedTuple):
    """`rule` names the format of each tensor; `by_layer` where that depends on the layer's index.

    `leaves_out`: components that are not in such a file at all.
    """

    name: str
    rule: Rule
    note: str
    by_layer: bool = False
    leaves_out: tuple[str, ...] = ()

    def format(self, tensor: Tensor, layer: int, model: Model) -> Format:
        return find_format(self.rule(tensor, layer, model))

    def tensor_bytes(self, tensor: Tensor, layer: int, model: Model) -> int:
        """Bytes of all its copies."""
        return tensor.copies * self.format(tensor, layer, model).matrix_bytes(tensor.rows, tensor.cols)


def sixteen_bit(model: Model) -> str:
    """The type the parts a recipe leaves alone are kept in: fp32 checkpoints are served as bf16."""
    return "bf16" if model.dtype == "fp32" else model.dtype


def cache_format(model: Model) -> Format:
    """What the checkpoint's cache is kept in where nobody says: its own word for it, else 16 bit.

    Engines take the checkpoint's word: vLLM since pull request 29980 (ModelOpt's kv_cache_quant_algo), before
    that for compressed-tensors' kv_cache_scheme alone.
    """
    return find_format(model.kv or sixteen_bit(model))


def _whole(name: str) -> Recipe:
    return Recipe(name, lambda tensor, layer, model: name, "every tensor")


def _linears(name: str, fmt: str, note: str) -> Recipe:
    def rule(tensor: Tensor, layer: int, model: Model) -> str:
        quantised = tensor.kind == "linear" and tensor.component not in ("head", "router")
        return fmt if quantised and layer >= 0 else sixteen_bit(model)

    return Recipe(name, rule, note)


def _experts_only(name: str, fmt: str) -> Recipe:
    def rule(tensor: Tensor, layer: int, model: Model) -> str:
        routed = tensor.component == "experts" and tensor.kind == "linear"
        return fmt if routed else sixteen_bit(model)

    return Recipe(name, rule, "routed experts only, the rest in 16 bit")


_LEFT_ALONE = "the layers' matrices; embeddings, head, router and norms stay in 16 bit"

_NAMED = {
    "bnb-int8": ("int8-row", "bitsandbytes LLM.int8(): " + _LEFT_ALONE),
    "bnb-nf4": ("nf4", "bitsandbytes NF4: " + _LEFT_ALONE),
    "bnb-nf4-dq": ("nf4-dq", "bitsandbytes NF4, double quantisation: " + _LEFT_ALONE),
    "gptq": ("int4-g128", "GPTQ 4 bit, groups of 128, symmetric: " + _LEFT_ALONE),
    "awq": ("int4-g128-asym", "AWQ 4 bit, groups of 128, with zero points: " + _LEFT_ALONE),
}
_ALIASES = {"int8-bnb": "bnb-int8", "nf4-bnb": "bnb-nf4", "llm-int8": "bnb-int8"}
_EXPERT_RECIPES = {"mxfp4-experts": "mxfp4"}

GGUF_MIXES = (
    *("f16", "q8_0", "q6_k", "q5_k_m", "q5_k_s", "q5_1", "q5_0", "q4_k_m", "q4_k_s", "q4_1", "q4_0"),
    *("iq4_nl", "iq4_xs", "q3_k_l", "q3_k_m", "q3_k_s", "q2_k", "mxfp4_moe"),
)
"""Mixes of llama.cpp's quantiser: names of whole files, not of tensors."""


def recipe_names() -> list[str]:
    """Every recipe with a name of its own."""
    plain = [name for name, fmt in formats().items() if not fmt.in_files]
    return [*plain, *_NAMED, *_EXPERT_RECIPES, *GGUF_MIXES]


def find_recipe(name: str) -> Recipe:
    """The recipe called `name`: a published type, a format for the layers' matrices, or a mix.

    Raises InputError for an unknown name, with the nearest ones.
    """
    base, _, kept = name.partition(" except ")
    if kept:
        return _except(find_recipe(base), [word.strip() for word in kept.split(",")])
    key = name.strip().lower()
    dashed = key.replace("_", "-")
    dashed = _ALIASES.get(dashed, dashed)
    if dashed in _NAMED:
        fmt, note = _NAMED[dashed]
        return _linears(dashed, fmt, note)
    if dashed in _EXPERT_RECIPES:
        return _experts_only(dashed, _EXPERT_RECIPES[dashed])
    mix = key.removeprefix("gguf:").replace("-", "_")
    if mix in GGUF_MIXES:
        from .gguf_mix import gguf_rule

        note = "llama.cpp's mix of tensor types; vision towers are a file of their own (mmproj)"
        return Recipe(mix, gguf_rule(mix), note, by_layer=True, leaves_out=("towers",))
    try:
        fmt_found = find_format(dashed)
    except InputError:
        from ..sheets import nearest

        bits = re.fullmatch(r"(\d)[ -]?bits?", dashed)
        alike = [each for each in recipe_names() if bits and bits[1] in each][:8]
        hint = (
            f"; of {bits[1]} bits are {', '.join(alike)}" if bits and alike else nearest(key, recipe_names())
        )
        hint = hint or "; `infercost weights --formats` lists them"
        raise InputError(f"unknown weight format or recipe '{name}'{hint}") from None
    if fmt_found.note == "GGUF":
        raise InputError(_type_of_tensors(fmt_found.name))
    if fmt_found.published or fmt_found.name == "tf32":
        return _whole(fmt_found.name)
    return _linears(fmt_found.name, fmt_found.name, f"{fmt_found.name} in {_LEFT_ALONE}")


def _type_of_tensors(name: str) -> str:
    """What to say of a GGUF type that names no mix known here: people have files, and those are mixes."""
    bits = re.sub(r"\D", "", name)[:1]
    files = [mix for mix in GGUF_MIXES if mix.startswith(f"{name}_")]
    files = files or [mix for mix in GGUF_MIXES if mix.lstrip("iq").startswith(bits)] or ["q2_k"]
    why = "a type of GGUF tensors, not of whole files"
    if name.startswith(("iq", "tq")):
        why = "a type of GGUF tensors, and the mix of files called so is not known here"
    return f"'{name}' is {why}; near it are {', '.join(files)} (`infercost weights --formats`)"


COMPONENTS = (
    "attention",
    "mlp",
    "experts",
    "shared_experts",
    "recurrent",
    "projections",
    "router",
    "head",
    "embedding",
)


FIRST_LAYER, LAST_LAYER = "first_layer", "last_layer"
"""The layers at the ends, which some checkpoints keep whole (Llama 3.1 405B, arXiv 2407.21783, 6.2)."""


def _except(recipe: Recipe, kept: list[str]) -> Recipe:
    """`recipe`, but what is `kept` stays in 16 bit: components, and the layers at the ends, as in
    `fp8-block except attention` and `fp8-row except attention,first_layer,last_layer`."""
    known = (*COMPONENTS, FIRST_LAYER, LAST_LAYER)
    for word in kept:
        if word not in known:
            from ..sheets import nearest

            raise InputError(f"'except {word}': not a component{nearest(word, known)}")

    def rule(tensor: Tensor, layer: int, model: Model) -> str:
        whole = tensor.component in kept or any(_at_end(word, layer, model) for word in kept)
        return sixteen_bit(model) if whole else recipe.rule(tensor, layer, model)

    by_layer = recipe.by_layer or FIRST_LAYER in kept or LAST_LAYER in kept
    return recipe._replace(name=f"{recipe.name} except {','.join(kept)}", rule=rule, by_layer=by_layer)


def _at_end(word: str, layer: int, model: Model) -> bool:
    """Whether `layer` is the whole model's first or last; a pipeline stage has an end only where it holds
    what is beyond it."""
    if word == FIRST_LAYER:
        return layer == 0 and model.input_end
    return word == LAST_LAYER and layer == len(model.layers) - 1 and model.output_end


def _as_stored(model: Model) -> Recipe:
    """The types a file holds its tensors in. What is not in it (a draft's own) is in 16 bit; vectors are of
    the type of its last norm, fp32 as a rule."""
    held = {(layer, component, name): fmt for layer, component, name, fmt in model.stored}
    vectors = held.get((-1, "norms", "final_norm"), "fp32")

    def rule(tensor: Tensor, layer: int, of: Model) -> str:
        absent = vectors if tensor.kind == "vector" else sixteen_bit(of)
        return held.get((layer, tensor.component, tensor.name), absent)

    return Recipe("as stored", rule, "the types of the file's own tensors", by_layer=True)


def default_recipe(model: Model) -> Recipe:
    """The recipe of the published checkpoint; an fp32 file is counted as bf16."""
    if model.stored:
        return _as_stored(model)
    return find_recipe(model.weights or sixteen_bit(model))
