"""How a model is run, of the names that --weights and --kv take; and on what, in words."""

from __future__ import annotations

from typing import Any

from ..costmodel.setting import Setting
from ..costmodel.step import Run
from ..models.recipes import find_recipe
from ..models.spec import Model
from .inputs import kv_formats


def run_of(model: Model, weights: str | None, kv: str | None, **kernels: Any) -> Run:
    """By a recipe (None: the checkpoint's own) and a cache format (None: the model's 16-bit type); `kernels`:
    the other fields of a Run."""
    recipe = None if weights is None else find_recipe(weights)
    return Run(recipe=recipe, kv=kv_formats(kv, model)[0], **kernels)


def cards(setting: Setting) -> str:
    """`2 x H200 SXM`: the devices of one replica."""
    title = setting.gpu.title
    return f"{setting.devices} x {title}" if setting.devices > 1 else title
