"""Options shared by commands, defined once: name, short form, help, completion."""

from __future__ import annotations

from typing import Annotated

import typer


def _starting(names: list[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def complete_model(incomplete: str) -> list[str]:
    from ..models.catalogue import model_names

    return _starting(list(model_names()), incomplete)


def complete_gpu(incomplete: str) -> list[str]:
    from ..hardware.catalogue import gpu_aliases, gpu_names

    return _starting([*gpu_names(), *gpu_aliases()], incomplete)


def complete_weights(incomplete: str) -> list[str]:
    from ..models.recipes import recipe_names

    return _starting(recipe_names(), incomplete)


def complete_format(incomplete: str) -> list[str]:
    from ..models.formats import formats

    return _starting(list(formats()), incomplete)


def complete_engine(incomplete: str) -> list[str]:
    from ..hardware.engine import engine_names

    return _starting(list(engine_names()), incomplete)


Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="Model: a name, sheet.yaml, config.json, GGUF, model folder, hf:owner/name, or - (stdin); "
        "a,b compares.",
        autocompletion=complete_model,
    ),
]
Gpu = Annotated[
    str,
    typer.Option(
        "--gpu",
        "-g",
        help="GPU: a name, an alias or a sheet.yaml; a,b compares (or INFERCOST_GPU).",
        autocompletion=complete_gpu,
        envvar="INFERCOST_GPU",
        show_envvar=False,
    ),
]
Seq = Annotated[
    str | None,
    typer.Option(
        "--seq",
        "-s",
        "--context",
        "--ctx-size",
        help="Tokens of context: 4096, 32k (= 32,768), 1M; 2k,8k,32k sweeps. (vLLM reads 32k as 32,000.)",
    ),
]
Batch = Annotated[str, typer.Option("--batch", "-b", help="Sequences at once; 1,8,64 sweeps.")]
Weights = Annotated[
    str | None,
    typer.Option(
        "--weights",
        "-w",
        help="Weight format or recipe (bf16, fp8-block, bnb-nf4, gptq, q4_k_m ...); default: the "
        "checkpoint's own; a,b compares.",
        autocompletion=complete_weights,
    ),
]
Kv = Annotated[
    str | None,
    typer.Option(
        "--kv",
        help="KV cache format (bf16, fp8, int8-g64, nvfp4, q8_0 ...); default 16 bit; a,b compares.",
        autocompletion=complete_format,
    ),
]
EncoderSeq = Annotated[
    str | None,
    typer.Option(
        "--encoder-seq", help="Encoder positions of an encoder-decoder (default: the model's, or --seq)."
    ),
]
Phase = Annotated[
    str, typer.Option("--phase", help="prefill (a prompt of --seq), decode (one token at --seq), or both.")
]
AttentionKernel = Annotated[
    str,
    typer.Option("--attention", help="flash (scores stay on chip) or eager (scores written and read)."),
]
Mla = Annotated[
    str, typer.Option("--mla", help="MLA kernels: absorbed, expanded, or auto (the fewer FLOPs).")
]
Fusion = Annotated[
    str, typer.Option("--fusion", help="Pointwise kernels: none, engine (add+norm, SiLU·up) or ideal.")
]
Accounting = Annotated[
    str, typer.Option("--accounting", help="kernel (true bytes) or textbook (Tables 9.1 and 9.2).")
]
FullAttention = Annotated[
    bool, typer.Option("--full-attention", help="Count every query-key pair, not the causal half.")
]
AllLogits = Annotated[
    bool, typer.Option("--all-logits", help="Prefill computes logits for every position, not the last.")
]
Skew = Annotated[
    float, typer.Option("--skew", help="Zipf exponent of expert popularity (0: uniform routing).")
]
RidgeOption = Annotated[
    str,
    typer.Option(
        "--ridge",
        help="Which ridge leads: textbook (GB = 2^30) or datasheet (GB = 10^9); display only "
        "(or INFERCOST_RIDGE).",
        envvar="INFERCOST_RIDGE",
        show_envvar=False,
    ),
]

Engine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        help="As this engine does it: vllm, sglang, tensorrt-llm, llama.cpp, hf ...",
        autocompletion=complete_engine,
    ),
]
Library = Annotated[
    str | None,
    typer.Option("--engine", help="hf: as the transformers library does it; default: as serving engines."),
]
Block = Annotated[
    str | None,
    typer.Option(
        "--block", "--block-size", help="Tokens in a block (16, or the engine's); see --alloc paged."
    ),
]
BatchedTokens = Annotated[
    str | None,
    typer.Option(
        "--max-num-batched-tokens",
        "--chunk",
        help="Tokens of one step: a prefill chunk, what a window keeps besides itself (default 8k).",
    ),
]
MicroBatch = Annotated[str | None, typer.Option("--ubatch", help="llama.cpp's micro-batch (512 tokens).")]
ContextRanks = Annotated[
    int, typer.Option("--dcp", help="Ranks that share out each sequence's cache (decode context parallel).")
]
WindowShare = Annotated[
    float | None,
    typer.Option("--window-share", help="SGLang's window pool in parts of its full pool (0.8)."),
]
KvBudget = Annotated[
    str | None,
    typer.Option(
        "--kv-budget", "--kv-cache-memory-bytes", help="Size of the pool on a rank, such as 5.38GiB."
    ),
]
Blocks = Annotated[
    int | None,
    typer.Option("--num-gpu-blocks", "--num-gpu-blocks-override", help="Blocks of the pool on a rank."),
]

CalibrationOption = Annotated[
    str,
    typer.Option(
        "--calibration",
        help="Constants of the expected times: auto (those that ship), none, or a calibration's YAML.",
    ),
]

Tp = Annotated[int, typer.Option("--tp", "--tensor-parallel-size", help="Tensor-parallel ranks.")]
Pp = Annotated[int, typer.Option("--pp", help="Pipeline stages.")]
Cp = Annotated[int, typer.Option("--cp", help="Context-parallel groups: each has a part of every sequence.")]
OffloadLayers = Annotated[
    int,
    typer.Option("--offload-layers", help="Layers of each stage whose weights stay in the host's memory."),
]
OffloadCache = Annotated[bool, typer.Option("--offload-kv", help="The cache stays in the host's memory.")]
HostLink = Annotated[
    float | None,
    typer.Option("--host-link", help="GB/s one way between host and device (default 32: PCIe 4 x16)."),
]
Times = Annotated[
    str | None,
    typer.Option(
        "--engine",
        help="Expected times as this engine's requests took: vllm, sglang, tensorrt-llm, llama.cpp ... "
        "(default: kernels back to back, no host).",
        autocompletion=complete_engine,
    ),
]
Ep = Annotated[int, typer.Option("--ep", help="Expert-parallel ranks: --tp's, or alone.")]

Plot = Annotated[
    str | None,
    typer.Option("--plot", help="Write the picture to this file, .svg, or .png (extra `plot`)."),
]
NoPlot = Annotated[bool, typer.Option("--no-plot", help="No picture on the screen.")]

Prompt = Annotated[str | None, typer.Option("--prompt", "--seq", "-s", help="Prompt tokens; 1k,4k sweeps.")]
Gen = Annotated[str, typer.Option("--gen", "--out", help="Tokens out; 100,1k sweeps.")]
Ttft = Annotated[str | None, typer.Option("--ttft", help="Limit of the time to first token: 0.5s, 200ms.")]
Tpot = Annotated[str | None, typer.Option("--tpot", help="Limit of the time per output token: 50ms.")]
Capacity = Annotated[
    str | None,
    typer.Option(
        "--capacity",
        help="Memory of a card, not the sheet's: 79.29GiB; nine tenths of it are planned for.",
    ),
]
Price = Annotated[
    float | None, typer.Option("--price", help="Dollars per GPU and hour (default: the sheet's, dated).")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the one number alone.")]
