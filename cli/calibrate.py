"""`infercost calibrate`: constants fitted to someone's own measured kernel times."""

from __future__ import annotations

from collections import Counter
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import InputError
from ..costmodel.times.families import TIMES
from ..hardware.calibration import FAMILIES
from ..hardware.calibration_sheet import calibration_text
from ..hardware.catalogue import load_gpu
from . import options as o
from .calibrations import library_of
from .groups import grouped
from .inputs import choice
from .output.report import Report, Sink, Table, emit, write_file
from .text import count, plural

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

CONVENTIONS = {
    "before": "errors with the constants at hand: those that ship, or a sibling's",
    "after": "errors of rows held back from the fit, by whole shape families where there are 60 rows or more",
    "accepted": "only where both the mean and the median of held-back errors are no worse than before",
    "fit": "soft-L1 (0.1) on log(predicted / measured), at most eight constants a group; with fewer than 60 "
    "rows only launch, the share of the peak or link, and the share of bandwidth",
}


@app.command()
@grouped
def calibrate(
    *,
    measured: Annotated[
        list[str] | None,
        typer.Option("--from", help="CSV of measured kernel times; repeatable."),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", "-g", help="The GPU that the rows ran on.", autocompletion=o.complete_gpu),
    ] = None,
    family: Annotated[
        list[str] | None, typer.Option("--family", help="Only these families; repeatable.")
    ] = None,
    write: Annotated[
        str | None, typer.Option("--write", help="Write the calibration to this YAML file.")
    ] = None,
    software: Annotated[
        str, typer.Option("--software", help="What ran the kernels: versions, for the record.")
    ] = "",
    sink: Sink,
) -> None:
    """Fit a calibration to measured kernel times, and keep what predicts held-back rows better.

    \b
    infercost calibrate --from mine.csv --gpu h100 --write h100-mine.yaml
    infercost calibrate --from mine.csv --gpu l4 --family gemm --write l4.yaml
    infercost ops --model llama-3-8b --gpu h100 --seq 4k --calibration h100-mine.yaml
    """
    sink.chosen()
    if not measured:
        raise InputError("calibrate needs measured times: --from FILE.csv")
    if not gpu:
        raise InputError("calibrate needs the GPU that the rows ran on: --gpu NAME")
    wanted = {choice(name, FAMILIES, "--family") for name in family or FAMILIES}
    device = load_gpu(gpu)
    from ..probes.fit import solver

    solver()
    from ..probes.refit import refit
    from ..probes.validate import gathered

    excluded: Counter[str] = Counter()
    batches = [batch for batch in gathered(measured, excluded, device) if batch.family in wanted]
    if not batches:
        reasons = "; ".join(f"{count(n)} rows, {why}" for why, n in excluded.items()) or "no rows"
        raise InputError(f"nothing to fit: {reasons}")
    source = f"infercost calibrate, {', '.join(Path(path).name for path in measured)}"
    tried, made = refit(batches, library_of("auto"), source, date.today().isoformat(), software)
    if write and made is not None:
        write_file(Path(write), calibration_text(made))
    kept = [each for each in tried if each.accepted]
    columns = ("family", "group", "rows", "before", "after", "kept")
    table = Table(columns, "<<>>><", title="mean / median error in %, of held-back rows after")
    entries: list[dict[str, Any]] = []
    for each in tried:
        said = "its own" if each.accepted else f"no: {each.instead}"
        pairs = [f"{100 * s.mape:.1f} / {100 * s.median:.1f}" for s in (each.before, each.after)]
        table.rows.append(
            (TIMES[each.family].table, str(each.group.key), count(each.group.rows), *pairs, said)
        )
        entries.append(
            {
                "family": each.family,
                "group": str(each.group.key),
                "rows": each.group.rows,
                "before": each.before._asdict(),
                "after": each.after._asdict(),
                "accepted": each.accepted,
                "instead": each.instead,
                "form": each.group.form,
                "params": dict(each.group.params),
            }
        )
    answer = [
        f"{device.title}: {len(kept)} of {plural(len(tried), 'group')} predicted better by its own constants"
    ]
    notes = [f"left out: {plural(n, 'row')}, {why}" for why, n in excluded.items()]
    if write:
        notes.append(f"written to {write}" if made is not None else "nothing was better: no file was written")
    document = {
        "schema": "infercost.calibrate/1",
        "inputs": {"command": "calibrate", "from": measured, "gpu": device.name, "family": sorted(wanted)},
        "conventions": CONVENTIONS,
        "sources": {device.name: device.source},
        "groups": entries,
        "accepted": len(kept),
        "excluded": dict(excluded),
        "written": write if write and made is not None else None,
    }
    emit(Report(document, answer, [table], notes, records=entries, quiet=[str(len(kept))]), sink)
