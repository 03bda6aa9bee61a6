"""Requests in time, and many of them: the time line, throughput against latency, cost against batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..text import count, plural, seconds, size
from .chart import (
    Axis,
    Bar,
    Chart,
    Line,
    Point,
    Rule,
    bytes_name,
    count_name,
    decades,
    doublings,
    plain_name,
    seconds_name,
    tokens_name,
    upwards,
)

LATENCIES = {"e2e_s": "end to end", "tpot_s": "time per output token", "ttft_s": "time to first token"}
BAND = 0.12
"""Share of the time line's height that says what runs."""


def timeline_chart(title: str, blocks: Sequence[Mapping[str, Any]]) -> Chart:
    """What runs when (prefill, decode steps), and the cache of all sequences as it fills."""
    end = blocks[-1]["end_s"]
    most = max(block["cache_bytes"] for block in blocks)
    x = Axis("since the request began", 0.0, end, upwards("", end / 1.05, seconds_name).ticks, log=False)
    y = upwards("KV cache and state", most, bytes_name, binary=True)
    y = y._replace(high=y.high / (1 - 1.5 * BAND))
    spots = [(blocks[0]["start_s"], 0.0 if blocks[0]["phase"] == "prefill" else float(most))]
    spots += [(block["end_s"], float(block["cache_bytes"])) for block in blocks]
    bars = []
    for tone, phase in enumerate(("prefill", "decode")):
        mine = [block for block in blocks if block["phase"] == phase]
        if mine:
            low, high = (mine[0]["start_s"], y.high * (1 - BAND)), (mine[-1]["end_s"], y.high)
            steps = sum(block["steps"] for block in mine)
            took = seconds(mine[-1]["end_s"] - mine[0]["start_s"])
            name = f"prefill {took}" if phase == "prefill" else f"{plural(steps, 'decode step')} {took}"
            bars.append(Bar(name, low, high, tone))
    about = f"Time line of {seconds(end)}: {', then '.join(bar.name for bar in bars)}; the cache ends at "
    about += f"{size(blocks[-1]['cache_bytes'])}."
    line = Line("cache", tuple(spots), 2, filled=True)
    return Chart(title, about, x, y, (line,), bars=tuple(bars), rows=10)


def curves(points: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """The points of `infercost serve`, curve by curve, named by what tells the curves apart."""
    rows = [{**point["inputs"], "policy": point["policy"]} for point in points]
    keys = [key for key in rows[0] if len({row[key] for row in rows}) > 1] or ["policy"] if rows else []
    out: dict[str, list[Mapping[str, Any]]] = {}
    for row, point in zip(rows, points, strict=True):
        out.setdefault(", ".join(str(row[key]) for key in keys), []).append(point)
    return out


def throughput_chart(
    title: str,
    points: Sequence[Mapping[str, Any]],
    latency: str = "e2e_s",
    limit_s: float | None = None,
    marked: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    rows: int = 16,
) -> Chart | None:
    """Output tokens per second of each GPU against `latency` (a key of LATENCIES), a line for each curve of
    three points or more; `limit_s` as a line, points `marked` by name. None where there is no such curve."""

    def at(point: Mapping[str, Any]) -> tuple[float, float]:
        return point[latency], point["output_tokens_per_s"] / point["devices"]

    found = {
        name: [point for point in line if point[latency] and point["output_tokens_per_s"]]
        for name, line in curves(points).items()
    }
    found = {name: line for name, line in found.items() if len(line) > 2}
    every = [at(point) for line in found.values() for point in line]
    if not all(_spread(values) for values in zip(*every, strict=True)) or not every:
        return None
    xs = [x for x, _ in every]
    x = decades(LATENCIES[latency], [*xs, *([limit_s] if limit_s else [])], seconds_name, whole=False)
    y = decades("output tokens/s of each GPU", [y for _, y in every], count_name, whole=False)
    lines = []
    for tone, (name, line) in enumerate(found.items()):
        inside = [point for point in line if point["fits"] is not False]
        outside = line[max(0, len(inside) - 1) :] if len(inside) < len(line) else []
        if inside:
            lines.append(Line(name, tuple(map(at, inside)), tone, dots=True))
        if outside:
            lines.append(Line(f"{name}, too much memory", tuple(map(at, outside)), tone, dashed=True))
    named = [
        Point(f"{name}: {count(point['batch'])} at once, {point['policy']}", *at(point), tone)
        for tone, (name, those) in enumerate((marked or {}).items(), len(found))
        for point in those
        if point[latency]
    ]
    rules = [Rule("x", limit_s, f"limit {seconds(limit_s)}")] if limit_s else []
    about = f"Throughput against {LATENCIES[latency]}: {', '.join(found)}."
    return Chart(title, about, x, y, tuple(lines), tuple(named), tuple(rules), rows=rows)


def _spread(values: Sequence[float]) -> bool:
    """Whether they differ by more than anyone could see."""
    return max(values) > 1.001 * min(values)


def cost_chart(title: str, points: Sequence[Mapping[str, Any]]) -> Chart | None:
    """Dollars per million output tokens against the batch; None without prices or with fewer than three
    batches."""
    priced = [point for point in points if point["usd_per_million_output"]]
    if len({point["batch"] for point in priced}) < 3:
        return None
    x = doublings("sequences at once", [point["batch"] for point in priced], tokens_name)
    dollars = [point["usd_per_million_output"] for point in priced]
    y = decades("dollars per million output tokens", dollars, plain_name, whole=False)
    lines = []
    for tone, (name, line) in enumerate(curves(priced).items()):
        spots = [(point["batch"], point["usd_per_million_output"], point["fits"]) for point in line]
        inside = [(batch, usd) for batch, usd, fits in spots if fits is not False]
        outside = spots[max(0, len(inside) - 1) :] if len(inside) < len(spots) else []
        if inside:
            lines.append(Line(name, tuple(inside), tone, dots=True))
        if outside:
            past = tuple((batch, usd) for batch, usd, _ in outside)
            lines.append(Line(f"{name}, too much memory", past, tone, dashed=True))
    least = min(dollars)
    about = f"Cost against batch, at least {least:.3g} dollars per million output tokens."
    return Chart(title, about, x, y, tuple(lines))


def marked_points(document: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """The best point and the knees of a document of `infercost serve`; a knee only where its batch is that of
    one point alone (over users all have the same)."""
    best, points = document["best"], document["points"]
    settings = document.get("settings") or [document]
    knees = []
    for setting in settings:
        for policy, batch in setting["knee"].items():
            found = [
                point
                for point in points
                if (point["policy"], point["batch"]) == (policy, batch)
                and (len(settings) == 1 or point["inputs"] == setting["inputs"])
            ]
            knees += found if len(found) == 1 else []
    out = {"best": [best]} if best else {}
    return {**out, "knee": knees}


def serve_charts(title: str, document: Mapping[str, Any], limits: Mapping[str, float | None]) -> list[Chart]:
    """Throughput against the time per token (or the whole request's), against the time to first token where
    that has a limit, and cost against batch."""
    points, marked = document["points"], marked_points(document)
    tpot = "tpot_s" if all(point["tpot_s"] for point in points) else "e2e_s"
    found = [
        throughput_chart(
            f"{title}: throughput against {LATENCIES[key]}", points, key, limits.get(key), marked
        )
        for key in (tpot, *(["ttft_s"] if limits.get("ttft_s") else []))
    ]
    found.append(cost_chart(f"{title}: cost against batch", points))
    return [chart for chart in found if chart is not None]
