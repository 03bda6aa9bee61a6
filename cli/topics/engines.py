"""Engines that the seed names, by what each brought."""

from __future__ import annotations

from dataclasses import replace

from ... import InputError
from ...costmodel.kv import allocate, cache_groups
from ...costmodel.memory import SHARE
from ...costmodel.setting import step_cost
from ...hardware.catalogue import load_gpu
from ...hardware.spec import Gpu
from ...models.recipes import default_recipe
from ..text import count, number, size
from .asked import Asked, Case
from .explained import Explained, Letter, Line, times
from .serving import allocations, at_once, compared, policies, splitfuse

CPU = "cpu-generic-2ch"
MIX = "q4_k_m"


def vllm(asked: Asked) -> Explained:
    case = asked.at(tokens=512, gen=128)
    held = case.long(case.request.held_tokens)
    reserved, paged = allocations(held)
    few, many = at_once(held, reserved), at_once(held, paged)
    if few < 1:
        raise InputError(
            f"explain vllm: {case.model.name} does not fit {case.gpu.name} with one sequence beside it"
        )
    before = policies(case._replace(batch=few), ("static",), "exponential")[0]
    after = policies(case._replace(batch=many), ("continuous",), "exponential")[0]
    capacity = case.gpu.capacity_bytes or 0
    letters = (
        Letter("M", capacity, f"memory of {case.gpu.title}", "bytes"),
        Letter("f", SHARE, "share of it (--gpu-memory-utilization)"),
        Letter("W", case.weights().weight_bytes, "weights", "bytes"),
        Letter(
            "c", paged.allocated_bytes / held.batch, "cache of a request at its end, whole blocks", "bytes"
        ),
    )
    return Explained(
        case,
        "(f·M - W) / c",
        letters,
        (capacity * SHARE - case.weights().weight_bytes) / (paged.allocated_bytes / held.batch),
        "sequences",
        "PagedAttention, arXiv 2309.06180; Orca, OSDI 2022; seed 001, section 3",
        bill=(
            Line(
                "cache of a request",
                "bytes",
                reserved.allocated_bytes / held.batch,
                paged.allocated_bytes / held.batch,
            ),
            Line("sequences at once", "", few, many),
            *compared(case, before, after),
        ),
        sides=("static, reserved", "continuous, paged"),
        differs="a paged cache and continuous batching, together: more sequences fit and each slot "
        f"works; times are of kernels, outputs exponential with a mean of {count(case.gen)}; activations "
        "are not in the pool here, `fit` has them",
        price="at so many a step is slower for each of them",
        commands=(
            case.command("serve", "--prompt", case.tokens, "--gen", case.gen, "--lengths", "exponential"),
            case.command("fit", "--seq", held.tokens),
        ),
    )


def deepspeed_mii(asked: Asked) -> Explained:
    found = splitfuse(asked)
    note = "DeepSpeed-MII's scheduler is SplitFuse (FastGen), over a blocked cache as vLLM's"
    return found._replace(differs=f"{note}; {found.differs}")


def llama_cpp(asked: Asked) -> Explained:
    case = asked.at()
    mixed = case.stored(MIX) if asked.weights is None else case
    plain = case.stored(default_recipe(case.model))
    layers = len(case.model.layers)
    if layers < 2 or case.model.encoder is not None or case.model.tied:
        raise InputError(
            f"explain llama.cpp: the layers of {case.model.name} are not split between devices here"
        )
    half = layers // 2
    cpu = load_gpu(CPU)
    on_gpu, on_cpu = _split(mixed, half, cpu)
    whole = mixed.decode_cost().bound
    letters = (
        Letter("g", on_gpu, f"bound of {half} layers on {case.gpu.title}", "s"),
        Letter("c", on_cpu, f"bound of {layers - half} layers and the head on {cpu.title}", "s"),
    )
    bill, held = plain.weights(), mixed.weights()
    return Explained(
        case,
        "g + c",
        letters,
        on_gpu + on_cpu,
        "s",
        "llama.cpp (ggml-org/llama.cpp), its K-quants and --n-gpu-layers; block sizes: the gguf package; "
        "seed 001, section 10",
        bill=(
            Line("weights", "bytes", bill.weight_bytes, held.weight_bytes),
            Line(
                "bits of a weight",
                "",
                8 * bill.weight_bytes / bill.parameters,
                8 * held.weight_bytes / held.parameters,
            ),
            *times("decode step on the GPU", plain.decode_cost(), mixed.decode_cost()),
            Line("bound with half the layers on a CPU", "s", sum(_split(plain, half, cpu)), on_gpu + on_cpu),
        ),
        sides=(plain.setting.recipe.name, mixed.setting.recipe.name),
        differs="a decode step with half of its layers on a CPU is bound by the slower memory: "
        f"{number((on_gpu + on_cpu) / whole)} times the whole GPU's; products are in 16 bit, so that a "
        "prompt gains nothing",
        price="quality, by what each mix leaves of it; `quant` quotes what was published",
        commands=(
            case.command("weights", "--weights", "fp16,q8_0,q4_k_m,q2_k"),
            case.command("request", "--prompt", case.tokens, "--weights", MIX),
        ),
    )


def _split(case: Case, layers: int, cpu: Gpu) -> tuple[float, float]:
    """Bounds of a decode step: the first `layers` on the case's GPU, the rest and the head on a CPU."""
    first = replace(case.model, layers=case.model.layers[:layers], output_end=False)
    rest = replace(case.model, layers=case.model.layers[layers:], input_end=False)
    there = case.of(rest).setting._replace(gpu=cpu, clock=None)
    return step_cost(case.of(first).setting, case.decode_step).bound, step_cost(there, case.decode_step).bound


def hugging_face_transformers(asked: Asked) -> Explained:
    case = asked.at(tokens=512, gen=512)
    held = case.long(case.tokens + case.gen)
    grown = allocate(
        case.model, "concat", held.tokens, case.batch, case.kv, prompt=case.tokens, encoder=case.encoder
    )
    bill = held.cache()
    letters = (
        Letter("U", bill.logical_bytes, f"the cache at its end, {count(held.tokens)} tokens", "bytes"),
        Letter(
            "O", grown.allocated_bytes - bill.logical_bytes, "the one before it, one token shorter", "bytes"
        ),
    )
    first = cache_groups(case.model)[0][0]
    shape = "[batch, KV heads, tokens, head_dim]"
    if first.grows:
        _, heads, width = first.row_shapes(held.tokens)[0]
        shape = f"[{case.batch}, {heads}, {count(held.tokens)}, {width}]"
    return Explained(
        case,
        "U + O",
        letters,
        grown.allocated_bytes,
        "bytes",
        "transformers up to 4.35, whose cache grows by torch.cat (held to optimum-benchmark's peaks); "
        "seed 003, section 5; seed ledger, pg.concat",
        bill=(
            Line("cache at its fullest", "bytes", bill.logical_bytes, grown.allocated_bytes),
            Line("copied while it grows", "bytes", 0, grown.copied_bytes),
        ),
        sides=("allocated once", "concatenated"),
        differs=f"K and V of a layer are {shape} each; every token copies all that is there, "
        f"{size(grown.copied_bytes)} over {count(max(0, case.gen - 1))} steps, twice what attention "
        "itself reads: a static cache does not",
        price="memory for two caches at once",
        commands=(
            case.command("kv", "--prompt", case.tokens, "--gen", case.gen, "--alloc", "concat"),
            case.command("fit", "--seq", held.tokens, "--engine", "hf"),
        ),
    )
