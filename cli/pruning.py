"""What pruning leaves of a model and of a request on it, before and after, with the training it takes."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import InputError
from ..costmodel.compression import Kept, pruned
from ..costmodel.distillation import repaid_after, training_flops
from ..costmodel.kv import cache_bill
from ..costmodel.memory import Memory, request_memory, within_room
from ..costmodel.request import Request, dollars
from ..costmodel.roofline import default_dtype, ridge
from ..costmodel.setting import Cost, Setting, summed
from ..costmodel.step import Run
from ..costmodel.weights import WeightBill, weight_bill
from ..models.formats import find_format
from ..models.recipes import Recipe, find_recipe
from ..models.spec import Model
from . import training as t
from .inputs import encoder_positions
from .steps import phases_of
from .text import params, percent
from .zeros import DENSE, DENSE_BITS, Zeros, storages, stored_as


class Side(NamedTuple):
    """A model on its setting, and the request on it."""

    setting: Setting
    bill: WeightBill
    stored_bytes: int
    cache_bytes: int
    memory: Memory
    ttft: Cost
    decoding: Cost | None
    usd: float | None

    @property
    def fits(self) -> bool | None:
        """Whether the fullest rank holds it; None where the sheet has no capacity."""
        return within_room(self.memory.total, self.setting.gpu.capacity_bytes)

    @property
    def whole(self) -> Cost:
        return summed([(cost, 1) for cost in (self.ttft, self.decoding) if cost])


class Answer(NamedTuple):
    """What is pruned how, before and after; `nominal` parameters where only a size was asked for."""

    asked: Request
    before: Side
    after: Side | None
    nominal: float | None
    zeros: Zeros
    run: t.Training | None
    terms: t.Terms

    @property
    def parameters(self) -> float:
        return self.after.bill.parameters if self.after else self.nominal or 0.0

    @property
    def repaid(self) -> float | None:
        if self.run is None or self.after is None:
            return None
        return repaid_after(self.run.whole.usd, self.before.usd, self.after.usd)


def answer_of(
    setting: Setting,
    asked: Request,
    kept: Kept,
    target: t.Sized | None,
    zeros: Zeros,
    kernel: bool | None,
    terms: t.Terms,
    tokens: float | None,
    taught: t.Sized | None,
) -> Answer:
    before = _side(setting, asked, None, terms)
    after, nominal = None, None
    if target and target.model is None:
        nominal = target.parameters
        if nominal > before.bill.parameters:
            raise InputError(
                f"--to {target.name}: more than the {params(before.bill.parameters)} parameters there are"
            )
    else:
        smaller = target.model if target and target.model else pruned(setting.model, kept)
        if smaller.parameters > setting.model.parameters:
            raise InputError(
                f"--to {smaller.name}: its {params(smaller.parameters)} parameters are more than the "
                f"{params(setting.model.parameters)} of {setting.model.name}"
            )
        after = _side(*_changed(setting, smaller, target is not None, zeros, kernel, asked), terms)
    trained = nominal if after is None else after.bill.active_parameters
    run = None
    if tokens is not None and trained is not None:
        run = t.training(tokens, trained, taught.parameters if taught else 0.0, terms)
    return Answer(asked, before, after, nominal, zeros, run, terms)


def _changed(
    setting: Setting, smaller: Model, other: bool, zeros: Zeros, kernel: bool | None, asked: Request
) -> tuple[Setting, Request, Recipe | None]:
    """The setting and request after pruning, and the recipe of the file where it is not what runs.

    `other`: `smaller` is a model of its own.
    """
    if other:
        asked = asked._replace(encoder=encoder_positions(smaller, None, asked.prompt))
    changed = setting._replace(model=smaller)
    if zeros.sparse is None:
        return changed, asked, None
    base = setting.recipe.name
    try:
        find_format(base)
    except InputError:
        raise InputError(
            f"--storage {zeros.kind} is of one format, not the mix {base}; give --weights"
        ) from None
    recipe = find_recipe(zeros.recipe_name(base))
    has_units = zeros.kind == "2:4" and setting.gpu.sparsity is not None
    if kernel if kernel is not None else has_units:
        return changed._replace(run=Run(recipe, setting.run.kv)), asked, None
    return changed, asked, recipe


def _side(setting: Setting, asked: Request, file: Recipe | None, terms: t.Terms) -> Side:
    bill = weight_bill(setting.model, setting.recipe, asked.batch)
    stored = weight_bill(setting.model, file, asked.batch).weight_bytes if file else bill.weight_bytes
    held = cache_bill(setting.model, asked.held_tokens, asked.batch, setting.run.kv, asked.encoder)
    ttft, decoding = phases_of(setting, asked)
    rate = terms.usd_per_hour
    usd = None if rate is None else dollars(setting, asked, ttft, decoding, rate).request
    memory = request_memory(setting, asked)
    return Side(setting, bill, stored, held.logical_bytes, memory, ttft, decoding, usd)


def _side_as_json(side: Side, asked: Request) -> dict[str, Any]:
    nothing: dict[str, float | None] = {"bound": None, "floor": None, "expected": None}
    each = 1 / asked.decode_steps if asked.decode_steps else 0.0
    sure = side.whole.confidence
    return {
        "model": side.setting.model.name,
        "weights": side.setting.recipe.name,
        "parameters": side.bill.parameters,
        "active_parameters": side.bill.active_parameters,
        "weight_bytes": side.bill.weight_bytes,
        "read_bytes_per_step": side.bill.read_bytes_per_step,
        "stored_bytes": side.stored_bytes,
        "cache_bytes": side.cache_bytes,
        "peak_memory_bytes": side.memory.total,
        "fits": side.fits,
        "prefill_matmul_flops": side.ttft.matmul_flops,
        "decode_matmul_flops": side.decoding.matmul_flops if side.decoding else 0,
        "ttft_s": side.ttft.times(),
        "tpot_s": side.decoding.times(each) if side.decoding else nothing,
        "e2e_s": side.whole.times(),
        "confidence": sure.as_json() if sure else None,
        "usd": side.usd,
    }


def _nominal_as_json(answer: Answer, before: dict[str, Any]) -> dict[str, Any]:
    """Of a size alone: bytes by the bits per weight before; what depends on shapes is null."""
    parameters = answer.parameters
    out: dict[str, Any] = dict.fromkeys(before)
    share = parameters / answer.before.bill.parameters
    sizes = {key: before[key] * share for key in ("weight_bytes", "read_bytes_per_step", "stored_bytes")}
    return {**out, "parameters": parameters, "weights": before["weights"], **sizes}


def _ratios(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """after / before of every number, also of the three times."""
    out: dict[str, Any] = {}
    for key, value in before.items():
        other = after[key]
        if isinstance(value, dict) and "floor" in value:
            out[key] = _ratios(value, other) if other else dict.fromkeys(value)
        elif value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
            out[key] = other / value if value and other is not None else None
    return out


def point_of(answer: Answer, pretrained: float | None) -> dict[str, Any]:
    setting, asked, zeros = answer.before.setting, answer.asked, answer.zeros
    before = _side_as_json(answer.before, asked)
    after = _side_as_json(answer.after, answer.asked) if answer.after else _nominal_as_json(answer, before)
    run = t.training_as_json(answer.run, answer.terms) if answer.run else None
    if run is not None:
        whole = pretrained and training_flops(answer.before.bill.active_parameters, pretrained)
        run["vs_pretraining"] = run["flops"] / whole if whole else None
    return {
        "inputs": {
            "model": setting.model.name,
            "gpu": setting.gpu.name,
            "prompt": asked.prompt,
            "gen": asked.gen,
            "batch": asked.batch,
            "weights": setting.recipe.name,
            "kv": setting.run.kv.name,
            "tp": setting.parallel.tp,
            "pp": setting.parallel.pp,
            "ep": setting.parallel.ep,
            "sparsity": zeros.sparsity,
            "storage": zeros.kind,
        },
        "before": before,
        "after": after,
        "ratios": _ratios(before, after),
        "runs_as": runs_as(answer),
        "ridge_flop_per_byte": _ridges(answer),
        "storages": storages(zeros.sparsity, _value_bits(setting)) if zeros.sparsity else [],
        "training": run,
        "repaid_after_requests": answer.repaid,
    }


def _ridges(answer: Answer) -> dict[str, float] | None:
    """The datasheet ridge of the GPU's 16-bit products, and that of 2:4 ones where they run as such."""
    gpu = answer.before.setting.gpu
    if answer.zeros.kind != "2:4" or runs_as(answer) == DENSE or gpu.sparsity is None:
        return None
    dense = ridge(gpu, default_dtype(gpu)).datasheet
    return {"dense": dense, "sparse": dense * gpu.sparsity}


def _value_bits(setting: Setting) -> float:
    """Bits of a value of the format that the pruned matrices were in; 16 of a mix."""
    try:
        return find_format(setting.recipe.name).value_bits
    except InputError:
        return DENSE_BITS


def runs_as(answer: Answer) -> str | None:
    """dense or sparse; None where there are no zeros."""
    if not answer.zeros.sparsity or answer.after is None:
        return None
    return DENSE if answer.after.setting.recipe.name == answer.before.setting.recipe.name else "sparse"


def what_was_done(answer: Answer) -> str:
    """What was done, as a person says it."""
    said = []
    if answer.after is None or answer.after.setting.model != answer.before.setting.model:
        said.append(f"pruned to {params(answer.parameters)} parameters")
    if answer.zeros.sparsity:
        kind = answer.zeros.kind
        said.append(
            "2:4 sparse"
            if kind == "2:4"
            else f"{percent(answer.zeros.sparsity)} sparse, stored {stored_as(kind)}"
        )
    return ", ".join(said) or "as it is"
