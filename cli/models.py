"""`infercost models`: list, show and check model sheets."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import InputError
from ..costmodel.kv import cache_bill
from ..models.cache import CacheSpec
from ..models.catalogue import load_builtin, load_model, model_names
from ..models.ffn import Experts
from ..models.formats import find_format
from ..models.recipes import default_recipe, sixteen_bit
from ..models.sheet import model_from_text
from ..models.sheet_text import sheet_text, stated_fields
from ..models.spec import Layer, Model
from ..sheets import SheetError, read_file
from . import options as o
from .checkpoint import checkpoint
from .groups import Without, grouped
from .inputs import document, inferred_notes
from .output.report import Report, Sink, Table, emit, write_file, write_stdout
from .text import clean, count, params, plural, shown

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
@grouped
def models(ctx: typer.Context, sink: Annotated[Sink, Without("conditions")]) -> None:
    if ctx.invoked_subcommand is None:
        _list(sink)


@app.command("list")
@grouped
def list_(sink: Annotated[Sink, Without("conditions")]) -> None:
    """List the models, as `infercost models` alone does.

    \b
    infercost models list
    infercost models list --csv
    """
    _list(sink)


def _list(sink: Sink) -> None:
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
        kind, window = cache.label
        name = kind.replace("_", " ") + (f" w{window}" if window else "")
        parts.append(f"{name} x{times}" if len(caches) > 1 else name)
    if any(isinstance(block, Experts) for layer, _ in model.groups for block in layer.blocks):
        parts.append("MoE")
    return ", ".join(parts)


@app.command()
@grouped
def show(
    name: Annotated[
        str, typer.Argument(help="A name, an alias, a sheet.yaml or -.", autocompletion=o.complete_model)
    ],
    sink: Sink,
) -> None:
    """Show one model: its layers, its counts, where they come from.

    \b
    infercost models show llama-2-7b
    infercost models show jamba-v0.1 --json
    """
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
        "default_weights": default_recipe(model).name,
        "default_kv": model.kv,
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
    held, tables, about = checkpoint(name, model)
    if held:
        point["checkpoint"] = held
    sources = {model.name: model.source}
    made = document("models", {"command": "models show"}, CONVENTIONS, sources, [point], False, [model])
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
    notes += inferred_notes(model, most=20) + about
    answer = [f"{model.called}: {count(model.parameters)} parameters"]
    records = [{k: v if not isinstance(v, list) else " ".join(v) for k, v in facts.items()}]
    report = Report(made, answer, [table, *tables], notes, records=records, quiet=[str(model.parameters)])
    emit(report, sink)


def blocks(layer: Layer) -> list[dict[str, Any]]:
    """A layer's blocks with the fields that say something."""
    return [{"block": block.key, **stated_fields(block)} for block in layer.blocks]


@app.command("import")
def import_(
    path: Annotated[str, typer.Argument(help="config.json, GGUF, model folder, hf:owner/name, or -.")],
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Write the sheet here (default: standard output).")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the model in the sheet.")] = None,
) -> None:
    """Write a sheet from a config.json, a GGUF file or a model's folder.

    \b
    infercost models import config.json -o my-model.yaml
    infercost models import hf:Qwen/Qwen3-8B
    """
    model = load_model(path)
    if output is not None and (Path(output).suffix == ".json" or Path(output) == Path(path)):
        raise InputError(f"--output {output}: a sheet is YAML; name it .yaml, and not after its source")
    if name is not None:
        if not name:
            raise InputError("--name is empty; leave it out to keep the model's own")
        model = replace(model, name=name)
    text = sheet_text(model)
    model_from_text(text, output or "<sheet>")  # what is written must read back
    if output is None:
        write_stdout(text)
    else:
        write_file(Path(output), text)
    notes = [*model.inferred]
    if model.stored:
        notes.append("a sheet does not hold the types of a GGUF file's own tensors")
    for note in notes:
        print(f"infercost: inferred: {clean(note)}", file=sys.stderr)


@app.command()
@grouped
def diff(
    first: Annotated[
        str, typer.Argument(help="A name, a sheet, a config.json ...", autocompletion=o.complete_model)
    ],
    second: Annotated[str, typer.Argument(help="Another.", autocompletion=o.complete_model)],
    sink: Annotated[Sink, Without("quiet")],
) -> None:
    """Compare two models: every fact that differs, and what it does to the counts.

    \b
    infercost models diff llama-2-7b llama-3-8b
    infercost models diff mistral-7b-v0.1 path/to/config.json --assert 'same == true'
    """
    a, b = load_model(first), load_model(second)
    left, right = comparable(a), comparable(b)
    changed = [key for key in {**left, **right} if left.get(key) != right.get(key)]
    rows = [{"fact": key, "first": left.get(key), "second": right.get(key)} for key in changed]
    same = not changed
    point = {"inputs": {"first": a.name, "second": b.name}, "same": same, "differences": rows}
    sources = {a.name: a.source, b.name: b.source}
    made = document("models", {"command": "models diff"}, CONVENTIONS, sources, [point], False, (a, b))
    table = Table(("fact", a.name, b.name), "<>>")
    table.rows = [(str(row["fact"]), shown(row["first"]), shown(row["second"])) for row in rows]
    answer = [f"{a.name} and {b.name} are the same model" if same else f"{plural(len(rows), 'fact')} differ"]
    emit(Report(made, answer, [table] if rows else [], records=rows or [{"fact": "none"}]), sink)


def comparable(model: Model) -> dict[str, Any]:
    """Facts of a model that two can be compared by; not its name, source or notes."""
    bill = cache_bill(model, 1, 1, find_format(sixteen_bit(model)), 1)
    facts: dict[str, Any] = {
        "parameters": model.parameters,
        "active parameters": model.active_parameters,
        "KV bytes per token": bill.bytes_per_token,
        "state bytes": bill.state_bytes,
        "layers": len(model.layers),
    }
    words = "name title source notes aliases inferred stored layers encoder towers norm"
    skip = words.split()
    for field in Model.__dataclass_fields__:
        if field not in skip:
            facts[field] = getattr(model, field)
    facts["norm"] = model.norm.kind + (" with bias" if model.norm.bias else "")
    facts |= {f"tower {tower.name}": tower.parameters for tower in model.towers}
    for times, layer in sorted((t, i) for i, (_, t) in enumerate(model.groups)):
        for block in blocks(model.groups[layer][0]):
            shape = ", ".join(f"{k} {shown(v)}" for k, v in block.items() if k != "block")
            facts[f"{times} x {block['block']} ({layer + 1})"] = shape
    return facts


@app.command()
@grouped
def lint(
    *,
    path: Annotated[
        str | None, typer.Argument(help="A sheet, a name or -; without one, all built-in sheets.")
    ] = None,
    sink: Annotated[Sink, Without("quiet", "conditions")],
) -> None:
    """Check a sheet: keys, types, shapes that fit together, a source. Exit 2 where it is wrong.

    \b
    infercost models lint my-model.yaml
    """
    checked = []
    if path is None:
        for name in model_names():
            model = load_builtin(name)
            if model.name != name:
                raise SheetError(f"{name}.yaml: name is '{model.name}'; it must be the file's own")
            checked.append(model)
        _no_shared_names(checked)
    else:
        named = path == "-" or path.lower() in model_names() or path.lower().endswith((".json", ".gguf"))
        checked.append(load_model(path) if named else model_from_text(read_file(Path(path)), path))
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
