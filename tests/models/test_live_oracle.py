"""The importer and the cost model held to the real classes: transformers on torch's meta device.

Nothing here is a stored figure: each model is built from its configuration, its parameters are
counted, a prefill and a decode step are run on tensors without storage, FLOPs are those that
`FlopCounterMode` saw, and the cache is the library's own. Extra `oracle`; skipped without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from infercost import InputError
from infercost.costmodel.forward import ops
from infercost.costmodel.kv import cache_bill
from infercost.costmodel.step import Plan, Run, Step, decode, prefill
from infercost.models.formats import find_format
from infercost.models.hf.class_defaults import CLASS_DEFAULTS
from infercost.models.huggingface import model_from_config
from infercost.models.spec import Model

torch = pytest.importorskip("torch", reason="the live oracle needs the extra `oracle`")
transformers = pytest.importorskip("transformers", reason="the live oracle needs the extra `oracle`")

CONFIGS: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[1] / "golden" / "configs.yaml").read_text(encoding="utf-8")
)
BATCH, TOKENS = 2, 9
BF16 = find_format("bf16")
RUN = Run(kv=BF16, attention="eager", full_attention=True, mla="expanded")

DENSE = (
    *("llama-2-7b", "mistral-7b-v0.1", "qwen2.5-7b", "gemma-2-27b", "gemma-3-27b", "falcon-7b", "gpt2"),
    *("bloom-7b1", "opt-125m", "mpt-30b", "phi-2", "olmo-2-7b", "command-r-plus", "santacoder"),
)
EXPERTS = ("mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3", "glm-4.5", "gpt-oss-20b", "mimo-v2-flash")
SCANS = ("mamba2-2.7b", "jamba-v0.1", "nemotron-h-56b", "zamba2-2.7b", "qwen3-next-80b-a3b")
ENCODERS = ("t5-small", "bart-large")
WINDOW = 5  # shorter than the prompt, so that windows cut what is kept


def library(config: dict[str, Any]) -> Any:
    """The real class on the meta device; experts computed token by token, so that FLOPs are counted."""
    kept = {k: v for k, v in config.items() if k not in ("quantization_config", "auto_map")}
    made = transformers.AutoConfig.for_model(kept.pop("model_type"), **kept)
    made._attn_implementation = "eager"
    kind = "AutoModelForSeq2SeqLM" if made.is_encoder_decoder else "AutoModelForCausalLM"
    extra = {} if made.is_encoder_decoder else {"experts_implementation": "batched_mm"}
    with torch.device("meta"):
        return getattr(transformers, kind).from_config(made, dtype=torch.bfloat16, **extra).eval()


def forward(built: Any, tokens: int, past: Any = None) -> tuple[dict[str, int], Any]:
    """FLOPs by ATen operator of one call, and the cache after it."""
    from torch.utils.flop_counter import FlopCounterMode

    ids = torch.zeros(BATCH, tokens, dtype=torch.long, device="meta")
    given = {"decoder_input_ids": ids} if built.config.is_encoder_decoder else {}
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        out = built(input_ids=ids, use_cache=True, past_key_values=past, **given)
    counts = {str(name): int(flops) for name, flops in counter.get_flop_counts()["Global"].items()}
    return counts, out.past_key_values


def cached_bytes(cache: Any) -> int:
    """Bytes of the keys, values and states of a transformers cache, whatever its layers are."""
    if hasattr(cache, "self_attention_cache"):
        return cached_bytes(cache.self_attention_cache) + cached_bytes(cache.cross_attention_cache)
    total = 0
    for layer in cache.layers:
        for name in ("keys", "values", "conv_states", "recurrent_states"):
            held = getattr(layer, name, None)
            for tensor in held.values() if isinstance(held, dict) else [held]:
                if torch.is_tensor(tensor):
                    total += tensor.numel() * tensor.element_size()
    return total


@pytest.mark.parametrize("family", sorted(CLASS_DEFAULTS))
def test_class_defaults(family: str) -> None:
    """What an absent key is taken for is what transformers' configuration class takes it for."""
    made = transformers.AutoConfig.for_model(family).to_dict()
    for key, value in CLASS_DEFAULTS[family].items():
        stated = made.get(key, made.get({"num_experts": "num_local_experts"}.get(key, key)))
        assert stated == value, key


@pytest.mark.parametrize("name", [*DENSE, *EXPERTS, *SCANS])
def test_absent_keys(name: str) -> None:
    """Each key of a configuration left out in turn: the class's own count, or refused by name."""
    config = CONFIGS[name]
    inner = "text_config" if "text_config" in config else ""
    section = config[inner] if inner else config
    compared = 0
    for key in section:
        if key in ("model_type", "torch_dtype", "vision_config", "architectures", "quantization_config"):
            continue
        less = {k: v for k, v in section.items() if k != key}
        changed = {**config, inner: less} if inner else less
        try:
            model = model_from_config(changed, name)
        except InputError:
            continue
        try:
            built = library(changed)
        except (ValueError, ZeroDivisionError, TypeError, RuntimeError):
            continue  # not a configuration for the library either
        assert model.parameters == sum(p.numel() for p in built.parameters()), key
        compared += 1
    assert compared, "every key was refused by one side: nothing was held to anything"


def matmul_flops(model: Model, step: Step, leave_out: tuple[str, ...] = ()) -> int:
    return sum(int(op.matmul_flops) for op in ops(Plan(model, step, RUN)) if op.name not in leave_out)


@pytest.mark.parametrize("name", [*DENSE, *EXPERTS])
def test_decoders(name: str) -> None:
    """Parameters, cache bytes and every FLOP of a prefill and of the decode step after it."""
    model, built = model_from_config(CONFIGS[name], name), library(CONFIGS[name])
    assert model.parameters == sum(p.numel() for p in built.parameters())
    counts, cache = forward(built, TOKENS)
    assert matmul_flops(model, prefill(BATCH, TOKENS, all_logits=True)) == sum(counts.values())
    assert cache_bill(model, TOKENS, BATCH, BF16, library=True).logical_bytes == cached_bytes(cache)
    counts, cache = forward(built, 1, cache)
    assert matmul_flops(model, decode(BATCH, TOKENS + 1)) == sum(counts.values())
    assert cache_bill(model, TOKENS + 1, BATCH, BF16, library=True).logical_bytes == cached_bytes(cache)


@pytest.mark.parametrize("name", ["mistral-7b-v0.1", "gemma-2-27b", "gpt-oss-20b"])
def test_windows(name: str) -> None:
    """A window shorter than the prompt cuts what the library keeps, and what we say that it keeps."""
    config = {**CONFIGS[name], "sliding_window": WINDOW}
    model, built = model_from_config(config, name), library(config)
    _, cache = forward(built, TOKENS)
    assert cache_bill(model, TOKENS, BATCH, BF16, library=True).logical_bytes == cached_bytes(cache)
    full = cache_bill(model_from_config(CONFIGS[name], name), TOKENS, BATCH, BF16).logical_bytes
    assert cached_bytes(cache) < full
    counts, _ = forward(built, 1, cache)
    assert matmul_flops(model, decode(BATCH, TOKENS + 1)) == sum(counts.values())


SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "vocab_size": 200,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "torch_dtype": "bfloat16",
}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_n_groups": 1, "mamba_expand": 2}
SMALL_EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
# What people's files say that the vendored ones do not: absent patterns, options switched the other way.
VARIATIONS: dict[str, dict[str, Any]] = {
    "gemma3 without a pattern": {**SMALL, "model_type": "gemma3_text", "sliding_window": WINDOW},
    "olmo3 without a pattern": {**SMALL, "model_type": "olmo3", "sliding_window": WINDOW},
    "exaone4 without a pattern": {
        **SMALL,
        "model_type": "exaone4",
        "sliding_window": WINDOW,
        "sliding_window_pattern": 4,
    },
    "granite hybrid as transformers 5 saves it": {
        **SMALL,
        **MAMBA,
        "model_type": "granitemoehybrid",
        "num_local_experts": 0,
        "shared_intermediate_size": 96,
        "layer_types": ["linear_attention", "linear_attention", "full_attention"] * 2,
    },
    "stablelm with norms of heads": {
        **SMALL,
        "model_type": "stablelm",
        "qk_layernorm": True,
        "use_parallel_residual": True,
    },
    "stablelm side by side": {**SMALL, "model_type": "stablelm", "use_parallel_residual": True},
    "qwen2_moe without biases": {
        **SMALL,
        **SMALL_EXPERTS,
        "model_type": "qwen2_moe",
        "qkv_bias": False,
        "shared_expert_intermediate_size": 48,
    },
    "jamba with one expert": {
        **SMALL,
        "model_type": "jamba",
        "num_experts": 1,
        "mamba_dt_rank": 8,
        "attn_layer_period": 3,
        "attn_layer_offset": 1,
    },
    "hunyuan": {**SMALL, "model_type": "hunyuan_v1_dense", "head_dim": 16},
    "hunyuan experts": {
        **SMALL,
        "model_type": "hunyuan_v1_moe",
        "head_dim": 16,
        "num_experts": 4,
        "moe_topk": 2,
    },
    "smollm3 tied by its class": {**SMALL, "model_type": "smollm3"},
    "ernie experts": {
        **SMALL,
        "model_type": "ernie4_5_moe",
        "moe_num_experts": 8,
        "moe_k": 2,
        "moe_intermediate_size": 32,
    },
    "nemotron-h with biases": {
        **SMALL,
        "model_type": "nemotron_h",
        "hybrid_override_pattern": "M-M*-",
        "n_groups": 2,
        "ssm_state_size": 16,
        "mamba_num_heads": 16,
        "mamba_head_dim": 8,
        "head_dim": 16,
        "attention_bias": True,
        "mlp_bias": True,
        "use_bias": True,
        "num_hidden_layers": 5,
    },
    "arcee": {**SMALL, "model_type": "arcee"},
    "ministral3": {**SMALL, "model_type": "ministral3"},
    "granite experts beside a shared MLP": {
        **SMALL,
        "model_type": "granitemoeshared",
        "shared_intermediate_size": 48,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
    "qwen3 without head_dim": {**SMALL, "model_type": "qwen3"},
    "llama with biases": {**SMALL, "model_type": "llama", "attention_bias": True, "mlp_bias": True},
}


@pytest.mark.parametrize("name", VARIATIONS)
def test_variations(name: str) -> None:
    config = VARIATIONS[name]
    model, built = model_from_config(config, "config.json"), library(config)
    assert model.parameters == sum(p.numel() for p in built.parameters())
    _, cache = forward(built, TOKENS)
    assert cache_bill(model, TOKENS, BATCH, BF16, library=True).logical_bytes == cached_bytes(cache)


@pytest.mark.parametrize("name", SCANS)
def test_scans(name: str) -> None:
    """Parameters, state and projections are the library's; how it computes the scan is its own affair.

    It runs a chunked form of the recurrence as batched products, and its causal convolution as a
    padded one, so only `mm` (the projections) can be held to ours.
    """
    model, built = model_from_config(CONFIGS[name], name), library(CONFIGS[name])
    assert model.parameters == sum(p.numel() for p in built.parameters())
    leave_out = ("attention.qk", "attention.pv", "experts.gate_up", "experts.down")
    cache = None
    for step, tokens in ((prefill(BATCH, TOKENS, all_logits=True), TOKENS), (decode(BATCH, TOKENS + 1), 1)):
        counts, cache = forward(built, tokens, cache)
        assert matmul_flops(model, step, leave_out) == counts.get("aten.mm", 0) + counts.get("aten.addmm", 0)
        length = step.segments[0].context
        assert cache_bill(model, length, BATCH, BF16, library=True).logical_bytes == cached_bytes(cache)


@pytest.mark.parametrize("name", ENCODERS)
def test_encoder_decoders(name: str) -> None:
    model, built = model_from_config(CONFIGS[name], name), library(CONFIGS[name])
    assert model.parameters == sum(p.numel() for p in built.parameters())
    counts, cache = forward(built, TOKENS)
    step = prefill(BATCH, TOKENS, all_logits=True, encoder=TOKENS)
    assert matmul_flops(model, step) == sum(counts.values())
    assert cache_bill(model, TOKENS, BATCH, BF16, TOKENS, library=True).logical_bytes == cached_bytes(cache)
