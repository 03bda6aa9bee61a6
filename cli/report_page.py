"""The page: one HTML file that loads nothing, shows what the commands said, and computes nothing itself."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from .. import __version__
from .pictures.chart import Chart, tokens_name
from .pictures.memory import context_chart
from .pictures.roofline import roofline_chart
from .pictures.scene import NARROW, laid_out
from .pictures.serving import serve_charts, timeline_chart
from .pictures.svg import svg
from .report_assets import CSS, SCRIPT
from .report_figures import FIGURES, Figures, figures_of
from .report_study import Lattice, Study
from .report_tables import bill_table, levers_html, ops_table, points_table, table, text, times_table

AXES = {"format": "Formats", "prompt": "Prompt tokens", "batch": "Sequences at once"}
PARTS = ("weights", "cache", "activations and reserves")
DESK = 580
"""Pixels of a picture where two stand side by side."""


def page_of(found: Study, figures: Figures, answer: str, document: Mapping[str, Any]) -> str:
    """The HTML of a study: `figures` of the request asked for, `answer` in a line, and the JSON of both."""
    sections = [
        _head(answer, found),
        _panel(found, figures),
        f'<h2>Pictures</h2><div class="pictures">{"".join(map(_figure, _charts(found, document)))}</div>',
        *([f"<h2>What would help</h2>{levers_html(found.diagnose)}"] if found.diagnose else []),
        "<h2>Tables</h2>" + times_table(found.request) + bill_table(found.fit),
        points_table(found.serve) if found.serve else "",
        f"<details><summary>Operations</summary>{ops_table(found.roofline)}</details>",
        _assumptions(found, document),
    ]
    policy = (
        f"default-src 'none'; style-src 'sha256-{_digest(CSS)}'; script-src 'sha256-{_digest(SCRIPT)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{text(found.title)} - infercost</title><style>{CSS}</style></head>"
        f"<body><main>{''.join(sections)}</main>"
        f'<script type="application/json" id="lattice">{_data(found)}</script>'
        f"<script>{SCRIPT}</script></body></html>\n"
    )


def _digest(content: str) -> str:
    return b64encode(sha256(content.encode()).digest()).decode()


def _head(answer: str, found: Study) -> str:
    sure = found.request["confidence"]
    kind = f"Expected times, {sure['text']}" if sure else "Floors: no kernel can be faster from cold memory"
    return (
        f'<h1>{text(found.title)}</h1><p class="lead">{text(answer)}</p>'
        f'<p class="quiet">{text(kind)}. All figures are infercost {text(__version__)}\'s.</p>'
    )


def _panel(found: Study, figures: Figures) -> str:
    """The sliders and the figures that follow them; without a script, those of the request asked for."""
    names = _names(found.lattice)
    asked = _asked(found)
    sliders = "".join(
        f'<div><label for="{axis}">{label}</label><input type="range" id="{axis}" min="0" '
        f'max="{len(names[axis]) - 1}" step="1" value="{asked[axis]}" autocomplete="off">'
        f'<output id="{axis}-said" for="{axis}">{text(names[axis][asked[axis]])}</output></div>'
        for axis, label in AXES.items()
    )
    cells = "".join(
        f'<div><dt>{text(name)}</dt><dd id="figure-{key}">{text(figures.said[key])}</dd></div>'
        for key, name in FIGURES.items()
    )
    bill = "".join(f'<span class="t{i}"></span>' for i in range(len(PARTS))) + "<span></span>"
    key = "".join(f'<li><i class="t{i}"></i>{name}</li>' for i, name in enumerate(PARTS))
    return (
        f'<section class="panel" id="panel" data-fits="{int(figures.fits)}" aria-label="A request">'
        f'<div class="sliders">{sliders}<div><button type="button" id="again">As asked</button></div></div>'
        '<p><span class="verdict"><span class="yes">fits</span>'
        '<span class="no">does not fit</span></span></p>'
        f'<dl class="figures" aria-live="polite">{cells}</dl>'
        f'<div class="bill" id="bill" role="img" aria-label="Memory against the budget">{bill}</div>'
        f'<ul class="key">{key}</ul></section>'
    )


def _names(lattice: Lattice) -> dict[str, list[str]]:
    return {
        "format": [f"weights {weights}, KV {kv}" for weights, kv in lattice.formats],
        "prompt": [
            f"{each:,} ({tokens_name(each)})" if each >= 1024 else f"{each:,}" for each in lattice.prompts
        ],
        "batch": [f"{each:,}" for each in lattice.batches],
    }


def _asked(found: Study) -> dict[str, int]:
    got, asked, lattice = found.request["inputs"], found.asked, found.lattice
    return {
        "format": lattice.formats.index((got["weights"], got["kv"])),
        "prompt": lattice.prompts.index(asked.prompt),
        "batch": lattice.batches.index(asked.batch),
    }


def _data(found: Study) -> str:
    """The lattice as the page shows it, in words; safe inside a script element."""

    def cell(point: dict[str, Any]) -> list[object]:
        figures = figures_of(point, point["fit"]["terms"], point["fit"]["budget_bytes"])
        spare = max(0, 1000 - sum(figures.bill))
        return [[figures.said[key] for key in FIGURES], int(figures.fits), [*figures.bill, spare]]

    shown = {
        "axes": list(AXES),
        "figures": list(FIGURES),
        **_names(found.lattice),
        "cells": [[[cell(point) for point in row] for row in each] for each in found.lattice.points],
    }
    return json.dumps(shown, separators=(",", ":")).replace("<", "\\u003c").replace("&", "\\u0026")


def _charts(found: Study, document: Mapping[str, Any]) -> list[Chart]:
    fit, request = found.fit, found.request
    asked = found.asked
    context = context_chart(
        f"Memory over the context, {asked.batch:,} at once",
        found.over_context,
        fit["budget_bytes"],
        fit["inputs"]["seq"],
        fit["max_seq"],
    )
    charts = [roofline_chart([found.roofline], reached=True), context]
    if found.serve:
        limits = {f"{name}_s": document["inputs"][f"{name}_limit_s"] for name in ("ttft", "tpot")}
        charts += serve_charts("Many requests", found.serve, limits)
    lengths = f"{asked.prompt:,} tokens in, {asked.gen:,} out, {asked.batch:,} at once"
    return [*charts, timeline_chart(f"Time line: {lengths}", request["timeline"])]


def _figure(chart: Chart) -> str:
    """A chart twice: laid out for a desk, and for a phone."""
    # Titles say what a picture shows, and no two of a page are called the same.
    identity = "p" + sha256(chart.title.encode()).hexdigest()[:8]
    wide, narrow = laid_out(chart, DESK), laid_out(chart, NARROW)
    return (
        f'<figure><div class="wide">{svg(wide, identity, style=False)}</div>'
        f'<div class="narrow">{svg(narrow, identity + "n", style=False)}</div></figure>'
    )


def _assumptions(found: Study, document: Mapping[str, Any]) -> str:
    conventions = {**found.request["conventions"], **document["conventions"]}
    rows = list(conventions.items())
    sources = "".join(
        f"<dt>{text(name)}</dt><dd>{text(said)}</dd>" for name, said in document["sources"].items()
    )
    price = found.request["price"]
    if price:
        said = f"{price['usd_per_gpu_hour']:g} dollars per GPU and hour: {price['source']}"
        sources += f"<dt>price</dt><dd>{text(said)}</dd>"
    guesses = "".join(
        f"<dt>inferred of {text(name)}</dt><dd>{text('; '.join(notes))}</dd>"
        for name, notes in found.request["inferred"].items()
    )
    meanings = table("Conventions", ("", ""), rows, (1,))
    absent = "".join(f"<p>No {text(name)} here: {text(why)}</p>" for name, why in found.absent.items())
    return (
        f"<h2>Assumptions and sources</h2>{absent}"
        f"<details><summary>What the figures mean</summary>{meanings}</details>"
        f'<dl class="sources">{sources}{guesses}</dl>'
    )
