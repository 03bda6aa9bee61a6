"""Memory: the bill as stacked bars, and against the context until it is full."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..text import count, size
from .chart import Axis, Bar, Chart, Line, Point, Rule, bytes_name, doublings, tokens_name, upwards

TONES = {
    "weights": 0,
    "cache": 1,
    "activations": 2,
    "draft": 3,
    "context": 4,
    "nccl": 5,
    "graphs": 3,
    "other": 4,
}
MOST_BARS = 24
NAME = 34
"""Characters of a bar's name."""
LONGEST = 1 << 30


class Held(NamedTuple):
    """What one context takes: bytes by term."""

    tokens: int
    terms: Mapping[str, int]


def contexts(asked: int, longest: int | None) -> list[int]:
    """Lengths over which memory is drawn: powers of two and halfway to the next, around `asked` and as far as
    twice what fits."""
    last = max(asked, 2 * longest if longest else asked, 4096)
    last = min(1 << (last - 1).bit_length(), LONGEST, max(asked, 2) * 256)
    first = max(last >> 9, 1)
    powers = [1 << power for power in range(first.bit_length() - 1, last.bit_length())]
    between = [3 * power // 2 for power in powers[:-1] if power > 1]
    return sorted({*powers, *between, *([asked] if powers[0] <= asked <= powers[-1] else [])})


def bill_chart(points: Sequence[dict[str, Any]]) -> Chart:
    """The memory bill of each point of `infercost fit`, stacked, against the budget."""
    shown = points[:MOST_BARS]
    names = _names([point["inputs"] for point in shown])
    most = max(max(point["total_bytes"], point["budget_bytes"]) for point in shown)
    x = upwards("bytes of the fullest rank", most, bytes_name, binary=True)
    rows = len(shown)
    ticks = tuple((rows - i - 0.5, name[:NAME]) for i, name in enumerate(names))
    y = Axis("", 0, rows, ticks, log=False)
    bars = []
    for i, point in enumerate(shown):
        left = 0
        for term in point["terms"]:
            right = left + term["bytes"]
            tone = TONES.get(term["name"], 4)
            bars.append(Bar(term["name"], (left, rows - i - 0.8), (right, rows - i - 0.2), tone))
            left = right
    budgets = {point["budget_bytes"] for point in shown}
    rules = [Rule("x", value, f"budget {size(value)}") for value in budgets] if len(budgets) == 1 else []
    if len(budgets) > 1:
        thin = x.high / 400
        for i, point in enumerate(shown):
            low, high = point["budget_bytes"] - thin, point["budget_bytes"] + thin
            bars.append(Bar("budget", (low, rows - i - 0.95), (high, rows - i - 0.05), 5))
    first = shown[0]
    verdict = "fits" if first["fits"] else "does not fit"
    title = f"Memory bill: {first['inputs']['model']} on {first['inputs']['gpu']}"
    about = f"Stacked bars of {count(rows)} bills; the first takes {size(first['total_bytes'])} of "
    about += f"{size(first['budget_bytes'])} and {verdict}."
    return Chart(title, about, x, y, rules=tuple(rules), bars=tuple(bars), rows=2 + 3 * rows)


def _names(inputs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What tells the points apart, or the first one's weights and KV where there is one alone."""
    words = {
        "model": "{}",
        "gpu": "{}",
        "seq": "{} tokens",
        "batch": "{} at once",
        "weights": "{}",
        "kv": "KV {}",
    }
    keys = [key for key in words if len({each[key] for each in inputs}) > 1] or ["weights", "kv"]
    written = [
        [tokens_name(each[key]) if key in ("seq", "batch") else str(each[key]) for key in keys]
        for each in inputs
    ]
    return [
        ", ".join(words[key].format(text) for key, text in zip(keys, row, strict=True)) for row in written
    ]


def context_chart(title: str, held: Sequence[Held], budget: int, asked: int, longest: int | None) -> Chart:
    """Stacked areas of every term over the context, the budget, and where they cross; `asked` is marked."""
    x = doublings("tokens of each sequence", [each.tokens for each in held], tokens_name)
    totals = [sum(each.terms.values()) for each in held]
    here = next(total for each, total in zip(held, totals, strict=True) if each.tokens == asked)
    y = upwards(
        "bytes of the fullest rank", min(max(totals), max(budget * 1.6, here * 1.1)), bytes_name, True
    )
    names = [name for name in held[0].terms if any(each.terms.get(name) for each in held)]
    # What grows lies on what does not.
    names.sort(key=lambda name: held[-1].terms.get(name, 0) - held[0].terms.get(name, 0))
    lines = []
    stack = [0] * len(held)
    for name in names:
        stack = [low + each.terms.get(name, 0) for low, each in zip(stack, held, strict=True)]
        spots = tuple((each.tokens, high) for each, high in zip(held, stack, strict=True))
        lines.append(Line(name, spots, TONES.get(name, 4), filled=True))
    points = [Point(f"{tokens_name(asked)} tokens as asked: {size(here)}", asked, here, -1)]
    rules = [Rule("y", budget, f"budget {size(budget)}")]
    said = "any length fits"
    if longest is not None and longest:
        said = f"full at {count(longest)} tokens"
        if x.low <= longest <= x.high:
            rules.append(Rule("x", longest, said, budget))
    elif longest == 0:
        said = "not one token fits"
    about = f"Memory over the context, budget {size(budget)}: {said}."
    return Chart(title, about, x, y, tuple(lines), tuple(points), tuple(rules))


def cache_chart(
    title: str, kept: Sequence[tuple[str, Callable[[int], int]]], lengths: Sequence[int], pool: int | None
) -> Chart:
    """Bytes of KV cache and state over the context, a line for each function of the tokens, against a pool
    where one is given."""
    lines = [(name, [(tokens, held(tokens)) for tokens in lengths]) for name, held in kept]
    x = doublings("tokens of each sequence", list(lengths), tokens_name)
    values = [float(value) for _, line in lines for _, value in line if value] or [1.0]
    y = doublings("", [*values, *([pool] if pool else [])], bytes_name)
    rules = [Rule("y", pool, f"pool of {size(pool)}")] if pool else []
    for _, held in kept if pool else ():
        full = _full_at(held, pool or 0, lengths)
        if full:
            rules.append(Rule("x", full, f"full at {count(full)} tokens", pool))
    drawn = tuple(Line(name, tuple(line), i) for i, (name, line) in enumerate(lines))
    about = f"Cache and state over the context of {', '.join(name for name, _ in kept)}."
    return Chart(title, about, x, y, drawn, (), tuple(rules))


def _full_at(held: Callable[[int], int], pool: int, lengths: Sequence[int]) -> int | None:
    """The most tokens that a pool holds; None where that is not within `lengths`."""
    low, high = lengths[0], lengths[-1]
    if not held(low) <= pool < held(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if held(middle) <= pool else (low, middle)
    return low
