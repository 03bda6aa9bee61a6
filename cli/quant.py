"""`infercost quant`: quantisation, from a few numbers to a whole model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .. import InputError
from . import options as o
from .groups import grouped
from .inputs import SHAPE, WhatIf, choice, models
from .output.report import Report, Sink, emit
from .sizes import byte_size, share, tokens, words

if TYPE_CHECKING:
    from ..costmodel.schemes import Use
from .unused import given, refuse, refuse_others

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

BITS, GROUP = 8, 128
RULE_BITS = "2,3,4,8,16"
RANGES = ("--symmetric", "--asymmetric", "--zero-point", "--range", "--per", "--group")
NUMBERS = ("--bits", *RANGES, "--activations", "--alpha", "--threshold")
MODES: dict[str, tuple[str, ...]] = {
    "--values": NUMBERS,
    "--tensor": NUMBERS,
    "--model": (
        *("--gpu", "--seq", "--batch", "--weights", "--kv", "--scheme", "--outliers", "--rank"),
        *("--encoder-seq", "--calibration", *SHAPE),
    ),
    "--scheme": ("--outliers", "--rank"),
    "--same-memory": ("--bits", "--gpu"),
    "--formats": (),
}
"""What is asked, and the options that belong to it."""


@app.command()
@grouped
def quant(
    ctx: typer.Context,
    *,
    values: Annotated[
        str | None,
        typer.Option("--values", help="Numbers to quantise: 1.2,2.4,3.6; rows between semicolons."),
    ] = None,
    tensor: Annotated[
        str | None, typer.Option("--tensor", help="A .npy or .csv file to quantise; rows are channels.")
    ] = None,
    activations: Annotated[
        str | None,
        typer.Option(
            "--activations", help="X of Y = X Wᵀ, a file like --tensor's: outliers, LLM.int8(), SmoothQuant."
        ),
    ] = None,
    alpha: Annotated[
        float | None, typer.Option("--alpha", help="SmoothQuant's share that moves to the weights (0.5).")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option("--threshold", help="From which magnitude LLM.int8() sees an outlier (6).")
    ] = None,
    bits: Annotated[
        str | None,
        typer.Option("--bits", help="Bits of a code, 2 to 16 (8); of --same-memory a list (2,3,4,8,16)."),
    ] = None,
    symmetric: Annotated[
        bool, typer.Option("--symmetric", "--sym", help="Range ±max|x| and no zero point.")
    ] = False,
    asymmetric: Annotated[
        bool, typer.Option("--asymmetric", "--asym", help="Range min to max, with a zero point (default).")
    ] = False,
    zero_point: Annotated[
        str | None,
        typer.Option("--zero-point", help="round (default), or truncate as the textbook's code does."),
    ] = None,
    code_range: Annotated[
        str | None,
        typer.Option("--range", help="Symmetric codes: full (-128 to 127, default) or restricted (±127)."),
    ] = None,
    per: Annotated[
        str | None, typer.Option("--per", help="A scale for each tensor (default), channel or group.")
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", help="Values that share a scale (128); asks for --per group.")
    ] = None,
    model: o.Model = None,
    gpu: o.Gpu = "a100",
    seq: o.Seq = None,
    batch: o.Batch = "1",
    weights: o.Weights = None,
    kv_format: o.Kv = None,
    scheme: Annotated[
        str | None,
        typer.Option(
            "--scheme", help="llm-int8, smoothquant (w8a8), gptq, awq, lora-2bit, several of them, or all."
        ),
    ] = None,
    outliers: Annotated[
        str | None,
        typer.Option(
            "--outliers", help="Share in 16 bit: columns of llm-int8 (0.1%), weights awq could keep (1%)."
        ),
    ] = None,
    rank: Annotated[
        int | None, typer.Option("--rank", help="Rank of the adapters of lora-2bit (64).")
    ] = None,
    same_memory: Annotated[
        str | None,
        typer.Option("--same-memory", help="Bytes (30GB, 24GiB): which models fill them at which bits."),
    ] = None,
    formats: Annotated[
        bool, typer.Option("--formats", help="List the bits per weight of every format.")
    ] = False,
    encoder_seq: o.EncoderSeq = None,
    calibration: o.CalibrationOption = "auto",
    what_if: WhatIf,
    sink: Sink,
) -> None:
    """Quantisation: codes and error of given numbers; formats and schemes compared on a model.

    \b
    infercost quant --values 1.2,2.4,3.6,11.2,12.4,13.6 --bits 8
    infercost quant --tensor weight.npy --bits 4 --symmetric --per group --group 128
    infercost quant --tensor weight.npy --activations inputs.npy
    infercost quant --model llama-7b --gpu a100 --seq 2k
    infercost quant --model llama-3-8b --gpu h100 --seq 8k --weights bf16,q8_0,q4_k_m --kv bf16,fp8
    infercost quant --scheme llm-int8 --outliers 0.1%
    infercost quant --same-memory 30GB --bits 4,8
    infercost quant --formats
    """
    sink.chosen()
    mode = _mode(ctx)
    part = None if outliers is None else share(outliers, "--outliers")
    report: Report
    if mode in ("--values", "--tensor") and (activations, alpha, threshold) != (None, None, None):
        from .quant_products import products_report
        from .tensors import read, typed

        if activations is None:
            raise InputError("--alpha and --threshold are of a product: give --activations")
        why = "both are symmetric, by row, restricted range"
        refuse(ctx, f"{mode} --activations", RANGES, why)
        weight = typed(values) if values is not None else read(tensor or "", "--tensor")
        report = products_report(
            read(activations, "--activations"), weight, _whole(bits or str(BITS)), threshold, alpha
        )
    elif mode in ("--values", "--tensor"):
        from ..costmodel.quantization import Scheme
        from .quant_numbers import numbers_report
        from .tensors import read, typed

        if symmetric and (asymmetric or zero_point is not None):
            other = "--asymmetric" if asymmetric else "--zero-point"
            raise InputError(f"--symmetric has no zero point: it does not go with {other}")
        if code_range is not None and not symmetric:
            raise InputError("--range belongs to --symmetric, which is not asked for")
        how = per or ("group" if group is not None else "tensor")
        choice(how, ("tensor", "channel", "group"), "--per")
        if group is not None and how != "group":
            raise InputError(f"--group belongs to --per group, not to --per {how}")
        chosen = Scheme(
            _whole(bits or str(BITS)),
            symmetric,
            choice(zero_point or "round", ("round", "truncate"), "--zero-point"),
            choice(code_range or "full", ("full", "restricted"), "--range"),
        ).checked()
        rows = typed(values) if values is not None else read(tensor or "", "--tensor")
        origin = "--values" if values is not None else str(tensor)
        report = numbers_report(rows, origin, chosen, how, tokens(group or str(GROUP), "--group"))
    elif mode == "--model":
        from .quant_models import Asked, models_report

        report = models_report(
            Asked(
                models(model, what_if, "quant"),
                gpu,
                seq,
                batch,
                weights,
                kv_format,
                None if scheme is None else _schemes(scheme),
                part,
                rank,
                encoder_seq,
                calibration,
                what_if.given(),
            )
        )
    elif mode == "--scheme":
        from .quant_tables import schemes_report

        report = schemes_report([_use(name, part, rank) for name in _schemes(scheme or "all")])
    elif mode == "--same-memory":
        from .quant_tables import rule_report

        wanted = [_whole(word) for word in words(bits or RULE_BITS, "--bits")]
        report = rule_report(byte_size(same_memory or "", "--same-memory"), wanted, gpu)
    else:
        from .quant_tables import formats_report

        report = formats_report()
    emit(report, sink)


def _mode(ctx: typer.Context) -> str:
    """What is asked for; options that belong to something else are refused."""
    named = [name for name in given(ctx) if name in MODES]
    questions = [name for name in named if name != "--scheme"]
    if len(questions) > 1:
        raise InputError(f"{questions[0]} and {questions[1]} are two questions; ask one at a time")
    if not named:
        raise InputError(
            "quant needs something to quantise: --values or --tensor, --model, --scheme, --same-memory, or "
            "--formats"
        )
    mode = (questions or named)[0]
    refuse_others(ctx, mode, MODES)
    return mode


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 4):
        raise InputError(f"--bits '{text[:40]}' is not a number of bits such as 8")
    return int(text)


def _schemes(text: str) -> list[str]:
    from ..costmodel.schemes import METHODS

    return [method.name for method in METHODS] if text.strip() == "all" else words(text, "--scheme")


def _use(name: str, part: float | None, rank: int | None) -> Use:
    from ..costmodel.schemes import find_method, use

    return use(find_method(name), part, rank)
