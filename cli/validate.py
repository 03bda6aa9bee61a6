"""`infercost validate`: the time models held to measured kernels and requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import InputError
from ..hardware.catalogue import load_gpu
from . import options as o
from .calibrations import library_of
from .groups import grouped
from .output.report import Report, Sink, Table, emit, wants_terminal
from .pictures.file import check_plot, draw
from .pictures.measured import measured_chart
from .pictures.terminal import coloured, picture
from .text import count, plural, seconds

if TYPE_CHECKING:
    from ..probes.errors import Errors
    from ..probes.validate import Line, Validation
from .unused import refuse_all_but

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

CONVENTIONS = {
    "error": "|predicted / measured - 1|: mean (MAPE), median, 90th percentile; bias is the median of "
    "predicted / measured - 1",
    "floor": "max(matmul / peak, vector / fp32 peak, bytes / bandwidth), datasheet; of a collective the wire "
    "bytes over the one-way link",
    "grade": "by the median error: A to 5 %, B to 10 %, C to 20 %, D to 40 %, else E",
    "l2": "a benchmark replays its buffers: what fits L2 is predicted as resident there",
    "flagged": "measured below 98 % of the floor: faster than cold memory or the peak allows",
    "cross_validation": "five folds by whole shape families (SHA-256 of 'infercost:' + the family, "
    "modulo 5); every row is predicted with constants fitted to the other folds of its group",
    "leave_gpu_out": "every GPU with the constants that the transfer rule gives it from the others",
}
MOST_NAMED = 8


@app.command()
@grouped
def validate(
    ctx: typer.Context,
    *,
    kernels: Annotated[
        list[str] | None,
        typer.Option("--kernels", help="CSV of measured kernel times; repeatable."),
    ] = None,
    end_to_end: Annotated[
        list[str] | None,
        typer.Option("--end-to-end", help="CSV of measured requests; repeatable."),
    ] = None,
    calibration: o.CalibrationOption = "auto",
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu",
            "-g",
            help="What the rows ran on, in place of what they say.",
            autocompletion=o.complete_gpu,
        ),
    ] = None,
    cross_validate: Annotated[
        bool, typer.Option("--cross-validate", help="Refit by folds of whole shape families (needs scipy).")
    ] = False,
    leave_gpu_out: Annotated[
        bool, typer.Option("--leave-gpu-out", help="Refit without each GPU in turn, and transfer.")
    ] = False,
    groups: Annotated[bool, typer.Option("--groups/--no-groups", help="A line for every group.")] = True,
    plot: o.Plot = None,
    no_plot: o.NoPlot = False,
    sink: Sink,
) -> None:
    """Predicted against measured times of kernels or requests: error tables, and rows that beat physics.

    \b
    infercost validate --kernels gemm.csv
    infercost validate --kernels gemm.csv --kernels moe.csv --no-groups
    infercost validate --kernels gemm.csv --cross-validate
    infercost validate --end-to-end latency.csv --no-groups
    infercost validate --kernels mine.csv --gpu h100 --calibration mine.yaml
    infercost validate --kernels gemm.csv --plot errors.svg
    infercost validate --kernels gemm.csv --assert 'totals.gemm.mape < 0.10'
    """
    sink.chosen()
    check_plot(plot)
    if end_to_end:
        reads = ("--end-to-end", "--calibration", "--groups")
        refuse_all_but(ctx, "--end-to-end", reads, "it stands alone: the others are of kernels")
        _requests(end_to_end, calibration, groups, sink)
        return
    if not kernels:
        raise InputError("validate needs measured times: --kernels FILE.csv or --end-to-end FILE.csv")
    if cross_validate and leave_gpu_out:
        raise InputError("--cross-validate and --leave-gpu-out are two protocols; choose one")
    given = load_gpu(gpu) if gpu else None
    from ..probes.validate import validate as run

    if cross_validate or leave_gpu_out:
        from ..probes.protocols import cross_validated, gpu_left_out

        protocol = "cross-validated by shape families" if cross_validate else "each GPU left out"
        found = (cross_validated if cross_validate else gpu_left_out)(kernels, given)
    else:
        protocol = f"calibration {calibration}"
        found = run(kernels, library_of(calibration, given), given)
    report = _report(found, protocol, groups)
    chart = measured_chart(f"Predicted against measured: {protocol}", found.picture, found.decades)
    if chart is not None and not no_plot and wants_terminal():
        report.picture, report.coloured = picture(chart), coloured(chart)
    if chart is not None and plot is not None:
        draw(plot, [chart])
    inputs = {
        "command": "validate",
        "kernels": kernels,
        "calibration": calibration,
        "gpu": given.name if given else None,
        "protocol": protocol,
    }
    report.document = {
        "schema": "infercost.validate/1",
        "inputs": inputs,
        "conventions": CONVENTIONS,
        "sources": dict.fromkeys(kernels, "measured times"),
        **_as_json(found),
    }
    report.records = report.document["groups"]
    emit(report, sink)


def _requests(paths: list[str], calibration: str, groups: bool, sink: Sink) -> None:
    from ..probes.validate_requests import validate_requests
    from . import validate_requests as requests
    from .calibrations import clock_of

    if calibration == "none":
        raise InputError("--end-to-end holds expected times to measured ones: --calibration none has none")
    found = validate_requests(paths, lambda gpu: clock_of(calibration, gpu))
    report = requests.requests_report(found, groups)
    report.document = {
        "schema": "infercost.validate/1",
        "inputs": {"command": "validate", "end_to_end": paths, "calibration": calibration},
        "conventions": requests.CONVENTIONS,
        "sources": dict.fromkeys(paths, "measured requests"),
        **requests.requests_json(found),
    }
    emit(report, sink)


def _errors(floor: Errors, expected: Errors) -> dict[str, Any]:
    from ..probes.errors import grade

    median = expected.quantile(0.5)
    return {
        "rows": expected.rows,
        "floor_mape": floor.mape,
        "floor_median_ape": floor.quantile(0.5),
        "floor_p90_ape": floor.quantile(0.9),
        "floor_bias": floor.bias,
        "mape": expected.mape,
        "median_ape": median,
        "p90_ape": expected.quantile(0.9),
        "bias": expected.bias,
        "grade": grade(median),
    }


def _as_json(found: Validation) -> dict[str, Any]:
    return {
        "groups": [_line_json(line) for line in found.lines()],
        "by_gpu": [
            {"family": table, "gpu": gpu, **_errors(*pair)}
            for (table, gpu), pair in found.pooled("table", "gpu").items()
        ],
        "totals": {table: _errors(*pair) for (table,), pair in found.pooled("table").items()},
        "flagged": [each._asdict() for each in found.flagged],
        "flagged_rows": found.flagged_rows,
        "excluded": dict(found.excluded),
    }


def _line_json(line: Line) -> dict[str, Any]:
    return {
        "family": line.table,
        "gpu": line.gpu,
        "group": line.group,
        **_errors(line.floor, line.expected),
        "confidence": str(line.confidence),
        "confidence_kind": line.confidence.kind,
        "constants": f"{line.confidence.gpu} {line.confidence.group}".strip(),
    }


COLUMNS = ("rows", "floor mean", "median", "p90", "bias", "expected mean", "median", "p90", "bias", "")


def _cells(figures: dict[str, Any]) -> tuple[str, ...]:
    names = ("mape", "median_ape", "p90_ape", "bias")
    keys = [*(f"floor_{name}" for name in names), *names]
    shares = tuple(_share(figures[key], "bias" in key) for key in keys)
    return (count(figures["rows"]), *shares, figures["grade"])


def _share(value: float, signed: bool = False) -> str:
    return f"{100 * value:+.1f}" if signed else f"{100 * value:.1f}"


def _report(found: Validation, protocol: str, groups: bool) -> Report:
    shown = _as_json(found)
    if not shown["groups"]:
        reasons = "; ".join(f"{count(n)} {why}" for why, n in found.excluded.items()) or "no rows"
        raise InputError(f"nothing to validate: {reasons}")
    answer = [
        f"{table}, {plural(total['rows'], 'row')}: expected off by {_share(total['mape'])} % in the mean, "
        f"{_share(total['median_ape'])} % in the median (floor {_share(total['floor_mape'])} and "
        f"{_share(total['floor_median_ape'])} %)"
        for table, total in shown["totals"].items()
    ]
    by_gpu = Table(("family", "GPU", *COLUMNS), "<<" + ">" * 9 + "<", title="by GPU, errors in %")
    for entry in shown["by_gpu"]:
        by_gpu.rows.append((entry["family"], entry["gpu"], *_cells(entry)))
    tables = [by_gpu]
    if groups:
        columns = ("GPU", "group", "rows", "floor mean", "mean", "median", "p90", "bias", "", "constants")
        table = Table(columns, "<<" + ">" * 6 + "<<", title="by group, errors in %")
        for entry in shown["groups"]:
            keys = ("floor_mape", "mape", "median_ape", "p90_ape", "bias")
            figures = tuple(_share(entry[key], key == "bias") for key in keys)
            table.rows.append(
                (
                    entry["gpu"],
                    entry["group"],
                    count(entry["rows"]),
                    *figures,
                    entry["grade"],
                    entry["confidence"],
                )
            )
        tables.append(table)
    notes = [protocol] + [f"left out: {plural(n, 'row')}, {why}" for why, n in found.excluded.items()]
    notes += _flag_notes(found)
    return Report({}, answer, tables, notes)


def _flag_notes(found: Validation) -> list[str]:
    """Rows that beat the floor, the worst first."""
    if not found.flagged_rows:
        return []
    inside = sum(each.fits_l2 for each in found.flagged)
    listed = f" ({inside} of the first {len(found.flagged)} fit L2)" if inside else ""
    notes = [
        f"{plural(found.flagged_rows, 'row')} beat the floor from cold memory{listed}; the furthest below:"
    ]
    worst = sorted(found.flagged, key=lambda each: each.measured_s / each.floor_s)
    for each in worst[:MOST_NAMED]:
        notes.append(
            f"  {each.file}:{each.line} {each.gpu} {each.group}: {seconds(each.measured_s)} against "
            f"{seconds(each.floor_s)}{', fits L2' if each.fits_l2 else ''}"
        )
    return notes
