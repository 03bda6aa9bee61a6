"""Types that weights ask for and a part does not have: at whose rate they are counted."""

from __future__ import annotations

from collections.abc import Iterable

from ..costmodel.roofline import math_dtype
from ..costmodel.weights import ABSENT, weight_bill
from ..hardware.spec import Gpu
from ..models.formats import find_format
from ..models.recipes import Recipe, default_recipe, find_recipe
from ..models.spec import Model


def maths_of(model: Model, recipe: Recipe) -> frozenset[str]:
    """The types that products of weights stored by `recipe` are in."""
    held = {part.format for part in weight_bill(model, recipe).components} - {ABSENT}
    return frozenset(find_format(name).math for name in held) - {""}


def substitutions(wanted: Iterable[str], gpu: Gpu) -> list[str]:
    """A note for each type that is wanted and that the part does not have."""
    return [
        f"{gpu.name} has no {name}; counted at its {math_dtype(gpu, name)} rate"
        for name in sorted(wanted)
        if gpu.peak(name) is None
    ]


def stand_ins(models: Iterable[Model], recipes: Iterable[str | None], gpus: Iterable[Gpu]) -> list[str]:
    """Those of a whole grid, each once."""
    named = list(recipes)
    maths: frozenset[str] = frozenset().union(
        *(
            maths_of(model, default_recipe(model) if name is None else find_recipe(name))
            for model in models
            for name in named
        )
    )
    return [note for gpu in dict.fromkeys(gpus) for note in substitutions(maths, gpu)]
