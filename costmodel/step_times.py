"""Step times looked up: the many steps of a simulation from a few hundred that are computed.

A table that fills as it is read: exact at its nodes, linear between them. Nodes: every batch up to 64 and
eight an octave beyond; four an octave of contexts, prompts, chunks and pasts, every power of two among them.
The parts of a mixed step (matrices, the decodes' attention, the chunk's attention) are kernels of their own,
so its time is that of its parts added up.
"""

from __future__ import annotations

from functools import lru_cache
from math import log2

from .serving import Workload
from .setting import Setting, step_cost
from .step import Segment, Step

EXACT_BATCHES = 64
BATCHES_PER_OCTAVE = 8
NODES_PER_OCTAVE = 4


@lru_cache(maxsize=4096)
def node(index: int) -> int:
    return round(2 ** (index / NODES_PER_OCTAVE))


def bracket(value: float) -> tuple[int, int, float]:
    """The nodes around `value`, and how far it is on the way from the lower to the upper."""
    if value < 1:
        return 0, 1, max(0.0, value)
    index = int(log2(value) * NODES_PER_OCTAVE) + 1
    # Rounding moves nodes, and some small ones coincide: step down to the last one that is not above.
    while node(index) > value:
        index -= 1
    while node(index + 1) <= value:
        index += 1
    low, high = node(index), node(index + 1)
    return low, high, (value - low) / (high - low)


def batch_bracket(batch: int) -> tuple[int, int, float]:
    """The same of a number of sequences."""
    if batch <= EXACT_BATCHES:
        return batch, batch, 0.0
    width = (1 << (batch.bit_length() - 1)) // BATCHES_PER_OCTAVE
    low = batch - batch % width
    return low, low + width, (batch - low) / width


class StepTimes:
    """Seconds of the steps of a setting and a workload: expected, or floors where nothing is expected."""

    def __init__(self, setting: Setting, work: Workload) -> None:
        self.setting, self.work = setting, work
        self._usual = round(work.lengths.mean_context)
        self._known: dict[tuple[str, int, int, int], float] = {}

    def decode_s(self, batch: int, context: float) -> float:
        """A decode step of `batch` sequences of `context` tokens in the mean, the new one counted."""
        return self._read("decode", batch, max(2.0, context))

    def prefill_s(self, batch: int, prompt: float) -> float:
        """A step of `batch` prompts of `prompt` tokens in the mean, of which the shared are not computed."""
        return self._read("prefill", batch, max(1.0, prompt - self.work.shared))

    def mixed_s(self, decodes: int, context: float, tokens: int, past: float) -> float:
        """A step of `decodes` and a chunk of `tokens` prompt tokens after `past` others."""
        alone = self._chunk_s(tokens, past)
        if not decodes:
            return alone
        together = self._read("mixed", decodes, tokens)
        longer = self.decode_s(decodes, context) - self._read("usual", decodes, 1.0)
        return together + longer + alone - self._chunk_s(tokens, 0.0)

    def _chunk_s(self, tokens: int, past: float) -> float:
        low, high, along = bracket(tokens)
        value = self._read("chunk", 1, past, low)
        return value + along * (self._read("chunk", 1, past, high) - value) if along else value

    def _read(self, kind: str, batch: int, at: float, tokens: int = 0) -> float:
        low, high, across = batch_bracket(batch)
        value = self._along(kind, low, at, tokens)
        return value if low == high else value + across * (self._along(kind, high, at, tokens) - value)

    def _along(self, kind: str, batch: int, at: float, tokens: int) -> float:
        low, high, along = bracket(at)
        value = self._known_or_computed(kind, batch, low, tokens)
        return (
            value + along * (self._known_or_computed(kind, batch, high, tokens) - value) if along else value
        )

    def _known_or_computed(self, kind: str, batch: int, at: int, tokens: int) -> float:
        key = (kind, batch, at, tokens)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = float(step_cost(self.setting, self._step(*key)).best)
        return found

    def _step(self, kind: str, batch: int, at: int, tokens: int) -> Step:
        work = self.work
        if kind == "decode":
            return work.decode(batch, at)
        if kind == "usual":
            return work.decode(batch, self._usual)
        if kind == "mixed":
            return work.mixed(batch, 1, at, 0)
        if kind == "chunk":
            return Step("prefill", (Segment(1, tokens, at),))
        return Step("prefill", (Segment(batch, at, work.shared, encoder_new=work.encoder),))
