"""`infercost speculate`: fewer passes of the large model, by drafts, by early exits, or by cascades."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import typer

from .groups import grouped
from .output.report import Report, Sink, emit
from .speculate_options import Asked
from .unused import given, refuse_others

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

SETTING = ("--model", "--gpu", "--batch", "--tp", "--weights", "--kv", "--calibration")
MODES: dict[str, tuple[str, tuple[str, ...]]] = {
    "--walk": ("walk", ("--gamma", "--draft-cost", "--verify-cost")),
    "--cascade": ("cascade", (*SETTING[1:], "--accept", "--scorer", "--prompt", "--gen", "--price")),
    "--every": ("exit", (*SETTING, "--seq", "--exit-prob", "--exits")),
    "--exit-prob": ("exit", (*SETTING, "--seq", "--every", "--exits")),
    "--exits": ("exit", (*SETTING, "--seq", "--every", "--exit-prob")),
    "--rows": ("rows", ("--calibration", "--host-us-per-layer")),
    "": (
        "rounds",
        (
            *SETTING,
            *("--seq", "--alpha", "--accepted", "--gamma", "--draft", "--draft-weights", "--draft-tp"),
            *("--medusa", "--tree", "--draft-cost", "--verify-cost", "--host-us-per-layer"),
        ),
    ),
}
"""By the option that asks for it (none: rounds of drafts): where a mode is written, and what it reads."""


@app.command()
@grouped
def speculate(
    ctx: typer.Context,
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
    mode = next((name for name in MODES if name in given(ctx)), "")
    refuse_others(ctx, mode, {name: reads for name, (_, reads) in MODES.items()})
    name = MODES[mode][0]
    module = import_module(f"{__package__}.speculate_{name}")
    report: Callable[[Asked], Report] = getattr(module, f"{name}_report")
    emit(report(asked), sink)
