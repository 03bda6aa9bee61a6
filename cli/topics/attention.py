"""Ways of attention: fewer KV heads, scores that stay on the chip, windows."""

from __future__ import annotations

from dataclasses import replace

from ... import InputError
from ...costmodel import flash_io
from ...costmodel.attention import visited_pairs
from ...costmodel.forward import ops
from ...costmodel.op import Attend, Op
from ...costmodel.roofline import floor_s, intensity
from ...models.attention import Attention
from ...models.spec import Layer, Model
from ..text import count, number
from .asked import Asked, Case
from .explained import Explained, Letter, Line, times

REACHED = 0.7
"""Share of the roof that a FlashAttention kernel is taken to reach. An assumption, the ledger's."""


def attention_of(model: Model, topic: str) -> Attention:
    """The first attention block. Raises InputError for a model without any."""
    for layer, _ in model.groups:
        for block in layer.blocks:
            if isinstance(block, Attention):
                return block
    raise InputError(f"explain {topic}: {model.name} has no plain attention layer")


def gqa(asked: Asked) -> Explained:
    case = asked.at(tokens=4096)
    block = attention_of(case.model, "gqa")
    few = block.kv_heads if block.kv_heads < block.heads else max(1, block.heads // 4)
    return _shared(case, block, few, "GQA, arXiv 2305.13245; seed 000, section 9; seed 003, section 3")


def mqa(asked: Asked) -> Explained:
    case = asked.at(tokens=4096)
    block = attention_of(case.model, "mqa")
    return _shared(case, block, 1, "Fast transformer decoding, arXiv 1911.02150; seed 000, section 9")


def _shared(case: Case, block: Attention, kv_heads: int, source: str) -> Explained:
    """Every attention layer with as many KV heads as heads, and with `kv_heads`."""
    before, after = (case.of(case.model.with_attention(kv_heads=k)) for k in (block.heads, kv_heads))
    letters = (Letter("K", kv_heads, "KV heads"), Letter("N", block.heads, "query heads"))
    scores = [_attending(each, step="decode") for each in (before, after)]
    lines = [
        Line("cache of a token", "bytes", before.cache().bytes_per_token, after.cache().bytes_per_token),
        Line("cache", "bytes", before.cache().logical_bytes, after.cache().logical_bytes),
        Line("weights", "bytes", before.weights().weight_bytes, after.weights().weight_bytes),
        Line("FLOPs of scores and values, decode step", "FLOP", *(_flops(each) for each in scores)),
        Line("intensity of decode attention", "FLOP/byte", *(intensity(each[0]) for each in scores)),
        *times("decode step", before.decode_cost(), after.decode_cost()),
    ]
    return Explained(
        case,
        "K / N",
        letters,
        kv_heads / block.heads,
        "",
        source,
        bill=tuple(lines),
        sides=(f"{block.heads} KV heads", f"{kv_heads} KV heads" if kv_heads > 1 else "1 KV head"),
        differs="compute does not fall to K/N: the K and V projections and the cache do, scores and "
        "values stay, so decode attention's intensity rises by N/K; of Llama 2 only the 34B and the 70B "
        "have it",
        price="a multi-head checkpoint does not convert as it stands: heads are mean-pooled and trained "
        "on, about 5 % of the pre-training compute (as the GQA paper reports)",
        commands=(
            case.command("kv", "--seq", case.tokens, "--kv-heads", kv_heads),
            case.command("ops", "--phase", "decode", "--seq", case.tokens, "--kv-heads", kv_heads),
        ),
    )


def _attending(case: Case, step: str) -> list[Op]:
    """Attention operations of a prefill or a decode step."""
    plan = case.setting.plan(case.decode_step if step == "decode" else case.prompt_step)
    return [op for op in ops(plan) if isinstance(op.work, Attend)]


def _flops(found: list[Op]) -> int:
    return sum(op.matmul_flops for op in found)


def flashattention(asked: Asked) -> Explained:
    case = asked.at(tokens=2048, batch=8)
    block = attention_of(case.model, "flashattention")
    if block.v_width != block.head_dim:
        raise InputError(f"explain flashattention: {case.model.name} has K and V of different widths")
    run = case.setting.run
    one = case.of(replace(case.model, layers=(_plain_layer(case.model, block),)))
    causal = _attending(one, "prefill")[0].work
    whole = _attending(
        one._replace(setting=one.setting._replace(run=replace(run, full_attention=True))), "prefill"
    )
    full = whole[0].work
    assert isinstance(causal, Attend)
    assert isinstance(full, Attend)
    tokens, width, gpu = case.tokens, block.head_dim, case.gpu
    scores = case.batch * block.heads * tokens**2 * full.activation_bytes
    eager, flash = case.attending("eager"), case.attending("flash")
    standard = flash_io.standard_elements(tokens, width)
    hf = flash_io.eager_floor_s(full, gpu, flash_io.HF_EAGER_SCORE_BYTES)
    naive = flash_io.eager_floor_s(full, gpu, flash_io.FP16_SCORE_BYTES)
    lines = (
        Line("scores in memory, a layer", "bytes", scores, case.batch * block.heads * tokens * 4),
        Line("elements of a head moved, FA1", "", standard, flash_io.flash1_elements(tokens, width)),
        Line("elements of a head moved, FA2", "", standard, flash_io.flash2_elements(tokens, width)),
        Line(
            "elements of a head moved, FA2 causal",
            "",
            standard,
            flash_io.flash2_elements(tokens, width, causal=True),
        ),
        Line("the least, where re-reads hit L2", "", standard, flash_io.compulsory_elements(tokens, width)),
        Line("a layer's least time, 4 fp16 passes", "s", naive, floor_s(full, gpu)),
        Line("a layer's, transformers' eager", "s", hf, floor_s(causal, gpu)),
        Line(f"that, {REACHED:.0%} of the roof (assumed)", "s", hf, floor_s(causal, gpu) / REACHED),
        *times("prefill", eager.prefill_cost(), flash.prefill_cost()),
    )
    letters = (
        Letter("B", case.batch, "sequences"),
        Letter("N", block.heads, "heads"),
        Letter("T", tokens, "tokens"),
        Letter("b", full.activation_bytes, "bytes of a score"),
    )
    return Explained(
        case,
        "B·N·T^2·b",
        letters,
        scores,
        "bytes",
        "FlashAttention, arXiv 2205.14135; FlashAttention-2, arXiv 2307.08691; seed 000, sections 11 and "
        "12; seed 001, section 3; seed ledger, fa",
        bill=lines,
        sides=("eager", "FlashAttention"),
        differs="2-4 times (seed 000) and ten times (seed 001) differ by what they are held against: "
        f"{number(naive / floor_s(full, gpu))} times four fp16 passes over the full square, "
        f"{number(hf / floor_s(causal, gpu))} times transformers' eager, which moves "
        f"{flash_io.HF_EAGER_SCORE_BYTES} bytes a score and skips no mask; the FLOPs are the same, but "
        "for the masked half",
        price="scores are computed again in training's backward pass; in inference nothing",
        commands=(
            case.command("ops", "--phase", "prefill", "--seq", tokens, "--batch", case.batch),
            case.command(
                "ops",
                "--phase",
                "prefill",
                "--seq",
                tokens,
                "--batch",
                case.batch,
                "--attention",
                "eager",
            ),
        ),
    )


def _plain_layer(model: Model, block: Attention) -> Layer:
    """A layer of this attention alone, without a window."""
    layer = next(layer for layer, _ in model.groups if block in layer.blocks)
    return replace(layer, blocks=(replace(block, window=None, shared_from=None, weights_of=None),))


def sliding_window(asked: Asked) -> Explained:
    case = asked.at(tokens=32768)
    windows = [
        block.window
        for layer, _ in case.model.groups
        for block in layer.blocks
        if isinstance(block, Attention) and block.window is not None
    ]
    attention_of(case.model, "sliding-window")
    window = min(windows, default=4096)
    before = case.of(case.model.with_attention(window=None))
    after = case if windows else case.of(case.model.with_attention(window=window))
    letters = (Letter("T", case.tokens, "tokens"), Letter("W", window, "window"))
    # A model that has windows of its own is asked for as it is.
    words = () if windows and not case.what_if else ("--window", window)
    pairs = [visited_pairs(case.tokens, 0, w) for w in (None, window)]
    return Explained(
        case,
        "min(T, W) / T",
        letters,
        min(case.tokens, window) / case.tokens,
        "",
        "Mistral 7B, arXiv 2310.06825, section 2; Longformer, arXiv 2004.05150; seed ledger, swa",
        bill=(
            Line("cache", "bytes", before.cache().logical_bytes, after.cache().logical_bytes),
            Line("query-key pairs of a windowed layer", "", *pairs),
            Line(
                "matrix FLOPs of the prefill",
                "FLOP",
                *(c.prefill_cost().matmul_flops for c in (before, after)),
            ),
            *times("prefill", before.prefill_cost(), after.prefill_cost()),
            *times("decode step", before.decode_cost(), after.decode_cost()),
        ),
        sides=("full attention", f"window {count(window)}"),
        differs="a window caps the cache of the layers that have one: where they alternate with full "
        "ones, those go on growing",
        price="what is outside the window is seen only through the layers below",
        commands=(
            case.command("kv", "--seq", case.tokens, *words),
            case.command("request", "--prompt", case.tokens, *words),
        ),
    )
