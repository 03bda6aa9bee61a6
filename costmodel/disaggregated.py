"""Prefill on devices of its own: the cache crosses a link once, and each set is paid for its own time.

Source: Splitwise, arXiv 2311.18677, and DistServe, arXiv 2401.09670: prefill is bound by arithmetic and
decode by memory, so each may have the card that suits it.
"""

from __future__ import annotations

from typing import NamedTuple

from .kv import cache_bill
from .request import Dollars, Request, dollars, energy_j
from .setting import Cost, Setting


def transfer_s(setting: Setting, cached_bytes: int, link_bytes_per_s: float) -> float:
    """Seconds to hand on one replica's cache: each of its ranks sends its share over a link of its own;
    copies of heads are sent once."""
    return cached_bytes / (link_bytes_per_s * setting.devices / setting.replicas)


class Prefiller(NamedTuple):
    """Devices that prefill for others: their setting, and the rate at which a rank sends its cache on."""

    setting: Setting
    link_bytes_per_s: float

    def transfer_s(self, asked: Request) -> float:
        """The prompts' cache over the link."""
        setting = self.setting
        bill = cache_bill(setting.model, asked.prompt, asked.batch, setting.run.kv, asked.encoder)
        return transfer_s(setting, bill.logical_bytes, self.link_bytes_per_s)

    def delayed(self, cost: Cost, asked: Request) -> Cost:
        """A whole request's cost with the transfer in it."""
        over = self.transfer_s(asked)
        expected = None if cost.expected is None else cost.expected + over
        return cost._replace(bound=cost.bound + over, floor=cost.floor + over, expected=expected)

    def dollars(
        self, decoder: Setting, asked: Request, ttft: Cost, decoding: Cost | None, price: float | None
    ) -> Dollars | None:
        """Each set at `price`, or at its own sheet's; None where one of them has none."""
        rates = [price if price is not None else _usd_per_hour(part) for part in (self.setting, decoder)]
        if rates[0] is None or rates[1] is None:
            return None
        read = dollars(self.setting, asked, ttft, None, rates[0])
        written = dollars(decoder, asked, None, decoding, rates[1])
        return Dollars(read.request + written.request, read.input, read.cached_input, written.output)

    def energy_j(self, decoder: Setting, asked: Request, ttft: Cost, decoding: Cost | None) -> float | None:
        """At most so much for each request; None where a sheet names no power."""
        read = energy_j(self.setting, asked, ttft.best)
        written = energy_j(decoder, asked, decoding.best) if decoding else 0.0
        return None if read is None or written is None else read + written


def _usd_per_hour(setting: Setting) -> float | None:
    return setting.gpu.price.usd_per_hour if setting.gpu.price else None
