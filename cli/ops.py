"""`infercost ops`: every operation of a step, with what it costs and which roof it hits."""

from __future__ import annotations

from typing import Any

import typer

from ..costmodel.roofline import bound_s, default_dtype, ridge, step_floor_s, totals, verdict
from ..costmodel.textbook import Row, decode_table, prefill_table, shape_of
from ..hardware.catalogue import load_gpu
from ..hardware.spec import Gpu
from ..models.spec import Model
from . import options as o
from .groups import grouped
from .inputs import (
    SHAPE,
    WhatIf,
    choice,
    document,
    each_of,
    grid,
    inferred_notes,
    lengths,
    limit_notes,
    models,
    sources_of,
    without_constant,
)
from .output.report import Report, Sink, Table, emit
from .sizes import token_list, words
from .step_options import (
    MAX_STEPS,
    RIDGES,
    Phase,
    StepOptions,
    confidence_note,
    op_as_json,
    op_table,
    phases,
    ridge_line,
    step_inputs,
    step_notes,
    totals_as_json,
)
from .text import count, number, plural, seconds, si
from .unused import refuse_all_but, refuse_strangers

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

CONVENTIONS = {
    "flops": "a multiply-add is 2; causal attention visits T(T+1)/2 pairs unless --full-attention; eager "
    "attention computes the full square; an embedding lookup has none",
    "logits": "of the last position only in prefill, unless --all-logits",
    "decode": "one token per sequence at a context of --seq tokens, the new one counted",
    "bytes": "what each kernel must move, by class; experts as expected to be touched; activations in 16 "
    "bit, also where the matrix units compute in 8 or 4",
    "bound_s": "max(matmul FLOPs / peak, compulsory bytes / bandwidth) of the whole step",
    "floor_s": "sum over kernels of max(matmul / peak, vector / fp32 peak, bytes / bandwidth)",
    "expected_s": "the kernel-time model with the calibration of the GPU, all from cold memory: never below "
    "the floor; null with --calibration none",
    "confidence": "calibrated, transferred or assumed, and the median relative error to expect",
    "verdict": "memory-bound below 0.75 x the textbook ridge, compute-bound above 1.25 x the datasheet ridge",
    "scan": "recurrences are counted token by token, on vector units",
}
MAX_NOTES = 8
TEXTBOOK_READS = ("--accounting", "--model", "--gpu", "--seq", "--batch", "--phase", "--ridge", *SHAPE)
TEXTBOOK = {
    "accounting": "textbook: Tables 9.1 and 9.2, elements instead of bytes, constants dropped, one layer; "
    "intensity is work / access and not FLOPs / bytes",
}


@app.command()
@grouped
def ops(
    ctx: typer.Context,
    *,
    model: o.Model = None,
    gpu: o.Gpu = "a100",
    seq: o.Seq = None,
    batch: o.Batch = "1",
    how: StepOptions,
    what_if: WhatIf,
    ridge_lead: o.RidgeOption = "textbook",
    sink: Sink,
) -> None:
    """Every operation of a step: FLOPs, bytes by class, intensity, verdict, floor.

    \b
    infercost ops --model llama-7b --batch 8 --seq 1024
    infercost ops --model deepseek-v3 --gpu h200 --phase decode --batch 32 --seq 4k
    infercost ops --model llama-3-8b --phase prefill --seq 1k,4k,16k
    infercost ops --model llama-7b --batch 8 --seq 1024 --accounting textbook
    """
    choice(ridge_lead, RIDGES, "--ridge")
    how.checked()
    textbook = how.accounting == "textbook"
    if textbook:
        # The tables have no formats, kernels or experts.
        why = "Tables 9.1 and 9.2 count elements"
        refuse_all_but(ctx, "--accounting textbook", TEXTBOOK_READS, why)
    chosen = models(model, what_if, "ops")
    refuse_strangers(ctx, chosen)
    gpus = [load_gpu(name) for name in words(gpu, "--gpu")]
    recipes = each_of(how.weights, "--weights")
    caches = each_of(how.kv_format, "--kv")
    seqs, batches = lengths(seq, "ops"), token_list(batch, "--batch")
    combos = list(grid(chosen, gpus, seqs, batches, recipes, caches, most=MAX_STEPS))
    listed = len(combos) > 1
    inputs: dict[str, Any] = {"command": "ops", "what_if": what_if.given(), "accounting": how.accounting}
    inputs |= how.echo() | {"ridge": ridge_lead}
    sources = sources_of(gpus, chosen)
    points, reports = [], []
    for one, device, length, sequences, recipe, cache in combos:
        point: dict[str, Any] = {"inputs": {"gpu": device.name}}
        if textbook:
            point["inputs"] |= {"model": one.name, "seq": length, "batch": sequences}
            report = _textbook(one, device, length, sequences, how.phase, ridge_lead, point)
        else:
            built = phases(one, device, length, sequences, recipe, cache, how)
            point["inputs"] |= step_inputs(built)
            report = _kernel(one, device, length, sequences, built, ridge_lead, point)
        points.append(point)
        reports.append(report)
    conventions = TEXTBOOK if textbook else CONVENTIONS
    final = reports[0] if not listed else _sweep(points, reports)
    final.document = document("ops", inputs, conventions, sources, points, listed, chosen)
    if textbook:
        final.quiet = None
    else:
        final.quiet = [repr(sum(t["floor_s"] for t in p["totals"].values())) for p in points]
    emit(final, sink)


def _kernel(
    model: Model, gpu: Gpu, seq: int, batch: int, built: list[Phase], lead: str, point: dict[str, Any]
) -> Report:
    point["ops"] = [op_as_json(op, gpu, time) for phase in built for op, time in phase.rows()]
    point["totals"] = {phase.plan.step.phase: totals_as_json(phase, gpu) for phase in built}
    answer = []
    for phase in built:
        what = "prefill" if phase.plan.step.phase == "prefill" else "one decode step"
        total = totals(phase.ops)
        answer.append(
            f"{what}: {_expected(phase)}floor {seconds(step_floor_s(phase.ops, gpu))}, "
            f"bound {seconds(bound_s(phase.plan, phase.ops, gpu))} "
            f"({si(total.matmul_flops + total.vector_flops, 'FLOP')}, {si(total.bytes, 'B')})"
        )
    title = f"{model.called}, {plural(batch, 'sequence')} of {count(seq)} tokens, on {gpu.title}"
    answer[0] = f"{title}: {answer[0]}"
    tables = [op_table(phase, gpu) for phase in built]
    notes = limit_notes([(model, seq)]) + inferred_notes(model) + step_notes(built, gpu, lead)
    notes += confidence_note(built)
    records = [_flat(entry, point["inputs"]) for entry in point["ops"]]
    return Report({}, answer, tables, notes, records=records)


def _expected(phase: Phase) -> str:
    if phase.total is None:
        return ""
    return f"expected {seconds(phase.total.seconds)} {phase.total.confidence}, "


def _flat(entry: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
    """An op as one CSV row: classes of bytes become columns."""
    out = {"model": inputs["model"], "gpu": inputs["gpu"], "seq": inputs["seq"], "batch": inputs["batch"]}
    for key, value in entry.items():
        if key == "confidence":
            out[key] = value["text"] if value else None
        elif isinstance(value, dict):
            out |= {f"{name}_bytes": part for name, part in value.items()}
        else:
            out[key] = value
    return out


def _textbook(
    model: Model, gpu: Gpu, seq: int, batch: int, phase: str, lead: str, point: dict[str, Any]
) -> Report:
    shape = shape_of(model)
    tables: list[tuple[str, tuple[Row, ...]]] = []
    if phase in ("both", "prefill"):
        tables.append(("prefill", prefill_table(shape, batch, seq)))
    if phase in ("both", "decode"):
        tables.append(("decode", decode_table(shape, batch, seq)))
    dtype = default_dtype(gpu)
    roof = ridge(gpu, dtype)
    point["ops"] = [
        {
            "phase": name,
            "name": row.name,
            "work": "textbook",
            "count": shape.layers,
            "flops": row.flops,
            "access_elements": row.access,
            "intensity": row.intensity,
            "verdict": verdict(row.intensity, roof),
            "matmul_flops": None,
            "vector_flops": None,
            "bytes": None,
            "bytes_by_class": None,
            "floor_s": None,
            "expected_s": None,
            "confidence": None,
        }
        for name, rows in tables
        for row in rows
    ]
    point["totals"] = {}
    made = []
    for name, _ in tables:
        table = Table(("op", "FLOPs", "access (elements)", "intensity", "verdict"), "<>>><", title=name)
        for entry in (entry for entry in point["ops"] if entry["phase"] == name):
            table.rows.append(
                (
                    entry["name"],
                    si(entry["flops"], "FLOP") if entry["flops"] else "-",
                    count(entry["access_elements"]),
                    number(entry["intensity"]) if entry["flops"] else "-",
                    entry["verdict"],
                )
            )
        made.append(table)
    answer = [
        f"Tables 9.1 and 9.2 for one layer of {model.called}, "
        f"{plural(batch, 'sequence')} of {count(seq)} tokens"
    ]
    notes = [f"{ridge_line(roof, lead)}, {dtype}, {gpu.title}", TEXTBOOK["accounting"]]
    records = [point["inputs"] | entry for entry in point["ops"]]
    return Report({}, answer, made, notes, records=records)


def _sweep(points: list[dict[str, Any]], reports: list[Report]) -> Report:
    """One line a point and phase; the operations themselves are in the JSON and the CSV."""
    columns = (
        "model",
        "gpu",
        "tokens",
        "batch",
        "weights",
        "KV",
        "phase",
        "FLOPs",
        "bytes",
        "bound",
        "floor",
        "expected",
        "±",
    )
    table = Table(columns, "<<>><<<>>>>>>")
    records: list[dict[str, Any]] = []
    for point in points:
        got = point["inputs"]
        for name, total in point["totals"].items():
            table.rows.append(
                (
                    got["model"],
                    got["gpu"],
                    count(got["seq"]),
                    count(got["batch"]),
                    got["weights"],
                    got["kv"],
                    name,
                    si(total["matmul_flops"] + total["vector_flops"], "FLOP"),
                    si(total["bytes"], "B"),
                    seconds(total["bound_s"]),
                    seconds(total["floor_s"]),
                    seconds(total["expected_s"]),
                    f"{total['confidence']['error']:.0%}" if total["confidence"] else "-",
                )
            )
            flat = {k: v for k, v in total.items() if not isinstance(v, dict)}
            records.append(got | {"phase": name} | flat)
    if not records:
        return _textbook_sweep(reports)
    table, same = without_constant(table, columns[:7])
    # What holds of several points is said once; fits and substitutions stand with their own point.
    notes = same + list(dict.fromkeys(note for report in reports for note in report.notes))
    answer = [f"{plural(len(points), 'point')}: bounds, floors and expected times"]
    if len(notes) > MAX_NOTES:
        notes[MAX_NOTES:] = [f"and {len(notes) - MAX_NOTES} more; ask for one point to see its own"]
    return Report({}, answer, [table], notes, records=records)


def _textbook_sweep(reports: list[Report]) -> Report:
    """The tables of every point, each titled with the point it is of."""
    tables = []
    for report in reports:
        for table in report.tables:
            table.title = f"{report.answer[0].removeprefix('Tables 9.1 and 9.2 for ')}: {table.title}"
            tables.append(table)
    records = [record for report in reports for record in report.records]
    notes = list(dict.fromkeys(note for report in reports for note in report.notes))
    answer = [f"Tables 9.1 and 9.2 at {plural(len(reports), 'point')}"]
    return Report({}, answer, tables, notes, records=records)
