"""`infercost speculate`: fewer passes of the large model, by drafts, by early exits, or by cascades."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import typer

from .. import InputError
from .groups import grouped
from .output.report import Report, Sink, emit
from .speculate_options import Asked

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

SETTING = ("model", "tp", "weights", "kv_format")
ACCEPTANCE = ("alpha", "accepted", "gamma")
MODES: dict[str, tuple[tuple[str, ...], str, tuple[str, ...]]] = {
    "walk": (("walk",), "speculate_walk", ("gamma", "draft_cost", "verify_cost")),
    "cascade": (
        ("cascade",),
        "speculate_cascade",
        ("accept", "scorer", "prompt", "gen", "price", "tp", "weights", "kv_format"),
    ),
    "early_exit": (("every", "exit_prob", "exits"), "speculate_exit", (*SETTING, "seq")),
    "rows": (("rows",), "speculate_rows", ("host_us_per_layer",)),
    "speculate": (
        (),
        "speculate_rounds",
        (
            *SETTING,
            *ACCEPTANCE,
            "seq",
            "draft",
            "draft_weights",
            "draft_tp",
            "medusa",
            "tree",
            "draft_cost",
            "verify_cost",
            "host_us_per_layer",
        ),
    ),
}
"""By mode: the options that ask for it, where it is written, and what else it takes."""


@app.command()
@grouped
def speculate(
    asked: Asked,
    sink: Sink,
) -> None:
    """Fewer passes of a large model: drafts, Medusa heads, MTP, early exit, cascades, and what they gain.

    \b
    infercost speculate --model llama-3-70b --draft llama-3-8b --alpha 0.7 --gpu h100 --tp 4
    infercost speculate --model deepseek-v3 --draft mtp --accepted 1.85 --gamma 1 --gpu h200 --tp 8
    infercost speculate --model llama-7b --medusa 0.75,0.5 --tree 26 --batch 1,8,32
    infercost speculate --alpha 0.667 --gamma 3 --draft-cost 0.05
    infercost speculate --walk 2,0,1,3
    infercost speculate --model llama-7b --every 4 --exit-prob 0.1
    infercost speculate --cascade llama-3-8b,llama-3-70b --accept 0.6 --gpu h100 --tp 1,4
    infercost speculate --rows measured.csv
    """
    sink.chosen()
    emit(report_of(asked), sink)


def report_of(asked: Asked) -> Report:
    """The report of the one thing asked for. Raises InputError for options that do not go together."""
    given = asked.given()
    mode = next((name for name, (marks, _, _) in MODES.items() if set(marks) & set(given)), "speculate")
    marks, module, others = MODES[mode]
    stray = [name for name in given if name not in (*marks, *others)]
    if stray:
        with_what = next((mark for mark in marks if mark in given), "")
        place = f"does not go with {_option(with_what)}" if with_what else _belongs(stray[0])
        raise InputError(f"{_option(stray[0])} {place}")
    report: Callable[[Asked], Report] = getattr(import_module(f"{__package__}.{module}"), f"{mode}_report")
    return report(asked)


def _option(name: str) -> str:
    return "--kv" if name == "kv_format" else f"--{name.replace('_', '-')}"


def _belongs(name: str) -> str:
    owners = [_option(marks[0]) for marks, _, others in MODES.values() if marks and name in others]
    return f"belongs to {' or '.join(owners)}, which is not asked for"
