"""`infercost models`: list, show and check model sheets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .. import InputError
from ..models.cache import CacheSpec
from ..models.catalogue import load_builtin, load_model, model_names
from ..models.ffn import Experts
from ..models.sheet import model_from_text
from ..models.spec import Layer, Model
from ..sheets import SheetError, read_file
from . import options as o
from .inputs import document
from .output.report import Report, Sink, Table, emit
from .text import count, params, plural, shown

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    invoke_without_command=True,
    help="List, show and check model sheets.\n\n\b\ninfercost models\ninfercost models show llama-2-7b\n"
    "infercost models lint my-model.yaml",
)

CONVENTIONS = {
    "parameters": "a tied table once, towers included",
    "active_parameters": "all but the routed experts beyond top_k; embeddings in full",
}


@app.callback()
def models(
    ctx: typer.Context,
    json: o.Json = False,
    csv: o.Csv = False,
    format: o.FormatOption = None,
    output: o.Output = None,
    quiet: o.Quiet = False,
) -> None:
    if ctx.invoked_subcommand is not None:
        return
    sink = Sink(json, csv, format, output, quiet)
    rows = [load_builtin(name) for name in model_names()]
    table = Table(("name", "parameters", "active", "layers", "mixers", "context"), "<>>><>")
    records = []
    for model in rows:
        mixers = kinds(model)
        table.rows.append(
            (
                model.name,
                params(model.parameters),
                params(model.active_parameters) if model.active_parameters != model.parameters else "-",
                str(len(model.layers)),
                mixers,
                count(model.context) if model.context else "-",
            )
        )
        records.append(
            {
                "name": model.name,
                "title": model.title,
                "parameters": model.parameters,
                "active_parameters": model.active_parameters,
                "layers": len(model.layers),
                "mixers": mixers,
                "context": model.context,
                "aliases": " ".join(model.aliases),
            }
        )
    sources = {model.name: model.source for model in rows}
    made = document(
        "models", {"command": "models"}, CONVENTIONS, sources, [{"inputs": {}, "models": records}], False
    )
    notes = ["`infercost models show NAME` prints one; a sheet.yaml of your own works wherever a name does"]
    emit(Report(made, [f"{plural(len(rows), 'model')} by name"], [table], notes, records=records), sink)


def kinds(model: Model) -> str:
    """Mixers and FFNs of a model in a few words: `attention w1024 x52, attention x10; MoE`."""
    caches: dict[CacheSpec, int] = {}
    for layer, times in model.groups:
        for cache in layer.caches():
            caches[cache] = caches.get(cache, 0) + times
    parts = []
    for cache, times in caches.items():
        name = cache.kind.replace("_", " ") + (f" w{cache.window}" if cache.window else "")
        parts.append(f"{name} x{times}" if len(caches) > 1 else name)
    if any(isinstance(block, Experts) for layer, _ in model.groups for block in layer.blocks):
        parts.append("MoE")
    return ", ".join(parts)


@app.command()
def show(
    name: Annotated[
        str, typer.Argument(help="A name, an alias, a sheet.yaml or -.", autocompletion=o.complete_model)
    ],
    json: o.Json = False,
    csv: o.Csv = False,
    format: o.FormatOption = None,
    output: o.Output = None,
    quiet: o.Quiet = False,
    conditions: o.Assert = None,
) -> None:
    """Show one model: its layers, its counts, where they come from.

    \b
    infercost models show llama-2-7b
    infercost models show jamba-v0.1 --json
    """
    sink = Sink(json, csv, format, output, quiet, tuple(conditions or ()))
    model = load_model(name)
    facts: dict[str, Any] = {
        "name": model.name,
        "title": model.title,
        "parameters": model.parameters,
        "active_parameters": model.active_parameters,
        "hidden": model.hidden,
        "vocab": model.vocab,
        "layers": len(model.layers),
        "context": model.context,
        "tied": model.tied,
        "dtype": model.dtype,
        "weights": model.weights or model.dtype,
        "aliases": list(model.aliases),
        "notes": model.notes,
        "source": model.source,
    }
    groups: list[dict[str, Any]] = [
        {"layers": times, "norms": layer.norms, "parallel": layer.parallel, "blocks": blocks(layer)}
        for layer, times in model.groups
    ]
    if model.encoder is not None:
        facts["encoder_layers"] = len(model.encoder.layers)
    point = {"inputs": {"model": model.name}, **facts, "groups": groups}
    made = document(
        "models", {"command": "models show"}, CONVENTIONS, {model.name: model.source}, [point], False
    )
    table = Table(("layers", "block", "shape"), "><<")
    for group in groups:
        for block in group["blocks"]:
            shape = ", ".join(f"{k} {shown(v)}" for k, v in block.items() if k != "block")
            table.rows.append((count(group["layers"]), block["block"], shape))
    notes = [
        f"{key.replace('_', ' ')}: {shown(value)}"
        for key, value in facts.items()
        if key not in ("name", "title", "parameters") and value not in ("", None, [])
    ]
    answer = [f"{model.title or model.name}: {count(model.parameters)} parameters"]
    records = [{k: v if not isinstance(v, list) else " ".join(v) for k, v in facts.items()}]
    emit(Report(made, answer, [table], notes, records=records, quiet=[str(model.parameters)]), sink)


def blocks(layer: Layer) -> list[dict[str, Any]]:
    """A layer's blocks with the fields that say something."""
    out = []
    for block in layer.blocks:
        fields = {
            name: getattr(block, name)
            for name in block.__dataclass_fields__
            if getattr(block, name) not in (None, "", False, 0)
        }
        out.append({"block": _block_name(type(block).__name__), **fields})
    return out


def _block_name(class_name: str) -> str:
    """`LatentAttention` as a sheet writes it."""
    return "".join(f"_{ch.lower()}" if ch.isupper() else ch for ch in class_name).lstrip("_")


@app.command()
def lint(
    path: Annotated[str | None, typer.Argument(help="A sheet; without one, all built-in sheets.")] = None,
    json: o.Json = False,
    csv: o.Csv = False,
    format: o.FormatOption = None,
    output: o.Output = None,
) -> None:
    """Check a sheet: keys, types, shapes that fit together, a source. Exit 2 where it is wrong.

    \b
    infercost models lint my-model.yaml
    """
    sink = Sink(json, csv, format, output)
    checked = []
    if path is None:
        for name in model_names():
            model = load_builtin(name)
            if model.name != name:
                raise SheetError(f"{name}.yaml: name is '{model.name}'; it must be the file's own")
            checked.append(model)
        _no_shared_names(checked)
    else:
        checked.append(model_from_text(read_file(Path(path)), path))
    records = [
        {"sheet": model.name, "parameters": model.parameters, "layers": len(model.layers)}
        for model in checked
    ]
    made = document(
        "models",
        {"command": "models lint", "path": path},
        CONVENTIONS,
        {},
        [{"inputs": {}, "checked": records}],
        False,
    )
    if path is None:
        answer = [f"{plural(len(checked), 'sheet')} in order"]
    else:
        answer = [f"{path}: in order; {checked[0].name} has {count(checked[0].parameters)} parameters"]
    emit(Report(made, answer, records=records), sink)


def _no_shared_names(models_: list[Model]) -> None:
    seen: dict[str, str] = {model.name: model.name for model in models_}
    for model in models_:
        for alias in model.aliases:
            if alias in seen:
                raise InputError(f"alias '{alias}' names both {seen[alias]} and {model.name}")
            seen[alias] = model.name
