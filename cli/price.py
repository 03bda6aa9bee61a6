"""Dollars per GPU and hour: those of --price, else the sheet's with their date; and what is said of them."""

from __future__ import annotations

from collections.abc import Iterable

from .. import InputError
from ..hardware.spec import Gpu, Price

MOST_NAMED = 6
"""Prices that a screen names one by one."""


def checked_price(given: float | None) -> None:
    """Raises InputError for a price that cannot be."""
    if given is not None and not 0 <= given <= 1e4:
        raise InputError(f"--price is dollars per GPU and hour, 0 to 10,000, not {given:g}")


def price_of(gpu: Gpu, given: float | None) -> Price | None:
    """What an hour of `gpu` costs; None where neither --price nor its sheet says."""
    return gpu.price if given is None else Price(given, "--price")


def usd_per_hour(gpu: Gpu, given: float | None) -> float | None:
    price = price_of(gpu, given)
    return price.usd_per_hour if price else None


def price_json(price: Price | None) -> dict[str, float | str] | None:
    return {"usd_per_gpu_hour": price.usd_per_hour, "source": price.source} if price else None


def price_notes(gpus: Iterable[Gpu], given: float | None) -> list[str]:
    """A line for each GPU: its price and where that is from, or that none is known."""
    every = list(dict.fromkeys(gpus))
    if given is not None:
        return [f"price: {given:g} dollars per GPU and hour (--price)"]
    known = [gpu for gpu in every if gpu.price]
    lines = [
        f"price: {gpu.price.usd_per_hour:g} dollars per {'GPU' if len(every) == 1 else gpu.name} and hour "
        f"({gpu.price.source})"
        for gpu in known[:MOST_NAMED]
        if gpu.price
    ]
    if len(known) > MOST_NAMED:
        lines.append(
            f"and the prices of {len(known) - MOST_NAMED} more, each from a seller of its own: `gpus show`"
        )
    missing = [gpu.name for gpu in every if not gpu.price]
    if missing:
        lines.append(f"no price of {', '.join(missing[:MOST_NAMED])} is known: give --price for dollars")
    return lines
