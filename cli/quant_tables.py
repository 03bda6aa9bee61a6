"""`infercost quant --schemes`, `--formats` and `--same-memory`: what needs no model."""

from __future__ import annotations

from typing import Any

from ..costmodel.same_memory import Rival, rival
from ..costmodel.schemes import Use
from ..hardware.catalogue import load_gpu
from ..hardware.spec import Gpu
from ..models.formats import find_format, formats
from .inputs import document
from .output.report import Report, Table
from .text import count, params, plural, seconds, si, size_both

GROUPED = (
    "int2-g64",
    "int3-g128",
    "int4-g128",
    "int4-g128-asym",
    "int4-g64-asym",
    "int4-g32-asym",
    "int8-g64",
)
"""Grouped integers that are listed as examples; any of their kind is a format."""
STEPS = (1, 64, 256, 2048)
FORMAT_CONVENTIONS = {
    "bits_per_weight": "of a 4096 x 4096 matrix, scales and zero points included: bits + (scale + zero) / g"
}
SCHEME_CONVENTIONS = {
    "bits": "of a weight, before scales",
    "mixed_bits_per_weight": "bits (1 - p) + 16 p: a share p in 16 bit; AWQ avoids it by scaling channels",
    "stored_bits": "of a 4096 x 4096 matrix with scales, zero points and columns in 16 bit; adapters not",
    "extra_flops_per_weight_and_token": "what the scheme adds at run time to the 2 of a weight, in a matrix "
    "of 4096 x 4096",
}
RULE_CONVENTIONS = {
    "parameters": "8 x bytes / bits: nominal, before scales; stored_parameters with the scales of `format`",
    "turning_tokens": "ridge x bits / 16: tokens of a step from which on its products take longer than "
    "reading the weights; weight-only formats, 16-bit math, decimal ridge",
    "steps": "max(2 P M / peak, bytes / bandwidth) of M tokens: the matrices alone, a floor",
    "quality": "not predicted: that the larger model is better is a claim of the literature",
}
MATRIX = 4096


def formats_report() -> Report:
    """Bits a weight of every format, scales included."""
    table = Table(("format", "bits", "meaning"), "<><")
    entries: list[dict[str, Any]] = []
    for name in (*(name for name in formats()), *GROUPED):
        fmt = find_format(name)
        bits = fmt.bits_per_weight()
        meaning = fmt.note or "no scales"
        entries.append({"name": name, "bits_per_weight": bits, "meaning": meaning})
        table.rows.append((name, f"{bits:.6g}", meaning))
    point: dict[str, Any] = {"inputs": {}, "formats": entries}
    made = document("quant", {"command": "quant --formats"}, FORMAT_CONVENTIONS, {}, [point], False)
    notes = ["also: any intB-gN and intB-gN-asym (B of 2, 3, 4, 8), and llm-int8-SHARE"]
    return Report(made, [plural(len(entries), "format") + " of weights"], [table], notes, records=entries)


def schemes_report(uses: list[Use]) -> Report:
    """What each scheme stores, what it does when a step runs, and what before."""
    entries = [_scheme(one) for one in uses]
    table = Table(("scheme", "bits", "with scales", "with a share in 16 bit", "added FLOP"), "<>>>>")
    how = Table(("scheme", "when", "what"), "<<<")
    for one, entry in zip(uses, entries, strict=True):
        mixed, added = one.mixed_bits, entry["extra_flops_per_weight_and_token"]
        shared = "-" if mixed is None else f"{mixed:.4g} ({100 * one.share:g} %)"
        table.rows.append(
            (one.method.name, count(one.method.bits), f"{entry['stored_bits']:.5g}", shared, f"{added:.3g}")
        )
        how.rows.append((one.method.name, "before", one.method.beforehand))
        how.rows.append(("", "each step", one.method.at_runtime))
    notes = [f"{one.method.name}: {one.method.source}" for one in uses]
    notes.append("added FLOP: beside the 2 of a weight and token, for a matrix of 4096 x 4096")
    answer = _bits(uses[0]) if len(uses) == 1 else f"{plural(len(uses), 'scheme')} of weights and activations"
    point: dict[str, Any] = dict(entries[0]) if len(uses) == 1 else {"schemes": entries}
    point["inputs"] = {"schemes": [one.method.name for one in uses]}
    sources = {one.method.name: one.method.source for one in uses}
    made = document("quant", {"command": "quant"}, SCHEME_CONVENTIONS, sources, [point], False)
    quiet = [repr(entry["stored_bits"]) for entry in entries]
    return Report(made, [answer], [table, how], notes, records=entries, quiet=quiet)


def _bits(one: Use) -> str:
    name, share = one.method.name, f"{100 * one.share:g} %"
    if one.mixed_bits is None:
        return f"{name}: {one.method.bits} bits a weight before scales"
    if name == "awq":
        return (
            f"{name}: 4 bits a weight before scales; with {share} in 16 bit it would be {one.mixed_bits:.4g}"
        )
    return f"{name}: {one.mixed_bits / 8:.5g} bytes a weight before scales, {share} of the columns in 16 bit"


def _scheme(one: Use) -> dict[str, Any]:
    mixed, bits = one.mixed_bits, one.format.bits_per_weight(MATRIX, MATRIX)
    return {
        "scheme": one.method.name,
        "bits": one.method.bits,
        "stored_bits": bits,
        "mixed_bits_per_weight": mixed,
        "mixed_bytes_per_weight": None if mixed is None else mixed / 8,
        "extra_flops_per_weight_and_token": one.extra_flops(MATRIX, MATRIX),
        "at_runtime": one.method.at_runtime,
        "beforehand": one.method.beforehand,
        "source": one.method.source,
    }


def rule_report(budget: int, bits: list[int], gpu_name: str) -> Report:
    """Models that fill the same bytes, and up to how many tokens of a step they take equally long."""
    gpu = load_gpu(gpu_name)
    rivals = [rival(budget, each) for each in bits]
    entries = [_rival(one, gpu) for one in rivals]
    table = Table(
        ("bits", "parameters", "with scales", "same time up to", *(f"{step:,} tok" for step in STEPS)),
        ">>>>" + ">" * len(STEPS),
    )
    for one, entry in zip(rivals, entries, strict=True):
        table.rows.append(
            (
                count(one.bits),
                params(one.parameters),
                params(one.stored_parameters),
                plural(int(entry["turning_tokens"]), "token"),
                *(seconds(step["floor_s"]) for step in entry["steps"]),
            )
        )
    notes = [
        f"{gpu.title}, {si(gpu.bandwidth, 'B/s')}: floors of the matrices alone, weights converted to 16 bit "
        "on the way, before scales; a prompt is one step of all its tokens",
        "a larger model's cache and activations are larger, too: --model has them",
        "quality is not predicted: that 4 bit is best for its bytes and that the rule turns round at 3 bit "
        "is the finding of Dettmers and Zettlemoyer, arXiv 2212.09720, for 3 to 8 bit",
    ]
    if 2 in bits:
        notes.append(
            "2 bit needs tuned adapters (--scheme lora-2bit); 65B then matching 13B in 16 bit is a claim"
        )
    point: dict[str, Any] = {
        "inputs": {"same_memory_bytes": budget, "bits": bits, "gpu": gpu.name},
        "weight_bytes": budget,
        "rivals": entries,
    }
    sources = {gpu.name: gpu.source}
    made = document("quant", {"command": "quant"}, RULE_CONVENTIONS, sources, [point], False)
    flat = []
    for entry in entries:
        steps = {f"floor_s.{step['tokens']}": step["floor_s"] for step in entry["steps"]}
        flat.append({key: value for key, value in entry.items() if key != "steps"} | steps)
    quiet = [repr(one.parameters) for one in rivals]
    return Report(made, [_rule(budget, rivals, gpu)], [table], notes, records=flat, quiet=quiet)


def _rule(budget: int, rivals: list[Rival], gpu: Gpu) -> str:
    """The rule in a sentence, and where it stops."""
    large, small = min(rivals, key=lambda one: one.bits), max(rivals, key=lambda one: one.bits)
    turn = plural(int(large.turning_tokens(gpu)), "token")
    first = f"{size_both(budget)} hold {params(large.parameters)} parameters at {large.bits} bit"
    if large.bits == small.bits:
        return f"{first}: a step waits for memory up to {turn}"
    return (
        f"{first} or {params(small.parameters)} at {small.bits} bit: equally fast up to {turn} a step, "
        f"then up to {small.bits / large.bits:.3g} times slower"
    )


def _rival(one: Rival, gpu: Gpu) -> dict[str, Any]:
    return {
        "bits": one.bits,
        "format": one.format,
        "stored_bits": one.stored_bits,
        "parameters": one.parameters,
        "stored_parameters": one.stored_parameters,
        "bytes_with_scales": one.parameters * one.stored_bits / 8,
        "flops_per_token": one.flops_per_token,
        "turning_tokens": one.turning_tokens(gpu),
        "steps": [{"tokens": step, "floor_s": one.step_floor_s(step, gpu)} for step in STEPS],
    }
