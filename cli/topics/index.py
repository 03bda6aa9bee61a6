"""The names of all topics, by group: what is listed, and which module has the function of a topic.

A topic's function is called like it, with `_` for what no identifier has.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from ... import InputError


class Entry(NamedTuple):
    """A topic: `name` and `aliases` to ask for it by, `title` to read, `module` of its function."""

    name: str
    title: str
    module: str
    aliases: tuple[str, ...] = ()

    @property
    def function(self) -> str:
        return re.sub(r"\W", "_", self.name)

    def explain(self) -> Callable[..., Any]:
        """The topic's function, its module imported only now."""
        found: Callable[..., Any] = getattr(
            importlib.import_module(f"{__package__}.{self.module}"), self.function
        )
        return found


GROUPS = {
    "memory": "memory",
    "roofs": "the roofline",
    "request": "a request",
    "attention": "attention",
    "positions": "positions",
    "serving": "serving",
    "engines": "engines",
    "speculation": "fewer passes",
    "quantisation": "fewer bits",
    "compression": "fewer weights",
    "words": "words of the screens",
}
"""Modules, and what their topics are about."""

ENTRIES = (
    Entry("kv", "KV cache", "memory", ("kv-cache", "cache")),
    Entry("weights", "weights in memory", "memory"),
    Entry("params", "parameters", "memory", ("parameters",)),
    Entry("memory", "memory at its fullest", "memory", ("fit", "peak-memory")),
    Entry("ridge", "ridge of a GPU", "roofs", ("roofline",)),
    Entry("intensity", "arithmetic intensity", "roofs"),
    Entry("flops", "FLOPs of a prompt", "roofs"),
    Entry("bound", "bound of a decode step", "roofs"),
    Entry("floor", "floor of a decode step", "roofs"),
    Entry("expected", "expected time of a decode step", "roofs"),
    Entry("mfu", "model FLOPs utilisation of a prefill", "roofs"),
    Entry("mbu", "model bandwidth utilisation of a decode step", "roofs"),
    Entry("prefill", "prefill", "request"),
    Entry("decode", "decode step", "request"),
    Entry("decode-steps", "decode steps", "request", ("steps",)),
    Entry("ttft", "time to first token", "request"),
    Entry("tpot", "time per output token", "request", ("itl",)),
    Entry("e2e", "end-to-end time", "request", ("latency",)),
    Entry("throughput", "output tokens per second", "request"),
    Entry("dollars", "dollars of a request", "request", ("price", "usd")),
    Entry("energy", "energy of a request", "request"),
    Entry("gqa", "grouped-query attention (GQA)", "attention"),
    Entry("mqa", "multi-query attention (MQA)", "attention"),
    Entry("flashattention", "FlashAttention", "attention", ("flash", "flash-attention")),
    Entry("sliding-window", "sliding-window attention", "attention", ("swa", "window")),
    Entry("rope", "rotary positions (RoPE)", "positions"),
    Entry("pi", "position interpolation (PI)", "positions", ("position-interpolation",)),
    Entry("ntk", "NTK-aware scaling of RoPE", "positions"),
    Entry("yarn", "YaRN", "positions"),
    Entry("pagedattention", "PagedAttention", "serving", ("paged", "paged-attention")),
    Entry("continuous-batching", "continuous batching", "serving", ("batching", "orca")),
    Entry("splitfuse", "SplitFuse (chunked prefill)", "serving", ("chunked-prefill", "dynamic-splitfuse")),
    Entry("vllm", "vLLM", "engines"),
    Entry("llama.cpp", "llama.cpp", "engines", ("gguf",)),
    Entry("deepspeed-mii", "DeepSpeed-MII", "engines", ("deepspeed", "mii")),
    Entry("hugging-face-transformers", "Hugging Face transformers", "engines", ("transformers", "hf")),
    Entry("speculative-decoding", "speculative decoding", "speculation", ("speculation", "speculative")),
    Entry("medusa", "Medusa", "speculation"),
    Entry("early-exit", "early exit", "speculation"),
    Entry("frugalgpt", "FrugalGPT (a cascade)", "speculation", ("cascade",)),
    Entry("quantiser", "scale and zero point of a quantiser", "quantisation", ("quantizer", "scale")),
    Entry("bitsandbytes", "bitsandbytes NF4", "quantisation", ("nf4", "bnb")),
    Entry("llm.int8", "LLM.int8()", "quantisation", ("llm-int8", "int8")),
    Entry("smoothquant", "SmoothQuant", "quantisation", ("w8a8",)),
    Entry("gptq", "GPTQ", "quantisation"),
    Entry("awq", "AWQ", "quantisation"),
    Entry("lora", "LoRA beside 2-bit weights", "quantisation", ("lora-2bit", "qlora")),
    Entry("kv-quantisation", "quantised KV cache", "quantisation", ("kv-quantization", "kvq")),
    Entry("structured-pruning", "structured pruning", "compression", ("pruning",)),
    Entry("unstructured-pruning", "unstructured pruning", "compression", ("sparsity",)),
    Entry("semi-structured-pruning", "2:4 sparsity", "compression", ("2:4",)),
    Entry("sparsegpt", "SparseGPT", "compression"),
    Entry("sheared-llama", "Sheared LLaMA", "compression", ("sheared",)),
    Entry("distillation", "distillation", "compression", ("distil",)),
    Entry("concurrency", "concurrency, and the most at once", "words", ("most", "reach", "max-concurrency")),
    Entry("smallest-share", "smallest share of a card", "words", ("share", "gpu-memory-utilization")),
    Entry("recipe", "recipe of weights", "words", ("recipes", "mix", "format")),
    Entry("ranks", "ranks of a deployment", "words", ("rank", "tp", "tensor-parallel")),
    Entry("knee", "knee of a serving curve", "words"),
    Entry("lever", "lever of a diagnosis", "words", ("levers",)),
    Entry(
        "confidence",
        "calibrated, transferred, assumed times",
        "words",
        ("calibrated", "transferred", "assumed", "calibration"),
    ),
)


def find_topic(name: str) -> Entry:
    """The topic called `name`, in any case, spaces and underscores being dashes.

    Raises InputError for an unknown one, with the nearest.
    """
    key = re.sub(r"[\s_]+", "-", name.strip().lower()).rstrip("()")
    for entry in ENTRIES:
        if key in (entry.name, *entry.aliases):
            return entry
    from ...sheets import nearest

    known = [word for entry in ENTRIES for word in (entry.name, *entry.aliases)]
    hint = nearest(key, known) or "; `infercost explain` lists the topics"
    raise InputError(f"there is no topic '{name[:60]}'{hint}")
