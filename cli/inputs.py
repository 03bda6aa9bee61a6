"""What every command does with its options: models with what-ifs, lists into points, documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from .. import InputError
from ..models.catalogue import load_model
from ..models.formats import Format, find_format
from ..models.recipes import cache_format
from ..models.spec import Model
from .output.report import Table
from .sizes import MAX_POINTS, token_list, tokens, words

if TYPE_CHECKING:
    from ..hardware.spec import Gpu


class WhatIf(NamedTuple):
    """Overrides of a model's shape; None leaves what the sheet says."""

    layers: Annotated[int | None, typer.Option("--layers", help="What if: this many layers.")] = None
    heads: Annotated[int | None, typer.Option("--heads", help="What if: this many query heads.")] = None
    kv_heads: Annotated[
        int | None, typer.Option("--kv-heads", help="What if: this many KV heads (1 is MQA).")
    ] = None
    head_dim: Annotated[int | None, typer.Option("--head-dim", help="What if: heads this wide.")] = None
    window: Annotated[
        str | None,
        typer.Option("--window", help="What if: a window of this many tokens on every attention layer."),
    ] = None

    def given(self) -> dict[str, int]:
        window = None if self.window is None else tokens(self.window, "--window")
        changes = self._replace(window=None)._asdict() | {"window": window}
        return {name: value for name, value in changes.items() if value is not None}

    def apply(self, model: Model) -> Model:
        """`model` with these changes. Raises InputError where they make no model."""
        changes = self.given()
        for name, value in changes.items():
            if value < 1:
                raise InputError(f"--{name.replace('_', '-')} must be at least 1, not {value}")
        layers = changes.pop("layers", None)
        if layers is not None:
            model = model.with_layers(layers)
        return model.with_attention(**changes) if changes else model


SHAPE = tuple(f"--{name.replace('_', '-')}" for name in WhatIf._fields)


def models(text: str | None, what_if: WhatIf, command: str) -> list[Model]:
    """The models of --model, each with the what-ifs applied."""
    if not text:
        raise InputError(
            f"{command} needs --model: a name (`infercost models` lists them), a sheet.yaml, or -"
        )
    return [what_if.apply(load_model(name)) for name in words(text, "--model")]


def gpus_of(text: str) -> list[Gpu]:
    """The GPUs of --gpu; `all` is every built-in sheet that has a capacity and is no CPU."""
    from ..hardware.catalogue import gpu_names, load_gpu

    if text.strip().lower() != "all":
        return [load_gpu(name) for name in words(text, "--gpu")]
    every = [load_gpu(name) for name in gpu_names()]
    return [each for each in every if each.capacity_bytes is not None and not each.is_cpu]


def one_value(text: str, option: str, command: str) -> str:
    """The one value of an option. Raises InputError for a list."""
    found = words(text, option)
    if len(found) > 1:
        raise InputError(f"{option} '{text[:60]}': {command} takes one at a time; other commands compare")
    return found[0]


def lengths(text: str | None, command: str, option: str = "--seq") -> list[int]:
    if text is None:
        raise InputError(f"{command} needs {option}: how many tokens, such as {option} 4096 or {option} 32k")
    return token_list(text, option)


def each_of(text: str | None, option: str) -> list[str] | list[None]:
    """The names of an option; one None where it is not given."""
    return [None] if text is None else words(text, option)


def length_kind(text: str) -> str:
    """--lengths: how the lengths out are spread."""
    return choice("exponential" if text == "exp" else text, ("fixed", "exponential", "uniform"), "--lengths")


def whole_context(model: Model) -> int:
    """The longest context `model` is made for. Raises InputError where none is known."""
    if model.context is None:
        raise InputError(f"give --seq, such as --seq 32k: no longest context of {model.name} is known")
    return model.context


def kv_formats(text: str | None, model: Model) -> list[Format]:
    """The formats of --kv, or what the model's checkpoint asks for."""
    if text is None:
        return [cache_format(model)]
    return [find_format(name) for name in words(text, "--kv")]


def encoder_positions(model: Model, given: str | None, seq: int) -> int:
    """Encoder positions of an encoder-decoder: given, else the model's fixed number, else `seq`."""
    if model.encoder is None:
        if given is not None:
            raise InputError(f"--encoder-seq: {model.name} has no encoder")
        return 0
    if given is not None:
        return tokens(given, "--encoder-seq")
    return model.encoder.positions or seq


def reads_through_encoder(model: Model, given: str | None) -> bool:
    """Whether a prompt is what the encoder reads: the decoder then starts from one token."""
    return model.encoder is not None and given is None and not model.encoder.positions


def grid(*axes: Iterable[Any], most: int = MAX_POINTS) -> Iterator[tuple[Any, ...]]:
    """Every combination, refused where there are more than `most`."""
    lists = [list(axis) for axis in axes]
    total = 1
    for axis in lists:
        total *= len(axis)
    if total > most:
        raise InputError(f"{total:,} points are more than {most:,}; ask for fewer values at once")
    return product(*lists)


def without_constant(table: Table, droppable: Iterable[str]) -> tuple[Table, list[str]]:
    """The table without those of the `droppable` columns that say the same in every row, and a note
    of what they said."""
    keep, said = [], []
    for i, name in enumerate(table.columns):
        values = {row[i] for row in table.rows}
        stays = not (name in droppable and len(values) == 1)
        keep.append(stays)
        if not stays and values != {"-"}:
            said.append(f"{name} {values.pop()}")

    def kept(cells: Iterable[str]) -> tuple[str, ...]:
        return tuple(cell for cell, stays in zip(cells, keep, strict=True) if stays)

    align = "".join(kept(table.align))
    left = Table(kept(table.columns), align, [kept(row) for row in table.rows], table.title)
    return left, [f"every line: {', '.join(said)}"] if said else []


def choice(value: str, allowed: tuple[str, ...], option: str) -> str:
    """`value` if it is one of `allowed`, else an InputError that lists them."""
    if value not in allowed:
        from ..sheets import nearest

        hint = nearest(value, allowed)
        raise InputError(f"{option} is one of {', '.join(allowed)}, not '{value[:60]}'{hint}")
    return value


def inferred(chosen: Iterable[Model]) -> dict[str, list[str]]:
    """What the readers of these models filled in themselves, by model; nothing is guessed silently."""
    return {model.name: list(model.inferred) for model in chosen if model.inferred}


def inferred_notes(model: Model, most: int = 3) -> list[str]:
    """The same as one line of a screen."""
    if not model.inferred:
        return []
    listed = "; ".join(model.inferred[:most])
    more = len(model.inferred) - most
    return [f"inferred: {listed}" + (f"; and {more} more (--json lists them)" if more > 0 else "")]


def document(
    command: str,
    inputs: dict[str, Any],
    conventions: dict[str, str],
    sources: dict[str, str],
    points: list[dict[str, Any]],
    listed: bool,
    chosen: Iterable[Model] = (),
) -> dict[str, Any]:
    """The JSON of a command: one point's keys at the top, or `points` where a list was given."""
    out: dict[str, Any] = {
        "schema": f"infercost.{command}/1",
        "inputs": inputs,
        "conventions": conventions,
        "sources": sources,
        "inferred": inferred(chosen),
    }
    if listed:
        out["points"] = points
        return out
    single = dict(points[0])
    out["inputs"] = {**inputs, **single.pop("inputs")}
    return {**out, **single}


def model_source(model: Model) -> dict[str, str]:
    return {model.name: model.source}


def sources_of(gpus: Iterable[Gpu], chosen: Iterable[Model]) -> dict[str, str]:
    """Where the figures of GPUs and models are from, by name."""
    return {gpu.name: gpu.source for gpu in gpus} | {model.name: model.source for model in chosen}


def limit_notes(pairs: Iterable[tuple[Model, int]]) -> list[str]:
    """A word for each model where a length is beyond what it was made for."""
    longest: dict[str, tuple[Model, int]] = {}
    for model, length in pairs:
        if length > longest.get(model.name, (model, 0))[1]:
            longest[model.name] = (model, length)
    return [
        f"note: {length:,} tokens are beyond {model.name}'s context of {model.context:,}"
        for model, length in longest.values()
        if model.context is not None and length > model.context
    ]
