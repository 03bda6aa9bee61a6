"""`infercost report`: everything about one deployment on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .. import InputError
from . import options as o
from .groups import grouped
from .inputs import document
from .output.report import Report, Sink, Table, emit, write_file
from .pace import best
from .report_figures import FIGURES, Figures, figures_of
from .report_study import Asked, Study, study
from .sizes import duration, tokens
from .text import count, plural, size

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

MAX_GEN = 8192
PAGE = (".html", ".htm")
CONVENTIONS = {
    "figures": "of `infercost request`: expected times, or floors with --calibration none; the host's time "
    "is in them with --engine alone",
    "fits": "as `infercost fit`: weights, the cache at the last token, the widest moment of a prefill of at "
    "most 8,192 tokens (or the engine's), within 0.9 of the card (or the engine's rule)",
    "usd": "price x devices x decode time over the tokens out of one batch; prompts are paid apart "
    "(`request`), in the throughput picture with them (`serve`)",
    "waits_for": "the larger of MFU and MBU of a phase, neither where both are below 0.25",
    "lattice": "`infercost request` over formats, prompts and batches; the page computes nothing",
}


class Destination(Sink):
    """The output options, --output among them for the page."""

    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", help="Write the page to this file (.html); or .json, .csv, .md, .txt."
        ),
    ]


@app.command()
@grouped
def report(
    *,
    model: o.Model = None,
    gpu: o.Gpu = "a100",
    prompt: Annotated[str | None, typer.Option("--prompt", "--seq", "-s", help="Prompt tokens.")] = None,
    gen: Annotated[str, typer.Option("--gen", "--out", help="Tokens out.")] = "256",
    batch: Annotated[str, typer.Option("--batch", "-b", help="Sequences at once.")] = "1",
    ttft: o.Ttft = None,
    tpot: o.Tpot = None,
    tp: o.Tp = 1,
    ep: o.Ep = 1,
    capacity: o.Capacity = None,
    weights: o.Weights = None,
    kv_format: o.Kv = None,
    engine: o.Times = None,
    price: o.Price = None,
    calibration: o.CalibrationOption = "auto",
    sink: Destination,
) -> None:
    """One page about one deployment: the answer, pictures, sliders, levers, tables, sources. No network.

    \b
    infercost report --model llama-3-8b --gpu h100 --prompt 2k -o report.html
    infercost report --model llama-3-70b --gpu h100 --tp 4 --prompt 8k --batch 16 --tpot 50ms -o report.html
    infercost report --model llama-3-8b --gpu h100 --prompt 2k --json
    """
    page = Path(sink.output) if sink.output and Path(sink.output).suffix.lower() in PAGE else None
    if page is not None and (sink.json or sink.csv or sink.format is not None):
        raise InputError(f"--output {sink.output} is a page; for other formats name another file")
    sink = sink._replace(output=None) if page else sink
    sink.chosen()
    asked = Asked(
        _one(model, "--model"),
        _one(gpu, "--gpu"),
        tokens(_needed(prompt), "--prompt"),
        tokens(gen, "--gen"),
        tokens(batch, "--batch"),
        tp,
        ep,
        None if weights is None else _one(weights, "--weights"),
        None if kv_format is None else _one(kv_format, "--kv"),
        engine,
        price,
        calibration,
        ttft,
        tpot,
        capacity,
    )
    limits = {
        "ttft": None if ttft is None else duration(ttft, "--ttft"),
        "tpot": None if tpot is None else duration(tpot, "--tpot"),
    }
    if asked.gen > MAX_GEN:
        raise InputError(
            f"--gen {asked.gen:,}: at most {MAX_GEN:,} tokens out in a report; request takes more"
        )
    found = study(asked)
    terms = {term["name"]: term["bytes"] for term in found.fit["terms"]}
    figures = figures_of(found.request, terms, found.fit["budget_bytes"])
    final = _screen(found, figures, page)
    final.document = _document(found, figures, limits)
    final.records = [
        {
            **point["inputs"],
            **{key: best(point[key]) for key in ("ttft_s", "tpot_s", "e2e_s")},
            "output_tokens_per_s": point["output_tokens_per_s"],
            "usd_per_million_output": (point["usd_per_million"] or {}).get("output"),
            "total_bytes": point["fit"]["total_bytes"],
            "budget_bytes": point["fit"]["budget_bytes"],
        }
        for table in found.lattice.points
        for row in table
        for point in row
    ]
    if page is not None:
        from .report_page import page_of

        write_file(page, page_of(found, figures, final.answer[0], final.document))
    emit(final, sink)


def _needed(prompt: str | None) -> str:
    if prompt is None:
        raise InputError("report needs --prompt: how many tokens, such as --prompt 2k")
    return prompt


def _one(text: str | None, option: str) -> str:
    if not text:
        lists = f"`infercost {option.removeprefix('--')}s` lists them"
        raise InputError(f"report needs {option}: a name ({lists}), or a file that describes one")
    if "," in text:
        raise InputError(f"report is about one deployment: give {option} one value, not '{text[:60]}'")
    if text == "-":
        raise InputError(f"report reads {option} several times: give a file in place of -")
    return text


def _answer(found: Study, figures: Figures) -> str:
    asked, left = found.asked, found.fit["free_bytes"]
    many = f"{plural(asked.batch, 'request')} of " if asked.batch > 1 else ""
    room = f"fits, {size(left)} to spare" if figures.fits else f"does not fit, {size(-left)} too much"
    said = figures.said
    per = f", then {said['tpot']} a token" if said["tpot"] != "-" else ""
    usd = f"; {said['usd']} dollars per million tokens out" if said["usd"] != "-" else ""
    return (
        f"{found.title}, {many}{count(asked.prompt)} tokens in, {count(asked.gen)} out: {room}; "
        f"first token in {said['ttft']}{per}{usd}"
    )


def _screen(found: Study, figures: Figures, page: Path | None) -> Report:
    table = Table(("of the request", ""), "<<")
    table.rows = [(name, figures.said[key]) for key, name in FIGURES.items()]
    sure = found.request["confidence"]
    notes = [
        f"expected times: {sure['text']}" if sure else "floors: nothing is expected without a calibration"
    ]
    notes += [f"no {name} in it: {why}" for name, why in found.absent.items()]
    notes.append(f"wrote {page}" if page else "-o report.html writes the page, with pictures and sliders")
    return Report({}, [_answer(found, figures)], [table], notes)


def _document(found: Study, figures: Figures, limits: dict[str, float | None]) -> dict[str, Any]:
    """The JSON: the figures of the headline, the documents behind them, the lattice."""
    asked = found.asked
    sources: dict[str, str] = {}
    for each in (found.fit, found.request, found.roofline):
        sources |= each["sources"]
    lattice = found.lattice
    inputs = {**found.request["inputs"], "engine": asked.engine, "calibration": asked.calibration}
    inputs |= {"command": "report", "prompt": asked.prompt, "price": asked.price}
    inputs |= {f"{name}_limit_s": value for name, value in limits.items()}
    point = {
        "inputs": inputs,
        "answer": {"fits": figures.fits, **figures.said},
        "budget_bytes": found.fit["budget_bytes"],
        "fit": found.fit,
        "request": found.request,
        "roofline": found.roofline,
        "serve": found.serve,
        "diagnose": found.diagnose,
        "absent": found.absent,
        "lattice": {
            "formats": [{"weights": weights, "kv": kv} for weights, kv in lattice.formats],
            "prompts": lattice.prompts,
            "batches": lattice.batches,
            "points": lattice.points,
        },
    }
    return document("report", {}, CONVENTIONS, sources, [point], False)
