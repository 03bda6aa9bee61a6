"""Fewer weights: pruning by structure, anywhere, two of four; a student instead of its teacher."""

from __future__ import annotations

import shlex

from ... import InputError
from ...costmodel.compression import Kept, pruned
from ...costmodel.distillation import compute_bill, soft_label_bytes, teaching_flops, training_flops
from ...costmodel.roofline import default_dtype, ridge
from ...models.catalogue import load_model
from ...models.formats import find_format
from ...models.recipes import default_recipe
from ...models.sparsity import storage
from ..text import count, number, params, percent, size
from .asked import Asked, Case
from .explained import Explained, Letter, Line, times

SHEARED = Kept(hidden=2560, heads=20, ffn=6912)
"""The shape of Sheared LLaMA 2.7B: its config.json (princeton-nlp/Sheared-LLaMA-2.7B)."""
RETRAINED, PRETRAINED = 50_000_000_000, 2_000_000_000_000
"""Tokens that Sheared LLaMA was trained on again, and Llama 2 before."""
SPARSITY = 0.6
"""SparseGPT's share of zeros at little loss."""
MFU = 0.4
"""Of training. An assumption, the ledger's."""
TOKENS = 10_000_000_000
STUDENT = "llama-2-7b"


def structured_pruning(asked: Asked) -> Explained:
    case = asked.at()
    layers = len(case.model.layers)
    if layers < 2:
        raise InputError(f"explain structured-pruning: {case.model.name} has one layer")
    small = case.of(pruned(case.model, Kept(layers=layers // 2)))
    return Explained(
        case,
        "p / P",
        _kept(case, small),
        small.model.parameters / case.model.parameters,
        "",
        "LLM-Pruner, arXiv 2305.11627; ShortGPT, arXiv 2403.03853; seed 001, section 6",
        bill=_smaller(case, small),
        sides=(case.model.name, f"{layers // 2} of {layers} layers"),
        differs="what goes as a whole saves bytes and FLOPs on any hardware, and the cache of the layers "
        "and heads that went",
        price="quality, and the training that brings it back: `--retrain-tokens`",
        commands=(
            case.command(
                "compress", "--keep-layers", layers // 2, "--prompt", case.tokens, "--gen", case.gen
            ),
        ),
    )


def _kept(case: Case, small: Case) -> tuple[Letter, ...]:
    return (
        Letter("p", small.model.parameters, "parameters that stay", "parameters"),
        Letter("P", case.model.parameters, "parameters there were", "parameters"),
    )


def _smaller(case: Case, small: Case) -> tuple[Line, ...]:
    """A model and a smaller one: what they hold, read and compute."""
    pair = (case, small)
    return (
        Line("parameters", "parameters", *(each.model.parameters for each in pair)),
        Line("weights", "bytes", *(each.weights().weight_bytes for each in pair)),
        Line(
            "weights read by a decode step", "bytes", *(each.weights().read_bytes_per_step for each in pair)
        ),
        Line("cache", "bytes", *(each.cache().logical_bytes for each in pair)),
        Line("matrix FLOPs of the prefill", "FLOP", *(each.prefill_cost().matmul_flops for each in pair)),
        *times("prefill", *(each.prefill_cost() for each in pair)),
        *times("decode step", *(each.decode_cost() for each in pair)),
    )


def sheared_llama(asked: Asked) -> Explained:
    case = asked.at(model="llama-2-7b")
    try:
        small = case.of(pruned(case.model, SHEARED))
    except InputError as error:
        raise InputError(f"explain sheared-llama: its shape is a part of Llama 2 7B's ({error})") from None
    spent = training_flops(small.model.parameters, RETRAINED)
    price = case.gpu.price
    bill = compute_bill(spent, case.gpu, MFU, price.usd_per_hour if price else None)
    letters = (
        Letter("p", small.model.parameters, "parameters that stay", "parameters"),
        Letter("D", RETRAINED, "tokens it is trained on again"),
    )
    earlier = training_flops(case.model.parameters, PRETRAINED)
    paid = "" if bill.usd is None else f", {count(round(bill.usd))} dollars"
    return Explained(
        case,
        "6·p·D",
        letters,
        spent,
        "FLOP",
        "Sheared LLaMA, arXiv 2310.06694; seed 001, section 6; seed ledger, prune.sheared",
        bill=(*_smaller(case, small), Line("training", "FLOP", earlier, spent)),
        sides=(case.model.name, "sheared"),
        differs=f"{percent(spent / earlier)} of a pre-training on {count(PRETRAINED)} tokens; that it "
        "keeps 87.8 % of the quality is a quoted result",
        price=f"{number(bill.gpu_hours)} hours of {case.gpu.title} at {MFU:.0%} of its peak, which is "
        f"assumed{paid}",
        commands=(
            "infercost compress --model llama-2-7b --keep-hidden 2560 --keep-heads 20 --keep-ffn 6912 "
            "--retrain-tokens 50B --pretrain-tokens 2T",
        ),
    )


def unstructured_pruning(asked: Asked) -> Explained:
    return _zeros(
        asked, "magnitude pruning, arXiv 1506.02626; seed 001, section 6; seed ledger, prune.unstructured", ""
    )


def sparsegpt(asked: Asked) -> Explained:
    said = "; SparseGPT needs no retraining: one pass over calibration text, layer by layer, as GPTQ's"
    return _zeros(
        asked, "SparseGPT, arXiv 2301.00774; seed 001, section 6; seed ledger, prune.unstructured", said
    )


def _zeros(asked: Asked, source: str, more: str) -> Explained:
    """A share of zeros anywhere: as it is multiplied, and as a kernel for a bitmap would read it."""
    case = asked.at()
    dense = _dense(case)
    name = dense.setting.recipe.name
    bits = find_format(name).value_bits
    bitmap, rows = storage("bitmap", SPARSITY), storage("csr16", SPARSITY)
    read = dense.stored(f"{name}-bitmap-{SPARSITY}")
    letters = (
        Letter("b", int(bits), f"bits of a value, {name}"),
        Letter("s", SPARSITY, "share of zeros"),
    )
    return Explained(
        case,
        "1 + b·(1 - s)",
        letters,
        bitmap.bits(bits),
        "bits",
        source,
        bill=(
            Line("bits of a weight, as a bitmap", "", bits, bitmap.bits(bits)),
            Line("bits of a weight, in rows (csr16)", "", bits, rows.bits(bits)),
            Line(
                "matrix FLOPs of a decode step",
                "FLOP",
                *(c.decode_cost().matmul_flops for c in (dense, read)),
            ),
            Line(
                "weights, dense kernel", "bytes", dense.weights().weight_bytes, dense.weights().weight_bytes
            ),
            Line(
                "weights, a kernel that reads a bitmap",
                "bytes",
                dense.weights().weight_bytes,
                read.weights().weight_bytes,
            ),
            Line(
                "decode step, such a kernel, bound", "s", dense.decode_cost().bound, read.decode_cost().bound
            ),
        ),
        sides=("dense", percent(SPARSITY) + " zeros"),
        differs=f'"no speed-up" is a fact of kernels, not of bandwidth: read as a bitmap a step would move '
        f"{number(bits / bitmap.bits(bits))} times fewer bytes of these matrices; a bitmap pays from "
        f"{percent(bitmap.dense_from(bits) or 0)} zeros, compressed rows from "
        f"{percent(rows.dense_from(bits) or 0)}{more}",
        price="without a kernel for it only the file is smaller; quality is for an evaluation to say",
        commands=(
            f"infercost compress --sparsity {SPARSITY}",
            case.command("compress", "--sparsity", SPARSITY, "--storage", "bitmap", "--kernel"),
        ),
    )


def _dense(case: Case) -> Case:
    """The case in the model's 16-bit type, or as it was asked for in a type that can be stored sparse."""
    own = case.setting.recipe.name
    return case if own in ("fp16", "bf16") else case.stored("bf16")


def semi_structured_pruning(asked: Asked) -> Explained:
    case = asked.at()
    dense = _dense(case)
    name = dense.setting.recipe.name
    bits = find_format(name).value_bits
    two = storage("2:4", 0.5)
    sparse = dense.stored(f"{name}-2:4")
    point = ridge(case.gpu, default_dtype(case.gpu)).datasheet
    gain = case.gpu.sparsity or 1
    letters = (
        Letter("b", int(bits), f"bits of a value, {name}"),
        Letter("i", two.index_bits, "bits of where it stood"),
    )
    return Explained(
        case,
        "2·(b + i) / 4",
        letters,
        two.bits(bits),
        "bits",
        "NVIDIA's 2:4, arXiv 2104.08378, section 3; SparseGPT, arXiv 2301.00774; seed ledger, prune.24",
        bill=(
            Line("bits of a weight", "", bits, two.bits(bits)),
            Line("weights", "bytes", dense.weights().weight_bytes, sparse.weights().weight_bytes),
            Line("peak, over the dense one", "", 1, gain),
            *times("decode step", dense.decode_cost(), sparse.decode_cost()),
            *times("prefill", dense.prefill_cost(), sparse.prefill_cost()),
        ),
        sides=("dense", "2:4"),
        differs=f"{percent(two.bits(bits) / bits)} of the bytes, not a half: each value keeps a 2-bit "
        f"index; the ridge moves from {number(point)} to {number(point * gain)} FLOP/byte",
        price="half of each group of four, wherever the large values are; and a part whose matrix units "
        "skip zeros",
        commands=(case.command("compress", "--storage", "2:4"),),
    )


def distillation(asked: Asked) -> Explained:
    case = asked.at(model="llama-2-70b")
    student = case.of(load_model(STUDENT)).stored(default_recipe(load_model(STUDENT)))
    teacher_p, student_p = case.model.active_parameters, student.model.active_parameters
    taught, trained = teaching_flops(teacher_p, TOKENS), training_flops(student_p, TOKENS)
    args = ("--teacher", case.model_name, "--student", STUDENT, "--tokens", "10B", "--gpu", case.gpu_name)
    letters = (
        Letter("Pt", teacher_p, f"parameters of the teacher, {case.model.name}", "parameters"),
        Letter("Ps", student_p, f"parameters of the student, {STUDENT}", "parameters"),
    )
    return Explained(
        case,
        "2·Pt / (6·Ps)",
        letters,
        taught / trained,
        "times the student's own training",
        "Hinton et al., arXiv 1503.02531; seed 001, section 6; seed ledger, distil",
        bill=(
            Line("training on 10 B tokens", "FLOP", trained, trained + taught),
            Line("weights that serve", "bytes", case.weights().weight_bytes, student.weights().weight_bytes),
            Line(
                "decode step that serves, bound", "s", case.decode_cost().bound, student.decode_cost().bound
            ),
        ),
        sides=("student alone, or teacher", "distilled student"),
        differs="soft labels cost the teacher's forward pass; where they are kept they are "
        f"{size(soft_label_bytes(case.model.vocab))} a token; a black box ({params(teacher_p)} parameters "
        "or an API) is paid for the text it writes instead",
        price="the student's training, and data it is taught on",
        commands=(
            shlex.join(("infercost", "compress", "--distil", *args)),
            "infercost compress --distil --teacher 70b --student 7b --tokens 10B",
        ),
    )
