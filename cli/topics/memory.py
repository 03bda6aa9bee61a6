"""What is held in memory: the cache, the weights, and both at the fullest moment."""

from __future__ import annotations

import shlex

from ...costmodel.kv import cache_groups
from ...costmodel.memory import CHUNK_TOKENS, Load
from ...models.attention import Attention
from ...models.formats import Format
from ..text import count, percent, size, size_both
from .asked import Asked, Case
from .explained import Explained, Letter, Line, summed

NARROW = "bnb-nf4"
"""The recipe that weights are compared with."""


def kv(asked: Asked) -> Explained:
    case = asked.at(tokens=4096)
    bill = case.cache()
    formula, letters = cache_formula(case)
    hidden = 2 * len(case.model.layers) * case.batch * case.tokens * case.model.hidden
    again, kept = case.request.token_passes(cache=False), case.request.token_passes()
    return Explained(
        case,
        formula,
        letters,
        bill.logical_bytes,
        "bytes",
        "seed 000, section 7; Pope et al., arXiv 2211.05102",
        bill=(
            Line(f"tokens that pass the model for {count(case.gen)} out", "", again, kept),
            Line("held between steps", "bytes", 0, bill.logical_bytes),
            Line("read by a decode step", "bytes", 0, bill.logical_bytes),
        ),
        sides=("without a cache", "with it"),
        differs="2·L·B·T·H (seed 003) counts elements and takes the hidden width for K·D: "
        f"{count(hidden)}, where {count(bill.elements)} are kept; the textbook's GB are GiB; a window, a "
        "latent or a state caps it",
        price=f"{size(bill.bytes_per_token)} a token and sequence, read again by every step",
        commands=(
            case.command("kv", "--seq", case.tokens, "--batch", case.batch),
            case.command("request", "--prompt", case.tokens, "--gen", 16, "--no-cache"),
        ),
    )


def cache_formula(case: Case) -> tuple[str, tuple[Letter, ...]]:
    """The cache of a case in letters: the field's formula where all layers keep alike rows of K and V, else a
    sum over what keeps it."""
    bill, caches = case.cache(), cache_groups(case.model)
    cache = caches[0][0]
    if len(caches) == 1 and _plain(case.model.layers[0].blocks[0], case.kv) and cache.stored:
        _, heads, width = cache.row_shapes(case.tokens)[0]
        each = case.kv.row_bytes(width) / width
        letters = [
            Letter("L", caches[0][1], "layers"),
            Letter("B", case.batch, "sequences"),
            Letter("T", case.tokens, "tokens of each"),
            Letter("K", heads, "KV heads"),
            Letter("D", width, "width of a head"),
            Letter(
                "b",
                int(each) if each.is_integer() else each,
                f"bytes of a value, {case.kv.name}, scales included",
            ),
        ]
        _, window = cache.label
        if window is None:
            return "2·L·B·T·K·D·b", tuple(letters)
        letters.insert(3, Letter("W", window, "window"))
        return "2·L·B·min(T, W)·K·D·b", tuple(letters)
    parts, found = [], [Letter("B", case.batch, "sequences")]
    for n, group in enumerate((g for g in bill.groups if g.growing_bytes), 1):
        capped = "" if group.window is None else f", window {count(group.window)}"
        what = f"{group.layers} x {group.kind.replace('_', ' ')}{capped}"
        parts.append(f"T{n}·r{n}")
        found += [
            Letter(f"T{n}", group.tokens, f"tokens kept by {what}"),
            Letter(f"r{n}", group.bytes_per_token, "bytes a token takes in all of them", "bytes"),
        ]
    if bill.state_bytes or not parts:
        parts.append("S")
        found.append(Letter("S", bill.state_bytes // case.batch, "fixed states of a sequence", "bytes"))
    return f"B·({' + '.join(parts)})", tuple(found)


def _plain(block: object, fmt: Format) -> bool:
    return isinstance(block, Attention) and block.v_width == block.head_dim


def weights(asked: Asked) -> Explained:
    case = asked.at()
    bill = case.weights()
    by_format: dict[str, list[int]] = {}
    for part in bill.components:
        sums = by_format.setdefault(part.format, [0, 0])
        sums[0], sums[1] = sums[0] + part.parameters, sums[1] + part.bytes
    letters: list[Letter] = []
    parts = []
    for n, (name, (held, taken)) in enumerate(by_format.items(), 1):
        mark = str(n) if len(by_format) > 1 else ""
        parts.append(f"n{mark}·b{mark}/8")
        letters.append(Letter(f"n{mark}", held, f"parameters in {name}"))
        letters.append(Letter(f"b{mark}", taken * 8 / held, f"bits of one, {name}, scales included"))
    sixteen, narrow = (case.stored(name).weights() for name in ("bf16", NARROW))
    saved = 1 - narrow.weight_bytes / sixteen.weight_bytes
    return Explained(
        case,
        " + ".join(parts),
        tuple(letters),
        bill.weight_bytes,
        "bytes",
        "seed 000, section 13; seed ledger, w.7b.fp16 and t93; the model's sheet",
        bill=(
            Line("in memory", "bytes", bill.weight_bytes, narrow.weight_bytes),
            Line("read by a decode step", "bytes", bill.read_bytes_per_step, narrow.read_bytes_per_step),
        ),
        sides=(case.setting.recipe.name, NARROW),
        differs=f"a name is not a count: {count(bill.parameters)} parameters are "
        f"{size_both(sixteen.weight_bytes)} in 16 bit; {NARROW} leaves embeddings, head and norms in 16 "
        f"bit, so that 4 bit save {percent(saved)} and not 75 %; a step reads "
        f"{size(bill.read_bytes_per_step)} of them, for rows of the input table are looked up",
        commands=(case.command("weights", "--batch", case.batch),),
        scope="model",
    )


def params(asked: Asked) -> Explained:
    case = asked.at()
    by_component: dict[str, int] = {}
    for part in case.weights().components:
        by_component[part.name] = by_component.get(part.name, 0) + part.parameters
    letters = tuple(Letter(name, held, f"of {name.replace('_', ' ')}") for name, held in by_component.items())
    model = case.model
    rule = 12 * len(model.layers) * model.hidden**2 + model.vocab * model.hidden
    return Explained(
        case,
        summed(letters),
        letters,
        model.parameters,
        "parameters",
        f"counted tensor by tensor from the sheet: {model.source}",
        differs=f"the rule of thumb 12·L·H² + V·H gives {count(rule)} "
        f"({percent(rule / model.parameters - 1)} off): it is of an FFN of 4H without a gate and of as "
        f"many KV heads as heads; a token uses {count(model.active_parameters)}",
        commands=(shlex.join(("infercost", "models", "show", case.model_name)),),
        scope="model",
    )


def memory(asked: Asked) -> Explained:
    case = asked.at(tokens=4096)
    held = Load(case.tokens, case.batch, 1, encoder=case.encoder).memory(case.setting)
    letters = (
        Letter("W", held.weights, f"weights in {case.setting.recipe.name}", "bytes"),
        Letter("C", held.cache, f"cache of all sequences in {case.kv.name}", "bytes"),
        Letter(
            "A", held.activations, f"widest moment of a step of at most {count(CHUNK_TOKENS)} tokens", "bytes"
        ),
    )
    capacity = case.gpu.capacity_bytes
    room = f"; {case.gpu.title} holds {size_both(capacity)}" if capacity else ""
    return Explained(
        case,
        "W + C + A",
        letters,
        held.total,
        "bytes",
        "seed 000, sections 7 and 13; seed ledger, kv.context_claims",
        differs="textbooks add weights and cache; a prefill's widest moment comes on top, and what no "
        f"formula knows: context, NCCL, CUDA graphs, fragments{room}",
        commands=(case.command("fit", "--seq", case.tokens, "--batch", case.batch),),
    )
