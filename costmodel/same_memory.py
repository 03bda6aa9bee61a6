"""The same-memory rule: more parameters of fewer bits, or fewer of more bits, in the same bytes.

As long as a step waits for memory the two take equally long, for they read the same bytes; the FLOPs grow
with the parameters, so the rule stops where the larger model's products take longer than its reads.
Source: the seed ledger, rule.60v30 and rule.2bit; quality: Dettmers and Zettlemoyer, arXiv 2212.09720.
"""

from __future__ import annotations

from typing import NamedTuple

from .. import InputError
from ..hardware.spec import Gpu
from ..models.formats import find_format
from .arith import most
from .op import Number
from .roofline import default_dtype, peak_flops, ridge, turning_tokens

STORED = {
    2: "int2-g128-asym",
    3: "int3-g128-asym",
    4: "int4-g128-asym",
    8: "int8-row",
    16: "fp16",
}
"""The format that weights of so many bits are stored in, with scales."""


class Rival(NamedTuple):
    """A model of weights of `bits` bits that fills `weight_bytes`.

    `parameters` before scales, `stored_parameters` with those of `format`.
    """

    bits: int
    format: str
    stored_bits: float
    weight_bytes: int
    parameters: float
    stored_parameters: float

    @property
    def flops_per_token(self) -> float:
        """2P: a multiply-add a weight."""
        return 2 * self.parameters

    def turning_tokens(self, gpu: Gpu) -> float:
        """Tokens of a step from which on the products take longer than reading the weights once: ridge·b/16,
        in the 16-bit math of weight-only formats. Source: seed ledger, rule.60v30 (38 at 4 bit, 76 at 8)."""
        return turning_tokens(ridge(gpu, default_dtype(gpu)).datasheet, self.bits / 8)

    def step_floor_s(self, tokens: Number, gpu: Gpu) -> Number:
        """max(2·P·M / peak, bytes / bandwidth): the matrices alone, no cache and no activations."""
        products = self.flops_per_token * tokens / peak_flops(gpu, default_dtype(gpu))
        return most(products, self.weight_bytes / gpu.bandwidth)


def rival(weight_bytes: int, bits: int) -> Rival:
    """The model of `bits` bits a weight that fills `weight_bytes`.

    Raises InputError for bits that no format here has.
    """
    if bits not in STORED:
        raise InputError(f"{bits} bits: weights are kept in {', '.join(map(str, STORED))}")
    stored = find_format(STORED[bits]).bits_per_weight()
    total = 8 * weight_bytes
    return Rival(bits, STORED[bits], stored, weight_bytes, total / bits, total / stored)
