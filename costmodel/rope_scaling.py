"""Rotary positions beyond the trained context: what PI, NTK-aware and YaRN scaling change of the angles.

None of them adds a FLOP or a byte to a step of the same length; what a longer reach costs is its cache.
Source: RoPE, arXiv 2104.09864; position interpolation, arXiv 2306.15595; YaRN, arXiv 2309.00071, sections 3.1
(NTK-aware) and 3.4; seed ledger, rope.scaling.
"""

from __future__ import annotations

from math import log, pi

from .. import InputError

MAX_SCALE = 1e6
MAX_BASE = 1e12


def scaling(scale: float, base: float) -> tuple[float, float]:
    """`scale` and `base` as they are. Raises InputError where they are out of bounds."""
    if not 1 <= scale <= MAX_SCALE:
        raise InputError(f"a context is stretched 1 to {MAX_SCALE:,.0f} times, not {scale:g}")
    if not 1 < base <= MAX_BASE:
        raise InputError(f"the base of rotary positions is above 1, up to {MAX_BASE:g}, not {base:g}")
    return scale, base


def ntk_base(base: float, scale: float, rotated: int) -> float:
    """base·s^(d/(d-2)): the lowest frequency is stretched s times, the highest not at all.

    `rotated` values of a head (d), above 2.
    """
    return float(base * scale ** (rotated / (rotated - 2)))


def yarn_mscale(scale: float) -> float:
    """0.1·ln(s) + 1: what queries and keys are multiplied by (folded into the cosines and sines)."""
    return 0.1 * log(scale) + 1


def longest_wavelength(base: float, rotated: int) -> float:
    """2π·base^((d-2)/d): tokens of one turn of the slowest pair."""
    return float(2 * pi * base ** ((rotated - 2) / rotated))
