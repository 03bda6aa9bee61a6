"""`infercost weights`: what a model's parameters take in memory."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import typer

from .. import InputError
from ..costmodel.step import Run
from ..costmodel.textbook import MEASURED_GIB
from ..costmodel.weights import WeightBill, nominal_bytes, weight_bill
from ..models.recipes import Recipe, default_recipe, find_recipe
from ..models.spec import Model
from . import options as o
from .groups import Without, grouped
from .inputs import (
    WhatIf,
    choice,
    document,
    each_of,
    grid,
    inferred_notes,
    models,
    sources_of,
    without_constant,
)
from .output.report import Report, Sink, Table, emit
from .sizes import quantity, token_list
from .text import GIB, count, percent, plural, size, size_both
from .text import params as params_text
from .unused import refuse_all_but, refuse_strangers

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

CONVENTIONS = {
    "weight_bytes": "resident, a tied table once, scales and zero points included",
    "read_bytes_per_step": "one decode step of the batch: the input table is looked up, not read (unless "
    "tied to the head); experts no token is expected to touch are not read (an expectation)",
    "active_parameters": "all but the routed experts beyond top_k; embeddings in full",
    "default": "the checkpoint's own formats; fp32 checkpoints counted as bf16",
    "units": "bytes; GiB = 2^30, GB = 10^9",
}


class Point(NamedTuple):
    model: Model
    recipe: Recipe
    batch: int
    bill: WeightBill


@app.command()
@grouped
def weights(
    ctx: typer.Context,
    *,
    model: o.Model = None,
    weights: o.Weights = None,
    batch: o.Batch = "1",
    skew: o.Skew = 0.0,
    params: Annotated[
        str | None, typer.Option("--params", help="A nominal size instead of a model: 7e9 or 7B.")
    ] = None,
    bits: Annotated[str | None, typer.Option("--bits", help="Bits per weight of --params.")] = None,
    accounting: Annotated[
        str, typer.Option("--accounting", help="kernel, or textbook: beside Table 9.3's measurements.")
    ] = "kernel",
    formats: Annotated[
        bool, typer.Option("--formats", help="List every weight format, recipe and KV format.")
    ] = False,
    what_if: Annotated[WhatIf, Without("window")],
    sink: Sink,
) -> None:
    """Weights: bytes by component, format and recipe.

    \b
    infercost weights --model llama-7b
    infercost weights --model llama-7b --weights fp16,bnb-int8,bnb-nf4
    infercost weights --model gpt-oss-20b
    infercost weights --model llama-3-8b --weights q4_k_m
    infercost weights --params 7e9 --bits 16
    infercost weights --formats
    """
    choice(accounting, ("kernel", "textbook"), "--accounting")
    if formats:
        refuse_all_but(ctx, "--formats", ("--formats",), "it lists every format there is")
        from .formats import formats_report

        emit(formats_report(), sink)
        return
    if params is not None or bits is not None:
        refuse_all_but(ctx, "--params", ("--params", "--bits"), "a nominal size is of no model")
        emit(_nominal(params, bits), sink)
        return
    Run(skew=skew)  # refuses a skew that is none
    chosen = models(model, what_if, "weights")
    refuse_strangers(ctx, chosen)
    batches = token_list(batch, "--batch")
    names = each_of(weights, "--weights")
    points = []
    for one, name, sequences in grid(chosen, names, batches):
        recipe = default_recipe(one) if name is None else find_recipe(name)
        points.append(Point(one, recipe, sequences, weight_bill(one, recipe, sequences, skew)))
    listed = len(points) > 1
    textbook = accounting == "textbook"
    sources = sources_of((), chosen)
    inputs: dict[str, Any] = {
        "command": "weights",
        "what_if": what_if.given(),
        "skew": skew,
        "accounting": accounting,
    }
    entries = [_as_json(p, points[0], textbook) for p in points]
    report = _compare(points, textbook) if listed else _single(points[0], textbook)
    report.document = document("weights", inputs, CONVENTIONS, sources, entries, listed, chosen)
    report.quiet = [str(point.bill.weight_bytes) for point in points]
    emit(report, sink)


def _measured(point: Point) -> float | None:
    """What the textbook's Table 9.3 measured for this model and recipe, in bytes."""
    gib = MEASURED_GIB.get((point.model.name, point.recipe.name))
    return None if gib is None else gib * GIB


def _as_json(point: Point, first: Point, textbook: bool) -> dict[str, Any]:
    bill = point.bill
    out: dict[str, Any] = {
        "inputs": {"model": point.model.name, "weights": point.recipe.name, "batch": point.batch},
        "parameters": bill.parameters,
        "active_parameters": bill.active_parameters,
        "weight_bytes": bill.weight_bytes,
        "bits_per_weight": bill.weight_bytes * 8 / bill.parameters,
        "read_bytes_per_step": bill.read_bytes_per_step,
        "saved_fraction": 1 - bill.weight_bytes / first.bill.weight_bytes,
        "components": [component._asdict() for component in bill.components],
    }
    if textbook:
        measured, base = _measured(point), _measured(first)
        if measured is None or base is None:
            raise InputError(
                "--accounting textbook holds Table 9.3: llama-7b and llama-13b in fp16, bnb-int8, bnb-nf4"
            )
        out["textbook"] = {
            "weight_bytes": measured,
            "difference": bill.weight_bytes / measured - 1,
            "saved_fraction": 1 - measured / base,
        }
    return out


def _single(point: Point, textbook: bool) -> Report:
    bill, one = point.bill, point.model
    active = ""
    if bill.active_parameters != bill.parameters:
        active = f", {params_text(bill.active_parameters)} active per token"
    answer = [
        f"{size_both(bill.weight_bytes)} for {one.called} in {point.recipe.name}: "
        f"{count(bill.parameters)} parameters{active}"
    ]
    table = Table(("component", "format", "parameters", "bytes", "share"), "<<>>>")
    for part in bill.components:
        table.rows.append(
            (
                part.name.replace("_", " "),
                part.format,
                count(part.parameters),
                size(part.bytes),
                percent(part.bytes / bill.weight_bytes),
            )
        )
    notes = [
        f"one decode step of {plural(point.batch, 'sequence')} reads "
        f"{size_both(bill.read_bytes_per_step)} of them; "
        f"{bill.weight_bytes * 8 / bill.parameters:.4g} bits per weight, scales included"
    ]
    notes.append(f"{point.recipe.name}: {point.recipe.note}")
    halved = any(part.format == "bf16" for part in bill.components)
    if one.dtype == "fp32" and halved:
        notes.append("the checkpoint is fp32; what is not quantised is counted as bf16, as it is served")
    notes += inferred_notes(one)
    if textbook:
        measured = _measured(point)
        if measured:
            off = bill.weight_bytes / measured - 1
            notes.append(f"Table 9.3 measured {size(measured)} (it prints GB): {off:+.1%} here")
    records = [{"model": one.name, "weights": point.recipe.name} | part._asdict() for part in bill.components]
    return Report({}, answer, [table], notes, records=records)


def _compare(points: list[Point], textbook: bool) -> Report:
    base = points[0].bill.weight_bytes
    least = min(points, key=lambda p: p.bill.weight_bytes)
    answer = [
        f"{least.model.name} in {least.recipe.name} is the smallest: {size_both(least.bill.weight_bytes)}"
    ]
    columns = ("model", "weights", "batch", "parameters", "bytes", "bits/weight", "read per step", "saved")
    table = Table((*columns, "Table 9.3") if textbook else columns, "<<>>>>>>" + (">" if textbook else ""))
    for point in points:
        bill = point.bill
        row = (
            point.model.name,
            point.recipe.name,
            count(point.batch),
            params_text(bill.parameters),
            size(bill.weight_bytes),
            f"{bill.weight_bytes * 8 / bill.parameters:.4g}",
            size(bill.read_bytes_per_step),
            percent(1 - bill.weight_bytes / base),
        )
        measured = _measured(point)
        table.rows.append((*row, size(measured) if measured else "-") if textbook else row)
    table, same = without_constant(table, ("model", "batch", "parameters"))
    notes = [
        *same,
        "saved: against the first line; read per step: one decode step of the batch, experts as expected",
    ]
    records = [
        {
            **(d := _as_json(p, points[0], False))["inputs"],
            **{k: v for k, v in d.items() if isinstance(v, (int, float))},
        }
        for p in points
    ]
    return Report({}, answer, [table], notes, records=records)


def _nominal(params: str | None, bits: str | None) -> Report:
    if params is None or bits is None:
        raise InputError("--params and --bits come together, as in --params 7e9 --bits 16")
    amount, width = quantity(params, "--params", 1e15), quantity(bits, "--bits", 64)
    total = nominal_bytes(amount, width)
    answer = [f"{total / 1e9:,.2f} GB ({size(total)}) for {params_text(amount)} parameters of {width:g} bits"]
    conventions = {"weight_bytes": "parameters x bits / 8: a nominal size, before scales", "units": "bytes"}
    point: dict[str, Any] = {
        "inputs": {"params": amount, "bits": width},
        "parameters": int(amount) if amount.is_integer() else amount,
        "active_parameters": int(amount) if amount.is_integer() else amount,
        "weight_bytes": int(total) if total.is_integer() else total,
        "read_bytes_per_step": None,
        "components": [],
    }
    made = document("weights", {"command": "weights"}, conventions, {}, [point], False)
    record = {"params": amount, "bits": width, "weight_bytes": point["weight_bytes"]}
    return Report(
        made, answer, notes=["nominal, before scales"], records=[record], quiet=[str(point["weight_bytes"])]
    )
