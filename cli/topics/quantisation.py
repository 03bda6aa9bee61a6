"""Fewer bits: the quantiser, the schemes of published models, the cache."""

from __future__ import annotations

from ...costmodel.quantization import Scheme, fit
from ...costmodel.schemes import (
    OUTLIER_SHARE,
    RANK,
    SALIENT_SHARE,
    WIDE_BITS,
    Use,
    find_method,
    mixed_bits,
    use,
)
from ...costmodel.setting import Cost, step_cost
from ...costmodel.textbook import MEASURED_GIB
from ...costmodel.weights import nominal_bytes
from ...models.formats import find_format
from ...models.recipes import default_recipe
from ..text import number, seconds, size
from .asked import Asked, Case
from .explained import Explained, Letter, Line, times
from .memory import cache_formula

VALUES = (1.2, 13.6)
"""Ends of the seed's worked example."""
KV = "int8-g64"


def quantiser(asked: Asked) -> Explained:
    scheme = Scheme(8)
    fitted, cut = fit(*VALUES, scheme), fit(*VALUES, scheme._replace(zero_point="truncate"))
    letters = (
        Letter("high", VALUES[1], "largest value of the seed's example"),
        Letter("low", VALUES[0], "smallest"),
        Letter("qmax", scheme.highest, "highest code of 8 bits"),
        Letter("qmin", scheme.lowest, "lowest"),
    )
    symmetric = fit(*VALUES, scheme._replace(symmetric=True))
    return Explained(
        asked.at(),
        "(high - low) / (qmax - qmin)",
        letters,
        fitted.scale,
        "",
        "seed 001, section 5; LLMBook, section 9.3.1; Krishnamoorthi, arXiv 1806.08342, section 2",
        bill=(
            Line("scale S", "", symmetric.scale, fitted.scale),
            Line("range without a value", "share", symmetric.wasted, fitted.wasted),
        ),
        sides=("symmetric", "asymmetric"),
        differs=f"Z is {number(fitted.exact_zero)} before it is an integer: {fitted.zero} rounded, "
        f"{cut.zero} as the textbook's code truncates it, which doubles the largest error",
        commands=("infercost quant --values 1.2,2.4,3.6,11.2,12.4,13.6 --bits 8",),
        scope="nothing",
    )


def bitsandbytes(asked: Asked) -> Explained:
    case = asked.at()
    fmt = find_format("nf4")
    group = fmt.scales[0]
    letters = (
        Letter("n", int(fmt.value_bits), "bits of a code"),
        Letter("s", group.bits, "bits of a group's largest value"),
        Letter("g", group.cols, "weights of a group"),
    )
    plain, narrow, whole = case.stored("fp16"), case.stored("bnb-nf4"), case.stored("bnb-int8")
    seen = [MEASURED_GIB.get((case.model.name, name)) for name in ("bnb-int8", "bnb-nf4")]
    measured = (
        f"; Table 9.3 measured {seen[0]} GiB in INT8 and {seen[1]} in NF4 (it prints GB)" if all(seen) else ""
    )
    return Explained(
        case,
        "n + s/g",
        letters,
        fmt.bits_per_weight(),
        "bits",
        "QLoRA, arXiv 2305.14314; LLM.int8(), arXiv 2208.07339; seed 001, Table 9.3; seed ledger, t93 and "
        "q.bits",
        bill=(
            Line("weights", "bytes", plain.weights().weight_bytes, narrow.weights().weight_bytes),
            Line("weights in INT8", "bytes", plain.weights().weight_bytes, whole.weights().weight_bytes),
            *times("decode step", plain.decode_cost(), narrow.decode_cost()),
            *times("prefill", plain.prefill_cost(), narrow.prefill_cost()),
        ),
        sides=("fp16", "NF4"),
        differs="embeddings, head and norms stay in 16 bit, so a model does not shrink to a "
        f"quarter{measured}; products are in 16 bit, a prompt gains nothing",
        price="quality, quoted by `quant` where it was published",
        commands=(
            case.command("weights", "--weights", "fp16,bnb-int8,bnb-nf4,bnb-nf4-dq"),
            case.command("quant", "--seq", case.tokens, "--weights", "fp16,bnb-int8,bnb-nf4"),
        ),
    )


def llm_int8(asked: Asked) -> Explained:
    scheme = use(find_method("llm-int8"))
    letters = (
        Letter(
            "p", scheme.share, "columns with outliers, in 16 bit (assumed: LLM.int8() reports below 0.1 %)"
        ),
        Letter("n", scheme.method.bits, "bits of the others"),
        Letter("w", WIDE_BITS, "bits of an outlier"),
    )
    return _scheme(
        asked.at(),
        scheme,
        "(n·(1 - p) + w·p) / 8",
        letters,
        mixed_bits(scheme.method.bits, OUTLIER_SHARE) / 8,
        "bytes a weight",
        "that outliers appear from about 6.7B parameters on is a literature value; bitsandbytes keeps all "
        "weights in int8 and converts those columns on the way",
        ("--scheme", "llm-int8", "--outliers", "0.1%"),
    )


def smoothquant(asked: Asked) -> Explained:
    case, scheme = asked.at(), use(find_method("smoothquant"))
    before, after = _schemed(case, scheme)[1:]
    letters = (
        Letter(
            "F1",
            after.matmul_flops,
            "FLOPs of a step with X diag(s)^-1 in the norm before and diag(s) in W",
            "FLOP",
        ),
        Letter("F0", before.matmul_flops, "FLOPs of a step without s", "FLOP"),
    )
    return _scheme(
        case,
        scheme,
        "F1 - F0",
        letters,
        after.matmul_flops - before.matmul_flops,
        "extra FLOP",
        "Y = (X diag(s)^-1)(diag(s) W) is Y: s = max|X|^a / max|W|^(1-a), a = 0.5, folds into the norm "
        "before",
        ("--scheme", "smoothquant"),
    )


def gptq(asked: Asked) -> Explained:
    return _grouped(
        asked,
        "gptq",
        "bits before scales are not the bits that are stored, and the group size is a choice; 3 bit is "
        "possible, too",
    )


def awq(asked: Asked) -> Explained:
    mixed = mixed_bits(4, SALIENT_SHARE)
    said = (
        f"the 0.1 to 1 % salient weights are not kept in 16 bit (1 % of them would make {number(mixed)} "
        "bits): their channels are scaled up, at no bit more"
    )
    return _grouped(asked, "awq", said)


def lora(asked: Asked) -> Explained:
    case, scheme = asked.at(), use(find_method("lora-2bit"))
    said = (
        f"{size(scheme.adapter_bytes(case.model))} of adapters of rank {RANK} beside, never merged, so a "
        f"step is not as fast as its bytes; 65B in 2 bit are {nominal_bytes(65e9, 2) / 1e9:.4g} GB "
        f"before scales, 13B in 16 bit {nominal_bytes(13e9, 16) / 1e9:.4g} GB: that they match is a claim"
    )
    return _grouped(asked, "lora-2bit", said)


def _grouped(asked: Asked, name: str, differs: str) -> Explained:
    """A scheme of integers in groups: n + scale/g, and the zero point where there is one."""
    scheme = use(find_method(name))
    fmt = scheme.format
    letters = [
        Letter("n", int(fmt.value_bits), "bits of a code"),
        Letter("s", fmt.scales[0].bits, "bits of a group's scale"),
        Letter("g", fmt.scales[0].cols, "weights of a group"),
    ]
    formula = "n + s/g"
    if len(fmt.scales) > 1:
        letters.append(Letter("z", fmt.scales[1].bits, "bits of a group's zero point"))
        formula = "n + (s + z)/g"
    args = ("--scheme", name)
    return _scheme(asked.at(), scheme, formula, tuple(letters), fmt.bits_per_weight(), "bits", differs, args)


def _schemed(case: Case, scheme: Use) -> tuple[Case, Cost, Cost]:
    """The case in the scheme's format; a decode step of it plain, and as the scheme runs it."""
    stored = case.stored(scheme.recipe)
    return stored, stored.decode_cost(), step_cost(stored.setting, case.decode_step, scheme.rewrite)


def _scheme(
    case: Case,
    scheme: Use,
    formula: str,
    letters: tuple[Letter, ...],
    value: float,
    unit: str,
    differs: str,
    words: tuple[str, ...],
) -> Explained:
    """A scheme of `quant` beside the checkpoint's own format."""
    own = case.stored(default_recipe(case.model))
    stored, bare, run = _schemed(case, scheme)
    filled = step_cost(stored.setting, case.prompt_step, scheme.rewrite)
    weights = stored.weights().weight_bytes + scheme.adapter_bytes(case.model)
    return Explained(
        case,
        formula,
        letters,
        value,
        unit,
        f"{scheme.method.source}; seed 001, section 5; seed ledger, q.bits",
        bill=(
            Line("weights", "bytes", own.weights().weight_bytes, weights),
            Line("FLOPs a step takes beyond its format's", "FLOP", 0, run.matmul_flops - bare.matmul_flops),
            Line("bytes a step moves beyond its format's", "bytes", 0, run.moved_bytes - bare.moved_bytes),
            *times("decode step", own.decode_cost(), run),
            *times("prefill", own.prefill_cost(), filled),
        ),
        sides=(own.setting.recipe.name, scheme.method.name),
        differs=differs,
        price=f"at run time: {scheme.method.at_runtime}; before: {scheme.method.beforehand}",
        commands=(case.command("quant", "--seq", case.tokens, *words),),
    )


def kv_quantisation(asked: Asked) -> Explained:
    case = asked.at(tokens=32768, kv=KV)
    formula, letters = cache_formula(case)
    wide = case.cached("fp16")
    narrow = find_format("int4-g64")
    small = case.cached(narrow.name).cache().logical_bytes
    before, after = wide.cache(), case.cache()
    formats = dict.fromkeys(("fp16", case.kv.name, narrow.name, "fp8"))
    return Explained(
        case,
        formula,
        letters,
        after.logical_bytes,
        "bytes",
        "KIVI, arXiv 2402.02750; KVQuant, arXiv 2401.18079; seed 003, section 5; seed ledger, kvq.size "
        "and kvq.error",
        bill=(
            Line("cache", "bytes", before.logical_bytes, after.logical_bytes),
            Line("cache in int4-g64", "bytes", before.logical_bytes, small),
            *times("decode step", wide.decode_cost(), case.decode_cost()),
        ),
        sides=("fp16", case.kv.name),
        differs="the error does not accumulate: an entry is quantised once, when it is written, and stays "
        "within half a step; what compounds is the changed token stream. Scales come on top of a half",
        price=f"to make the cache anew is one prefill: {seconds(case.prefill_cost().bound)} at the least",
        commands=(
            case.command("kv", "--seq", case.tokens, "--kv", ",".join(formats)),
            case.command("quant", "--seq", case.tokens, "--kv", f"fp16,{case.kv.name}", "--weights", "fp16"),
        ),
    )
