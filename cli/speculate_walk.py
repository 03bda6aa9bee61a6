"""`infercost speculate --walk`: rounds of a draft and a target as they went."""

from __future__ import annotations

from typing import Any

from .. import InputError
from ..costmodel.speculative import MAX_DRAFT, Walk
from .inputs import document
from .output.report import Report, Table
from .sizes import tokens, words
from .speculate_options import Asked, number, ratios
from .text import count, plural

CONVENTIONS = {
    "tokens": "each round yields what it accepts and one token of the target's; a last round that accepts "
    "its whole draft ends the text there",
    "examined": "drafted tokens up to the first wrong one of each round; alpha is accepted / examined",
    "speedup": "tokens / (passes x verify_cost + drafted x draft_cost)",
}


def walk_report(asked: Asked) -> Report:
    """Rounds as they went."""
    assert asked.walk is not None
    accepted = tuple(_whole(part) for part in words(asked.walk, "--walk"))
    gamma = max(1, *accepted) if asked.gamma is None else tokens(asked.gamma, "--gamma")
    walked = Walk(accepted, gamma).checked()
    draft, verify = ratios(asked)
    mean = walked.round(draft, verify)
    found: dict[str, Any] = {
        "inputs": {"walk": list(accepted), "gamma": gamma, "draft_cost": draft, "verify_cost": verify},
        "tokens": walked.tokens,
        "passes": walked.passes,
        "drafted": walked.drafted,
        "accepted": walked.kept,
        "examined": walked.examined,
        "alpha": walked.kept / walked.examined,
        "tokens_per_round": mean.tokens,
        "passes_saved": walked.tokens - walked.passes,
        "speedup": mean.speedup,
        "break_even_draft_cost": mean.break_even_draft,
        "rounds": [
            {"accepted": each, "tokens": out} for each, out in zip(accepted, walked.yields, strict=True)
        ],
    }
    answer = (
        f"{plural(walked.tokens, 'token')} in {count(walked.passes)} pass{'es' * (walked.passes > 1)} of the "
        f"target instead of {walked.tokens}, {walked.drafted} drafted: {mean.speedup:.2f}x"
    )
    table = Table(("round", "drafted", "accepted", "of the target", "tokens"), "<>>>>")
    for index, (each, out) in enumerate(zip(accepted, walked.yields, strict=True), start=1):
        table.rows.append((count(index), count(gamma), count(each), count(out - each), count(out)))
    table.rows.append(
        (
            "together",
            count(walked.drafted),
            count(walked.kept),
            count(walked.tokens - walked.kept),
            count(walked.tokens),
        )
    )
    notes = [
        f"acceptance {walked.kept} of the {walked.examined} examined: {walked.kept / walked.examined:.3f} a "
        "token; what follows a wrong token is not examined",
        f"a draft pass costs {draft:g} of a step, a verify pass {verify:g}; nothing is gained at a draft "
        f"pass of {mean.break_even_draft:.4f}",
    ]
    if walked.yields[-1] == walked.gamma:
        notes.append("the last round accepts all and ends the text: the target's own token is the end mark")
    made = document("speculate", {"command": "speculate"}, CONVENTIONS, {}, [found], False)
    return Report(made, [answer], [table], notes, records=found["rounds"], quiet=[repr(mean.speedup)])


def _whole(text: str) -> int:
    value = number(text, "--walk", 0, MAX_DRAFT)
    if value % 1:
        raise InputError(f"--walk '{text[:40]}': accepted tokens of each round are whole, such as 2,0,1,3")
    return int(value)
