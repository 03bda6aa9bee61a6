"""The roofline: roofs of devices on log-log axes, ridges in both conventions, operations under them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .chart import Chart, Line, Point, Rule, decades, plain_name, rate_name

PER_DECADE = 8
"""Marks less than an eighth of a decade apart fall on one spot."""
MEASURED = "measured"
MOST_ROOFS = 6


class Roof(NamedTuple):
    """One device: FLOP/s, bytes/s, its ridges in FLOP per byte by name; `dashed`: what its kernels reach."""

    name: str
    peak: float
    bandwidth: float
    ridges: dict[str, float]
    dashed: bool = False


class Mark(NamedTuple):
    """An operation: its phase (or `measured`), its name, FLOP per byte, FLOP per second; `device` where
    several are overlaid."""

    phase: str
    name: str
    intensity: float
    flops_per_s: float
    device: str = ""


class Spot(NamedTuple):
    """Marks that fall on one another."""

    marks: tuple[Mark, ...]

    @property
    def name(self) -> str:
        """`prefill qkv, out; decode head`: each phase once, the device before them."""
        phases: dict[str, list[str]] = {}
        for mark in self.marks:
            names = phases.setdefault(mark.phase, [])
            if mark.name not in names:
                names.append(mark.name)
        said = "; ".join(f"{phase} {', '.join(names)}" for phase, names in phases.items())
        devices = dict.fromkeys(mark.device for mark in self.marks if mark.device)
        return f"{', '.join(devices)}: {said}" if devices else said


def merge(marks: list[Mark]) -> list[Spot]:
    """Marks that fall on one spot become one; measured ones are never taken for computed ones."""
    spots: dict[tuple[int, int, bool], list[Mark]] = {}
    for mark in marks:
        x, y = (round(PER_DECADE * math.log10(value)) for value in (mark.intensity, mark.flops_per_s))
        spots.setdefault((x, y, mark.phase == MEASURED), []).append(mark)
    found = [Spot(tuple(each)) for each in spots.values()]
    return sorted(found, key=lambda spot: spot.marks[0].intensity)


def roofline_chart(points: Sequence[Mapping[str, Any]], reached: bool = False) -> Chart:
    """The roofs of the points of `infercost roofline`, their ridges, and their operations and measurements
    under them; with `reached` a second roof where a calibration says what kernels reach."""
    roofs: dict[tuple[str, bool], Roof] = {}
    marks = []
    several = len({(point["gpu"], point["dtype"]) for point in points}) > 1
    for point in points:
        name = f"{point['gpu']} {point['dtype']}"
        ridges = {kind: point["ridge"][kind] for kind in ("textbook", "datasheet")}
        roofs[(name, False)] = Roof(name, point["peak_flops_per_s"], point["bandwidth_bytes_per_s"], ridges)
        if reached and point["reached"]:
            got = point["reached"]
            roofs[(name, True)] = Roof(name, got["flops_per_s"], got["bytes_per_s"], {}, dashed=True)
        device = name if several else ""
        marks += [
            Mark(op["phase"], op["name"], op["intensity"], op["attainable_flops_per_s"], device)
            for op in point["ops"]
            if op["matmul_flops"]
        ]
        marks += [
            Mark(MEASURED, each["id"], each["intensity"], each["flops_per_s"], device)
            for each in point["measured"]
        ]
    names = dict.fromkeys(name for name, _ in roofs)
    return _chart(f"Roofline: {', '.join(names)}", list(roofs.values()), marks)


def _chart(title: str, roofs: list[Roof], marks: list[Mark]) -> Chart:
    spots = merge([mark for mark in marks if mark.intensity > 0 and mark.flops_per_s > 0])
    ridges = [value for roof in roofs for value in roof.ridges.values()]
    found = [spot.marks[0].intensity for spot in spots]
    x = decades(
        "FLOP/byte",
        [min(ridges) / 300, max(ridges) * 30, *(at / 2 for at in found), *(at * 2 for at in found)],
        plain_name,
    )
    top = max(roof.peak for roof in roofs) * 1.2
    floor = min(roof.bandwidth for roof in roofs) * x.low
    y = decades("", [min(floor, top / 100), top], rate_name("FLOP/s"))
    several = len({roof.name for roof in roofs}) > 1
    tones = {name: i for i, name in enumerate(dict.fromkeys(roof.name for roof in roofs))}
    phases = {"prefill": 0, "decode": 1, MEASURED: 2}
    lines = tuple(
        Line(
            f"{roof.name}, as its kernels reach" if roof.dashed else roof.name,
            (
                (x.low, roof.bandwidth * x.low),
                (roof.peak / roof.bandwidth, roof.peak),
                (x.high, roof.peak),
            ),
            tones[roof.name] if several else -1,
            roof.dashed,
        )
        for roof in roofs
    )
    rules = tuple(
        Rule("x", value, f"{value:.1f} {name}" if not several else "", roof.peak)
        for roof in roofs
        for name, value in roof.ridges.items()
    )
    points = tuple(
        Point(
            spot.name,
            spot.marks[0].intensity,
            spot.marks[0].flops_per_s,
            tones.get(spot.marks[0].device, 0) if several else phases.get(spot.marks[0].phase, 3),
            spot.marks[0].phase == MEASURED,
        )
        for spot in spots
    )
    about = f"Roofline, log-log: {', '.join(tones)}; ridges at " + ", ".join(f"{r:.1f}" for r in ridges)
    about += f" FLOP/byte; {len(points)} marked spots." if points else " FLOP/byte."
    return Chart(title, about, x, y, lines, points, rules)
