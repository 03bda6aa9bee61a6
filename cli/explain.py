"""`infercost explain`: the formula behind a number, its letters filled in; what a named system changes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from . import options as o
from .groups import grouped
from .inputs import WhatIf, document, inferred_notes, limit_notes, model_source, one_value
from .output.report import Report, Sink, Table, emit
from .sizes import tokens
from .text import count, number, plural
from .topics.asked import Asked
from .topics.explained import Explained, Letter, as_json, shown
from .topics.index import ENTRIES, GROUPS, Entry, find_topic
from .unused import refuse_all_but

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

CONVENTIONS = {
    "value": "the formula's, computed by the cost model the other commands use; in `unit`",
    "letters": "what stands in the formula: value, unit, meaning; bytes, FLOPs, seconds and dollars in "
    "base units",
    "bill": "what the topic changes, between the two `sides`; null ratio where there was nothing before",
    "bound": "max(matmul FLOPs / peak, compulsory bytes / bandwidth)",
    "expected": "the kernel-time model with the GPU's calibration; absent with --calibration none",
    "assumed": "acceptance rates, outlier shares, costs of a cascade and the like are examples, and say so",
}


def complete_topic(incomplete: str) -> list[str]:
    return [entry.name for entry in ENTRIES if entry.name.startswith(incomplete)]


@app.command()
@grouped
def explain(
    ctx: typer.Context,
    *,
    topic: Annotated[
        str | None,
        typer.Argument(help="A number or a system; none lists them.", autocompletion=complete_topic),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="One model, as elsewhere (default: llama-7b).",
            autocompletion=o.complete_model,
        ),
    ] = None,
    gpu: Annotated[
        str,
        typer.Option(
            "--gpu",
            "-g",
            help="One GPU (or INFERCOST_GPU).",
            autocompletion=o.complete_gpu,
            envvar="INFERCOST_GPU",
            show_envvar=False,
        ),
    ] = "a100",
    seq: Annotated[
        str | None, typer.Option("--seq", "--prompt", "-s", help="Tokens of context (default: the topic's).")
    ] = None,
    batch: Annotated[
        str | None, typer.Option("--batch", "-b", help="Sequences at once (default: the topic's).")
    ] = None,
    gen: Annotated[str | None, typer.Option("--gen", help="Tokens out (default: the topic's).")] = None,
    weights: o.Weights = None,
    kv_format: o.Kv = None,
    scale: Annotated[float, typer.Option("--scale", help="How far rotary positions are stretched.")] = 4.0,
    rope_base: Annotated[
        float, typer.Option("--rope-base", help="Base of rotary positions, which sheets do not have.")
    ] = 10_000.0,
    calibration: o.CalibrationOption = "auto",
    what_if: WhatIf,
    sink: Sink,
) -> None:
    """The formula behind a number, with its letters filled in; what a named system changes in the bill.

    \b
    infercost explain
    infercost explain kv --model llama-3-8b --seq 32k
    infercost explain decode --model llama-3-70b --gpu h100 --batch 16
    infercost explain pagedattention
    infercost explain yarn --scale 8
    """
    sink.chosen()
    if topic is None:
        refuse_all_but(ctx, "", (), "without a topic it lists them; name one to have it explained")
        emit(_list(), sink)
        return
    asked = Asked(
        None if model is None else one_value(model, "--model", "explain"),
        one_value(gpu, "--gpu", "explain"),
        None if seq is None else tokens(seq, "--seq"),
        None if batch is None else tokens(batch, "--batch"),
        None if gen is None else tokens(gen, "--gen"),
        None if weights is None else one_value(weights, "--weights", "explain"),
        None if kv_format is None else one_value(kv_format, "--kv", "explain"),
        calibration,
        scale,
        rope_base,
        what_if,
    )
    entry = find_topic(topic)
    emit(_report(entry, entry.explain()(asked), asked), sink)


def _list() -> Report:
    table = Table(("about", "topic", "", "also"), "<<<<")
    last = ""
    for entry in ENTRIES:
        group = GROUPS[entry.module]
        table.rows.append((group if group != last else "", entry.name, entry.title, ", ".join(entry.aliases)))
        last = group
    listed = [
        {"name": e.name, "title": e.title, "group": GROUPS[e.module], "aliases": list(e.aliases)}
        for e in ENTRIES
    ]
    out = document(
        "explain", {"command": "explain"}, CONVENTIONS, {}, [{"inputs": {}, "topics": listed}], False
    )
    records = [{**each, "aliases": " ".join(each["aliases"])} for each in listed]
    answer = f"{plural(len(listed), 'topic')}: infercost explain TOPIC, such as kv or pagedattention"
    return Report(out, [answer], [table], records=records)


def _report(entry: Entry, found: Explained, asked: Asked) -> Report:
    case = found.case
    setting = case.setting
    answer = [
        f"{entry.title}: {shown(found.value, found.unit)}",
        f"= {found.formula}",
        f"= {found.filled}",
        *_scope(found),
    ]
    tables = [_letters(found.letters)]
    if found.bill:
        tables.append(_bill(found))
    notes = []
    if found.differs:
        notes.append(f"textbook against reality: {found.differs}")
    if found.price:
        notes.append(f"price: {found.price}")
    where = " (docs/sources.md names the seed)" if "seed" in found.source else ""
    notes += [f"source: {found.source}{where}", *(f"go on: {command}" for command in found.commands)]
    if found.scope == "request":
        notes += limit_notes([(case.model, case.tokens)])
    notes += inferred_notes(case.model)
    inputs = {
        "command": "explain",
        "what_if": case.what_if,
        "calibration": asked.calibration,
        "scale": case.scale,
        "rope_base": case.rope_base,
    }
    point = {
        "inputs": {
            "model": case.model.name,
            "gpu": case.gpu.name,
            "seq": case.tokens,
            "batch": case.batch,
            "gen": case.gen,
            "weights": setting.recipe.name,
            "kv": case.kv.name,
        },
        **_document(entry, found),
    }
    sources = {case.gpu.name: case.gpu.source, **model_source(case.model), entry.name: found.source}
    full = document("explain", inputs, CONVENTIONS, sources, [point], False, [case.model])
    records = [as_json(line) for line in found.bill] or [letter._asdict() for letter in found.letters]
    return Report(full, answer, tables, notes, records=records, quiet=[repr(found.value)])


def _scope(found: Explained) -> list[str]:
    """What the figures are of."""
    asked = found.case
    name = asked.model.called
    match found.scope:
        case "request":
            return [
                f"{name}, {plural(asked.batch, 'sequence')} of {count(asked.tokens)} tokens, on "
                f"{asked.gpu.title}"
            ]
        case "model":
            return [name]
        case "gpu":
            return [asked.gpu.title]
    return []


def _document(entry: Entry, found: Explained) -> dict[str, Any]:
    return {
        "topic": entry.name,
        "title": entry.title,
        "group": GROUPS[entry.module],
        "formula": found.formula,
        "filled": found.filled,
        "letters": {
            letter.name: {"value": letter.value, "unit": letter.unit or None, "meaning": letter.meaning}
            for letter in found.letters
        },
        "value": found.value,
        "unit": found.unit or None,
        "source": found.source,
        "differs": found.differs or None,
        "sides": list(found.sides),
        "bill": [as_json(line) for line in found.bill],
        "price": found.price or None,
        "commands": list(found.commands),
    }


def _letters(letters: tuple[Letter, ...]) -> Table:
    table = Table(("letter", "", "is"), "<><")
    for letter in letters:
        table.rows.append((letter.name, shown(letter.value, letter.unit), letter.meaning))
    return table


def _bill(found: Explained) -> Table:
    table = Table(("what it changes", *found.sides, "ratio"), "<>>>")
    for line in found.bill:
        ratio = f"{number(line.after / line.before)}x" if line.before else "-"
        pair = (shown(line.before, line.unit), shown(line.after, line.unit))
        table.rows.append((line.what, *pair, ratio))
    return table
