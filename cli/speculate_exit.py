"""`infercost speculate` of early exits: tokens that leave before the last layer."""

from __future__ import annotations

from typing import Any

from .. import InputError
from ..costmodel.early_exit import EarlyExit, Exits, Reads, at_every, early_exit, weight_reads
from ..costmodel.speculative import KINDS, target_model
from ..hardware.catalogue import load_gpu
from .inputs import WhatIf, document, inferred_notes, limit_notes, model_source, models
from .output.report import Report, Table
from .sizes import token_list, tokens, words
from .speculate_options import DEFAULT_SEQ, Asked, between, number
from .text import count, percent, plural, seconds

CONVENTIONS = {
    "head_per_layer": "weights of the head (with the last norm) over those of a mean layer",
    "weight_reads": "weights read of a token's step, in layers: layers run and a head at each check; the KV "
    "of skipped layers not counted",
    "break_even_layer": "mean exit at which the checks cost what they save, in weights read",
    "early_s": "layers run, a head at each check, and fill_s; of a batch all leave together, with the last",
    "fill_s": "keys and values of the skipped layers, from the hidden state a token left with: their K and V "
    "matrices; writing the rows is not counted",
    "speedup": "full_s / early_s by expected times, else by floors; how many leave where is an assumption",
}


def exit_report(asked: Asked) -> Report:
    """One model with heads asked on the way."""
    chosen = models(asked.model, WhatIf(), "speculate")
    gpus = words(asked.gpu, "--gpu")
    contexts = token_list(asked.seq or DEFAULT_SEQ, "--seq")
    batches = token_list(asked.batch, "--batch")
    if max(len(chosen), len(gpus), len(contexts), len(batches)) > 1:
        raise InputError("early exits are of one model, GPU, length and batch at a time")
    model, gpu = target_model(chosen[0]), load_gpu(gpus[0])
    setting = asked.setting(model, gpu)
    exits = _exits(asked, len(model.layers)).checked()
    reads = weight_reads(setting, exits)
    found = early_exit(setting, exits, batches[0], contexts[0])
    point = _point(asked, exits, reads, found)
    point["inputs"] |= {
        "model": model.name,
        "gpu": gpu.name,
        "batch": batches[0],
        "seq": contexts[0],
        "weights": setting.recipe.name,
        "kv": setting.run.kv.name,
        "tp": setting.parallel.tp,
    }
    final = _screen(point, exits, found, f"{model.called} on {gpu.title}")
    final.notes = limit_notes([(model, contexts[0])]) + inferred_notes(model) + final.notes
    sources = model_source(model) | {gpu.name: gpu.source}
    inputs = {"command": "speculate", "calibration": asked.calibration}
    final.document = document("speculate", inputs, CONVENTIONS, sources, [point], False, [model])
    final.records = point["exits"]
    final.quiet = [repr(point["speedup"])]
    return final


def _exits(asked: Asked, layers: int) -> Exits:
    """--every with --exit-prob, or the shares of --exits with checks there or at every so many layers."""
    if asked.exits is not None:
        if asked.exit_prob is not None:
            raise InputError(
                "--exits says which share leaves where, --exit-prob at each check: give one of them"
            )
        shares = tuple(_share(part) for part in words(asked.exits, "--exits"))
        at = {layer for layer, _ in shares}
        if asked.every is not None:
            at |= set(at_every(layers, tokens(asked.every, "--every"), 0).checks)
        return Exits(layers, tuple(sorted(at)), shares)
    if asked.every is None:
        raise InputError("--exit-prob needs --every: after how many layers a head is asked")
    hazard = 0.0 if asked.exit_prob is None else between(asked.exit_prob, "--exit-prob", 0, 1)
    return at_every(layers, tokens(asked.every, "--every"), hazard)


def _share(part: str) -> tuple[int, float]:
    layer, colon, share = part.partition(":")
    if not colon:
        raise InputError(f"--exits '{part[:40]}': a layer and a share, such as 16:0.3")
    return tokens(layer, "--exits"), number(share, "--exits", 0, 1)


def _point(asked: Asked, exits: Exits, reads: Reads, found: EarlyExit) -> dict[str, Any]:
    best = found.speedup("expected") or found.speedup("floor")
    confidence = found.full.confidence
    return {
        "inputs": {"every": asked.every, "exit_prob": asked.exit_prob, "exits": asked.exits},
        "layers": exits.layers,
        "checks": len(exits.checks),
        "mean_layer": exits.mean_layer,
        "head_per_layer": reads.head,
        "weight_reads": {"full": reads.full, "early": reads.early, "relative": reads.early / reads.full},
        "break_even_layer": reads.break_even_layer,
        "full_s": found.full.times(),
        "early_s": found.early,
        "fill_s": found.fill,
        "speedup": best,
        "speedups": {kind: found.speedup(kind) for kind in KINDS},
        "confidence": confidence.as_json() if confidence else None,
        "exits": [
            {"layer": layer, "share": share, "heads": exits.heads(layer)}
            for layer, share in exits.left.items()
        ],
    }


def _screen(point: dict[str, Any], exits: Exits, found: EarlyExit, who: str) -> Report:
    mean, reads = point["mean_layer"], point["weight_reads"]
    left = 1 - exits.left[exits.layers]
    head = (
        f"{who}: {point['speedup']:.2f}x; {percent(left)} of tokens leave early, {mean:.1f} of "
        f"{exits.layers} layers in the mean, {plural(len(exits.checks), 'head')} asked on the way"
    )
    table = Table(("a token", *KINDS), "<>>>")
    full = found.full.times()
    table.rows.append(("all layers", *(seconds(full[kind]) for kind in KINDS)))
    table.rows.append(("with exits", *(seconds(found.early[kind]) for kind in KINDS)))
    table.rows.append(("of that, KV of skipped layers", *(seconds(found.fill[kind]) for kind in KINDS)))
    speedups = [found.speedup(kind) for kind in KINDS]
    table.rows.append(("speed-up", *("-" if each is None else f"{each:.2f}x" for each in speedups)))
    notes = [
        f"a head is {point['head_per_layer']:.3f} of a layer in weights read; a step reads "
        f"{reads['early']:.2f} layers' worth instead of {reads['full']:.2f} ({reads['relative'] - 1:+.1%})",
        f"with so many checks nothing is gained unless the mean exit is before layer "
        f"{point['break_even_layer']:.1f}, in weights read",
        "keys and values of skipped layers are made from the hidden state a token leaves with",
        f"context {count(point['inputs']['seq'])}; weights {point['inputs']['weights']}, KV "
        f"{point['inputs']['kv']}; kernels only; how many leave where is an assumption",
    ]
    if point["inputs"]["batch"] > 1:
        notes.append(
            f"the {count(point['inputs']['batch'])} sequences of a step leave together, when the last is sure"
        )
    return Report({}, [head], [table], notes)
