"""`infercost quant --values` and `--tensor`: codes of given numbers, and what is lost."""

from __future__ import annotations

from typing import Any

from ..costmodel.quantization import Outcome, Scheme, outcome
from .inputs import document
from .output.report import Report, Table
from .tensors import Rows, as_array
from .text import count, number, percent, plural

MOST_SHOWN = 4096
MOST_LISTED = 16
CONVENTIONS = {
    "code": "q = clip(round(x / S - Z)), halves to even; read back as S (q + Z)",
    "scale": "(max - min) / (2^n - 1); symmetric: 2 max|x| / (2^n - 1), or max|x| / (2^(n-1) - 1) with "
    "--range restricted",
    "zero_point": "min / S + 2^(n-1), rounded or truncated; zero_point_exact is before that",
    "wasted_share": "part of the range between the ends of the codes in which no value lies",
    "expected_mse": "S^2 / 12: errors spread evenly over a step",
    "stored_bits": "of a value, with its share of a 16-bit scale and, asymmetric, of a zero point as wide as "
    "a code",
}
SCHEMES = (
    Scheme(),
    Scheme(zero_point="truncate"),
    Scheme(symmetric=True),
    Scheme(symmetric=True, codes="restricted"),
)
"""What a scheme stands beside."""


def numbers_report(rows: Rows, origin: str, scheme: Scheme, per: str, group: int) -> Report:
    """The scheme asked for, the others beside it, and the other ways to share scales."""
    values = len(rows) * len(rows[0])
    small = values <= MOST_SHOWN
    if small and hasattr(rows, "ndim"):
        rows = rows.tolist()
    elif not small:
        rows = as_array(rows)
    asked = outcome(rows, scheme, per, group, keep=small)
    others = [one._replace(bits=scheme.bits) for one in SCHEMES]
    every = [asked if one == scheme else outcome(rows, one, per, group) for one in others]
    ways = ["tensor"] + ["channel"] * (len(rows) > 1) + ["group"] * (len(rows[0]) > group)
    shared = [asked if way == per else outcome(rows, scheme, way, group) for way in ways]
    point = _point(asked, origin, (len(rows), len(rows[0])), group)
    point["schemes"] = [_brief(one) for one in every]
    point["granularities"] = [{"per": one.per, **_brief(one)} for one in shared]
    flat = [x for row in rows for x in row] if small else []
    made = document("quant", {"command": "quant"}, CONVENTIONS, {"values": origin}, [point], False)
    report = _screen(asked, point, flat)
    report.document = made
    kinds = Table(("scheme", "S", "Z", "largest error", "squared errors", "wasted"), "<>>>>>")
    for one in every:
        lost = one.loss
        kinds.rows.append(
            (
                one.scheme.name,
                _span(one.scales),
                _span(one.zeros),
                number(lost.largest),
                number(lost.squared),
                percent(lost.wasted_share),
            )
        )
    report.tables.append(kinds)
    if len(shared) > 1:
        report.tables.append(_granularity(shared, group))
    report.records = [{"scheme": one.scheme.name, "per": one.per, **_brief(one)} for one in (*every, *shared)]
    report.quiet = [repr(asked.loss.largest)]
    return report


def _granularity(shared: list[Outcome], group: int) -> Table:
    table = Table(("a scale for each", "scales", "bits a value", "largest error", "SQNR"), "<>>>>")
    names = {"tensor": "tensor", "channel": "channel (row)", "group": f"group of {group:,}"}
    for one in shared:
        table.rows.append(
            (
                names[one.per],
                count(one.tiles),
                f"{one.stored_bits:.4g}",
                number(one.loss.largest),
                _decibels(one.loss.sqnr_db),
            )
        )
    return table


def _brief(one: Outcome) -> dict[str, Any]:
    scheme, lost = one.scheme, one.loss
    return {
        "symmetric": scheme.symmetric,
        "zero_point_rule": None if scheme.symmetric else scheme.zero_point,
        "range": scheme.codes if scheme.symmetric else "full",
        "tiles": one.tiles,
        "scale_min": one.scales[0],
        "scale_max": one.scales[1],
        "zero_point_min": one.zeros[0],
        "zero_point_max": one.zeros[1],
        "max_abs_error": lost.largest,
        "sse": lost.squared,
        "mse": lost.mse,
        "expected_mse": lost.expected_mse,
        "sqnr_db": lost.sqnr_db,
        "expected_sqnr_db": lost.expected_sqnr_db,
        "wasted_share": lost.wasted_share,
        "stored_bits": one.stored_bits,
    }


def _point(one: Outcome, origin: str, shape: tuple[int, int], group: int) -> dict[str, Any]:
    scheme = one.scheme
    single = one.kept[0].fitted if one.tiles == 1 and one.kept else None
    return {
        "inputs": {
            "origin": origin,
            "rows": shape[0],
            "columns": shape[1],
            "bits": scheme.bits,
            "symmetric": scheme.symmetric,
            "zero_point": scheme.zero_point,
            "range": scheme.codes,
            "per": one.per,
            "group": group if one.per == "group" else None,
        },
        "scale": one.scales[0] if one.tiles == 1 else None,
        "zero_point": one.zeros[0] if one.tiles == 1 else None,
        "zero_point_exact": single.exact_zero if single else None,
        "code_min": scheme.lowest,
        "code_max": scheme.highest,
        **_brief(one),
        "codes": [int(q) for tile in one.kept for q in tile.codes] if one.kept else None,
        "dequantised": [x for tile in one.kept for x in tile.read] if one.kept else None,
    }


def _screen(one: Outcome, point: dict[str, Any], flat: list[float]) -> Report:
    scheme, lost = one.scheme, one.loss
    how = f"{scheme.bits} bit, {scheme.name}"
    fitted = f"S = {_span(one.scales)}"
    if not scheme.symmetric:
        exact = point["zero_point_exact"]
        fitted += f", Z = {_span(one.zeros)}" + (f" (exact {exact:.4f})" if exact is not None else "")
    many = f" over {plural(one.tiles, 'scale')}" if one.tiles > 1 else ""
    answer = [f"{fitted}: largest error {number(lost.largest)}{many}, {how}"]
    tables = []
    if one.kept and len(flat) <= MOST_LISTED:
        table = Table(("value", "code", "read back", "error"), ">>>>")
        for x, q, y in zip(flat, point["codes"], point["dequantised"], strict=True):
            table.rows.append((f"{x:.6g}", count(q), f"{y:.4f}", f"{y - x:+.4f}"))
        tables.append(table)
    notes = [
        f"{plural(lost.values, 'value')}, one scale per {one.per}: {one.stored_bits:.4g} bits a value with "
        f"scales; mean squared error {number(lost.mse)}, S²/12 is {number(lost.expected_mse)}"
    ]
    if lost.sqnr_db is not None and lost.expected_sqnr_db is not None:
        notes.append(f"SQNR {_decibels(lost.sqnr_db)}, by S²/12 {_decibels(lost.expected_sqnr_db)}")
    if not scheme.symmetric and not scheme.lowest <= -one.zeros[1] <= -one.zeros[0] <= scheme.highest:
        notes.append(
            f"0 has no code of its own: -Z is not within {scheme.lowest} to {scheme.highest}, for the values "
            "do not reach from one side of 0 to the other; a kernel keeps Z in a wider type"
        )
    return Report({}, answer, tables, notes)


def _span(ends: tuple[float, float]) -> str:
    low, high = (f"{end:,}" if isinstance(end, int) else f"{end:.6g}" for end in ends)
    return low if low == high else f"{low} to {high}"


def _decibels(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} dB"
