"""The command with a lever's figures: `serve` where its options say the lever, else `diagnose --with`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import typer

from ..costmodel.diagnosis import Effect

if TYPE_CHECKING:
    from .diagnose import Answer

SERVED = {
    *("--model", "--gpu", "--prompt", "--gen", "--batch", "--policy", "--chunk", "--lengths", "--tp"),
    *("--engine", "--weights", "--kv", "--skew", "--encoder-seq", "--calibration"),
    *("--layers", "--heads", "--kv-heads", "--head-dim", "--window"),
}
"""Options that `serve` has and reads as `diagnose` does, whatever lever stands beside them: `--price` does
not stay with another GPU, `--ep` may follow `--tp`."""
PASSED = SERVED | {
    *("--cached", "--max-len", "--pp", "--ep", "--cp", "--attention", "--mla", "--fusion", "--price")
}
"""Options that make the deployment; the others say what is asked of it."""


def deployed(ctx: typer.Context) -> dict[str, str]:
    """The options that were given (or stand in the environment) and make the deployment, as written."""
    out = {}
    for option in ctx.command.params:
        key, name = option.name or "", option.opts[0]
        source = ctx.get_parameter_source(key)
        if name in PASSED and source is not None and source.name != "DEFAULT":
            out[name] = str(ctx.params[key])
    return out


def command_of(answer: Answer, one: Effect) -> str:
    """The command whose figures are those after the lever; `serve` has no memory, and knows no levers."""
    asked, levers = answer.asked, [name for name, _ in answer.steps]
    if one.lever.options and not levers and answer.objective != "memory" and set(asked) <= SERVED:
        _, _, value = one.name.partition("=")
        words = [word.format(value=value) for word in one.lever.options.split()]
        changed = dict(zip(words[::2], words[1::2], strict=True))
        dropped = {"--chunk"} if "--policy" in changed else set()
        kept = {name: text for name, text in asked.items() if name not in dropped}
        return _line("serve", kept | changed)
    return _line("diagnose", {**asked, "--with": ",".join([*levers, one.name])})


def _line(command: str, options: dict[str, str]) -> str:
    return shlex.join(["infercost", command, *(word for pair in options.items() for word in pair)])
