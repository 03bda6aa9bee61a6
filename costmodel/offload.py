"""Layers or cache kept in the host's memory: what comes over the host link in every step.

The link works beside the kernels, so a step takes the longer of the two (FlexGen, arXiv 2303.06865, section
3, overlaps the same way); expected times reach a share of the link's rate.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from .. import InputError
from ..models.spec import Model
from .forward import ops
from .op import Number
from .roofline import totals
from .step import Plan
from .weights import weight_bill

LINK_SHARE = 0.85
"""Of the link's rate, what pinned copies reach; assumed."""
BUFFERED_LAYERS = 2
"""Layers of the host's that the device holds at a time: one computed with, one arriving."""


class Offload(NamedTuple):
    """`layers` of each pipeline stage whose weights stay on the host, `cache`: whether all KV and state do;
    `link_bytes_per_s` one way."""

    layers: int
    cache: bool
    link_bytes_per_s: float

    def checked(self, model: Model) -> Offload:
        """Raises InputError for more layers than there are, or a link without a rate."""
        if not 0 <= self.layers <= len(model.layers):
            raise InputError(
                f"--offload-layers {self.layers}: {model.name} has {len(model.layers)} layers to leave "
                "on the host"
            )
        if not 1e6 <= self.link_bytes_per_s <= 1e13:
            raise InputError("--host-link is a rate between 0.001 and 10,000 GB/s")
        return self

    def moved_bytes(self, plan: Plan) -> Number:
        """Bytes over the link in one step of a stage: the weights its own layers read, the cache touched."""
        total = 0
        if self.layers:
            total = total + totals(ops(replace(plan, model=self._left(plan.model)))).weights
        if self.cache:
            whole = totals(ops(plan))
            total = total + whole.kv + whole.state
        return total

    def saved_bytes(self, plan: Plan) -> int:
        """Weights that the device does not hold, the buffers it needs for them taken off."""
        if not self.layers:
            return 0
        left = self._left(plan.model)
        whole = weight_bill(left, plan.recipe, 1, plan.run.skew).weight_bytes
        return whole - whole * min(BUFFERED_LAYERS, self.layers) // self.layers

    def _left(self, model: Model) -> Model:
        """The first layers alone."""
        kept = model.layers[: self.layers]
        return replace(model, layers=kept, input_end=False, output_end=False, encoder=None, towers=())

    def seconds(self, plan: Plan) -> Number:
        """At the link's full rate."""
        return self.moved_bytes(plan) / self.link_bytes_per_s
