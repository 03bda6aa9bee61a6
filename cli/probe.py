"""`infercost probe`: the real kernels on this device, held to the prediction."""

from __future__ import annotations

import json as json_module
import os
import signal
import sys
from collections.abc import Iterator
from math import inf
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import InfercostError, InputError
from ..hardware.calibration_sheet import calibration_text, user_folder
from ..models.catalogue import load_model
from ..sheets import MAX_JSON_BYTES, parse_json, read_file
from . import options as o
from .calibrations import clock_of, shipped_clock
from .groups import grouped
from .output.report import Report, Sink, Table, emit, write_file
from .sizes import tokens as token_count
from .sizes import words
from .text import count, plural, seconds, si, size

if TYPE_CHECKING:
    from ..probes.memory import MemoryResult
    from ..probes.result import Result
    from ..probes.session import Session
    from ..probes.suite import Probe
from .unused import refuse, refuse_all_but

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

LISTED = ("--list", "--device", "--quick", "--full", "--only", "--model", "--batch", "--seq", "--gpu")
"""What `--list` reads."""
CONVENTIONS = {
    "ceiling_floor_s": "max(FLOPs / peak, bytes / bandwidth) with the ceilings measured in this run, slowed "
    "as the ceiling read around the probe was",
    "expected_s": "the kernel-time model with --calibration, at the pace of this run's ceilings; null where "
    "nothing is known of the class",
    "measured_s": "median of samples of 20 ms or more; ci95_s by order statistics, whatever the distribution",
    "clock": "CPU: the process's CPU clock and one thread; CUDA: events on the device, short kernels "
    "replayed from a graph over inputs rotated past five times L2",
    "verdict": "FAIL: faster than the floor allows (0.95 of it on a GPU, 0.85 on a CPU); SLOW, FAST: outside "
    "the class's band around the expected time; INCONCLUSIVE: throttled, busy, drifting or too wide",
    "data": "random normal values; every kernel is checked against float64 on a small shape first",
}


class ProbeFailedError(InfercostError):
    """A probe broke its floor; with --strict left its band, with --require was inconclusive."""

    exit_code = 1


@app.command()
@grouped
def probe(
    ctx: typer.Context,
    *,
    device: Annotated[
        str | None, typer.Option("--device", help="cpu, cuda, cuda:1 or all (default: CUDA where it is).")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="At most 30 s of CPU time, 60 s on a GPU.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Everything: up to 8 minutes on a GPU.")] = False,
    only: Annotated[
        str | None, typer.Option("--only", help="Classes or ids that start so: gemm,attn (ceilings stay).")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="Also this model's own linears, attention, memory and layers.",
            autocompletion=o.complete_model,
        ),
    ] = None,
    batch: Annotated[int, typer.Option("--batch", "-b", help="Sequences of --model.")] = 1,
    seq: Annotated[str, typer.Option("--seq", "-s", help="Tokens of --model.")] = "512",
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu",
            "-g",
            help="The sheet of this device, where its name does not say.",
            autocompletion=o.complete_gpu,
        ),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the probes and stop.")] = False,
    calibration: o.CalibrationOption = "auto",
    save: Annotated[bool, typer.Option("--save", help="Keep the calibration for this machine.")] = False,
    save_to: Annotated[
        str | None, typer.Option("--save-to", help="Write the calibration to this file.")
    ] = None,
    results: Annotated[
        str | None,
        typer.Option("--results", help="Append each result to this file as it comes (JSON lines)."),
    ] = None,
    check: Annotated[
        str | None,
        typer.Option("--check", help="Compare class efficiencies with an earlier --json document."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="SLOW and FAST fail, too.")] = False,
    require: Annotated[bool, typer.Option("--require", help="INCONCLUSIVE is exit 1, too.")] = False,
    sink: Sink,
) -> None:
    """Run real kernels and hold every prediction to them.

    \b
    infercost probe --quick
    infercost probe --quick --device cpu --save
    infercost probe --only gemm,attn --model llama-3-8b --seq 1k
    infercost probe --full --save --results probe.jsonl
    infercost probe --quick --check last.json
    """
    sink.chosen()
    if sink.quiet:
        raise InputError("--quiet: this command has no one number; use --json")
    if listing:
        refuse_all_but(ctx, "--list", LISTED, "nothing runs, so there is nothing to keep or to judge")
    if model is None:
        refuse(ctx, "", ("--batch", "--seq"), "they are of --model")
    for path in (sink.output, save_to):
        if path is not None:
            _writable(Path(path))
    if save:
        _writable(user_folder() / "any.yaml", makes_folders=True)
    if quick and full:
        raise InputError("--quick and --full are two modes; choose one")
    mode = "quick" if quick else "full" if full else "default"
    baseline = _baseline(check) if check else None
    from ..probes.target import targets

    reports, failed, doubtful, partial = [], [], [], False
    saved: set[str] = set()
    # A job that is told to end keeps what it has, as one that is interrupted does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for target in targets(device, gpu):
        from ..probes.suite import chosen, model_suite, suite

        probes = chosen(suite(target, mode), tuple(words(only, "--only")) if only else ())
        loaded = load_model(model) if model else None
        tokens = token_count(seq, "--seq")
        if loaded is not None:
            probes += model_suite(loaded, target, batch, tokens)
        if listing:
            reports.append(_listing(target.spec, probes))
            continue
        from ..probes.session import Session, StackOf

        layers = StackOf(loaded, batch, tokens) if loaded is not None else None
        session = Session(target, probes, mode, clock_of(calibration, target.gpu), layers)
        memory: list[MemoryResult] = []
        try:
            _run(session, results)
            memory = [] if session.partial else _memory(session, loaded, tokens)
        except KeyboardInterrupt:
            session.interrupted()
        reports.append(_report(session, memory, baseline, calibration))
        partial |= session.partial
        for result in session.results:
            bad = ("FAIL", "SLOW", "FAST") if strict else ("FAIL",)
            failed += [f"{result.probe.id}: {result.why}"] if result.verdict in bad else []
            doubtful += [result.probe.id] if result.verdict == "INCONCLUSIVE" else []
        failed += [f"{each.id}: {each.why}" for each in memory if each.verdict == "FAIL"]
        failed += reports[-1].document["regressions"]
        if save or save_to:
            _save(session, save_to, reports[-1], saved)
        if partial:
            break
    final = reports[0] if len(reports) == 1 else _together(reports)
    emit(final, sink)
    if partial:
        raise KeyboardInterrupt
    if failed:
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        raise ProbeFailedError(f"failed: {failed[0]}{more}")
    if doubtful and require:
        raise ProbeFailedError(f"inconclusive: {', '.join(doubtful[:5])}; run again on a quieter machine")


def _run(session: Session, results: str | None) -> None:
    """Every result as it comes: counted on standard error, flushed to a file of JSON lines."""
    stream = None
    if results is not None:
        try:
            # No `with`: it is open over the loop below, where it is named, and closed in its finally.
            stream = Path(results).open("a", encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            raise InputError(f"cannot write {results}: {error.strerror or error}") from None
    try:
        for result in _shown(session):
            if stream is not None:
                stream.write(json_module.dumps(_as_json(result)) + "\n")
                stream.flush()
    finally:
        if stream is not None:
            stream.close()


def _shown(session: Session) -> Iterator[Result]:
    """A progress bar on standard error where someone looks at it."""
    if not sys.stderr.isatty():
        yield from session.each()
        return
    from rich.console import Console
    from rich.progress import Progress

    # Refreshed between probes alone: a thread that draws would count as CPU time of the kernels.
    with Progress(console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        task = bar.add_task(f"probing {session.target.name}", total=len(session.probes))
        bar.refresh()
        for result in session.each():
            bar.update(task, advance=1, description=result.probe.id, refresh=True)
            yield result


def _memory(session: Session, model: Any, tokens: int) -> list[MemoryResult]:
    from ..probes.memory import memory_results

    return memory_results(model or load_model("llama-3-8b"), session.target, tokens)


def _as_json(result: Result) -> dict[str, Any]:
    timing, expected = result.timing, result.expected
    return {
        "id": result.probe.id,
        "class": result.probe.cls,
        "part": result.probe.part,
        "op": result.work.kind,
        "matmul_flops": result.work.matmul_flops,
        "bytes": result.work.bytes.total,
        "ceiling_floor_s": result.floor_s or None,
        "expected_s": expected.seconds if expected else None,
        "confidence": str(expected.confidence) if expected else None,
        "measured_s": timing.median_s if timing else None,
        "ci95_s": [timing.low_s, timing.high_s] if timing else None,
        "samples": timing.n if timing else 0,
        "outliers": timing.outliers if timing else 0,
        "drift": result.drift,
        "achieved_flops_per_s": result.flops_per_s,
        "achieved_bytes_per_s": result.bytes_per_s,
        "efficiency": result.efficiency,
        "verdict": result.verdict,
        "why": result.why,
    }


COLUMNS = ("probe", "floor", "expected", "measured", "±", "FLOP/s", "bytes/s", "of floor", "verdict", "")


def _row(result: Result) -> tuple[str, ...]:
    timing, expected = result.timing, result.expected
    if timing is None:
        return (result.probe.id, "-", "-", "-", "-", "-", "-", "-", result.verdict, result.why)
    known = expected is not None and expected.confidence.kind != "assumed"
    return (
        result.probe.id,
        seconds(result.floor_s),
        seconds(expected.seconds) if expected and known else "-",
        seconds(timing.median_s),
        f"{timing.reading().half_width:.0%}",
        si(result.flops_per_s, "FLOP/s") if result.flops_per_s else "-",
        si(result.bytes_per_s, "B/s") if result.bytes_per_s else "-",
        f"{result.efficiency:.2f}" if result.efficiency else "-",
        result.verdict,
        result.why,
    )


def _report(
    session: Session, memory: list[MemoryResult], baseline: dict[str, float] | None, calibration: str
) -> Report:
    from ..probes.target import START, software

    ceilings, target = session.ceilings, session.target
    verdicts: dict[str, int] = {}
    for result in session.results:
        verdicts[result.verdict] = verdicts.get(result.verdict, 0) + 1
    said = ", ".join(f"{n} {word}" for word, n in sorted(verdicts.items()))
    answer = [f"{target.name} ({target.spec}, sheet {target.gpu.name}): {said or 'nothing ran'}"]
    notes = []
    if ceilings is not None:
        flops = ", ".join(f"{si(rate, 'FLOP/s')} {name}" for name, rate in ceilings.flops.items())
        best = max(ceilings.bandwidth, key=lambda name: ceilings.bandwidth[name])
        answer.append(
            f"ceilings of this run: {flops or 'no product measured'}; "
            f"{si(ceilings.bandwidth[best], 'B/s')} ({best}); a launch {seconds(ceilings.launch_s)}"
        )
    table = Table(COLUMNS, "<>>>>>>><<", [_row(result) for result in session.results])
    tables = [table]
    if memory:
        held = Table(("memory", "predicted", "tensors", "allocator", "verdict", ""), "<>>><<")
        for each in memory:
            taken = size(each.allocated_bytes) if each.allocated_bytes is not None else "-"
            held.rows.append(
                (
                    each.id,
                    count(each.predicted_bytes),
                    count(each.tensor_bytes),
                    taken,
                    each.verdict,
                    each.why,
                )
            )
        tables.append(held)
    seen = session.conditions
    if seen is not None:
        load = f", load {seen.load_average:.1f}" if seen.load_average is not None else ""
        waited = f", waited {seen.run_delay:.0%} of the time to run" if seen.run_delay is not None else ""
        notes.append(f"conditions: {seen.verdict}{load}{waited}{': ' + seen.trouble if seen.trouble else ''}")
    notes.append(f"mode {session.mode}; collectives: {START}")
    efficiencies = class_efficiencies(session.results)
    regressions = _regressions(efficiencies, baseline, target.kind) if baseline is not None else []
    if baseline is not None:
        common, absent = set(baseline) & set(efficiencies), sorted(set(baseline) - set(efficiencies))
        if not common:
            regressions.append("no class of the baseline was measured")
        notes += [f"against the baseline: {each}" for each in regressions]
        if not regressions:
            notes.append(f"against the baseline: {len(common)} of its classes as efficient as before")
        if absent:
            notes.append(f"of the baseline and not measured now: {', '.join(absent)}")

    document = {
        "schema": "infercost.probe/1",
        "inputs": {
            "command": "probe",
            "device": target.spec,
            "mode": session.mode,
            "calibration": calibration,
        },
        "conventions": CONVENTIONS,
        "sources": {target.gpu.name: target.gpu.source},
        "device": {**target.as_json(), "software": software(target)},
        "conditions": seen._asdict() if seen else None,
        "ceilings": ceilings.as_mapping() if ceilings else {},
        "results": [_as_json(result) for result in session.results],
        "memory": [each._asdict() for each in memory],
        "classes": efficiencies,
        "regressions": regressions,
        "partial": session.partial,
        "saved": None,
    }
    records = [_as_json(result) for result in session.results]
    for record in records:
        record["ci95_s"] = " ".join(map(repr, record["ci95_s"])) if record["ci95_s"] else None
    return Report(document, answer, tables, notes, records=records)


def class_efficiencies(results: list[Result]) -> dict[str, float]:
    """Median share of the floor that each class reached: what a CI job compares."""
    found: dict[str, list[float]] = {}
    for result in results:
        if result.efficiency and result.verdict not in ("INCONCLUSIVE", "SKIPPED"):
            found.setdefault(result.probe.cls, []).append(result.efficiency)
    return {name: median(values) for name, values in sorted(found.items())}


def _baseline(path: str) -> dict[str, float]:
    """Class efficiencies of an earlier `probe --json`."""
    text = read_file(Path(path), MAX_JSON_BYTES, "a probe's document")
    try:
        document = parse_json(text, path)
        classes = {str(name): float(value) for name, value in document["classes"].items()}
        if not classes or not all(0 < value < inf for value in classes.values()):
            raise ValueError
        return classes
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path} is not a document of `infercost probe --json`") from None


def _regressions(now: dict[str, float], before: dict[str, float], kind: str) -> list[str]:
    """Classes that fell out of their band below the baseline's efficiency."""
    from ..probes.suite import band_of

    out = []
    for name, was in before.items():
        got = now.get(name)
        if got is not None and got < was / (1 + band_of(name, kind)):
            out.append(f"{name} reaches {got:.2f} of the floor, {was:.2f} before")
    return out


def _writable(path: Path, makes_folders: bool = False) -> None:
    """Refuse a file that cannot be written before anything is measured."""
    folder = path.parent
    while makes_folders and not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if path.is_dir() or not folder.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise InputError(f"cannot write {path}; give a file in a folder that can be written")


def _save(session: Session, save_to: str | None, report: Report, saved: set[str]) -> None:
    """Write the calibration whole or not at all, to the user's data folder or where it was asked for.

    An interrupted run replaces no calibration of a whole one; of several like devices the first is kept.
    """
    from ..probes.save import calibration_of

    if not session.results or (session.partial and not save_to):
        report.notes.append("interrupted: no calibration is saved (--save-to FILE keeps a partial one)")
        return
    if session.target.gpu.name in saved:
        report.notes.append(f"{session.target.spec}: not saved, for another {session.target.gpu.name} was")
        return
    saved.add(session.target.gpu.name)
    made = calibration_of(session, shipped_clock(session.target.gpu))
    if save_to:
        target = Path(save_to)
    else:
        target = user_folder() / f"{made.device}.yaml"
        target.parent.mkdir(parents=True, exist_ok=True)
    write_file(target, calibration_text(made))
    report.document["saved"] = str(target)
    groups = sum(len(each) for each in made.families.values())
    report.notes.append(f"saved {plural(groups, 'group')} of constants to {target}")


def _listing(spec: str, probes: list[Probe]) -> Report:
    """What would run, and on what."""
    table = Table(("probe", "class", "part", "work", "FLOPs", "bytes"), "<<<<>>", title=spec)
    records = []
    for each in probes:
        flops, moved = each.work.matmul_flops, each.work.bytes.total
        table.rows.append(
            (
                each.id,
                each.cls,
                each.part,
                each.work.kind,
                si(flops, "FLOP") if flops else "0",
                si(moved, "B"),
            )
        )
        entry = {"id": each.id, "class": each.cls, "part": each.part, "work": each.work.kind}
        records.append({**entry, "matmul_flops": flops, "bytes": moved})
    document = {
        "schema": "infercost.probe/1",
        "inputs": {"command": "probe", "device": spec, "list": True},
        "conventions": CONVENTIONS,
        "sources": {},
        "probes": records,
        "regressions": [],
    }
    from ..probes.target import START

    notes = [f"collectives: {START}"]
    return Report(document, [f"{plural(len(probes), 'probe')} on {spec}"], [table], notes, records=records)


def _together(reports: list[Report]) -> Report:
    """Several devices: their documents as points, their tables one after the other."""
    first = reports[0]
    document = {key: first.document[key] for key in ("schema", "inputs", "conventions", "sources")}
    document["points"] = [report.document for report in reports]
    return Report(
        document,
        [line for report in reports for line in report.answer],
        [table for report in reports for table in report.tables],
        list(dict.fromkeys(note for report in reports for note in report.notes)),
        records=[record for report in reports for record in report.records],
    )
