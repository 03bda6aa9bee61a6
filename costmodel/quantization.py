"""The uniform quantiser: a scale, a zero point, integer codes, and what they lose.

A value x is kept as the code q = clip(round(x / S - Z)) and read back as S·(q + Z).
Source: seed 001, section 5 (LLMBook, section 9.3.1 and its sample code); the seed ledger, q.S to q.waste;
Krishnamoorthi, arXiv 1806.08342, section 2, for zero points and for full and restricted ranges.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from .. import InputError
from ..models.formats import Format, Scale
from .arith import ceil_div, kit
from .op import Number

Tile = Any
"""Values that share a scale: a sequence of numbers, or many such tiles at once as an array [tiles, size]."""

MIN_BITS, MAX_BITS = 2, 16
NO_WIDTH = 1e-100
"""A range narrower than this is none; zeros alone get it as theirs."""
MAGNITUDE = 1e100
"""Largest value quantised: its square is far from overflow."""
SCALE_BITS = 16


class Scheme(NamedTuple):
    """How values become codes of `bits` bits.

    `symmetric`: the range is ±max|x| and Z is 0; else it is min to max. `zero_point` is rounded, or
    truncated as the textbook's code does it. `codes`: of a symmetric scheme all 2^n (S =
    2·max|x| / (2^n - 1)), or restricted to ±(2^(n-1) - 1) (S = max|x| / (2^(n-1) - 1)).
    """

    bits: int = 8
    symmetric: bool = False
    zero_point: str = "round"
    codes: str = "full"

    def checked(self) -> Scheme:
        """Raises InputError for bits out of bounds."""
        if not MIN_BITS <= self.bits <= MAX_BITS:
            raise InputError(f"{self.bits} bits: a code has {MIN_BITS} to {MAX_BITS}")
        return self

    @property
    def lowest(self) -> int:
        return -(1 << (self.bits - 1)) + (self.symmetric and self.codes == "restricted")

    @property
    def highest(self) -> int:
        return (1 << (self.bits - 1)) - 1

    @property
    def name(self) -> str:
        if self.symmetric:
            return f"symmetric, {self.codes} range"
        return f"asymmetric, zero point {'rounded' if self.zero_point == 'round' else 'truncated'}"


class Fitted(NamedTuple):
    """S and Z of a tile (of an array of tiles: columns [tiles, 1]); `exact_zero` is Z before it is an
    integer, `wasted` the share of the covered range in which no value lies."""

    scale: Number
    exact_zero: Number
    zero: Number
    wasted: Number


def fit(low: Number, high: Number, scheme: Scheme) -> Fitted:
    """S = (high - low) / (q_max - q_min) and Z = low / S - q_min, from the ends of the values.

    A range without width is stretched to 0, so that one value repeated is kept exactly.
    """
    k = kit(low, high)
    inside = high - low
    if scheme.symmetric:
        high = k.most(abs(low), abs(high))
        low = -high
    flat = high - low < NO_WIDTH
    low, high = k.where(flat, k.least(low, 0.0), low), k.where(flat, k.most(high, 0.0), high)
    span = k.most(high - low, NO_WIDTH)
    scale, wasted = span / (scheme.highest - scheme.lowest), 1 - inside / span
    if scheme.symmetric:
        return Fitted(scale, 0 * scale, 0 * scale, wasted)
    exact = low / scale - scheme.lowest
    if scheme.zero_point == "truncate":
        return Fitted(scale, exact, k.where(exact < 0, k.ceil(exact), k.floor(exact)), wasted)
    return Fitted(scale, exact, k.nearest(exact), wasted)


def code(value: Number, fitted: Fitted, scheme: Scheme) -> Number:
    """clip(round(x / S - Z)), halves to even as torch.round does."""
    k = kit(value)
    return k.most(k.least(k.nearest(value / fitted.scale - fitted.zero), scheme.highest), scheme.lowest)


def value_of(code: Number, fitted: Fitted) -> Number:
    """S·(q + Z)."""
    return fitted.scale * (code + fitted.zero)


class Loss(NamedTuple):
    """Sums over `values` values: squared errors, squares of the values, n·S²/12 (what rounding alone would
    lose), the largest error, and the share of the range wasted, weighted by values."""

    values: int
    squared: float
    power: float
    noise: float
    largest: float
    wasted: float

    @property
    def mse(self) -> float:
        return self.squared / self.values

    @property
    def expected_mse(self) -> float:
        """S²/12, the variance of an error spread evenly over a step."""
        return self.noise / self.values

    @property
    def wasted_share(self) -> float:
        return self.wasted / self.values

    @property
    def sqnr_db(self) -> float | None:
        """10·log10(Σx² / Σe²); None where nothing is lost, or there is nothing to lose."""
        return _decibels(self.power, self.squared)

    @property
    def expected_sqnr_db(self) -> float | None:
        """The same of S²/12: 6.02·n + 10.79 - 20·log10(range / rms) (seed ledger, cost equations)."""
        return _decibels(self.power, self.noise)


def _decibels(power: float, noise: float) -> float | None:
    return 10 * math.log10(power / noise) if power > 0 and noise > 0 else None


class Quantised(NamedTuple):
    """A tile (or an array of them) quantised."""

    fitted: Fitted
    codes: Any
    read: Any
    loss: Loss


def quantise(tile: Tile, scheme: Scheme) -> Quantised:
    """Codes of a tile, and what is read back of them."""
    if hasattr(tile, "ndim"):
        fitted = fit(tile.min(axis=1, keepdims=True), tile.max(axis=1, keepdims=True), scheme)
        codes = code(tile, fitted, scheme)
        read = value_of(codes, fitted)
        errors = abs(read - tile)
        size = tile.shape[1]
        squared, power = float((errors**2).sum()), float((tile**2).sum())
        noise, wasted = float((size * fitted.scale**2 / 12).sum()), float(size * fitted.wasted.sum())
        loss = Loss(tile.size, squared, power, noise, float(errors.max()), wasted)
        return Quantised(fitted, codes, read, loss)
    fitted = fit(min(tile), max(tile), scheme)
    codes = [code(x, fitted, scheme) for x in tile]
    read = [value_of(q, fitted) for q in codes]
    errors = [abs(y - x) for x, y in zip(tile, read, strict=True)]
    size = len(tile)
    squared, power = math.fsum(e * e for e in errors), math.fsum(x * x for x in tile)
    loss = Loss(size, squared, power, size * fitted.scale**2 / 12, max(errors), size * fitted.wasted)
    return Quantised(fitted, codes, read, loss)


def tiles(rows: Any, per: str, group: int) -> Iterator[Tile]:
    """`rows` (sequences of numbers, or an array [rows, columns]) cut into what shares a scale.

    tensor: all; channel: a row; group: `group` values along a row, the last of a row maybe fewer.
    """
    if hasattr(rows, "ndim"):
        width = {"tensor": rows.size, "channel": rows.shape[1], "group": min(group, rows.shape[1])}[per]
        if per == "tensor":
            yield rows.reshape(1, -1)
            return
        whole = rows.shape[1] // width * width
        yield rows[:, :whole].reshape(-1, width)
        if whole < rows.shape[1]:
            yield rows[:, whole:]
        return
    if per == "tensor":
        yield [x for row in rows for x in row]
        return
    for row in rows:
        width = len(row) if per == "channel" else group
        for start in range(0, len(row), width):
            yield row[start : start + width]


class Outcome(NamedTuple):
    """Values quantised tile by tile: the smallest and largest S and Z, the loss over all of them, the bits a
    value is stored in with its scales; the tiles themselves where they were to be kept."""

    scheme: Scheme
    per: str
    tiles: int
    scales: tuple[float, float]
    zeros: tuple[int, int]
    loss: Loss
    stored_bits: float
    kept: tuple[Quantised, ...]


def outcome(rows: Any, scheme: Scheme, per: str, group: int, keep: bool = False) -> Outcome:
    """`rows`, sequences of numbers of one length or an array [rows, columns], quantised.

    `keep`: with codes and what is read back, a tile after the other (sequences only).
    """
    kept, losses, fitted = [], [], []
    for tile in tiles(rows, per, group):
        one = quantise(tile, scheme)
        losses.append(one.loss)
        fitted += [(one.fitted.scale, one.fitted.zero)]
        kept += [one] if keep else []
    ends = [min(_least(s) for s, _ in fitted), max(_most(s) for s, _ in fitted)]
    zeros = [min(_least(z) for _, z in fitted), max(_most(z) for _, z in fitted)]
    count = sum(getattr(s, "size", 1) for s, _ in fitted)
    high, wide = len(rows), len(rows[0])
    bits = storage(scheme, per, group).matrix_bytes(high, wide) * 8 / (high * wide)
    low_zero, high_zero = (int(z) for z in zeros)
    return Outcome(
        scheme, per, count, (ends[0], ends[1]), (low_zero, high_zero), together(losses), bits, tuple(kept)
    )


def _least(value: Number) -> float:
    return float(value.min() if hasattr(value, "ndim") else value)


def _most(value: Number) -> float:
    return float(value.max() if hasattr(value, "ndim") else value)


def together(losses: Iterable[Loss]) -> Loss:
    """The loss over all tiles."""
    every = list(losses)
    sums = [sum(column) for column in zip(*every, strict=True)]
    return Loss(*sums)._replace(largest=max(each.largest for each in every))


def storage(scheme: Scheme, per: str, group: int) -> Format:
    """How such codes are stored: packed, a 16-bit scale for each tile, and of an asymmetric scheme a zero
    point of as many bits as a code (seed ledger, q.bits: bits + (scale + zero) / g)."""
    block = 8 // math.gcd(scheme.bits, 8)
    cols, rows = (0, 0) if per == "tensor" else (0, 1) if per == "channel" else (group, 1)
    scales: Sequence[Scale] = [Scale(SCALE_BITS, cols, rows)]
    if not scheme.symmetric:
        scales = [*scales, Scale(scheme.bits, cols, rows)]
    return Format(f"int{scheme.bits}", block, ceil_div(block * scheme.bits, 8), tuple(scales))
