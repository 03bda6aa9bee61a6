"""Which experts the benchmark's tokens went to: rows and distinct experts of the rank that was timed.

aiconfigurator's collector deals tokens either in turn (balanced) or by a power law, and times the
rank with the largest load. Source: its public collector code, read for the rule; the largest of the
ranks' random sums is the Wilson-Hilferty quantile of a gamma distribution.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

EDGES = np.array(
    [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.775, 0.84, 0.89, 0.925, 0.95, 0.967, 0.979, 0.988, 0.994, 1]
)[:, None]
"""Quantile bins of the experts' loads, finer towards the heavy end."""
SHARES = np.diff(EDGES, axis=0)
BELOW = np.cumsum(SHARES, 0)
LARGEST = 0.56
"""The largest of E draws stands at about the quantile 1 - 0.56 / E."""
WHOLE_BELOW = 12
TOKEN_SHARE = 0.8
FEW_RANGE = (0.01, 2.0)
POLE = 1e-6
"""The integrals have logarithms at exponents of 1 and 2; a hair beside them they have none."""


class Dealt(NamedTuple):
    """Tokens of an expert and how many experts have that many: arrays of (bins, rows)."""

    tokens: Any
    experts: Any


def balanced(tokens: Any, top_k: Any, experts: Any, ranks: Any) -> Dealt:
    """Expert (t + i * ceil(E/k)) mod E takes part i of token t; rank 0 owns the first E / ranks."""
    local, stride = experts / ranks, np.ceil(experts / top_k)
    full = np.floor(np.minimum(local / stride, top_k))
    last = np.where(full < top_k, local - full * stride, 0)
    few = full * tokens + np.ceil(tokens * np.maximum(last, 0) / stride - 1e-9)
    rows = np.where(tokens >= stride, tokens * top_k / ranks, few)
    touched = np.minimum(rows, local)
    return Dealt((rows / touched)[None], touched[None])


def power_law(tokens: Any, top_k: Any, experts: Any, ranks: Any, alpha: float) -> Dealt:
    """Loads as x^-alpha on [1, 0.8 T], scaled to T k, capped at T with the overflow to the least loaded;
    the rank with the largest sum is timed."""
    local, mean = experts / ranks, tokens * top_k / experts
    loads, largest = _loads(tokens, top_k, experts, alpha, mean)
    loads = _overflow(loads, tokens, mean)
    loads = _whole(loads, mean)
    scatter = np.maximum((loads**2 * SHARES).sum(0) - mean**2, 0) / mean**2
    rank_load = _largest_rank(tokens, top_k, ranks, local, mean, scatter, largest, loads[-1])
    tilt = (rank_load / (local * mean) - 1) / np.maximum(scatter, 1e-9)
    weight = SHARES * np.maximum(1 + tilt * (loads / mean - 1), 0.0)
    weight = weight / weight.sum(0)
    scale = rank_load / local / np.maximum((weight * loads).sum(0), 1e-12)
    each = np.minimum(loads * scale, tokens)
    return Dealt(np.maximum(each, 1), np.minimum(each, 1) * weight * local)


def _loads(tokens: Any, top_k: Any, experts: Any, alpha: float, mean: Any) -> tuple[Any, Any]:
    """(mean load of each quantile bin, largest expected load), both at most `tokens`."""
    few = tokens * top_k <= experts
    low = np.where(few, FEW_RANGE[0], 1.0)
    high = np.where(few, FEW_RANGE[1], np.maximum(TOKEN_SHARE * tokens, 1.0001))
    one, two = (c - alpha if abs(c - alpha) > POLE else POLE for c in (1.0, 2.0))
    edges = (low**one + EDGES * (high**one - low**one)) ** (1 / one)
    middle = np.diff(edges**two, axis=0) / two / (np.diff(edges**one, axis=0) / one)
    scale = mean / (middle * SHARES).sum(0)
    top = (low**one + (1 - LARGEST / experts) * (high**one - low**one)) ** (1 / one)
    return np.minimum(middle * scale, tokens), np.minimum(tokens, top * scale)


def _overflow(loads: Any, tokens: Any, mean: Any) -> Any:
    """What the cap cut off fills the least loaded up to a common level."""
    for _ in range(2):
        over = mean - (loads * SHARES).sum(0)
        level = (over + np.cumsum(loads * SHARES, 0)) / BELOW
        following = np.vstack([loads[1:], np.full((1, loads.shape[1]), np.inf)])
        at = np.argmax(level <= following, axis=0)[None]
        filled = np.maximum(loads, np.minimum(np.take_along_axis(level, at, 0)[0], tokens))
        loads = np.where(over > 1e-9, filled, loads)
    return loads


def _whole(loads: Any, mean: Any) -> Any:
    """Small loads are whole tokens; what rounding took from the empty ones is a chance of one token."""
    rounded = np.where(loads < WHOLE_BELOW, np.floor(loads + 0.5), loads)
    missing = mean - (rounded * SHARES).sum(0)
    empty = ((rounded <= 0) * SHARES).sum(0)
    chance = np.clip(missing / np.maximum(empty, 1e-9), 0, 1)
    out = np.where(rounded <= 0, chance, rounded)
    return out * (mean / np.maximum((out * SHARES).sum(0), 1e-12))


def _largest_rank(
    tokens: Any, top_k: Any, ranks: Any, local: Any, mean: Any, scatter: Any, largest: Any, top: Any
) -> Any:
    """Expected largest of the ranks' loads: a gamma quantile, or one giant expert among average ones."""
    place = (ranks - 0.375) / (ranks + 0.25)
    normal = 4.91 * (place**0.14 - (1 - place) ** 0.14)
    spread = scatter / local * np.maximum(1 - 1 / ranks, 0) / 9
    even = local * mean
    gamma = even * np.maximum(1 - spread + normal * np.sqrt(spread), 0.01) ** 3
    experts = local * ranks
    giant = largest + (local - 1) * np.maximum(mean * experts - largest, 0) / np.maximum(experts - 1, 1)
    load = np.where(ranks > 1, np.maximum(np.maximum(gamma, even), giant), even)
    cap = np.maximum(np.maximum(even, giant), (local - 1) * mean * 2 + top)
    cap = np.minimum(np.minimum(tokens * top_k, local * tokens), cap)
    return np.clip(load, np.minimum(1, mean * experts), cap)
