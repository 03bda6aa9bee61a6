"""Quantisation schemes as costs: what each stores of a weight, and which operations it adds to a step.

LLM.int8() multiplies outlier columns in 16 bit beside the rest in 8 bit; a low-rank adapter runs beside 2-bit
weights; SmoothQuant, GPTQ and AWQ do their work before the model is served and add nothing to a step.
Source: the seed ledger, llmint8, smooth, q.bits, awq, rule.2bit, and the papers named with each scheme.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from .. import InputError
from ..models.formats import Format, find_format
from ..models.recipes import Recipe, find_recipe
from ..models.spec import Model
from ..models.tensor import Tensor
from .build import layer_groups
from .op import Gemm, GroupedGemm, Op, Pointwise
from .step import Plan
from .weights import ENCODER_SIDE

WIDE_BITS = 16
OUTLIER_SHARE = 0.001
"""Share of columns with outliers: LLM.int8() multiplies more than 99.9 % of values in 8 bit."""
SALIENT_SHARE = 0.01
"""Share of weights whose protection AWQ's motivating experiment tries: up to 1 %."""
RANK = 64
"""Rank of QLoRA's adapters (arXiv 2305.14314)."""
MAX_RANK = 4096
QUANTISE_FLOPS = 2
"""Vector FLOPs of quantising a value: one to find the row's largest, one to scale."""


class Method(NamedTuple):
    """A scheme: the recipe of its checkpoints and the `format` of their matrices, `bits` of a weight before
    scales, what it does when a step runs and what it needs before, and where it is from."""

    name: str
    recipe: str
    format: str
    bits: int
    at_runtime: str
    beforehand: str
    source: str


METHODS = (
    Method(
        "llm-int8",
        "llm-int8",
        "llm-int8",
        8,
        "activations quantised by row; outlier columns in a 16-bit GEMM of their own",
        "nothing: weights are rounded as they are loaded",
        "LLM.int8(), arXiv 2208.07339; outliers appear from about 6.7B parameters on (a literature value)",
    ),
    Method(
        "smoothquant",
        "int8-row",
        "int8-row",
        8,
        "nothing: X diag(s)^-1 is folded into the norm before, diag(s) into W",
        "largest activation of each channel: s = max|X|^a / max|W|^(1-a), a = 0.5",
        "SmoothQuant, arXiv 2211.10438",
    ),
    Method(
        "gptq",
        "gptq",
        "int4-g128",
        4,
        "nothing but the conversion of weights to 16 bit",
        "column by column, the columns left make good for the error (also 3 bit)",
        "GPTQ, arXiv 2210.17323",
    ),
    Method(
        "awq",
        "awq",
        "int4-g128-asym",
        4,
        "nothing but the conversion of weights to 16 bit",
        "channels of salient weights (0.1 to 1 %) are scaled up: no weight is kept in 16 bit",
        "AWQ, arXiv 2306.00978",
    ),
    Method(
        "lora-2bit",
        "int2-g64",
        "int2-g64",
        2,
        "adapters in 16 bit: two thin GEMMs beside every matrix of the layers, routed experts left out",
        "fine-tuning of the adapters; they are not merged, 2-bit weights cannot hold them",
        "LoRA, arXiv 2106.09685; that 65B then matches 13B in 16 bit is a claim of the seed",
    ),
)
ALIASES = {"w8a8": "smoothquant", "2bit-lora": "lora-2bit", "lora": "lora-2bit", "bnb-int8": "llm-int8"}


def find_method(name: str) -> Method:
    """The scheme called `name`. Raises InputError for an unknown one, naming those there are."""
    key = name.strip().lower()
    key = ALIASES.get(key, key)
    for method in METHODS:
        if method.name == key:
            return method
    known = ", ".join(method.name for method in METHODS)
    raise InputError(f"unknown scheme '{name[:60]}'; there are {known}, or all")


class Use(NamedTuple):
    """A scheme with its numbers: `share` of columns (of LLM.int8()) or of weights (that AWQ might have kept)
    in 16 bit, `rank` of the adapters."""

    method: Method
    share: float
    rank: int = RANK

    @property
    def recipe(self) -> Recipe:
        return find_recipe(self._with_share(self.method.recipe))

    @property
    def format(self) -> Format:
        return find_format(self._with_share(self.method.format))

    def _with_share(self, name: str) -> str:
        if self.method.name != "llm-int8":
            return name
        digits = f"{self.share:.9f}".rstrip("0").rstrip(".")
        return f"{name}-{digits}"

    @property
    def mixed_bits(self) -> float | None:
        """Bits of a weight where a share is kept in 16 bit; None for schemes that keep none."""
        if self.method.name not in ("llm-int8", "awq"):
            return None
        return mixed_bits(self.method.bits, self.share)

    def adapter_bytes(self, model: Model) -> int:
        """Bytes of the adapters in 16 bit: r·(rows + cols) values a matrix; none but with lora-2bit."""
        if self.method.name != "lora-2bit":
            return 0
        return sum(
            times * tensor.copies * self.rank * (tensor.rows + tensor.cols) * WIDE_BITS // 8
            for tensor, times in adapted(model, self.recipe)
        )

    def extra_flops(self, rows: int, cols: int) -> float:
        """FLOPs the scheme adds to a token's product with a [rows, cols] matrix, for each of its weights."""
        if self.method.name == "llm-int8":
            return QUANTISE_FLOPS / rows
        if self.method.name == "lora-2bit":
            return 2 * self.rank * (rows + cols) / (rows * cols)
        return 0

    def rewrite(self, plan: Plan, ops: tuple[Op, ...]) -> tuple[Op, ...]:
        """The operations of a step with what the scheme adds to them."""
        if self.method.name == "llm-int8":
            return tuple(part for op in ops for part in decomposed(op, self.share, plan.activation))
        if self.method.name == "lora-2bit":
            return (*ops, *adapters(plan, self.rank))
        return ops


def use(method: Method, share: float | None = None, rank: int | None = None) -> Use:
    """`method` with its numbers, or its own where none are given.

    Raises InputError for a share that is none and a rank out of bounds.
    """
    if share is not None and not 0 <= share <= 1:
        raise InputError(f"a share of outliers is between 0 and 1 (or 0 % and 100 %), not {share:g}")
    rank = RANK if rank is None else rank
    if not 1 <= rank <= MAX_RANK:
        raise InputError(f"the rank of an adapter is between 1 and {MAX_RANK:,}, not {rank:,}")
    own = SALIENT_SHARE if method.name == "awq" else OUTLIER_SHARE
    return Use(method, own if share is None else share, rank)


def mixed_bits(bits: float, share: float) -> float:
    """b(1 - p) + 16p bits a weight, scales aside. Source: seed ledger, llmint8 and awq."""
    return bits * (1 - share) + WIDE_BITS * share


def decomposed(op: Op, share: float, activation: str) -> Iterator[Op]:
    """An int8 GEMM as LLM.int8() runs it: activations read in 16 bit and written in 8 (3·M·K bytes), the
    columns without outliers in int8, and those with them in 16 bit, which adds to the same output. The pass
    looks for outliers: it stands beside the row scales that the expected time of any int8 product has in it.

    Source: seed ledger, llmint8; arXiv 2208.07339, section 3.2.
    """
    work = op.work
    if (
        not isinstance(work, Gemm | GroupedGemm)
        or not work.stored.startswith("llm-int8")
        or (isinstance(work, Gemm) and work.batch > 1)
    ):
        yield op
        return
    rows = work.input_rows if isinstance(work, GroupedGemm) else work.rows
    values = rows * work.inner
    passes = Pointwise(
        "quantise", values, 1, 0.5, QUANTISE_FLOPS, activation_bytes=work.activation_bytes, rows=rows
    )
    yield Op(op.phase, f"{op.name}.quantise", passes, op.count)
    wide = round(work.inner * share)
    kept = work.expert_bytes if isinstance(work, GroupedGemm) else work.weight_bytes
    wide_bytes = wide * work.outer * WIDE_BITS // 8 if wide < work.inner else kept
    if work.inner > wide:
        calm = _columns(work, work.inner - wide, kept - wide_bytes)
        yield replace(op, work=calm)
    if wide:
        outliers = replace(_columns(work, wide, wide_bytes), math=activation, stored="")
        yield Op(op.phase, f"{op.name}.outliers", outliers, op.count)


def _columns(work: Gemm | GroupedGemm, inner: int, size: int) -> Gemm | GroupedGemm:
    """The part of a product over `inner` columns, whose weights take `size` bytes (of each expert)."""
    if isinstance(work, GroupedGemm):
        return replace(work, inner=inner, expert_bytes=size)
    return replace(work, inner=inner, weight_bytes=size)


def adapted(model: Model, recipe: Recipe) -> Iterator[tuple[Tensor, int]]:
    """Matrices of the decoder's layers that the recipe quantises, routed experts left out, with how many
    layers have each."""
    for layer, index, times in layer_groups(model, recipe):
        for tensor in model.layer_tensors(layer):
            quantised = _narrow(recipe.format(tensor, index, model))
            if quantised and tensor.component != "experts" and tensor.name not in ENCODER_SIDE:
                yield tensor, times


def _narrow(fmt: Format) -> bool:
    return fmt.block_bytes < fmt.block


def adapters(plan: Plan, rank: int) -> Iterator[Op]:
    """B·(A·x) beside each matrix: 2·M·r·(rows + cols) FLOPs. Source: LoRA, arXiv 2106.09685, section 4.1."""
    tokens, wide = plan.step.tokens, WIDE_BITS // 8
    for tensor, times in adapted(plan.model, plan.recipe):
        for end, inner, outer in (("a", tensor.cols, rank), ("b", rank, tensor.rows)):
            work = Gemm(tokens, inner, outer, wide * inner * outer, plan.activation, plan.activation_bytes)
            yield Op(plan.step.phase, f"lora.{tensor.name}.{end}", work, times * tensor.copies)
