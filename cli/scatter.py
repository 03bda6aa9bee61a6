"""Predicted against measured times as braille dots on log-log axes, the diagonal through them."""

from __future__ import annotations

from typing import Any

from .braille import Canvas

COLUMNS, ROWS = 56, 20
NAMES = {-7: "100 ns", -6: "1 us", -5: "10 us", -4: "100 us", -3: "1 ms", -2: "10 ms", -1: "100 ms", 0: "1 s"}


def scatter(counts: Any, decades: tuple[float, float]) -> str:
    """`counts[predicted, measured]` over log10 seconds between `decades`, cropped to what is there."""
    low, high = decades
    bins = len(counts)
    used = [i for i in range(bins) if counts[i].any() or counts[:, i].any()]
    if not used:
        return ""
    step = (high - low) / bins
    first = (
        int(low + step * used[0] // 1)
        if low + step * used[0] >= 0
        else -int(-(low + step * used[0]) // 1 + 1)
    )
    last = min(int(high), int(-(-(low + step * (used[-1] + 1)) // 1)))
    canvas = Canvas(COLUMNS, ROWS)

    def at(value: float, most: int) -> float:
        return (value - first) / (last - first) * most

    canvas.line(0, canvas.height - 1, canvas.width - 1, 0, dash=3)
    for predicted, measured in zip(*counts.nonzero(), strict=True):
        x = at(low + step * (measured + 0.5), canvas.width - 1)
        y = canvas.height - 1 - at(low + step * (predicted + 0.5), canvas.height - 1)
        canvas.dot(x, y)
    labels = {
        round(canvas.height - 1 - at(decade, canvas.height - 1)) // 4: NAMES.get(decade, f"1e{decade} s")
        for decade in range(first, last + 1)
    }
    margin = max(len(label) for label in labels.values())
    lines = ["predicted"]
    lines += [f"{labels.get(i, ''):>{margin}} ┤{line.rstrip()}" for i, line in enumerate(canvas.lines())]
    axis, names = ["─"] * COLUMNS, [" "] * (COLUMNS + 8)
    for decade in range(first, last + 1):
        column = round(at(decade, canvas.width - 1)) // 2
        axis[column] = "┴"
        text = NAMES.get(decade, f"1e{decade} s")
        start = max(0, column - len(text) // 2)
        names[start : start + len(text)] = list(text)
    lines.append(f"{'':>{margin}} └{''.join(axis)}")
    lines.append(f"{'':>{margin}}  {''.join(names).rstrip()}")
    lines.append(f"{'':>{margin}}  {'measured':>{COLUMNS}}")
    return "\n".join(lines)
