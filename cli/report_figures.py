"""The figures of a request in words: once for the headline and for every cell of the lattice."""

from __future__ import annotations

from typing import Any, NamedTuple

from .pace import best, rate, waits
from .text import seconds, size

FIGURES = {
    "memory": "Memory",
    "ttft": "Time to first token",
    "tpot": "Per output token",
    "e2e": "End to end",
    "rate": "Output tokens/s",
    "usd": "$ per million output",
    "prefill": "Prefill waits for",
    "decode": "Decode waits for",
}


class Figures(NamedTuple):
    """Words for each of FIGURES, whether it fits, and the bill in thousandths of the budget (or of itself
    where that is more): weights, cache, all else."""

    said: dict[str, str]
    fits: bool
    bill: tuple[int, ...]


def figures_of(point: dict[str, Any], terms: dict[str, int], budget_bytes: int) -> Figures:
    """`point`: of `infercost request`; `terms` and `budget_bytes`: of `infercost fit` at its last token."""
    total = sum(terms.values())
    fits = total <= budget_bytes
    usd = (point["usd_per_million"] or {}).get("output")
    said = {
        "memory": f"{size(total)} of {size(budget_bytes)}",
        "ttft": seconds(best(point["ttft_s"])),
        "tpot": seconds(best(point["tpot_s"])),
        "e2e": seconds(best(point["e2e_s"])),
        "rate": rate(point["output_tokens_per_s"]),
        "usd": "-" if usd is None else f"{usd:,.3g}",
        "prefill": waits(point["phases"].get("prefill")),
        "decode": waits(point["phases"].get("decode")),
    }
    weights, cache = (terms.get(name, 0) for name in ("weights", "cache"))
    share = max(budget_bytes, total, 1)
    parts = (weights, cache, total - weights - cache)
    return Figures(said, fits, tuple(round(1000 * part / share) for part in parts))
