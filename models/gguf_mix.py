"""Which tensor gets which type in llama.cpp's quantisation mixes (Q4_K_M and its kin).

Source: llama.cpp, `llama_tensor_get_type` in src/llama-quant.cpp, without an importance matrix:
facts of that table, restated. Norms, biases, routers and convolution taps are kept in F32.
"""

from __future__ import annotations

from collections.abc import Callable

from .. import InputError
from .attention import Attention
from .ffn import Experts
from .formats import formats
from .spec import Model
from .tensor import Tensor

_BASE = {
    "f16": "fp16",
    "q2_k": "q2_k",
    "q3_k_s": "q3_k",
    "q3_k_m": "q3_k",
    "q3_k_l": "q3_k",
    "q4_k_s": "q4_k",
    "q4_k_m": "q4_k",
    "q5_k_s": "q5_k",
    "q5_k_m": "q5_k",
}
_FALLBACK = {
    "iq4_xs": "iq4_nl",
    "q2_k": "iq4_nl",
    "q3_k": "iq4_nl",
    "q4_k": "q5_0",
    "q5_k": "q5_1",
    "q6_k": "q8_0",
}
_EIGHT_EXPERT_OUTPUTS = ("q2_k", "q3_k_s", "q3_k_m", "iq4_nl", "q4_k_s", "q4_k_m", "iq4_xs")


def gguf_rule(mix: str) -> Callable[[Tensor, int, Model], str]:
    """The rule of `mix`: (tensor, index of its layer, model) to a GGUF type."""

    def rule(tensor: Tensor, layer: int, model: Model) -> str:
        simple = mix in ("f16", "q8_0", "mxfp4_moe")
        known = model.norm.kind == "rms" and model.encoder is None and not model.layers[0].parallel
        if not simple and not known:
            raise InputError(
                f"llama.cpp's mix {mix} is known here for RMS-norm decoders with separate Q, K and V, which "
                f"{model.name} is not; q8_0 and f16 are known for every model"
            )
        if tensor.kind == "vector" or tensor.component == "router":
            return "fp32"
        chosen = _chosen(mix, tensor, layer, model)
        fits = tensor.cols % formats()[chosen].block == 0
        chosen = chosen if fits else _FALLBACK.get(chosen, "fp16")
        return chosen if tensor.cols % formats()[chosen].block == 0 else "fp16"

    return rule


def _chosen(mix: str, tensor: Tensor, layer: int, model: Model) -> str:
    base = _BASE.get(mix, mix)
    if tensor.name == "positions":
        return "fp32"
    if mix == "mxfp4_moe":
        return "mxfp4" if tensor.component == "experts" else "q8_0"
    if tensor.component == "head" or (tensor.name == "embedding" and model.tied):
        return base if base in ("q8_0", "fp16") else "q6_k"
    if tensor.name == "embedding" or layer < 0:
        return base
    if tensor.component == "attention":
        return _attention(mix, base, tensor.name, layer, model)
    if tensor.name == "down":
        return _down(mix, base, layer, len(model.layers))
    return base


def _rank(layer: int, model: Model) -> tuple[int, int]:
    """(index among the layers with attention of their own, how many there are): what llama.cpp counts."""
    attends = [any(isinstance(b, Attention) for b in one.blocks) for one in model.layers]
    return sum(attends[:layer]), sum(attends)


def _attention(mix: str, base: str, name: str, layer: int, model: Model) -> str:
    eight_experts = any(
        isinstance(block, Experts) and block.count == 8 for block in model.layers[layer].blocks
    )
    sharing = max(
        (b.heads // b.kv_heads for b in model.layers[layer].blocks if isinstance(b, Attention)),
        default=1,
    )
    if name == "v":
        chosen = base
        if mix == "q2_k":
            chosen = "q4_k" if sharing >= 4 else "q3_k"
        elif mix == "q3_k_m":
            chosen = "q5_k" if _rank(layer, model)[0] < 2 else "q4_k"
        elif mix == "q3_k_l":
            chosen = "q5_k"
        elif mix in ("iq4_nl", "iq4_xs"):
            chosen = "q5_k" if sharing >= 4 else base
        elif mix in ("q4_k_m", "q5_k_m") and _more_bits(*_rank(layer, model)):
            chosen = "q6_k"
        elif mix == "q4_k_s" and _rank(layer, model)[0] < 4:
            chosen = "q5_k"
        # llama.cpp's 70B is the llama architecture 80 layers deep with 8 query heads per KV head.
        if len(model.layers) == 80 and sharing == 8 and chosen in ("q3_k", "q4_k"):
            chosen = "q5_k"
        return "q8_0" if eight_experts else chosen
    if name == "k" and eight_experts:
        return "q8_0"
    if name == "o":
        if eight_experts:
            return "q5_k" if mix in _EIGHT_EXPERT_OUTPUTS else base
        return {"q2_k": "q3_k", "q3_k_m": "q4_k", "q3_k_l": "q5_k"}.get(mix, base)
    return base


def _down(mix: str, base: str, layer: int, layers: int) -> str:
    if mix == "q2_k":
        return "q3_k"
    if mix == "q3_k_m":
        return "q5_k" if layer < layers // 16 else "q4_k"
    if mix == "q3_k_l":
        return "q5_k"
    if mix in ("q4_k_m", "q5_k_m") and _more_bits(layer, layers):
        return "q6_k"
    if mix in ("q4_k_s", "iq4_nl", "iq4_xs") and layer < layers // 8:
        return "q5_k"
    return base


def _more_bits(layer: int, layers: int) -> bool:
    """The first and last eighth of the layers and every third between."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2
