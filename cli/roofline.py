"""`infercost roofline`: the roof of a GPU, and where a model's operations stand under it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .. import InputError
from ..costmodel.roofline import (
    attainable_flops,
    default_dtype,
    floor_s,
    intensity,
    op_verdict,
    peak_flops,
    ridge,
)
from ..hardware.calibration import Key
from ..hardware.catalogue import gpu_aliases, load_gpu
from ..hardware.spec import DTYPES, Gpu
from ..models.spec import Model
from ..sheets import MAX_JSON_BYTES, check, parse_json, read_file
from . import options as o
from .calibrations import clock_of
from .groups import Without, grouped
from .inputs import (
    WhatIf,
    choice,
    document,
    each_of,
    grid,
    lengths,
    limit_notes,
    models,
    sources_of,
)
from .output.report import Report, Sink, Table, emit, wants_terminal
from .pictures.file import check_plot, draw
from .pictures.roofline import MOST_ROOFS, roofline_chart
from .pictures.terminal import COLUMNS, coloured, picture
from .sizes import token_list, words
from .step_options import (
    MAX_STEPS,
    RIDGES,
    Phase,
    StepOptions,
    confidence_note,
    dtype_of,
    expected_cells,
    named,
    op_as_json,
    phases,
    ridge_line,
    step_inputs,
    step_notes,
)
from .text import count, number, plural, seconds, si
from .unused import refuse_all_but, refuse_strangers

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

MAX_MEASURED = 10_000
ROOF_READS = ("--gpu", "--dtype", "--calibration", "--ridge", "--measured", "--plot", "--no-plot")
CONVENTIONS = {
    "ridge": "peak / bandwidth: textbook reads the bandwidth's GB as 2^30, datasheet as 10^9; times always "
    "use bytes per second",
    "peak": "dense, fp32 accumulation (int32 for integers)",
    "verdict": "memory-bound below 0.75 x the textbook ridge, compute-bound above 1.25 x the datasheet ridge",
    "reached": "FLOP/s and bytes/s of large measured products, by the GPU's calibration",
    "intensity": "(matmul + vector FLOPs) / bytes a kernel must move",
}


@app.command()
@grouped
def roofline(
    ctx: typer.Context,
    *,
    gpu: o.Gpu = "a100",
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype", help="Which peak: fp16, bf16, fp8, int8 ... (default: 16 bit, or the weights')."
        ),
    ] = None,
    model: o.Model = None,
    seq: o.Seq = None,
    batch: o.Batch = "1",
    how: Annotated[StepOptions, Without("accounting")],
    what_if: WhatIf,
    ridge_lead: o.RidgeOption = "textbook",
    measured: Annotated[
        str | None, typer.Option("--measured", help="Place what `infercost probe --json` measured, too.")
    ] = None,
    plot: o.Plot = None,
    no_plot: o.NoPlot = False,
    sink: Sink,
) -> None:
    """Ridge points of a GPU, and where a model's operations fall under its roof.

    \b
    infercost roofline --gpu a100
    infercost roofline --gpu a100,h100,h200,b200
    infercost roofline --gpu h100 --dtype fp8
    infercost roofline --gpu a100 --model llama-7b --batch 8 --seq 1024
    infercost roofline --gpu cpu --dtype fp32 --measured probe.json
    infercost roofline --gpu a100,h100 --model llama-7b --seq 1024 --plot roofline.svg
    """
    check_plot(plot)
    choice(ridge_lead, RIDGES, "--ridge")
    if dtype is not None:
        choice(dtype, DTYPES, "--dtype")
    how.checked()
    gpus = [(name, load_gpu(name)) for name in words(gpu, "--gpu")]
    chosen: list[Model | None] = [None]
    seqs: list[int] = [0]
    if model:
        chosen, seqs = [*models(model, what_if, "roofline")], lengths(seq, "roofline --model")
        refuse_strangers(ctx, [one for one in chosen if one])
    else:
        why = "the GPU's roof alone has none of it; add --model to place operations under it"
        refuse_all_but(ctx, "", ROOF_READS, why)
    recipes = each_of(how.weights, "--weights")
    caches = each_of(how.kv_format, "--kv")
    batches = token_list(batch, "--batch")
    combos = list(grid(gpus, chosen, seqs, batches, recipes, caches, most=MAX_STEPS))
    listed = len(combos) > 1
    inputs: dict[str, Any] = {"command": "roofline", "what_if": what_if.given(), "ridge": ridge_lead}
    inputs |= how.echo() if model else {}
    sources = sources_of([each for _, each in gpus], [m for m in chosen if m])
    seen = measured_points(measured) if measured else []
    points, reports = [], []
    for (asked, device), one, length, sequences, recipe, cache in combos:
        built = phases(one, device, length, sequences, recipe, cache, how) if one else []
        used = _dtype(device, dtype, built)
        point = _point(device, used, built, ridge_lead, seen, how.calibration)
        points.append(point)
        reports.append(_report(asked, device, used, point, one, built, ridge_lead))
    final = _compare(points, reports, ridge_lead) if listed else reports[0]
    roofs = len({(point["gpu"], point["dtype"]) for point in points})
    if plot is not None:
        if roofs > MOST_ROOFS:
            raise InputError(
                f"--plot: {roofs} roofs are more than the {MOST_ROOFS} that a picture tells apart"
            )
        draw(plot, [roofline_chart(points, reached=True)])
    if not no_plot and roofs <= MOST_ROOFS:
        chart, columns = roofline_chart(points), _picture_columns()
        final.picture, final.coloured = picture(chart, columns), coloured(chart, columns)
    final.document = document(
        "roofline", inputs, CONVENTIONS, sources, points, listed, [m for m in chosen if m]
    )
    final.quiet = [repr(point["ridge"]["headline"]) for point in points]
    emit(final, sink)


def _dtype(gpu: Gpu, asked: str | None, built: list[Phase]) -> str:
    if asked is not None:
        if gpu.peak(asked) is None:
            has = ", ".join(name for name, _ in gpu.peaks)
            raise InputError(f"{gpu.name} has no {asked} peak; it has {has}")
        return asked
    return dtype_of(built, gpu) if built else default_dtype(gpu)


def _point(
    gpu: Gpu, dtype: str, built: list[Phase], lead: str, seen: list[dict[str, Any]], calibration: str
) -> dict[str, Any]:
    both, reached = ridge(gpu, dtype), calibrated_roof(gpu, dtype, calibration)
    inputs = {"gpu": gpu.name, "dtype": dtype} | (step_inputs(built) if built else {})
    return {
        "inputs": inputs,
        "gpu": gpu.name,
        "dtype": dtype,
        "peak_flops_per_s": peak_flops(gpu, dtype),
        "bandwidth_bytes_per_s": gpu.bandwidth,
        "ridge": {
            "headline": both.headline(lead),
            "textbook": both.textbook,
            "datasheet": both.datasheet,
            "calibrated": reached[0] / reached[1] if reached else None,
        },
        "reached": {"flops_per_s": reached[0], "bytes_per_s": reached[1]} if reached else None,
        "ops": [
            {**op_as_json(op, gpu, time), "attainable_flops_per_s": attainable_flops(op, gpu)}
            for phase in built
            for op, time in phase.rows()
        ],
        "measured": seen,
    }


def _report(
    asked: str,
    gpu: Gpu,
    dtype: str,
    point: dict[str, Any],
    model: Model | None,
    built: list[Phase],
    lead: str,
) -> Report:
    both = ridge(gpu, dtype)
    named = f"{asked} = {gpu.title}" if asked.lower() in gpu_aliases() else gpu.title
    answer = [
        ridge_line(both, lead),
        f"{named}: {si(peak_flops(gpu, dtype), 'FLOP/s')} {dtype}, {gpu.memory.bandwidth_gb_per_s:,.0f} GB/s",
    ]
    tables = []
    if model is None:
        table = Table(("dtype", "peak", "ridge, textbook", "ridge, datasheet"), "<>>>")
        for name, peak in gpu.peaks:
            own = ridge(gpu, name)
            table.rows.append((name, si(peak, "FLOP/s"), f"{own.textbook:.1f}", f"{own.datasheet:.1f}"))
        tables.append(table)
    else:
        step = built[0].plan.step.segments[0]
        answer.append(f"{model.called}, {plural(step.count, 'sequence')} of {count(step.context)} tokens")
        tables += [_placed(phase, gpu) for phase in built]
    notes = ["dense peaks with fp32 accumulation; times use bytes per second, whichever ridge leads"]
    if point["ridge"]["calibrated"] is not None:
        notes.append(
            f"with what {gpu.name}'s kernels reach, the ridge is {point['ridge']['calibrated']:.1f} FLOP/byte"
        )
    if model is None and gpu.peak("fp16") is None:
        notes.append(f"{gpu.name} has no fp16 peak; shown is {dtype}")
    if model is not None:
        longest = built[0].plan.step.segments[0].context
        # The first line of the answer is the leading ridge already.
        notes += limit_notes([(model, longest)]) + step_notes(built, gpu, lead)[1:]
        notes += confidence_note(built)
    records: list[dict[str, Any]] = [point["inputs"] | _without_dicts(entry) for entry in point["ops"]]
    if not records:
        records = [_flat(point)]
    return Report({}, answer, tables, notes, records=records)


PLACED_COLUMNS = ("op", "FLOP/byte", "attainable", "verdict", "floor", "expected", "±")


def _placed(phase: Phase, gpu: Gpu) -> Table:
    """Where each operation of a step stands under the roof of its own units."""
    table = Table(PLACED_COLUMNS, "<>><>>>", title=phase.plan.step.phase)
    for op, expected in phase.rows():
        rate = attainable_flops(op, gpu)
        table.rows.append(
            (
                named(op),
                number(intensity(op)),
                si(rate, "FLOP/s") if rate else "-",
                op_verdict(op, gpu),
                seconds(op.count * floor_s(op.work, gpu)),
                *expected_cells(expected),
            )
        )
    return table


def calibrated_roof(gpu: Gpu, dtype: str, calibration: str) -> tuple[float, float] | None:
    """FLOP/s of products and bytes/s of memory that measured kernels reach; None where none were measured."""
    clock = clock_of(calibration, gpu)
    if clock is None:
        return None
    names = {"fp16": "bf16", "int8": "sq", "fp4": "nvfp4"}
    choice = clock.choice("gemm", Key(dtype=names.get(dtype, dtype)))
    if choice.confidence.kind != "calibrated":
        return None
    flops = peak_flops(gpu, dtype) * min(1.0, choice.params["mma_share"])
    return float(flops), float(gpu.bandwidth * min(1.0, choice.params["memory_share"]))


def measured_points(path: str) -> list[dict[str, Any]]:
    """FLOP per byte and FLOP per second of every product and attention that a probe measured.

    Raises InputError for a file that is not a document of `infercost probe --json`.
    """
    text = read_file(Path(path), MAX_JSON_BYTES, "a probe's document")
    try:
        points = [
            _measured_point(each)
            for each in parse_json(text, path)["results"]
            if each["matmul_flops"] and each["achieved_flops_per_s"]
        ]
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path} is not a document of `infercost probe --json`") from None
    if len(points) > MAX_MEASURED:
        raise InputError(f"{path}: more than {MAX_MEASURED:,} results; a picture has no room for them")
    return points


def _measured_point(result: Any) -> dict[str, Any]:
    keys = ("matmul_flops", "bytes", "achieved_flops_per_s")
    flops, moved, reached = (check(result[key], "float") for key in keys)
    if min(flops, moved, reached) < 1:
        raise ValueError("work of less than a FLOP or a byte")
    return {
        "id": check(result["id"], "str"),
        "intensity": flops / moved,
        "flops_per_s": reached,
        "verdict": check(result["verdict"], "str"),
    }


def _picture_columns() -> int:
    if not wants_terminal():
        return COLUMNS
    import shutil

    return min(max(shutil.get_terminal_size((80, 24)).columns - 16, 32), 120)


def _without_dicts(entry: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in entry.items() if not isinstance(v, dict)}


def _flat(point: dict[str, Any]) -> dict[str, Any]:
    ridges = {f"ridge_{name}": value for name, value in point["ridge"].items()}
    kept = {k: v for k, v in point.items() if v is not None and not isinstance(v, (dict, list))}
    return kept | ridges


def _compare(points: list[dict[str, Any]], reports: list[Report], lead: str) -> Report:
    """The roofs side by side, each once, then the operations of each point."""
    columns = ("gpu", "dtype", "peak", "bandwidth", "ridge, textbook", "ridge, datasheet")
    roofs = Table(columns, "<<>>>>")
    tables, records = [roofs], []
    for point, report in zip(points, reports, strict=True):
        row = (
            point["gpu"],
            point["dtype"],
            si(point["peak_flops_per_s"], "FLOP/s"),
            f"{point['bandwidth_bytes_per_s'] / 1e9:,.0f} GB/s",
            f"{point['ridge']['textbook']:.1f}",
            f"{point['ridge']['datasheet']:.1f}",
        )
        if row not in roofs.rows:
            roofs.rows.append(row)
        records += report.records if point["ops"] else [_flat(point)]
        if point["ops"]:
            got = point["inputs"]
            where = (
                f"{got['gpu']}, {got['model']}, {plural(got['batch'], 'sequence')} of {count(got['seq'])} "
                f"tokens, weights {got['weights']}, KV {got['kv']}"
            )
            for table in report.tables:
                table.title = f"{where}: {table.title}"
                tables.append(table)
    lowest = min(points, key=lambda p: p["ridge"][lead])
    answer = [
        f"{lowest['gpu']} has the lowest ridge, {lowest['ridge'][lead]:.1f} FLOP/byte ({lead}), "
        f"{lowest['dtype']}"
    ]
    if len(roofs.rows) == 1:
        answer = [f"{plural(len(points), 'point')} under the roof of {points[0]['gpu']}"]
    notes = ["textbook reads GB as 2^30, datasheet as 10^9; dense peaks with fp32 accumulation"]
    return Report({}, answer, tables, notes, records=records)
