"""Which weight recipes and KV formats there are: `infercost weights --formats`."""

from __future__ import annotations

from typing import Any

from .. import InputError
from ..models.formats import Format, formats
from ..models.recipes import find_recipe, recipe_names
from .inputs import document
from .output.report import Report, Table
from .text import plural

CONVENTIONS = {
    "bits_per_value": "with scales and zero points: weights of a 4096 x 4096 matrix, KV rows of 128",
    "recipe": "which format each tensor of a model is in; its bits per weight depend on the model",
}
KV_WIDTH = 128


def formats_report() -> Report:
    """Every name that --weights takes and every name that --kv takes, with what it means."""
    recipes = [find_recipe(name) for name in recipe_names()]
    table = Table(("--weights", "bits/weight", "meaning"), "<><", title="weights")
    known = formats()
    entries: list[dict[str, Any]] = []
    for recipe in recipes:
        bits = known[recipe.name].bits_per_weight() if recipe.name in known and not recipe.by_layer else None
        entries.append(_entry("weights", recipe.name, bits, recipe.note))
        table.rows.append((recipe.name, f"{bits:.4g}" if bits else "by model", recipe.note))
    cached = Table(("--kv", "bits/value", "meaning"), "<><", title="KV cache")
    for fmt in known.values():
        bits = _row_bits(fmt)
        if bits is not None:
            meaning = fmt.note or "no scales"
            entries.append(_entry("kv", fmt.name, bits, meaning))
            cached.rows.append((fmt.name, f"{bits:.4g}", meaning))
    made = document(
        "weights",
        {"command": "weights --formats"},
        CONVENTIONS,
        {},
        [{"inputs": {}, "formats": entries}],
        False,
    )
    notes = [
        "also: intB-gN and intB-gN-asym (B of 2, 3, 4, 8; groups of N), llm-int8-SHARE, bf16-2:4, "
        "bf16-bitmap-0.6 and bf16-csr16-0.6 (zeros left out of bf16, fp8 ...), and any recipe with "
        "`except COMPONENT,...`, as in 'fp8-block except attention'"
    ]
    answer = [f"{plural(len(recipes), 'weight format')} and recipes, {plural(len(cached.rows), 'KV format')}"]
    return Report(made, answer, [table, cached], notes, records=entries)


def _row_bits(fmt: Format) -> float | None:
    """Bits per value of a row of 128; None for a format of whole matrices only."""
    try:
        return fmt.row_bytes(KV_WIDTH) * 8 / KV_WIDTH
    except InputError:
        return None


def _entry(use: str, name: str, bits: float | None, meaning: str) -> dict[str, Any]:
    return {"use": use, "name": name, "bits_per_value": bits, "meaning": meaning}
