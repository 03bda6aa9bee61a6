"""`infercost gpus`: list, show and check accelerator sheets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from ..costmodel.roofline import default_dtype, peak_flops, ridge
from ..hardware.catalogue import Lint, gpu_aliases, gpu_from_text, gpu_names, load_builtin, load_gpu
from ..hardware.catalogue import lint as lint_gpu
from ..hardware.spec import Gpu
from ..sheets import SheetError, read_file
from . import options as o
from .errors import FailedAssertionError
from .groups import Without, grouped
from .inputs import document
from .output.report import Report, Sink, Table, emit
from .text import GIB, plural, si, size

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    invoke_without_command=True,
    help="List, show and check accelerator sheets.\n\n\b\ninfercost gpus\ninfercost gpus show a100\n"
    "infercost gpus lint",
)

CONVENTIONS = {
    "peaks_flops_per_s": "dense, fp32 accumulation (int32 for integers)",
    "bandwidth_bytes_per_s": "decimal, as datasheets print it",
    "memory": "label (what the GB on the box mean), driver (nvidia-smi), usable (a CUDA program)",
    "link_bytes_per_s": "both directions together",
    "price": "on demand, one device, with the date it was read",
}


@app.callback()
@grouped
def gpus(ctx: typer.Context, sink: Annotated[Sink, Without("conditions")]) -> None:
    if ctx.invoked_subcommand is None:
        _list(sink)


@app.command("list")
@grouped
def list_(sink: Annotated[Sink, Without("conditions")]) -> None:
    """List the accelerators, as `infercost gpus` alone does.

    \b
    infercost gpus list
    infercost gpus list --csv
    """
    _list(sink)


def _list(sink: Sink) -> None:
    rows = [load_builtin(name) for name in gpu_names()]
    table = Table(("name", "16-bit TFLOP/s", "GB/s", "GiB", "ridge", "$/h", "sheet"), "<>>>>><")
    for gpu in rows:
        dtype = default_dtype(gpu)
        price = f"{gpu.price.usd_per_hour:.2f}" if gpu.price else "-"
        table.rows.append(
            (
                gpu.name,
                f"{peak_flops(gpu, dtype) / 1e12:,.4g} {dtype}",
                f"{gpu.memory.bandwidth_gb_per_s:,.0f}",
                f"{gpu.capacity_bytes / GIB:.2f} {_basis(gpu)}" if gpu.capacity_bytes else "-",
                f"{ridge(gpu, dtype).textbook:.1f}",
                price,
                "" if gpu.confidence == "high" else gpu.confidence,
            )
        )
    records = [_facts(gpu) for gpu in rows]
    sources = {gpu.name: gpu.source for gpu in rows}
    made = document(
        "gpus", {"command": "gpus"}, CONVENTIONS, sources, [{"inputs": {}, "gpus": records}], False
    )
    notes = [
        "memory: usable by a CUDA program (u), as the driver says (d), or only as labelled (l)",
        "sheet: how sure its sources are, where not high; ridge: textbook convention (GB = 2^30)",
        "`infercost gpus show NAME`: every peak, the price's date, aliases, sources",
    ]
    flat = [_flat(record) for record in records]
    emit(Report(made, [f"{plural(len(rows), 'accelerator')} by name"], [table], notes, records=flat), sink)


def _basis(gpu: Gpu) -> str:
    """Which of the capacities `capacity_bytes` is."""
    return "u" if gpu.memory.usable_bytes else "d" if gpu.memory.driver_mib else "l"


def _facts(gpu: Gpu) -> dict[str, Any]:
    """What the sheet states, in SI units."""
    memory = gpu.memory
    return {
        "name": gpu.name,
        "title": gpu.title,
        "vendor": gpu.vendor,
        "architecture": gpu.architecture,
        "year": gpu.year,
        "cores": gpu.compute.cores,
        "clock_hz": gpu.compute.clock_ghz and gpu.compute.clock_ghz * 1e9,
        "flops_per_clock_per_core": gpu.compute.flops_per_clock_per_core,
        "derived_flops_per_s": gpu.compute.flops_per_s,
        "peaks_flops_per_s": dict(gpu.peaks),
        "fp16_accumulate_flops_per_s": dict(gpu.fp16_accumulate_peaks),
        "bandwidth_bytes_per_s": gpu.bandwidth,
        "memory_label_gb": memory.label_gb,
        "memory_label_bytes": memory.nominal_bytes,
        "memory_driver_bytes": memory.driver_mib and memory.driver_mib << 20,
        "memory_driver_basis": memory.driver_basis or None,
        "memory_usable_bytes": memory.usable_bytes,
        "l2_bytes": memory.l2_mib and int(memory.l2_mib * (1 << 20)),
        "link_bytes_per_s": gpu.link_gb_per_s and gpu.link_gb_per_s * 1e9,
        "power_w": gpu.power_w,
        "usd_per_hour": gpu.price and gpu.price.usd_per_hour,
        "price_source": gpu.price and gpu.price.source,
        "dies": gpu.dies,
        "confidence": gpu.confidence,
    }


def _flat(facts: dict[str, Any]) -> dict[str, Any]:
    peaks = {f"{name}_flops_per_s": value for name, value in facts["peaks_flops_per_s"].items()}
    return {k: v for k, v in facts.items() if not isinstance(v, dict)} | peaks


def _lines(gpu: Gpu) -> list[tuple[str, str]]:
    """What a person wants to know of a part, with units; empty where the sheet is silent."""
    memory, compute = gpu.memory, gpu.compute
    parts = [
        f"label {memory.label_gb:g} GB" if memory.label_gb else "",
        f"driver {size(memory.driver_mib << 20)} ({memory.driver_basis})" if memory.driver_mib else "",
        f"usable {size(memory.usable_bytes)}" if memory.usable_bytes else "",
    ]
    derived = ""
    if compute.flops_per_s:
        derived = (
            f"{compute.cores} cores x {compute.flops_per_clock_per_core:,} FLOP/clock "
            f"x {compute.clock_ghz:g} GHz = {si(compute.flops_per_s, 'FLOP/s')}"
        )
    price = f"{gpu.price.usd_per_hour:.2f} $/h ({gpu.price.source})" if gpu.price else ""
    return [
        ("made by", " ".join(str(part) for part in (gpu.vendor, gpu.architecture, gpu.year) if part)),
        ("memory", ", ".join(part for part in (memory.type, *parts) if part)),
        ("L2", f"{memory.l2_mib:g} MiB" if memory.l2_mib else ""),
        ("16-bit peak", derived),
        ("link", f"{gpu.link_gb_per_s:,.0f} GB/s, both directions" if gpu.link_gb_per_s else ""),
        ("power", f"{gpu.power_w:,.0f} W" if gpu.power_w else ""),
        ("price", price),
        ("dies", f"{gpu.dies} devices in one package: a kernel sees its share" if gpu.dies > 1 else ""),
        ("confidence", gpu.confidence if gpu.confidence != "high" else ""),
    ]


@app.command()
@grouped
def show(
    name: Annotated[
        str, typer.Argument(help="A name, an alias or a sheet.yaml.", autocompletion=o.complete_gpu)
    ],
    sink: Sink,
) -> None:
    """Show one accelerator: peaks, capacities, ridge points, price, sources.

    \b
    infercost gpus show a100
    infercost gpus show rtx4090 --json
    """
    gpu = load_gpu(name)
    facts = _facts(gpu)
    ridges = {dtype: ridge(gpu, dtype)._asdict() for dtype, _ in gpu.peaks}
    checked = lint_gpu(gpu)
    aliases = sorted(gpu.aliases)
    point = {
        "inputs": {"gpu": gpu.name},
        **facts,
        "ridge": ridges,
        "absent": list(checked.absent),
        "aliases": aliases,
        "notes": gpu.notes,
    }
    made = document("gpus", {"command": "gpus show"}, CONVENTIONS, {gpu.name: gpu.source}, [point], False)
    table = Table(("dtype", "peak", "fp16 accumulate", "ridge, textbook", "ridge, datasheet"), "<>>>>")
    narrow = dict(gpu.fp16_accumulate_peaks)
    for dtype, peak in gpu.peaks:
        faster = si(narrow[dtype], "FLOP/s") if dtype in narrow else "-"
        own = ridges[dtype]
        table.rows.append(
            (dtype, si(peak, "FLOP/s"), faster, f"{own['textbook']:.1f}", f"{own['datasheet']:.1f}")
        )
    known = name.lower() in gpu_aliases()
    answer = [
        (f"{name} = " if known else "")
        + f"{gpu.title}: {gpu.memory.bandwidth_gb_per_s:,.0f} GB/s, "
        + (size(gpu.capacity_bytes) if gpu.capacity_bytes else "memory as fitted")
    ]
    notes = [f"{name}: {value}" for name, value in _lines(gpu) if value]
    if aliases:
        notes.append(f"also called: {', '.join(aliases)}")
    if checked.absent:
        notes.append(f"absent (no source, or no such unit): {', '.join(checked.absent)}")
    notes += [f"note: {gpu.notes}"] if gpu.notes else []
    notes.append(f"source: {gpu.source}")
    emit(Report(made, answer, [table], notes, records=[_flat(facts)]), sink)


@app.command()
@grouped
def lint(
    *,
    path: Annotated[
        str | None,
        typer.Argument(
            help="A sheet or a name; without one, all built-in sheets.", autocompletion=o.complete_gpu
        ),
    ] = None,
    sink: Annotated[Sink, Without("quiet", "conditions")],
) -> None:
    """Hold sheets to themselves: the 16-bit peak follows from cores, clock and FLOP/clock within 2 %.

    \b
    infercost gpus lint
    infercost gpus lint my-gpu.yaml
    """
    if path is None:
        sheets = [load_builtin(name) for name in gpu_names()]
        for name, gpu in zip(gpu_names(), sheets, strict=True):
            if gpu.name != name:
                raise SheetError(f"{name}.yaml: name is '{gpu.name}'; it must be the file's own")
    else:
        named = path.lower() in (*gpu_names(), *gpu_aliases())
        sheets = [load_gpu(path) if named else gpu_from_text(read_file(Path(path)), path)]
    results = [lint_gpu(gpu) for gpu in sheets]
    bad = [result for result in results if result.problems]
    explained = [result for result in results if result.exceptions]
    table = Table(("sheet", "verdict", "absent"), "<<<")
    for result in results:
        if path is not None or result.problems or result.exceptions:
            table.rows.append((result.name, _verdict(result), ", ".join(result.absent)))
    records = [
        {
            "sheet": result.name,
            "problems": "; ".join(result.problems),
            "exceptions": "; ".join(result.exceptions),
            "absent": " ".join(result.absent),
        }
        for result in results
    ]
    made = document(
        "gpus",
        {"command": "gpus lint", "path": path},
        CONVENTIONS,
        {},
        [{"inputs": {}, "checked": [r._asdict() for r in results]}],
        False,
    )
    answer = [
        f"{plural(len(results), 'sheet')}: {plural(len(bad), 'problem')}, "
        f"{plural(len(explained), 'explained exception')}"
    ]
    notes = []
    if path is None:
        absent = Counter(key for result in results for key in result.absent)
        listed = ", ".join(f"{key} in {n}" for key, n in absent.most_common())
        notes = [f"absent (no source, or no such unit): {listed}; --json says where"]
    emit(Report(made, answer, [table] if table.rows else [], notes, records=records), sink)
    if bad:
        raise FailedAssertionError("; ".join(f"{result.name}: {result.problems[0]}" for result in bad))


def _verdict(result: Lint) -> str:
    if result.problems:
        return "wrong: " + "; ".join(result.problems)
    if result.exceptions:
        return "explained: " + "; ".join(result.exceptions)
    return "in order"
