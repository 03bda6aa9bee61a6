"""What `infercost fit` shows: one load in full, several in a table, the picture of the memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..costmodel.sharding import Parallel
from ..models.recipes import find_recipe
from .fit_answer import Answer, terms_of
from .inputs import (
    inferred_notes,
    limit_notes,
    without_constant,
)
from .output.report import Report, Table
from .text import count, percent, plural, size, size_both

WHOLE_BUDGET = 0.1
"""What was seen so near to the budget is an engine's pool, taken whole at the start."""
TERM_TITLES = {"context": "CUDA context"}
"""Terms of the bill whose names in the JSON say something else on a screen."""


def screen(answer: Answer, point: dict[str, Any], seen: int | None, whole: bool) -> Report:
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
        *terms_of(memory).items(),
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
            f"concurrency: caches of {count(load.tokens)} tokens that fit beside all else, in parts of one; "
            "most: whole sequences, activations counted"
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
    beyond = context is None or answer.load.tokens > context
    return answer.max_seq if beyond else min(answer.max_seq, context or 0)


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


def several(answers: list[Answer], points: list[dict[str, Any]]) -> Report:
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


def draw_memory(path: str, answers: list[Answer], points: list[dict[str, Any]]) -> None:
    """The bill of every point; of one alone also at other lengths, to its budget and beyond."""
    from .pictures.file import draw
    from .pictures.memory import Held, bill_chart, context_chart, contexts

    charts = [bill_chart(points)]
    if len(answers) == 1:
        load, setting, longest = answers[0].load, answers[0].setting, answers[0].max_seq
        held = [
            Held(tokens, terms_of(load._replace(tokens=tokens).memory(setting)))
            for tokens in contexts(load.tokens, longest)
        ]
        name, many = setting.model.title or setting.model.name, plural(load.batch, "sequence")
        title = f"Memory over the context: {name}, {many}, {setting.gpu.title}"
        charts.append(context_chart(title, held, answers[0].budget_bytes, load.tokens, longest))
    draw(path, charts)
