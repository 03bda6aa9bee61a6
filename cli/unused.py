"""Options on the command line that nothing would read: refused in one line, in place of being dropped."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import typer

from .. import InputError
from ..models.attention import LatentAttention
from ..models.ffn import Experts
from ..models.spec import Model
from .output.report import Sink


def given(ctx: typer.Context) -> list[str]:
    """The options on the command line, but for those that say where the answer goes, in the order of --help.

    One that stands in the environment alone is not among them: it is there for other commands, too.
    """
    return [
        option.opts[0]
        for option in ctx.command.params
        if option.opts[0].startswith("--") and option.name not in Sink._fields and _typed(ctx, option.name)
    ]


def _typed(ctx: typer.Context, name: str | None) -> bool:
    source = ctx.get_parameter_source(name or "")
    return source is not None and source.name == "COMMANDLINE"


def refuse(ctx: typer.Context, mode: str, unread: Collection[str], why: str) -> None:
    """Raises InputError for options of `unread` that were given; `mode` is what asks for something else."""
    _say(ctx, mode, [name for name in given(ctx) if name in unread], why)


def refuse_all_but(ctx: typer.Context, mode: str, read: Collection[str], why: str) -> None:
    """Raises InputError for options that were given and are none of `read`."""
    _say(ctx, mode, [name for name in given(ctx) if name not in read], why)


def refuse_others(ctx: typer.Context, mode: str, owners: Mapping[str, Collection[str]]) -> None:
    """Raises InputError for options that `mode` does not read, with the modes that the first belongs to.

    `owners`: the options that each mode reads, by the option that asks for it ('': none does).
    """
    odd = [name for name in given(ctx) if name != mode and name not in owners[mode]]
    if not odd:
        return
    homes = [home for home, options in owners.items() if odd[0] in options]
    why = f"{odd[0]} belongs to {' or '.join(homes)}" if homes else "ask one thing at a time"
    _say(ctx, mode, odd, f"{odd[0]} goes without {mode}" if "" in homes else why)


def refuse_strangers(ctx: typer.Context, chosen: Iterable[Model]) -> None:
    """Raises InputError for --mla where no model has such attention, for --skew where none has experts."""
    kinds = {type(block) for model in chosen for layer, _ in model.groups for block in layer.blocks}
    for name, default, kind, what in (
        ("mla", "auto", LatentAttention, "latent attention"),
        ("skew", 0, Experts, "experts"),
    ):
        if kind not in kinds and ctx.params.get(name, default) != default:
            refuse(ctx, "", (f"--{name}",), f"no layer of the model has {what}")


def _say(ctx: typer.Context, mode: str, odd: list[str], why: str) -> None:
    if odd:
        asked = " ".join(filter(None, (ctx.command.name, mode)))
        raise InputError(f"{', '.join(odd)} without effect on `{asked}`: {why}")
