"""`infercost fit`: does it fit, how long a context, how many at once, how many GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import typer

from .. import InfercostError, InputError
from ..costmodel.engines import Pool
from ..costmodel.memory import (
    Change,
    Given,
    Load,
    Memory,
    gpus_needed,
    largest_batch,
    longest,
    what_would_fit,
)
from ..costmodel.parallel import shard
from ..costmodel.setting import Setting
from ..costmodel.sharding import Parallel
from ..costmodel.step import decode
from ..models.catalogue import load_model
from ..models.recipes import find_recipe
from . import options as o
from .engine_flags import CONCATENATING, READ_BY, Flags, refuse_unread
from .groups import grouped
from .inputs import (
    WhatIf,
    document,
    each_of,
    encoder_positions,
    gpus_of,
    grid,
    inferred_notes,
    lengths,
    limit_notes,
    models,
    one_value,
    sources_of,
    whole_context,
    without_constant,
)
from .output.report import Report, Sink, Table, emit
from .pictures.file import check_plot
from .runs import run_of
from .sizes import byte_size, token_list
from .text import count, percent, plural, size, size_both

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

MOST_POINTS = 1000
WHOLE_BUDGET = 0.1
"""What was seen so near to the budget is an engine's pool, taken whole at the start."""
CONVENTIONS = {
    "budget_bytes": "share of the card's capacity (what a program can have, else what the driver reports, "
    "else the label); the rest is left for context, NCCL, CUDA graphs and fragments. With --engine by its "
    "rule: vllm a share of the total, tensorrt-llm a share of what is free beside everything else, sglang a "
    "share for weights and cache, lmdeploy a share of what the weights leave",
    "terms": "of the fullest rank: weights, the cache of all sequences at --seq tokens, the widest moment "
    "of a prefill step of at most inputs.chunk tokens (encoders: whole sequences, as many as that holds). "
    "With --engine vllm of its trial run: a full step, its scores as they are sampled from, experts' "
    "workspaces, padded weights",
    "max_seq": "most tokens of each of --batch sequences; null where any length fits",
    "max_batch": "most whole sequences of --seq tokens; null where any number fits",
    "max_concurrency": "what weights and activations leave, over the cache of one sequence",
    "gpus_needed": "fewest ranks: tensor parallelism by powers of two as far as it divides, then pipelining",
    "ep": "without --tp each rank has sequences of its own: --batch and what follows from it are of one rank",
    "engine": "hf: the cache grows by concatenation, the old one beside the new (transformers up to 4.35); "
    "the others: blocks, groups and pools as they cut them, their own reserves as terms",
    "logits_bytes": "scores of one step of --batch sequences on a rank, in the activations' type",
    "smallest_share": "least share of the engine's rule at which it fits",
}


TERM_TITLES = {"context": "CUDA context"}
"""Terms of the bill whose names in the JSON say something else on a screen."""


class DoesNotFitError(InfercostError):
    """`--require` and a bill beyond the budget."""

    exit_code = 1


class Answer(NamedTuple):
    """One load on one setting, evaluated."""

    load: Load
    setting: Setting
    memory: Memory
    budget_bytes: int
    pool: Pool | None
    max_seq: int | None
    max_batch: int | None
    needed: Parallel | None
    changes: list[Change]

    @property
    def free_bytes(self) -> int:
        return self.budget_bytes - self.memory.total

    @property
    def concurrency(self) -> float | None:
        """Sequences whose cache fits beside everything else, in parts of one; as the engine says it."""
        if self.pool is not None:
            return self.pool.concurrency
        each = self.memory.cache / self.load.batch
        left = self.budget_bytes - self.memory.beside_cache
        return max(0.0, left / each) if each else None


@app.command()
@grouped
def fit(
    ctx: typer.Context,
    *,
    model: o.Model = None,
    gpu: o.Gpu = "a100",
    seq: Annotated[
        str | None,
        typer.Option(
            "--seq",
            "-s",
            "--context",
            "--ctx-size",
            "--max-model-len",
            help="Tokens of each sequence; 2k,32k sweeps; without it the model's whole context.",
        ),
    ] = None,
    batch: o.Batch = "1",
    share: Annotated[
        float | None,
        typer.Option(
            "--share",
            "--gpu-memory-utilization",
            "--mem-fraction-static",
            "--free-gpu-memory-fraction",
            help="Share of the card that may be taken (0.9), by the engine's rule: of the total or of what "
            "is free.",
        ),
    ] = None,
    chunk: o.BatchedTokens = None,
    tp: o.Tp = 1,
    pp: o.Pp = 1,
    ep: o.Ep = 1,
    weights: o.Weights = None,
    kv_format: o.Kv = None,
    encoder_seq: o.EncoderSeq = None,
    flags: Flags,
    cuda_context: Annotated[
        str | None, typer.Option("--cuda-context", help="CUDA context on a rank (default: the engine's).")
    ] = None,
    nccl: Annotated[str | None, typer.Option("--nccl", help="NCCL's buffers on a rank.")] = None,
    graphs: Annotated[str | None, typer.Option("--graphs", help="CUDA graphs on a rank.")] = None,
    draft: Annotated[str | None, typer.Option("--draft", help="A draft model held beside it.")] = None,
    weight_bytes: Annotated[
        str | None, typer.Option("--weight-bytes", help="Size of the weights, where it is known: 18GiB.")
    ] = None,
    non_kv: Annotated[
        str | None,
        typer.Option("--non-kv", help="All that is no cache on a rank, where it was measured: 20GiB."),
    ] = None,
    capacity: o.Capacity = None,
    actual: Annotated[
        str | None,
        typer.Option("--actual", help="Bytes that were seen (18.9GB, 17GiB): beside the estimate."),
    ] = None,
    plot: o.Plot = None,
    require: Annotated[bool, typer.Option("--require", help="Exit 1 where it does not fit.")] = False,
    what_if: WhatIf,
    sink: Sink,
) -> None:
    """Does it fit: the memory bill, the longest context, the most sequences, the fewest GPUs.

    \b
    infercost fit --model llama-3-8b --gpu rtx4090
    infercost fit --model llama-3-70b --gpu h100 --seq 32k --batch 4
    infercost fit --model llama-3-8b --gpu rtx4090 --seq 128k --kv fp8
    infercost fit --model gpt-oss-120b --gpu h100 --engine vllm --max-model-len 128k
    infercost fit --model llama-3-8b --gpu rtx4090 --engine llama.cpp --weights q4_k_m --seq 32k
    infercost fit --model deepseek-v3 --gpu h200 --tp 8 --seq 64k
    infercost fit --model llama-3-70b --gpu all --seq 8k
    infercost fit --model llama-3-8b --gpu h100 --seq 32k --batch 8 --plot memory.svg
    """
    sink.chosen()
    check_plot(plot)
    if share is not None and not 0 < share <= 1:
        raise InputError(f"--share is a part of the card, above 0 and up to 1, not {share:g}")
    flags = flags.checked()
    refuse_unread(ctx, flags.engine, READ_BY)
    given = Given(
        *(
            _size(text, option)
            for text, option in (
                (weight_bytes, "--weight-bytes"),
                (non_kv, "--non-kv"),
                (cuda_context, "--cuda-context"),
                (nccl, "--nccl"),
                (graphs, "--graphs"),
                (capacity, "--capacity"),
                (flags.budget, "--kv-budget"),
            )
        )
    )._replace(blocks=flags.blocks)
    drafting = None if draft is None else load_model(one_value(draft, "--draft", "fit"))
    seen = None if actual is None else byte_size(actual, "--actual")
    parallel = Parallel(tp, ep, pp)
    chosen = models(model, what_if, "fit")
    gpus = gpus_of(gpu)
    recipes = each_of(weights, "--weights")
    caches = each_of(kv_format, "--kv")
    asked: list[int | None] = [None] if seq is None else [*lengths(seq, "fit")]
    answers = []
    for one, device, given_length, many, recipe, cache in grid(
        chosen, gpus, asked, token_list(batch, "--batch"), recipes, caches, most=MOST_POINTS
    ):
        length = whole_context(one) if given_length is None else given_length
        run = run_of(one, recipe, cache)
        setting = Setting(one, run, device, parallel).checked()
        encoder = encoder_positions(one, encoder_seq, length)
        follows = one.encoder is not None and encoder_seq is None and not one.encoder.positions
        load = Load(
            length,
            many,
            share,
            flags.chunk_tokens(device),
            encoder,
            flags.engine == CONCATENATING,
            follows,
            reserve=flags.reserve(device),
            given=given,
            draft=drafting,
        )
        answers.append(_answer(load, setting))
    points = [_point(answer) for answer in answers]
    listed = len(points) > 1
    if listed and seen is not None:
        raise InputError("--actual is what one run took: give one of each option")
    inputs: dict[str, Any] = {
        "command": "fit",
        "what_if": what_if.given(),
        "share": share,
        "chunk": chunk and flags.chunk_tokens(None),
        "engine": flags.engine,
        "engine_version": flags.memory.version if flags.memory else None,
        "given": {name: value for name, value in given._asdict().items() if value is not None},
        "draft": drafting.name if drafting else None,
        "actual_bytes": seen,
    }
    sources = sources_of(gpus, chosen)
    final = _sweep(answers, points) if listed else _screen(answers[0], points[0], seen, seq is None)
    if seq is None:
        final.notes.insert(0, "no --seq: the model's whole context, as engines take it")
    final.document = document("fit", inputs, CONVENTIONS, sources, points, listed, chosen)
    final.records = [_flat(point) for point in points]
    final.quiet = ["inf" if a.concurrency is None else repr(a.concurrency) for a in answers]
    if plot is not None:
        _draw(plot, answers, points)
    emit(final, sink)
    if require and not all(point["fits"] for point in points):
        worst = min(answers, key=lambda answer: answer.free_bytes)
        raise DoesNotFitError(
            f"{worst.setting.model.name} does not fit {worst.setting.gpu.name}: "
            f"{size(-worst.free_bytes)} too much"
        )


def _size(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    return 0 if text.strip() in ("0", "0GiB", "0B") else byte_size(text, option)


def _answer(load: Load, setting: Setting) -> Answer:
    memory = load.memory(setting)
    budget = load.budget_bytes(setting, memory)
    fits = memory.total <= budget
    return Answer(
        load,
        setting,
        memory,
        budget,
        load.pool(setting, memory),
        longest(load, setting),
        largest_batch(load, setting),
        gpus_needed(load, setting),
        [] if fits else what_would_fit(load, setting),
    )


def _point(answer: Answer) -> dict[str, Any]:
    setting, load, needed = answer.setting, answer.load, answer.needed
    return {
        "inputs": {
            "model": setting.model.name,
            "gpu": setting.gpu.name,
            "seq": load.tokens,
            "batch": load.batch,
            "encoder_seq": load.encoder or None,
            "weights": setting.recipe.name,
            "kv": setting.run.kv.name,
            "tp": setting.parallel.tp,
            "pp": setting.parallel.pp,
            "ep": setting.parallel.ep,
            "chunk": load.chunk,
        },
        "fits": answer.free_bytes >= 0,
        "capacity_bytes": load.given.capacity or setting.gpu.capacity_bytes,
        "share": load.share_of(setting),
        "budget_bytes": answer.budget_bytes,
        "terms": [{"name": name, "bytes": value} for name, value in _terms(answer.memory).items()],
        "logits_bytes": logits_bytes(setting, load.batch),
        "total_bytes": answer.memory.total,
        "free_bytes": answer.free_bytes,
        "max_seq": answer.max_seq,
        "max_batch": answer.max_batch,
        "max_concurrency": answer.concurrency,
        "pool": answer.pool and answer.pool._asdict(),
        "smallest_share": load.smallest_share(setting, answer.memory),
        "share_without_graphs": _without_graphs(answer),
        "gpus_needed": needed.world if needed else None,
        "gpus_as": {"tp": needed.tp, "pp": needed.pp} if needed else None,
        "would_fit": [change._asdict() for change in answer.changes],
    }


def _draw(path: str, answers: list[Answer], points: list[dict[str, Any]]) -> None:
    """The bill of every point; of one alone also at other lengths, to its budget and beyond."""
    from .pictures.file import draw
    from .pictures.memory import Held, bill_chart, context_chart, contexts

    charts = [bill_chart(points)]
    if len(answers) == 1:
        load, setting, longest = answers[0].load, answers[0].setting, answers[0].max_seq
        held = [
            Held(tokens, _terms(load._replace(tokens=tokens).memory(setting)))
            for tokens in contexts(load.tokens, longest)
        ]
        name, many = setting.model.title or setting.model.name, plural(load.batch, "sequence")
        title = f"Memory over the context: {name}, {many}, {setting.gpu.title}"
        charts.append(context_chart(title, held, answers[0].budget_bytes, load.tokens, longest))
    draw(path, charts)


def _terms(memory: Memory) -> dict[str, int]:
    """The terms that are always there, and those of the others that are not zero."""
    always = ("weights", "cache", "activations")
    return {name: value for name, value in memory._asdict().items() if name in always or value}


def logits_bytes(setting: Setting, batch: int) -> int:
    """Scores of `batch` sequences on one rank."""
    plan = shard(setting.plan(decode(batch, 2)), setting.parallel, setting.parallel.pp - 1)
    return int(plan.step.logit_rows * plan.model.vocab * plan.activation_bytes)


def _without_graphs(answer: Answer) -> float | None:
    """The share of the total that leaves the same cache without CUDA graphs (vLLM logs it since 0.21)."""
    load, setting = answer.load, answer.setting
    if load.reserve is None or load.reserve.memory.share_of != "total" or not answer.memory.graphs:
        return None
    if load.given.pool is not None or load.given.blocks is not None:
        return None
    return load.share_of(setting) - answer.memory.graphs / load.capacity_bytes(setting)


def _screen(answer: Answer, point: dict[str, Any], seen: int | None, whole: bool) -> Report:
    setting, load, memory = answer.setting, answer.load, answer.memory
    name = setting.model.title or setting.model.name
    ranks = setting.parallel.world
    card = f"{ranks} x {setting.gpu.title}" if ranks > 1 else setting.gpu.title
    what, free, fitting = f"{name}, {plural(load.batch, 'sequence')}", answer.free_bytes, _longest(answer)
    if whole and free < 0 and fitting:
        what = f"{what} on {card}: {count(fitting)} tokens fit; its whole context of {count(load.tokens)}"
        verdict = f"does not, {size(-free)} too much"
    else:
        what = f"{what} of {count(load.tokens)} tokens, on {card}:"
        verdict = f"fits, {size(free)} to spare" if free >= 0 else f"does not fit: {size(-free)} too much"
        if free < 0 and fitting is not None:
            verdict += f", {count(fitting)} tokens fit" if fitting else ", not one token fits"
        elif free >= 0 and answer.max_batch is not None and answer.max_batch > load.batch:
            verdict += f", {count(answer.max_batch)} at most"
    table = Table(("fullest rank" if ranks > 1 else "memory", "", "of the budget"), "<>>")
    for term, value in (
        *_terms(memory).items(),
        ("together", memory.total),
        ("budget", answer.budget_bytes),
    ):
        share = percent(value / answer.budget_bytes) if answer.budget_bytes else "-"
        table.rows.append((TERM_TITLES.get(term, term), size_both(value), share))
    reach = Table(("reach", ""), "<<")
    context = setting.model.context
    beyond = context is not None and (answer.max_seq is None or answer.max_seq > context)
    made_for = f"; the model's context is {count(context or 0)}" if beyond else ""
    longest_cell = _count(answer.max_seq, "token") + made_for
    reach.rows.append((f"longest, {plural(load.batch, 'sequence')}", longest_cell))
    reach.rows.append((f"most, of {count(load.tokens)} tokens", _count(answer.max_batch, "sequence")))
    if answer.pool is not None:
        cut = f", {count(answer.pool.blocks)} blocks, {count(answer.pool.tokens)} tokens"
        reach.rows.append(("pool", size_both(answer.pool.bytes) + cut))
    if answer.concurrency is not None:
        reach.rows.append(("concurrency", f"{answer.concurrency:,.2f}"))
    reach.rows.append(("GPUs it needs", _needed(answer.needed)))
    least = load.smallest_share(setting, memory) if free < 0 else None
    if least is not None:
        reach.rows.append(("smallest share", f"{least:.3f} of the engine's rule"))
    for change in answer.changes:
        reach.rows.append(("would fit", f"weights {change.weights}, KV {change.kv}: {size(change.total)}"))
    tables = [table, reach]
    notes = limit_notes([(setting.model, load.tokens)]) + inferred_notes(setting.model)
    notes.append(f"weights {point['inputs']['weights']}, KV {point['inputs']['kv']}; budget: {_rule(answer)}")
    if answer.concurrency is not None:
        notes.append(
            f"concurrency: sequences of {count(load.tokens)} tokens whose cache fits beside all else, in "
            "parts of one; most: whole ones, with what more of them take"
        )
    without = point["share_without_graphs"]
    if without is not None:
        notes.append(f"graphs are in the budget: {without:.4f} is the same share without them")
    if load.reserve:
        notes += _allocated(answer)
        notes.append(f"{load.reserve.engine} {load.reserve.memory.version}: {load.reserve.memory.source}")
    if setting.replicas > 1:
        notes.append(
            f"each of the {setting.replicas} ranks has so many sequences of its own (--ep without --tp)"
        )
    if load.concat:
        notes.append("engine hf: the cache grows by concatenation (transformers up to 4.35), old beside new")
    if seen is not None:
        more = seen - memory.total
        notes.append(
            f"seen: {size_both(seen)}, {size(abs(more))} {'more' if more >= 0 else 'less'} than the terms "
            f"({seen / memory.total - 1:+.1%}); {_hint(more, answer)}"
        )
        verdict += f"; seen {size(seen)}, {seen / memory.total - 1:+.1%}"
    return Report({}, [f"{what} {verdict}"], tables, notes)


def _longest(answer: Answer) -> int | None:
    """Tokens that fit where more are asked for; None where it is not the length."""
    context = answer.setting.model.context
    if answer.max_seq is None or answer.max_seq >= answer.load.tokens:
        return None
    return answer.max_seq if context is None else min(answer.max_seq, context)


def _allocated(answer: Answer) -> list[str]:
    """The step that an engine's figures rest on, and what its weights take beyond the checkpoint's."""
    load, reserve = answer.load, answer.load.reserve
    assert reserve is not None
    most = f" of at most {count(reserve.how.sequences)} sequences" if reserve.profiles else ""
    tried = ", tried out before the pool is sized" if reserve.profiles else ""
    flag = "--ubatch" if reserve.engine == "llama.cpp" else "--max-num-batched-tokens"
    notes = [f"steps of {count(load.chunk)} tokens{most} ({flag}){tried}"]
    plain = load._replace(reserve=None).memory(answer.setting).weights
    if load.given.beside_cache is None and answer.memory.weights > plain:
        notes.append(f"weights: {size(answer.memory.weights - plain)} of them pad experts in MXFP4")
    return notes


def _rule(answer: Answer) -> str:
    """How the budget comes about."""
    load = answer.load
    share, capacity = load.share_of(answer.setting), size(load.capacity_bytes(answer.setting))
    if answer.pool is not None and load.given.blocks is not None:
        return f"a pool of {count(answer.pool.blocks)} blocks beside the rest, of {capacity}"
    if load.given.pool is not None:
        return f"a pool of {size(load.given.pool)} beside the rest, of {capacity}"
    if load.reserve and load.reserve.memory.share_of == "none" and share == 1:
        return f"all of {capacity}"
    return {
        "free": f"{share:.3g} of what is free of {capacity} beside the rest",
        "static": f"{share:.3g} of {capacity} for weights and cache, activations beside it",
        "free_of_weights": f"{share:.3g} of what the weights leave of {capacity}",
        "none": f"{share:.3g} of {capacity}",
        "total": f"{share:.3g} of {capacity}",
    }[load.reserve.memory.share_of if load.reserve else "total"] + (
        "" if load.reserve else ", the rest for context, NCCL, graphs and fragments"
    )


def _hint(more: int, answer: Answer) -> str:
    """The likeliest term of what was seen beyond the estimate."""
    left = answer.budget_bytes - answer.memory.beside_cache
    if more < 0:
        return "less is held than was asked about: a shorter sequence, or narrower formats"
    if (
        abs(answer.memory.total + more - answer.budget_bytes) < WHOLE_BUDGET * answer.budget_bytes
        and left > 0
    ):
        return "about the whole budget: an engine takes its pool at the start, whatever is asked of it"
    like = _alike(answer, answer.memory.total + more)
    if like:
        return like
    if answer.load.reserve:
        return "fragments, and more context, NCCL buffers or graphs than the terms assume"
    return "context, NCCL, CUDA graphs and fragments are not in the terms"


ALIKE = 0.04
"""Of what was seen: what would take as much as that, give or take, is named."""


def _alike(answer: Answer, seen: int) -> str:
    """Another question whose answer is what was seen: more sequences, the whole context, 16 bit."""
    load, setting = answer.load, answer.setting
    context = setting.model.context or 0
    plain = setting._replace(run=replace(setting.run, recipe=find_recipe("bf16")))
    others = [
        *((f"{n * load.batch} sequences", load._replace(batch=n * load.batch), setting) for n in (2, 4, 8)),
        (f"the whole context, {count(context)} tokens", load._replace(tokens=context), setting),
        ("weights in 16 bit", load, plain),
    ]
    for what, other, there in others:
        if other.tokens >= load.tokens:
            total = other.memory(there).total
            if abs(total - seen) <= ALIKE * seen:
                return f"{what} would take {size(total)}: an engine may have been started for that"
    return ""


def _count(value: int | None, word: str) -> str:
    return f"any number of {word}s" if value is None else plural(value, word)


def _needed(needed: Parallel | None) -> str:
    if needed is None:
        return "no split over up to 1,024 was found"
    stages = f", {needed.pp} pipeline stages" if needed.pp > 1 else ""
    return f"{needed.world:,} (tensor parallel {needed.tp}{stages})" if needed.world > 1 else "1"


def _sweep(answers: list[Answer], points: list[dict[str, Any]]) -> Report:
    columns = ("model", "gpu", "tokens", "batch", "weights", "KV")
    found = ("weights take", "cache", "together", "budget", "fits", "longest", "most", "GPUs")
    table = Table((*columns, *found), "<<>><<>>>><>>>")
    for answer, point in zip(answers, points, strict=True):
        got = point["inputs"]
        table.rows.append(
            (
                got["model"],
                got["gpu"],
                count(got["seq"]),
                count(got["batch"]),
                got["weights"],
                got["kv"],
                size(answer.memory.weights),
                size(answer.memory.cache),
                size(answer.memory.total),
                size(answer.budget_bytes),
                "yes" if point["fits"] else "no",
                "any" if answer.max_seq is None else count(answer.max_seq),
                "any" if answer.max_batch is None else count(answer.max_batch),
                "-" if point["gpus_needed"] is None else count(point["gpus_needed"]),
            )
        )
    table, notes = without_constant(table, columns)
    notes += limit_notes([(answer.setting.model, answer.load.tokens) for answer in answers])
    fitting = sum(1 for point in points if point["fits"])
    return Report({}, [f"{fitting:,} of {plural(len(points), 'point')} fit"], [table], notes)


def _flat(point: dict[str, Any]) -> dict[str, Any]:
    """A point as one CSV row."""
    out = dict(point["inputs"])
    out |= {f"{term['name']}_bytes": term["bytes"] for term in point["terms"]}
    skipped = ("inputs", "terms", "gpus_as", "would_fit")
    return out | {key: value for key, value in point.items() if key not in skipped}
