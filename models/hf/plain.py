"""Families that are a plain stack: one style each."""

from __future__ import annotations

from .decoder import Style
from .parts import BARE_LAYER, LAYER, NO_NORM

NONE = ()

_LLAMA = Style()
_QWEN2 = Style(bias="qkv", bias_keys=NONE, windows="late")
_QWEN3 = Style(qk_norm="head", windows="late")
_COHERE = Style(norm=BARE_LAYER, norms=1, parallel=True, tied=True, qk_norm="full", qk_norm_key="use_qk_norm")
_GEMMA = Style(tied=True)
_GEMMA2 = Style(tied=True, norms=4, windows="alternate")
_GEMMA3 = Style(tied=True, norms=4, qk_norm="head", windows="every6")
_DEEPSEEK = Style(windows="none")

STYLES: dict[str, Style] = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "ministral": _LLAMA,
    "mixtral": _LLAMA,
    "baichuan": Style(bias_keys=NONE, mlp_bias_keys=NONE),
    "internlm2": Style(bias_keys=("bias",), bias_letters="qkvo"),
    "internlm3": Style(bias_keys=("qkv_bias",), bias_letters="qkvo"),
    "yi": _LLAMA,
    "ministral3": _LLAMA,
    "arcee": Style(gated=False),
    "granitemoeshared": _LLAMA,
    "granite": _LLAMA,
    "granitemoe": _LLAMA,
    "smollm3": Style(windows="listed", tied=True),
    "seed_oss": Style(bias_letters="qkv"),
    "mimo": Style(bias="qkv", bias_default=True, windows="late"),
    "ernie4_5": Style(bias_keys=("use_bias",), mlp_bias_keys=("use_bias",), tied=True),
    "ernie4_5_moe": Style(bias_keys=("use_bias",), mlp_bias_keys=("use_bias",), tied=True, router_bias=True),
    "exaone4": Style(qk_norm="head", bias_keys=NONE, mlp_bias_keys=NONE, windows="every4"),
    "olmo": Style(norm=NO_NORM, mlp_bias_keys=NONE),
    "olmo2": Style(qk_norm="full", mlp_bias_keys=NONE),
    "olmo3": Style(qk_norm="full", mlp_bias_keys=NONE, windows="every4"),
    "olmoe": Style(qk_norm="full", mlp_bias_keys=NONE),
    "flex_olmo": Style(qk_norm="full", mlp_bias_keys=NONE),
    "phi3": Style(bias_keys=NONE, mlp_bias_keys=NONE),
    "phimoe": Style(norm=LAYER, mlp_bias_keys=NONE),
    "qwen2": _QWEN2,
    "qwen2_moe": Style(
        bias_keys=("qkv_bias",), bias_letters="qkv", bias_default=True, windows="late", shared_gate=True
    ),
    "qwen2_vl_text": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3,
    "qwen3_vl_text": _QWEN3,
    "qwen3_vl_moe_text": _QWEN3,
    "glm": Style(bias_letters="qkv", bias_default=True, rope=0.5),
    "glm4": Style(bias_letters="qkv", norms=4, rope=0.5),
    "glm4_moe": Style(bias_letters="qkv", qk_norm="head", qk_norm_key="use_qk_norm", rope=0.5),
    "glm_moe_dsa": _DEEPSEEK,
    "glm4_moe_lite": _DEEPSEEK,
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "minimax_m2": Style(qk_norm="full", qk_norm_key="use_qk_norm", qk_norm_default=True, windows="none"),
    "gpt_oss": Style(sinks=True, expert_bias=True, router_bias=True, windows="alternate"),
    "cohere": _COHERE,
    "cohere2": Style(norm=BARE_LAYER, norms=1, parallel=True, tied=True, windows="every4"),
    "gemma": _GEMMA,
    "gemma2": _GEMMA2,
    "gemma3_text": _GEMMA3,
    "stablelm": Style(
        norm=LAYER,
        bias_keys=("use_qkv_bias",),
        bias_letters="qkv",
        qk_norm="full",
        qk_norm_key="qk_layernorm",
        parallel_key="use_parallel_residual",
        rope=0.25,
        mlp_bias_keys=NONE,
    ),
    "starcoder2": Style(
        norm=LAYER,
        gated=False,
        bias_keys=("use_bias",),
        bias_default=True,
        mlp_bias=True,
        mlp_bias_keys=("use_bias",),
        tied=True,
    ),
    "gpt_neox": Style(
        norm=LAYER,
        gated=False,
        parallel=True,
        bias_default=True,
        mlp_bias=True,
        mlp_bias_keys=NONE,
        rope=0.25,
    ),
    "gptj": Style(
        norm=LAYER,
        norms=1,
        parallel=True,
        gated=False,
        bias_keys=NONE,
        mlp_bias=True,
        mlp_bias_keys=NONE,
        head_bias=True,
    ),
    "phi": Style(
        norm=LAYER,
        norms=1,
        parallel=True,
        gated=False,
        bias="qkvo",
        bias_keys=NONE,
        mlp_bias=True,
        mlp_bias_keys=NONE,
        rope=0.5,
        head_bias=True,
    ),
    "gpt2": Style(
        norm=LAYER,
        gated=False,
        bias="qkvo",
        bias_keys=NONE,
        mlp_bias=True,
        mlp_bias_keys=NONE,
        rope=0,
        tied=True,
        extra_positions=0,
    ),
    "bloom": Style(
        norm=LAYER,
        gated=False,
        bias="qkvo",
        bias_keys=NONE,
        mlp_bias=True,
        mlp_bias_keys=NONE,
        rope=0,
        tied=True,
        embedding_norm=True,
    ),
    "nemotron": Style(norm=LAYER, gated=False, rope=0.5),
    "grok-1": Style(tied=True, norms=4, windows="none"),
}
"""model_type to style. Two norms a layer unless said; grok-1 has four (its stand-in class has two)."""
