"""Fewer passes of the large model: drafts, heads, early exits, cascades."""

from __future__ import annotations

from dataclasses import replace

from ...costmodel.cascade import Cascade
from ...costmodel.early_exit import at_every, weight_reads
from ...costmodel.early_exit import early_exit as early_exit_of
from ...costmodel.speculative import (
    Speculation,
    Verified,
    expected_tokens,
    free_tokens,
    layer_draft,
    medusa_draft,
    operations,
    target_model,
    tree_tokens,
)
from ...costmodel.weights import weight_bill
from ..text import count, number, size
from .asked import Asked, Case
from .explained import Explained, Letter, Line

ALPHA, GAMMA = 2 / 3, 3
"""The seed's walk-through: 6 of 9 examined tokens are right, 3 drafted a round."""
HEADS = (0.75, 0.5)
"""What two Medusa heads are right in: the ledger's assumption."""
EVERY, LEAVING = 4, 0.1
"""Layers between two heads that are asked, and the share that leaves at each. An assumption."""
CASCADE = Cascade((1.0, 10.0), (0.6,), 0.05)
"""A small model at a tenth of the price that answers 60 %, a scorer at a twentieth of it: the ledger's."""


def speculative_decoding(asked: Asked) -> Explained:
    case = asked.at()
    target_model(case.model)
    speculation = Speculation(case.setting, layer_draft(case.setting, "eagle"), case.batch, case.tokens)
    found = speculation.lengths(ALPHA, [GAMMA])[0]
    letters = (
        Letter("α", ALPHA, "a drafted token is right (assumed: the seed's walk-through)"),
        Letter("γ", GAMMA, "tokens drafted a round"),
    )
    draft = found.passes.draft
    assert draft is not None
    share = draft.matmul_flops / found.passes.plain.matmul_flops
    blow_up = operations(expected_tokens(ALPHA, GAMMA), GAMMA, share, GAMMA + 1)
    return Explained(
        case,
        "(1 - α^(γ + 1)) / (1 - α)",
        letters,
        expected_tokens(ALPHA, GAMMA),
        "tokens a pass",
        "Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318; seed 001, section 4; seed "
        "ledger, sp.leviathan",
        bill=(*_rounds(speculation, found), Line("FLOPs of a token, over plain ones", "", 1, blow_up)),
        sides=("plain", "drafted"),
        differs=f"a verify pass is free only while it waits for memory: {count(case.batch * (GAMMA + 1))} "
        f"tokens against {number(free_tokens(case.setting))} on {case.gpu.title}; identical output holds "
        "for greedy tokens but for rounding, sampled ones are of the same distribution",
        price="one layer like the last drafts here (EAGLE's way), kernels alone: a host that launches "
        "them adds its time",
        commands=(
            case.command("speculate", "--draft", "eagle", "--alpha", "0.667", "--gamma", GAMMA),
            "infercost speculate --walk 2,0,1,3",
        ),
    )


def _rounds(speculation: Speculation, found: Verified) -> list[Line]:
    """A round against plain steps: passes, seconds of a token by kind, memory of the draft."""
    tokens = found.best.tokens
    lines = [Line("target passes of a token", "", 1, 1 / tokens)]
    for kind in ("bound", "expected"):
        each = found.rounds[kind]
        if each is not None:
            lines.append(Line(f"a token, {kind}", "s", each.step, each.cost / tokens))
    held, taken = speculation.target, speculation.memory()
    weights = weight_bill(held.model, held.recipe, speculation.batch).weight_bytes
    lines.append(Line("weights", "bytes", weights, weights + taken.weights))
    return lines


def medusa(asked: Asked) -> Explained:
    case = asked.at()
    target_model(case.model)
    ranks = [[share] for share in HEADS]
    tokens, nodes = tree_tokens(ranks, len(ranks) + 1)
    speculation = Speculation(case.setting, medusa_draft(case.setting, len(HEADS)), case.batch, case.tokens)
    found = speculation.verified(tokens, len(HEADS), nodes, speculation.passes(nodes))
    letters = tuple(
        Letter(f"p{n}", share, f"head {n} is right, those before it being so (assumed)")
        for n, share in enumerate(HEADS, 1)
    )
    each = speculation.memory().weights // len(HEADS)
    return Explained(
        case,
        "1 + p1 + p1·p2",
        letters,
        tokens,
        "tokens a pass",
        "Medusa, arXiv 2401.10774; seed 001, section 4; seed ledger, sp.medusa",
        bill=tuple(_rounds(speculation, found)),
        sides=("plain", f"{len(HEADS)} heads"),
        differs="a chain of each head's best guess; a tree of more guesses yields more, and each of its "
        f"tokens counts against the {number(free_tokens(case.setting))} that a pass verifies free",
        price=f"{size(each)} of weights for each head (H·H + H·V in 16 bit), trained on the model's own text",
        commands=(case.command("speculate", "--medusa", "0.75,0.5", "--tree", 26),),
    )


def early_exit(asked: Asked) -> Explained:
    case = asked.at()
    target_model(case.model)
    layers = len(case.model.layers)
    every = min(EVERY, layers - 1)
    often, sparse = at_every(layers, 1, 0.0), at_every(layers, every, LEAVING)
    reads = weight_reads(case.setting, often)
    found = early_exit_of(case.setting, sparse, case.batch, case.tokens)
    head, layer = _reads(case)
    letters = (
        Letter("h", head, "weights a head reads, with the last norm", "bytes"),
        Letter("l", layer, "weights of a layer, in the mean", "bytes"),
    )
    lines = [Line("weights read, a head at every layer, in layers", "", reads.full, reads.early)]
    for kind, whole in found.full.times().items():
        early = found.early[kind]
        if whole is not None and early is not None and kind != "floor":
            lines.append(
                Line(
                    f"step, {LEAVING:.0%} leave after each {every} layers (assumed), {kind}",
                    "s",
                    whole,
                    early,
                )
            )
    fill = found.fill["bound"] or 0.0
    lines.append(Line("of it keys and values of skipped layers, bound", "s", 0, fill))
    return Explained(
        case,
        "h / l",
        letters,
        reads.head,
        "layers",
        "CALM, arXiv 2207.07061; seed 001, section 4; seed ledger, ee.entropy",
        bill=tuple(lines),
        sides=("all layers", "early exit"),
        differs=f"asking a head is not free: it reads {number(reads.head)} of a layer. At every layer "
        f"tokens must leave before layer {number(reads.break_even_layer)} of {layers} in the mean for "
        "that to pay",
        price="skipped layers still need keys and values of the token; a batch leaves with its last sequence",
        commands=(case.command("speculate", "--every", every, "--exit-prob", LEAVING),),
    )


def _reads(case: Case) -> tuple[float, float]:
    """Weights a step reads of the head (with the last norm), and of a layer in the mean."""
    headed = replace(case.model, input_end=False)
    inner = replace(headed, output_end=False)
    whole, body = (case.of(each)._replace(batch=1).weights().read_bytes_per_step for each in (headed, inner))
    return whole - body, body / len(inner.layers)


def frugalgpt(asked: Asked) -> Explained:
    case = asked.at()
    (small, large), (accepted,) = CASCADE.costs, CASCADE.accepted
    letters = (
        Letter("c1", small, "an answer of the small model (assumed)"),
        Letter("c2", large, "an answer of the large model (assumed)"),
        Letter("p", accepted, "of the small model's answers are taken (assumed)"),
        Letter("j", CASCADE.scorer, "judging one"),
    )
    return Explained(
        case,
        "c1 + j + (1 - p)·c2",
        letters,
        CASCADE.mean,
        "of a cost",
        "FrugalGPT, arXiv 2305.05176; seed 001, section 4; seed ledger, cascade",
        bill=(
            Line("an answer, in the mean", "", large, CASCADE.mean),
            Line("an answer, at worst", "", large, CASCADE.worst),
        ),
        sides=("large model alone", "cascade"),
        differs="it pays where the small model's answers are taken more often than "
        f"{number(CASCADE.break_even)}; the latency of a request is the sum over the models it is asked of",
        price="a judge that knows a good answer; a request that goes all the way costs more than the "
        "large model alone",
        commands=(
            "infercost speculate --cascade 1,10 --accept 0.6 --scorer 0.05",
            "infercost speculate --cascade llama-3-8b,llama-3-70b --accept 0.6 --gpu h100 --tp 1,4",
        ),
        scope="nothing",
    )
