"""What people and engines call an option or a command, and what it is called here.

Looked at once something is unknown: a meaning first, then the command that has the option, the spelling last.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from typing import Any

import typer

from ..sheets import nearest
from .app import COMMANDS

MEANINGS: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("--model",),
        "model-path model-name model-id model-file model-dir checkpoint repo repo-id llm net network",
    ),
    (("--gpu",), "gpus device hardware hw card accelerator gpu-type gpu-name gpu-model chip"),
    (
        ("--tp",),
        "tensor-parallel-size tensor-parallel tensor-parallelism tensor-model-parallel-size tp-size "
        "tp-degree gpus num-gpus n-gpus ngpus gpu-count num-devices devices num-shard gpus-per-node -tp",
    ),
    (("--pp",), "pipeline-parallel-size pipeline-parallel pp-size pipeline-stages stages -pp"),
    (("--ep",), "expert-parallel-size expert-parallel enable-expert-parallel ep-size moe-ep"),
    (("--cp",), "context-parallel-size context-parallel prefill-context-parallel-size cp-size"),
    (("--dcp",), "decode-context-parallel-size dcp-size"),
    (
        ("--kv",),
        "kv-cache-dtype kv-dtype kv-cache-type kv-type kv-format kv-quant kv-cache-quant "
        "kv-cache-quantization kv-quantization kv-bits kv-cache-bits kv-cache-format cache-dtype "
        "cache-type cache-type-k cache-type-v cache-quant -ctk -ctv",
    ),
    (
        ("--weights", "--dtype"),
        "quant quantization quantisation quantize quantise dtype torch-dtype precision weight-format "
        "weights-format weight-dtype weights-dtype weight-bits wbits bits load-in-4bit load-in-8bit qtype "
        "ftype outtype recipe weight",
    ),
    (
        ("--seq", "--prompt"),
        "context context-length context-len context-size ctx ctx-size ctx-len n-ctx num-ctx max-ctx "
        "sequence sequence-length sequence-len seq-len seqlen seq-length length max-model-len max-seq-len "
        "max-seq-length max-sequence-length max-length max-context max-context-length max-context-len "
        "max-total-tokens tokens num-tokens n-tokens prompt -c",
    ),
    (
        ("--prompt", "--seq"),
        "input inputs input-len input-length input-tokens input-seq-len max-input-len max-input-length "
        "isl prompt-len prompt-length prompt-tokens prompt-size n-prompt num-prompt-tokens "
        "random-input-len prefill-tokens tokens-in -p",
    ),
    (
        ("--gen",),
        "output-tokens output-len output-length output-seq-len outputs osl max-output-len "
        "max-output-tokens max-tokens max-new-tokens min-new-tokens new-tokens max-completion-tokens "
        "completion-tokens completion n-predict num-predict n-gen gen-len gen-length gen-tokens generate "
        "generate-len generated-tokens decode-tokens random-output-len tokens-out answer -n",
    ),
    (
        ("--batch",),
        "batch-size batches bs max-num-seqs max-batch-size max-batch parallel n-parallel num-parallel "
        "max-running-requests num-seqs num-sequences sequences seqs slots concurrent -np",
    ),
    (
        ("--concurrency", "--batch"),
        "users concurrency max-concurrency concurrent-users concurrent-requests num-users clients "
        "num-concurrent",
    ),
    (("--ubatch",), "ubatch-size micro-batch micro-batch-size microbatch -ub"),
    (
        ("--chunk", "--max-num-batched-tokens"),
        "chunk-size chunked-prefill chunked-prefill-size enable-chunked-prefill prefill-chunk "
        "prefill-chunk-size max-prefill-tokens max-batched-tokens max-num-tokens",
    ),
    (("--block",), "page-size tokens-per-block block-len kv-block-size kv-page-size"),
    (
        ("--offload-layers",),
        "n-gpu-layers gpu-layers num-gpu-layers cpu-layers cpu-offload cpu-offload-gb offload "
        "offload-to-cpu offload-weights n-cpu-moe -ngl",
    ),
    (("--offload-kv",), "no-kv-offload kv-offload cache-offload -nkvo"),
    (
        ("--capacity",),
        "vram vram-gb memory mem max-memory max-gpu-memory gpu-memory gpu-mem gpu-ram ram hbm budget "
        "memory-budget memory-limit memory-size",
    ),
    (
        ("--share",),
        "gpu-memory-utilization gpu-memory-fraction gpu-mem-fraction gpu-util mem-fraction "
        "mem-fraction-static memory-fraction memory-utilization utilization free-gpu-memory-fraction "
        "kv-cache-free-gpu-mem-fraction cache-max-entry-count",
    ),
    (("--cuda-context",), "cuda-ctx context-memory context-mib"),
    (("--graphs",), "cuda-graphs cudagraph cuda-graph-memory"),
    (("--rate",), "qps rps request-rate requests-per-second requests-per-s arrival-rate arrivals load"),
    (("--ttft",), "time-to-first-token first-token max-ttft ttft-ms ttft-limit ttft-slo prefill-latency"),
    (
        ("--tpot",),
        "itl tbt inter-token-latency time-per-output-token token-latency max-tpot max-itl tpot-ms "
        "tpot-limit tpot-slo",
    ),
    (("--e2e",), "e2el latency max-latency end-to-end"),
    (
        ("--price",),
        "cost usd dollars price-per-hour cost-per-hour usd-per-hour hourly hourly-price gpu-price gpu-cost",
    ),
    (("--engine",), "backend framework runtime server inference-engine"),
    (("--draft",), "draft-model speculative-model speculative-draft-model model-draft assistant-model -md"),
    (
        ("--gamma",),
        "num-speculative-tokens speculative-tokens speculative-num-steps draft-max draft-tokens draft-len",
    ),
    (("--alpha",), "acceptance acceptance-rate accept-rate"),
    (
        ("--cached", "--shared-prefix"),
        "prefix prefix-len prefix-cache prefix-tokens cached-tokens cached-prefix cache-prefix "
        "enable-prefix-caching",
    ),
    (("--window",), "sliding-window window-size attention-window swa"),
    (("--layers",), "num-layers n-layers num-hidden-layers"),
    (("--heads",), "num-heads n-heads n-head num-attention-heads query-heads"),
    (("--kv-heads",), "num-kv-heads n-kv-heads n-head-kv num-key-value-heads"),
    (("--head-dim",), "head-size head-width"),
    (("--attention",), "attn attn-implementation attention-backend flash-attn flash-attention"),
    (("--phase",), "stage prefill decode prefill-only decode-only"),
    (("--policy",), "scheduler schedule scheduling batching scheduler-policy"),
    (("--trace",), "dataset dataset-path workload requests-file"),
    (("--lengths",), "distribution length-distribution"),
    (("--skew",), "zipf imbalance"),
    (("--actual", "--measured"), "observed seen real measured actual"),
    (("--output",), "output-file out-file outfile save save-as export write file"),
    (("--json",), "as-json to-json output-json"),
    (("--plot",), "graph chart figure picture image draw svg png"),
    (("--quiet",), "silent brief"),
)
"""Options, of which a command has the first if it can, and what they are called elsewhere: without dashes, or
with one where the word is written with one."""

NOT_NEEDED = {
    ("kv", "--gpu"): "a cache takes the same bytes on every GPU; whether it fits one says `infercost fit`",
    ("kv", "--weights"): "a cache does not depend on the weights' format; its own is --kv",
    (
        "weights",
        "--gpu",
    ): "weights take the same bytes on every GPU; whether they fit one says `infercost fit`",
    ("weights", "--seq"): "weights do not depend on a length; with a cache beside them: `infercost fit`",
    ("weights", "--kv"): "weights do not depend on the cache; both together: `infercost fit`",
    ("weights", "--tp"): "weights are counted whole here; of one rank: `infercost fit --tp`",
}
"""Options that a command has no use for, and why."""

LOOKED_AT = ("request", "fit", "serve", "sweep", *COMMANDS)
"""Commands in the order in which one is named for an option that the one asked has not."""

COMMAND_WORDS = {
    "fit": "memory mem vram oom hardware fits can-i-run can-run capacity",
    "kv": "kv-cache kvcache cache context",
    "weights": "size params parameters disk",
    "request": "latency speed time estimate predict run cost price tokens perf",
    "serve": "throughput serving server load capacity-planning plan concurrency users",
    "ops": "flops operations kernels layers",
    "quant": "quantize quantise quantization quantisation formats",
    "compress": "prune pruning distil distill distillation sparsity",
    "speculate": "speculative spec draft medusa",
    "diagnose": "bottleneck why optimize optimise tune advise levers",
    "explain": "formula formulas topics glossary define what",
    "sweep": "grid search explore",
    "probe": "bench benchmark measure",
    "validate": "verify accuracy",
    "report": "html page",
    "check": "assert ci test budget budgets",
    "models": "list list-models model ls",
    "gpus": "list-gpus gpu devices hardware-list",
}
"""What people call a command."""


def usage_line(error: Any, words: Sequence[str] = ()) -> str:
    """What one of typer's usage errors says in one line, with the way out; `words` are what was typed."""
    said = str(error.format_message())
    context = getattr(error, "ctx", None)
    if context is None:
        return said
    if hasattr(error, "option_name") and said.startswith("No such option"):
        given = _as_typed(str(error.option_name), words)
        return f"No such option: {given}{option_hint(given, context)}"
    unknown = re.match(r"No such command '([^']*)'", said)
    if unknown:
        return f"No such command '{unknown[1]}'{_command_hint(unknown[1], context)}"
    extra = re.search(r"unexpected extra argument\S* \((.*)\)", said)
    if extra:
        return f"{said}{_argument_hint(extra[1].split(), context)}"
    number = re.match(r"Invalid value for ('(--[a-z-]+)'.*): '(.*)' is not a valid (int|float)", said)
    if number:
        given = f"{number[2]} '{number[3]}'"
        return f"{given} is not a {_KINDS[number[4]]}{_number_hint(number[2], number[3], number[4])}"
    return said


_KINDS = {"int": "valid int", "float": "valid float"}


def option_hint(given: str, context: Any) -> str:
    """The way out of an option that the command of `context` does not have."""
    command = str(context.command_path).removeprefix("infercost").strip()
    own = _names(context.command)
    plain = given.lower().replace("_", "-")
    long = f"--{plain.lstrip('-')}"
    if long in own:
        return f"; here it is {long} (infercost {command} --help)"
    why = NOT_NEEDED.get((command, long))
    if why:
        return f"; {why}"
    here = called_here(plain, own)
    if here:
        return f"; here it is {' or '.join(here)} (infercost {command} --help)"
    wanted = [long, *(name for options in _meant(plain) for name in options)]
    for name in wanted:
        homes = (each for each in LOOKED_AT if each != command and options_of(each).get(name) == name)
        home = next(homes, None)
        if home is not None:
            called = "it" if name == long else name
            return f"; {called} is of {home} (infercost {home} --help)"
    close = nearest(long, own)
    return close or f"; `infercost {command} --help` lists them"


def called_here(plain: str, own: dict[str, str]) -> list[str]:
    """Options among `own` that mean what `plain` is called elsewhere, the first of each meaning."""
    found = [next((own[name] for name in options if name in own), None) for options in _meant(plain)]
    return list(dict.fromkeys(name for name in found if name is not None))


def _meant(plain: str) -> list[tuple[str, ...]]:
    return [options for options, called in MEANINGS if _is_called(plain, called.split())]


def _is_called(plain: str, called: list[str]) -> bool:
    """Whether an option as it was typed is one of these words."""
    bare = plain.lstrip("-")
    short = f"-{bare}" in called and (len(bare) > 1 or not plain.startswith("--"))
    return short or (len(bare) > 1 and bare in called)


def options_of(command: str) -> dict[str, str]:
    """Long options of one of the commands, each with its first name; the command's module is imported."""
    return _names(typer.main.get_command(importlib.import_module(f"{__package__}.{command}").app))


def _names(command: Any) -> dict[str, str]:
    named = [[name for name in each.opts if name.startswith("--")] for each in command.params]
    return {name: names[0] for names in named for name in names}


def _as_typed(name: str, words: Sequence[str]) -> str:
    """`-ngl`, of which typer's parser names `-n`."""
    if not re.fullmatch(r"-[^-]", name):
        return name
    whole = (word for word in words if word.startswith(name) and re.fullmatch(r"-[a-zA-Z]{2,8}", word))
    return next(whole, name)


def _command_hint(given: str, context: Any) -> str:
    group = str(context.command_path).removeprefix("infercost").strip()
    inner = list(getattr(context.command, "commands", {}))
    if group in ("models", "gpus"):
        return nearest(given, inner) or f"; one of them is shown by `infercost {group} show {given[:60]}`"
    if group:
        return nearest(given, inner) or f"; `infercost {group} --help` lists them"
    word = given.lower().replace("_", "-")
    if word == "help":
        return "; `infercost --help`, or of a command: infercost kv --help"
    if word == "compare":
        return "; most commands compare where a,b is given: infercost fit --model a,b"
    for name, called in COMMAND_WORDS.items():
        if word in called.split():
            return f"; here it is {name} (infercost {name} --help)"
    return nearest(word, inner) or "; `infercost --help` lists them"


def _argument_hint(extra: list[str], context: Any) -> str:
    """Names of models and GPUs go with their options."""
    from ..hardware.catalogue import is_known
    from ..models.catalogue import model_aliases, model_names

    own = [name for parameter in context.command.params for name in parameter.opts]
    named = []
    for word in extra[:6]:
        low = word.lower()
        if "--model" in own and (low in model_names() or low in model_aliases()):
            named.append(f"--model {word}")
        elif is_known(low):
            named += [f"--gpu {word}"] if "--gpu" in own else []
    if named:
        return f"; with its option: {' '.join(named)}"
    return "; every value goes with an option, several of one as a,b"


def _number_hint(option: str, given: str, kind: str) -> str:
    """The way out of what is no number: several of them, or one with a sign or a unit."""
    parts = given.split(",")
    if len(parts) > 1 and all(re.fullmatch(r"\s*\d+\s*", part) for part in parts):
        swept = option in options_of("sweep")
        return (
            f"; one value here, `infercost sweep {option} {given}` takes several"
            if swept
            else "; one value here"
        )
    found = re.fullmatch(
        r"[$€]?\s*(\d+(?:\.\d+)?)\s*(%|[$€]|[a-z]*/s|rps|qps|gb/s|x)?", given.strip().lower()
    )
    if not found:
        return "; give a whole number" if kind == "int" else "; give a number, such as 0.9 or 2.5"
    value = float(found[1]) / (100 if found[2] == "%" else 1)
    return f"; write {option} {value:.12g}"
