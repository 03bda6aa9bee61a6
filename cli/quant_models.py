"""`infercost quant --model`: weight formats, KV formats and schemes compared on a model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from .. import InputError
from ..costmodel.memory import Load, Memory, within_room
from ..costmodel.quality import published
from ..costmodel.schemes import METHODS, Use, find_method, use
from ..costmodel.setting import Cost, Rewrite, Setting, step_cost
from ..costmodel.step import Run, decode, prefill
from ..costmodel.weights import weight_bill
from ..hardware.catalogue import load_gpu
from ..models.recipes import Recipe, default_recipe, find_recipe
from ..models.spec import Model
from .calibrations import clock_of
from .flat import flat
from .inputs import (
    document,
    each_of,
    encoder_positions,
    grid,
    inferred_notes,
    kv_formats,
    lengths,
    limit_notes,
    model_source,
    without_constant,
)
from .output.report import Report, Table
from .room import TOO_MUCH
from .sizes import token_list, words
from .stand_ins import maths_of, substitutions
from .text import count, plural, seconds, size

MOST_POINTS = 200
BESIDE = ("fp8-row", "bnb-nf4")
"""Formats that stand beside the schemes where nothing is asked for."""
CONVENTIONS = {
    "weight_bytes": "resident, scales and zero points included; adapters beside",
    "memory": "weights, cache of all sequences, the widest moment of a prefill step of at most 8,192 tokens",
    "tpot_s": "one decode step at a context of --seq tokens, the new one counted",
    "prefill_s": "the prompt of --seq tokens at once",
    "floor": "sum over kernels of max(matmul / peak, vector / fp32 peak, bytes / bandwidth)",
    "expected": "the kernel-time model with the GPU's calibration; null with --calibration none",
    "extra": "what a scheme adds to a decode step of the same weight format; nothing where its work is done "
    "before the model is served",
    "speedup": "decode step of the first line over this one's, expected (else floor)",
    "kv_recompute": "what making the cache anew costs: one prefill; a quantised entry is written once and "
    "its own error (at most half a step) does not grow: what grows is how far the generated text departs",
    "quality": "quoted from the source named, for this model and format alone; nothing is predicted",
}


class Choice(NamedTuple):
    """A line of the comparison: a recipe, perhaps as a scheme uses it."""

    name: str
    recipe: Recipe
    scheme: Use | None = None

    @property
    def rewrite(self) -> Rewrite | None:
        return self.scheme.rewrite if self.scheme else None


class Compared(NamedTuple):
    """A choice on a setting: `plain` is a decode step without what the scheme adds, `filling` the prefill of
    the prompt, `bits` those of a weight over the whole model, `maths` the types its products are in."""

    choice: Choice
    setting: Setting
    seq: int
    batch: int
    memory: Memory
    bits: float
    decoding: Cost
    plain: Cost
    filling: Cost
    maths: frozenset[str]

    @property
    def total(self) -> int:
        return self.memory.total

    @property
    def fits(self) -> bool | None:
        return within_room(self.total, self.setting.gpu.capacity_bytes)


class Asked(NamedTuple):
    """The options of the comparison as they were given."""

    models: list[Model]
    gpu: str
    seq: str | None
    batch: str
    weights: str | None
    kv: str | None
    schemes: list[str] | None
    share: float | None
    rank: int | None
    encoder_seq: str | None
    calibration: str
    what_if: dict[str, int]


def models_report(asked: Asked) -> Report:
    """A line for each format and scheme, with published figures of those that have any."""
    gpus = [load_gpu(name) for name in words(asked.gpu, "--gpu")]
    sizes, batches = lengths(asked.seq, "quant"), token_list(asked.batch, "--batch")
    caches = each_of(asked.kv, "--kv")
    lines: list[Compared] = []
    for one, gpu, seq, batch, cache in grid(asked.models, gpus, sizes, batches, caches):
        choices = _choices(asked, one)
        if len(lines) + len(choices) > MOST_POINTS:
            raise InputError(f"more than {MOST_POINTS} lines to compare; ask for fewer values at once")
        for fmt in kv_formats(cache, one):
            setting = Setting(one, Run(kv=fmt), gpu, clock=clock_of(asked.calibration, gpu))
            positions = encoder_positions(one, asked.encoder_seq, seq)
            lines += [_compared(choice, setting, seq, batch, positions) for choice in choices]
    firsts: dict[Any, Compared] = {}
    for line in lines:
        firsts.setdefault(_place(line), line)
    points = [_point(line, firsts[_place(line)]) for line in lines]
    inputs: dict[str, Any] = {
        "command": "quant",
        "what_if": asked.what_if,
        "outliers": asked.share,
        "rank": asked.rank,
        "calibration": asked.calibration,
    }
    sources = {g.name: g.source for g in gpus}
    sources |= {k: v for m in asked.models for k, v in model_source(m).items()}
    # A model whose shape is changed is not the one the figures are of.
    known = [] if asked.what_if else asked.models
    quoted = [
        {"model": m.name, **figure._asdict()}
        for m in known
        for figure in published(m.name, [choice.name for choice in _choices(asked, m)])
    ]
    report = _screen(lines, points)
    listed = len(points) > 1
    report.document = document("quant", inputs, CONVENTIONS, sources, points, listed, asked.models)
    report.document["quality"] = quoted
    if quoted:
        studies = list(dict.fromkeys((each["metric"], each["source"]) for each in quoted))
        report.tables.append(_quality(quoted, studies, len(asked.models) > 1))
        report.notes += [f"[{n}] {metric}: {source}" for n, (metric, source) in enumerate(studies, 1)]
    report.records = [flat(point) for point in points]
    report.quiet = [repr(line.decoding.best) for line in lines]
    return report


def _place(line: Compared) -> tuple[str, str, int, int]:
    """What lines that are compared with one another share."""
    return line.setting.model.name, line.setting.gpu.name, line.seq, line.batch


def _choices(asked: Asked, model: Model) -> list[Choice]:
    """The formats and schemes asked for, else all; the checkpoint's own format first where none is named."""
    schemes = asked.schemes or []
    recipes = (
        [] if asked.weights is None else [find_recipe(name) for name in words(asked.weights, "--weights")]
    )
    if not schemes and not recipes:
        recipes, schemes = [find_recipe(name) for name in BESIDE], [method.name for method in METHODS]
    if asked.weights is None:
        recipes = [default_recipe(model), *recipes]
    out = [Choice(recipe.name, recipe) for recipe in recipes]
    for name in schemes:
        scheme = use(find_method(name), asked.share, asked.rank)
        out.append(Choice(scheme.method.name, scheme.recipe, scheme))
    return list({choice.name: choice for choice in out}.values())


def _compared(choice: Choice, setting: Setting, seq: int, batch: int, encoder: int) -> Compared:
    model = setting.model
    setting = setting._replace(run=replace(setting.run, recipe=choice.recipe))
    step = decode(batch, seq, encoder)
    memory = Load(seq, batch, 1, encoder=encoder).memory(setting)
    if choice.scheme:
        memory = memory._replace(weights=memory.weights + choice.scheme.adapter_bytes(model))
    bill = weight_bill(model, choice.recipe)
    maths = maths_of(model, choice.recipe)
    plain = step_cost(setting, step)
    decoding = step_cost(setting, step, choice.rewrite) if choice.scheme else plain
    filling = step_cost(setting, prefill(batch, seq, encoder=encoder), choice.rewrite)
    bits = 8 * memory.weights / bill.parameters
    return Compared(choice, setting, seq, batch, memory, bits, decoding, plain, filling, maths)


def _point(line: Compared, first: Compared) -> dict[str, Any]:
    setting, fmt = line.setting, line.setting.run.kv
    confidence = line.decoding.confidence
    return {
        "inputs": {
            "model": setting.model.name,
            "gpu": setting.gpu.name,
            "seq": line.seq,
            "batch": line.batch,
            "format": line.choice.name,
            "weights": line.choice.recipe.name,
            "kv": fmt.name,
        },
        "weight_bytes": line.memory.weights,
        "bits_per_weight": line.bits,
        "kv_bytes": line.memory.cache,
        "memory_bytes": line.total,
        "fits": line.fits,
        "tpot_s": line.decoding.times(),
        "prefill_s": line.filling.times(),
        "confidence": confidence.as_json() if confidence else None,
        "speedup": first.decoding.best / line.decoding.best,
        "extra": {
            "matmul_flops": line.decoding.matmul_flops - line.plain.matmul_flops,
            "bytes": line.decoding.moved_bytes - line.plain.moved_bytes,
        },
        "mixed_bits_per_weight": line.choice.scheme.mixed_bits if line.choice.scheme else None,
        "kv_recompute": {
            "matmul_flops": line.filling.matmul_flops,
            "floor_s": line.filling.times()["floor"],
        },
    }


def _screen(lines: list[Compared], points: list[dict[str, Any]]) -> Report:
    least = min(lines, key=lambda line: line.total)
    fastest = min(lines, key=lambda line: line.decoding.best)
    kind = "expected" if fastest.decoding.expected is not None else "floor"
    model = fastest.setting.model
    same = "and" if least is fastest else _called(least, lines)
    answer = (
        f"{model.called}: {_called(fastest, lines)} decodes fastest, "
        f"{seconds(fastest.decoding.best)} a step ({kind}), {same} takes least memory, {size(least.total)}"
    )
    columns = ("model", "gpu", "tokens", "batch", "format", "KV", "bits", "weights", "cache", "memory")
    times = ("floor", "expected", "±", "speed", "prefill")
    title = "a decode step: floor, expected, speed beside the first line; prefill of the prompt"
    table = Table((*columns, *times), "<<>><<>>>>>>>>>", title=title)
    for line, point in zip(lines, points, strict=True):
        got, sure = point["inputs"], line.decoding.confidence
        table.rows.append(
            (
                got["model"],
                got["gpu"],
                count(got["seq"]),
                count(got["batch"]),
                got["format"],
                got["kv"],
                f"{line.bits:.3g}",
                size(line.memory.weights),
                size(line.memory.cache),
                size(line.total) + ("" if line.fits is not False else " !"),
                seconds(point["tpot_s"]["floor"]),
                seconds(point["tpot_s"]["expected"]),
                f"{sure.error:.0%}" if sure else "-",
                f"{point['speedup']:.2f}x",
                seconds(line.filling.best),
            )
        )
    table, notes = without_constant(table, ("model", "gpu", "tokens", "batch", "KV", "cache"))
    if any(line.fits is False for line in lines):
        notes.append(TOO_MUCH)
    notes += limit_notes([(line.setting.model, line.seq) for line in lines])
    notes += list(dict.fromkeys(note for line in lines for note in inferred_notes(line.setting.model)))
    wanted = {(line.setting.gpu, math) for line in lines for math in line.maths}
    notes += [note for gpu, math in sorted(wanted, key=str) for note in substitutions({math}, gpu)]
    notes += _scheme_notes(lines)
    notes += _cache_notes(lines)
    return Report({}, [answer], [table], notes)


def _called(line: Compared, lines: list[Compared]) -> str:
    """A line by what tells it from the others."""
    name = line.choice.name
    if len({each.setting.run.kv.name for each in lines}) > 1:
        name += f" with KV {line.setting.run.kv.name}"
    if len({each.setting.model.name for each in lines}) > 1:
        name += f" of {line.setting.model.name}"
    return name


def _scheme_notes(lines: list[Compared]) -> list[str]:
    out = []
    for line in lines:
        scheme, model = line.choice.scheme, line.setting.model
        if scheme is not None and scheme.method.name == "llm-int8":
            share = f"{100 * scheme.share:g} %"
            out.append(
                f"llm-int8: {share} of the columns in 16 bit (assumed; --outliers); with kernels as good as "
                "a library's int8 GEMM (SmoothQuant's authors found bitsandbytes slower than fp16)"
            )
        if scheme is not None and scheme.method.name == "lora-2bit":
            adapters = size(scheme.adapter_bytes(model))
            out.append(f"lora-2bit: {adapters} of adapters of rank {scheme.rank} (--rank), not merged")
    return list(dict.fromkeys(out))


def _cache_notes(lines: list[Compared]) -> list[str]:
    """What is known of the error of a quantised cache, where there is one."""
    narrow = [line for line in lines if not line.setting.run.kv.published]
    if not narrow:
        return []
    line = narrow[0]
    return [
        "a quantised KV entry is written once: its own error, half a step at most, does not grow; making the "
        f"cache of {plural(line.seq, 'token')} anew is one prefill, {seconds(line.filling.best)}"
    ]


def _quality(quoted: list[dict[str, Any]], studies: list[tuple[str, str]], several: bool) -> Table:
    """Published figures, by study."""
    columns = ("format", "16 bit", "quantised", "change", "better", "")
    table = Table((*(("model",) * several), *columns), "<" * several + "<>>><<", title="published quality")
    for each in quoted:
        row = (
            each["format"],
            "-" if each["wide"] is None else f"{each['wide']:.2f}",
            "-" if each["value"] is None else f"{each['value']:.2f}",
            f"{each['change']:+.2f}" if each["wide"] is not None else f"{each['change']:+.4f}",
            each["better"],
            f"[{studies.index((each['metric'], each['source'])) + 1}]",
        )
        table.rows.append((each["model"], *row) if several else row)
    return table
