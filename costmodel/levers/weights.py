"""Levers on the weights: other formats, zeros left out, smaller models."""

from __future__ import annotations

from ... import InputError
from ...models.formats import find_format
from ...models.recipes import Recipe, find_recipe
from ...models.spec import Model
from ..compression import Kept, present, pruned
from ..deployment import Deployment
from ..weights import weight_bill
from .registry import lever, with_run, with_setting


def _stored(plan: Deployment, recipe: Recipe) -> Deployment:
    """Weights by `recipe`; InputError where they would take no fewer bytes."""
    model, own = plan.setting.model, plan.setting.recipe
    if weight_bill(model, recipe).weight_bytes >= weight_bill(model, own).weight_bytes:
        raise InputError(f"weights are in {own.name}: {recipe.name} takes no fewer bytes")
    return with_run(plan, recipe=recipe)


def _base_format(plan: Deployment) -> str:
    """The one format of the layers' matrices. Raises InputError for a mix."""
    own = plan.setting.recipe.name
    try:
        return find_format(own).name
    except InputError:
        raise InputError(f"weights are a mix ({own}): zeros are left out of one format") from None


@lever(
    "fp8",
    attacks="weights arithmetic",
    does="8-bit weights are half the bytes, and FP8 products twice as fast where the GPU has them",
    price="quality: near 16 bit in published figures; FP8 units (Ada, Hopper, CDNA3 on) for the products",
    options="--weights fp8-row",
)
def fp8(plan: Deployment) -> Deployment:
    return _stored(plan, find_recipe("fp8-row"))


@lever(
    "int8",
    attacks="weights arithmetic",
    does="8-bit weights and activations (SmoothQuant): half the bytes, INT8 products twice as fast",
    price="quality: near 16 bit once outliers are smoothed into the weights, with a calibration set",
    options="--weights int8-row",
)
def int8(plan: Deployment) -> Deployment:
    return _stored(plan, find_recipe("int8-row"))


@lever(
    "int4",
    attacks="weights",
    does="4-bit weights in groups of 128 are read in about a quarter of the bytes; products stay in 16 bit",
    price="quality: a measurable loss (GPTQ, AWQ); a calibration set",
    options="--weights gptq",
)
def int4(plan: Deployment) -> Deployment:
    return _stored(plan, find_recipe("gptq"))


@lever(
    "fp4",
    attacks="weights arithmetic",
    does="NVFP4 weights and activations: about a quarter of the bytes, FP4 products",
    price="quality: a measurable loss; needs FP4 units (Blackwell)",
    options="--weights nvfp4",
)
def fp4(plan: Deployment) -> Deployment:
    if plan.setting.gpu.peak("fp4") is None:
        raise InputError(f"{plan.setting.gpu.name} has no FP4 units; int4 has the same bytes")
    return _stored(plan, find_recipe("nvfp4"))


@lever(
    "weights",
    takes="recipe",
    attacks="weights arithmetic",
    does="weights in another format",
    price="quality: by the format",
    options="--weights {value}",
)
def weights(plan: Deployment, recipe: Recipe) -> Deployment:
    return _stored(plan, recipe)


@lever(
    "2:4",
    attacks="weights arithmetic",
    does="two of every four weights are zero: 9/16 of the bytes, half of the products",
    price="training: pruned weights are trained again; needs 2:4 units",
)
def two_of_four(plan: Deployment) -> Deployment:
    gpu = plan.setting.gpu
    if gpu.sparsity is None:
        raise InputError(f"{gpu.name} has no units for 2:4 products")
    return _stored(plan, find_recipe(f"{_base_format(plan)}-2:4"))


@lever(
    "sparse",
    takes="share",
    tries=("0.6",),
    attacks="weights",
    does="zeros left out, kept as a bitmap: fewer bytes, the same products",
    price="quality: SparseGPT's range; assumed is a kernel that reads them so, which engines do not have",
)
def sparse(plan: Deployment, share: float) -> Deployment:
    if not 1e-9 <= share <= 1 - 1e-9:
        raise InputError(f"the share that is zero is between 0 and 1, not {share:g}")
    digits = f"{share:.9f}".rstrip("0").rstrip(".")
    return _stored(plan, find_recipe(f"{_base_format(plan)}-bitmap-{digits}"))


@lever(
    "layers",
    takes="count",
    tries=lambda plan: [str(max(1, len(plan.setting.model.layers) * 3 // 4))],
    attacks="weights arithmetic cache scores launches links activations",
    does="a shallower model: everything a layer costs goes with it",
    price="training: what is left is trained again (a few per cent of the pre-training, Sheared LLaMA)",
)
def shallower(plan: Deployment, layers: int) -> Deployment:
    return _pruned(plan, "layers", Kept(layers=layers))


@lever(
    "ffn",
    takes="count",
    tries=lambda plan: [str(max(1, min(present(plan.setting.model, "ffn"), default=0) * 3 // 4))],
    attacks="weights arithmetic",
    does="narrower MLPs: fewer weights and products, the same cache",
    price="training: what is left is trained again (a few per cent of the pre-training, Sheared LLaMA)",
)
def narrower(plan: Deployment, channels: int) -> Deployment:
    return _pruned(plan, "ffn", Kept(ffn=channels))


def _pruned(plan: Deployment, what: str, kept: Kept) -> Deployment:
    smaller = pruned(plan.setting.model, kept)
    if smaller.layers == plan.setting.model.layers:
        raise InputError(f"{plan.setting.model.name} has no more {what} than that")
    return with_setting(plan, model=smaller)


@lever(
    "model",
    takes="model",
    attacks="weights arithmetic cache scores activations launches",
    does="a smaller model that learns from this one (distillation)",
    price="training: the student's, and the teacher's passes or texts; quality is the student's",
)
def model(plan: Deployment, other: Model) -> Deployment:
    own = plan.setting.model
    if other.parameters >= own.parameters:
        raise InputError(f"{other.name} is no smaller than {own.name}")
    if (own.encoder is None) != (other.encoder is None):
        raise InputError(f"{other.name} and {own.name}: one has an encoder and the other none")
    fixed = other.encoder.positions if other.encoder else None
    encoder = (fixed or plan.work.encoder) if other.encoder else 0
    return with_setting(plan, model=other)._replace(work=plan.work._replace(encoder=encoder))
