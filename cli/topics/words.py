"""Words that stand on the screens of other commands: what is counted by each, with the case's own numbers."""

from __future__ import annotations

from ... import InputError
from ...costmodel.forward import ops
from ...costmodel.memory import Load, largest_batch
from ...costmodel.roofline import compulsory
from ...costmodel.setting import Setting
from ...costmodel.sharding import Parallel
from ..text import count, number, percent, seconds, size
from .asked import Asked, Case
from .explained import Explained, Letter, Line, three_times

SHARE = 0.9
"""Of a card, as `infercost fit` takes it where nothing else is said."""
RANKS = 2
NARROW = "gptq"
"""The recipe that a lever and a recipe are shown with."""


def _capacity(case: Case) -> int:
    if case.gpu.capacity_bytes is None:
        raise InputError(f"{case.gpu.name} has no memory capacity on its sheet")
    return case.gpu.capacity_bytes


def _fit(case: Case, *words: object) -> str:
    return case.command("fit", "--seq", case.tokens, "--batch", case.batch, *words)


def concurrency(asked: Asked) -> Explained:
    case = asked.at(tokens=4096)
    capacity, load = _capacity(case), Load(case.tokens, case.batch, SHARE, encoder=case.encoder)
    held, most = load.memory(case.setting), largest_batch(load, case.setting)
    if not held.cache:
        raise InputError(f"{case.model.name} keeps no cache: any number of its sequences is held")
    letters = (
        Letter("M", capacity, f"memory of {case.gpu.title}", "bytes"),
        Letter("u", SHARE, "share of it that may be taken"),
        Letter("W", held.weights, f"weights in {case.setting.recipe.name}", "bytes"),
        Letter("A", held.activations, "widest moment of a step", "bytes"),
        Letter(
            "C", held.cache / case.batch, f"cache of one sequence of {count(case.tokens)} tokens", "bytes"
        ),
    )
    value = max(0.0, (capacity * SHARE - held.weights - held.activations) / letters[4].value)
    longer = Load(2 * case.tokens, case.batch, SHARE, encoder=case.encoder).memory(case.setting)
    half = max(0.0, (capacity * SHARE - longer.weights - longer.activations) * case.batch / longer.cache)
    return Explained(
        case,
        "max(0, (M·u - W - A) / C)",
        letters,
        value,
        "sequences",
        'vLLM logs it at start-up ("Maximum concurrency for ... tokens", v1/core/kv_cache_utils.py)',
        bill=(Line("concurrency", "sequences", value, half),),
        sides=(f"{count(case.tokens)} tokens each", f"{count(2 * case.tokens)}"),
        differs="it counts parts of a sequence and leaves the step of one batch as it is; `most` is the "
        f"whole number that fits with the step of so many ({'any' if most is None else count(most)}); "
        "requests shorter than the length asked are more at once",
        commands=(_fit(case),),
    )


def smallest_share(asked: Asked) -> Explained:
    case = asked.at(tokens=4096)
    capacity = _capacity(case)
    load = Load(case.tokens, case.batch, SHARE, encoder=case.encoder)
    held = load.memory(case.setting)
    letters = (
        Letter("T", held.total, "weights, cache and the widest moment together", "bytes"),
        Letter("M", capacity, f"memory of {case.gpu.title}", "bytes"),
    )
    value = held.total / capacity
    said = (
        "more than the whole card: no share holds it"
        if value > 1
        else f"--share {value:.4f} or more holds it"
    )
    return Explained(
        case,
        "T / M",
        letters,
        value,
        "share",
        "vLLM's --gpu-memory-utilization (config/cache.py); other engines' rules: infercost fit --engine",
        differs=f"{said}; of an engine it is of that engine's own rule: vLLM's share is of the total, "
        "TensorRT-LLM's of what is free beside all else, SGLang's of weights and "
        "cache, LMDeploy's of what the weights leave",
        commands=(_fit(case),),
    )


def recipe(asked: Asked) -> Explained:
    case = asked.at()
    bill, narrow = case.weights(), case.stored(NARROW).weights()
    by_format: dict[str, int] = {}
    for part in narrow.components:
        by_format[part.format] = by_format.get(part.format, 0) + part.parameters
    listed = ", ".join(f"{percent(n / bill.parameters)} in {name}" for name, n in by_format.items())
    letters = (
        Letter("B", bill.weight_bytes, f"bytes of all tensors in {case.setting.recipe.name}", "bytes"),
        Letter("n", bill.parameters, "parameters"),
    )
    return Explained(
        case,
        "8·B / n",
        letters,
        8 * bill.weight_bytes / bill.parameters,
        "bits",
        "models/recipes.py: the layouts of bitsandbytes, GPTQ, AWQ and llama.cpp's quantiser",
        bill=(
            Line(
                "bits of a weight",
                "",
                8 * bill.weight_bytes / bill.parameters,
                8 * narrow.weight_bytes / bill.parameters,
            ),
            Line("in memory", "bytes", bill.weight_bytes, narrow.weight_bytes),
        ),
        sides=(case.setting.recipe.name, NARROW),
        differs="a format is of one tensor (int4-g128), a recipe says which format each tensor of a model "
        f"has: {NARROW} is {listed}. llama.cpp's mixes (q4_k_m) choose by tensor and layer; `infercost "
        "weights --formats` lists all",
        commands=(case.command("weights", "--batch", case.batch),),
        scope="model",
    )


def ranks(asked: Asked) -> Explained:
    case = asked.at(tokens=4096)
    apart = case.setting._replace(parallel=Parallel(RANKS)).checked()
    load = Load(case.tokens, case.batch, SHARE, encoder=case.encoder)
    whole, one = load.memory(case.setting), load.memory(apart)
    copied = (RANKS * one.weights - whole.weights) // (RANKS - 1)
    letters = (
        Letter("S", whole.weights - copied, "weights that are split", "bytes"),
        Letter("R", one.weights - (whole.weights - copied) / RANKS, "weights that every rank has", "bytes"),
        Letter("n", RANKS, "ranks of --tp"),
    )
    return Explained(
        case,
        "S/n + R",
        letters,
        one.weights,
        "bytes",
        "Megatron-LM, arXiv 1909.08053, section 3 (tensor parallelism)",
        bill=(
            Line("weights of a rank", "bytes", whole.weights, one.weights),
            Line("cache of a rank", "bytes", whole.cache, one.cache),
            Line("all of a rank", "bytes", whole.total, one.total),
        ),
        sides=("one GPU", f"--tp {RANKS}"),
        differs="a rank is one GPU's part of a deployment: --tp ranks share every matrix, --ep ranks the "
        "experts, --pp stages the layers, --cp groups the tokens of each sequence, --dcp ranks its cache; "
        "what is said of memory is of the fullest rank",
        price=f"an all-reduce after the attention and the FFN of every layer: {_waits(apart, case)}",
        commands=(_fit(case, "--tp", RANKS),),
    )


def _waits(apart: Setting, case: Case) -> str:
    before, after = case.decode_cost(), case._replace(setting=apart).decode_cost()
    return f"a decode step takes {seconds(after.best)}, and {seconds(before.best)} on one"


def knee(asked: Asked) -> Explained:
    case = asked.at(tokens=2048)
    moved = compulsory(case.setting.plan(case.decode_step), ops(case.setting.plan(case.decode_step)))
    if not moved.cached:
        raise InputError(f"{case.model.name} touches no cache: its curve has no knee of this kind")
    each = moved.cached / case.batch
    letters = (
        Letter("W", moved.weights, "weights that a decode step reads", "bytes"),
        Letter("C", each, f"cache that one sequence of {count(case.tokens)} tokens adds to it", "bytes"),
    )
    value = moved.weights / each
    first, bent = (case._replace(batch=n).decode_cost() for n in (1, max(1, round(value))))
    return Explained(
        case,
        "W / C",
        letters,
        value,
        "sequences",
        "Kleinrock, power of a queue (throughput over latency), ICC 1979",
        bill=(
            Line(
                "tokens of all sequences per second",
                "tokens/s",
                1 / first.best,
                max(1, round(value)) / bent.best,
            ),
            Line("time per output token", "s", first.best, bent.best),
        ),
        sides=("one sequence", "at the knee"),
        differs="throughput over latency is greatest where the cache takes as long as the weights: from "
        "there a larger batch adds to the wait more than to the rate. `serve` marks the measured points' "
        "own, of a curve that has prompts and arithmetic in it; a MoE reads more experts with each",
        commands=(case.command("serve", "--prompt", case.tokens, "--gen", case.gen),),
    )


def lever(asked: Asked) -> Explained:
    case = asked.at()
    before, after = case.decode_cost(), case.stored(NARROW).decode_cost()
    letters = (
        Letter("t", before.best, "a decode step as it is", "s"),
        Letter("a", after.best, f"the same with weights in {NARROW}", "s"),
    )
    held, kept = case.weights().weight_bytes, case.stored(NARROW).weights().weight_bytes
    return Explained(
        case,
        "t / a",
        letters,
        before.best / after.best,
        "times as fast",
        "costmodel/levers: one function of a deployment each, evaluated like any other (docs/levers.md)",
        bill=(
            Line("decode step", "s", before.best, after.best),
            Line("weights", "bytes", held, kept),
        ),
        sides=("as it is", f"lever int4 ({NARROW})"),
        differs="a lever is one change of a deployment (a format, a schedule, ranks, another GPU), and its "
        f"gain is computed, never guessed: {size(held - kept)} fewer to read would be {number(held / kept)} "
        f"times as fast if a step read weights alone; {three_times(after)}",
        commands=(
            case.command("diagnose", "--prompt", case.tokens, "--gen", case.gen, "--batch", case.batch),
        ),
    )


def confidence(asked: Asked) -> Explained:
    case = asked.at()
    cost = case.decode_cost()
    if cost.expected is None or cost.confidence is None:
        raise InputError("explain confidence: with --calibration none nothing is expected")
    letters = (
        Letter("t", cost.expected, f"expected time of a decode step, {cost.confidence}", "s"),
        Letter("e", cost.confidence.error, "median error to expect of it"),
    )
    return Explained(
        case,
        "t·(1 + e)",
        letters,
        cost.expected * (1 + cost.confidence.error),
        "s",
        "costmodel/times/transfer.py and hardware/calibrations; docs/times.md",
        differs="calibrated: constants fitted to kernels measured on this GPU; transferred: those of another "
        "GPU that is like it, named, in its own peak and bandwidth; assumed: no measured GPU is like it. "
        f"Half of all times are nearer than the error, half are not: here {percent(cost.confidence.error)}",
        commands=(
            case.command("ops", "--phase", "decode", "--seq", case.tokens, "--batch", case.batch),
            "infercost gpus",
        ),
    )
