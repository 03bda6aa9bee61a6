"""The `infercost` command: a group whose commands are imported only when one of them is run."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from .. import InputError, __version__
from .errors import INTERRUPTED, report_error

COMMANDS = {
    "kv": "KV cache and state, by what keeps it.",
    "weights": "Weights by component, format and recipe.",
    "ops": "Every operation of a step: FLOPs, bytes, bound, floor.",
    "roofline": "Ridge points, and operations under the roof.",
    "request": "One request: time, memory, energy, dollars.",
    "fit": "Does it fit: how long, how many, on how many GPUs.",
    "quant": "Quantisation: codes and their error, formats and schemes compared.",
    "compress": "Pruning and distillation: what they save and cost.",
    "speculate": "Speculative decoding, Medusa, early exit, cascades.",
    "serve": "Many requests: throughput, latency, limits, dollars per million tokens.",
    "diagnose": "What binds, and every lever ranked by what it would gain.",
    "explain": "The formula behind a number; what a named system changes.",
    "sweep": "A grid over any options, to a table or a file of any size.",
    "probe": "Real kernels on this device against the prediction.",
    "validate": "Predicted against measured kernel times.",
    "calibrate": "Fit a calibration to measured kernel times.",
    "report": "Everything about one deployment on one HTML page.",
    "check": "Budgets file in, pass or fail out: costs as tests of CI.",
    "models": "List, show, import, compare and check models.",
    "gpus": "List, show and check accelerators.",
}

COMPLETES = "_INFERCOST_COMPLETE"
"""The variable by which a shell asks for completions."""
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class DeferredGroup(TyperGroup):
    """Swaps in the real command of the one name that was asked for.

    Listing, suggestions and completion work on the registered one-line entries.
    """

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        if name in COMMANDS:
            module = importlib.import_module(f"{__package__}.{name}")
            command = typer.main.get_command(module.app)
            command.name = name
        return name, command, rest


def show_version(value: bool) -> None:
    if value:
        print(f"infercost {__version__}")
        raise typer.Exit()


def make_app() -> typer.Typer:
    app = typer.Typer(
        cls=DeferredGroup,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        context_settings=CONTEXT,
    )

    @app.callback()
    def infercost(
        version: bool = typer.Option(
            False, "--version", callback=show_version, is_eager=True, help="Print the version."
        ),
    ) -> None:
        """What an LLM request costs before you run it, and why.

        \b
        infercost kv --model llama-7b --seq 32k
        infercost weights --model deepseek-v3
        infercost ops --model llama-3-8b --gpu h100 --batch 8 --seq 4k
        infercost fit --model llama-3-70b --gpu h100 --seq 32k --batch 4
        infercost request --model llama-3-8b --gpu h100 --prompt 2k --gen 256
        infercost serve --model llama-3-8b --gpu h100 --prompt 512 --gen 128 --tpot 20ms
        infercost diagnose --model llama-3-8b --gpu h100 --prompt 2k
        infercost roofline --gpu a100
        """

    for name, text in COMMANDS.items():
        app.command(name, help=text)(lambda: None)
    return app


def main() -> None:
    """Run the command line; every way out has an exit code of its own (see `cli.errors`).

    A command lives for a moment and makes hardly any cyclic garbage: not looking for it, not even
    on the way out, saves a sixth of the time that `infercost kv` takes.
    """
    gc.disable()
    os.environ.setdefault("TYPER_USE_RICH", "0")
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
    try:
        command = typer.main.get_command(make_app())
        code = command(standalone_mode=False, prog_name="infercost")
        if sys.stdout is not None:
            sys.stdout.flush()
        if code == INTERRUPTED:
            report_error(KeyboardInterrupt())
    except SystemExit as leaving:
        # Typer leaves with 1 where the reader of its output has gone, after wrapping the stream.
        code = 0 if type(sys.stdout).__name__ == "PacifyFlushWrapper" else leaving.code
    except BaseException as error:
        if COMPLETES in os.environ and isinstance(error, (KeyError, ValueError)):
            error = InputError(f"{COMPLETES} is for shells that complete, with COMP_WORDS and COMP_CWORD")
        code = report_error(error)
    finally:
        gc.freeze()
    sys.exit(code if isinstance(code, int) else 0)
