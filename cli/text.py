"""Numbers and words as a person reads them: the only place where a unit is written."""

from __future__ import annotations

from math import floor, log10
from typing import Any

PIB, GIB, MIB, KIB = 1 << 50, 1 << 30, 1 << 20, 1 << 10


def clean(text: str) -> str:
    """`text` with everything a terminal might obey (control and bidi characters) made visible."""
    if text.isprintable():
        return text
    return "".join(ch if ch.isprintable() or ch == "\n" else f"\\x{ord(ch):02x}" for ch in text)


def size(value: float) -> str:
    """Bytes in binary units: `16.00 GiB`, `512 KiB`, `70,272 B`."""
    for unit, name in ((PIB, "PiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(value) >= (unit if name != "PiB" else 10 * unit):
            scaled = value / unit
            if scaled == int(scaled) and name != "GiB":
                return f"{int(scaled):,} {name}"
            return f"{scaled:,.2f} {name}"
    return f"{value:,.0f} B"


def size_both(value: float) -> str:
    """Memory as a person asks for it: `16.00 GiB (17.18 GB)`."""
    if abs(value) >= 10 * PIB:
        return f"{size(value)} ({value / 1e15:,.2f} PB)"
    if abs(value) >= 1e9:
        return f"{size(value)} ({value / 1e9:,.2f} GB)"
    if abs(value) >= 10 * MIB:
        return f"{size(value)} ({value / 1e6:,.1f} MB)"
    return f"{size(value)} ({value:,.0f} B)" if abs(value) >= KIB else size(value)


def count(value: int) -> str:
    return f"{value:,}"


def si(value: float, unit: str = "") -> str:
    """Decimal prefixes, three digits: `312 TFLOP/s`, `6.74 G`."""
    for scale, prefix in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= scale:
            return f"{three(value / scale)} {prefix}{unit}"
    return f"{three(value)} {unit}".rstrip()


def params(value: float) -> str:
    """Parameters as models are named: `6.74 B`, `671 B`, `124 M`."""
    for scale, prefix in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if abs(value) >= scale:
            return f"{three(value / scale)} {prefix}"
    return f"{value:,.0f}"


def three(value: float) -> str:
    """Three significant digits without an exponent: 2,731 · 114.7 is `115`, 7.984 is `7.98`."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}"


def number(value: float | None) -> str:
    """An intensity or a ratio: four digits, `-` where there is none."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def seconds(value: float | None) -> str:
    """Times with their unit: `347.1 ms`, `8.587 ms`, `49.50 us`."""
    if value is None:
        return "-"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(value) >= scale:
            return f"{value / scale:.4g} {unit}"
    return f"{value * 1e9:.3g} ns" if value else "0 s"


def plain(value: float) -> str:
    """Three digits without an exponent, however small: `0.0000877`."""
    if value == 0 or abs(value) >= 1e-4:
        return f"{value:,.3g}"
    return f"{value:.{2 - floor(log10(abs(value)))}f}"


def plural(n: int, word: str) -> str:
    return f"{n:,} {word}" if n == 1 else f"{n:,} {word}s"


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def shown(value: Any) -> str:
    """A JSON value in a key: value listing."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(shown(item) for item in value)
    return clean(str(value))
