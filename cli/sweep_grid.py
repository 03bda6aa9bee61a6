"""A grid of `infercost sweep`: its axes, its points by number, and the chunks they are computed in.

Settings (model, GPU, formats, kernels, ranks) are the outer axes, batches and lengths the inner ones, which
are computed together as rectangles. Which points a chunk holds follows from the grid alone, so any process
on any machine can be told to do the third of forty.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from .. import InputError, __version__
from ..costmodel.limits import MAX_TOKENS
from ..costmodel.setting import Setting
from ..costmodel.sharding import Parallel
from ..hardware.spec import Gpu
from ..models.spec import Model
from .calibrations import clock_of, own_first
from .runs import run_of

MOST_POINTS = 100_000_000
MOST_VALUES = 1_000_000
MOST_STEPS = 1 << 20
MOST_HELD = 1 << 44
"""Tokens in the caches of a point: their bytes stay 64-bit integers."""
CHUNK_POINTS = 1 << 14
CHUNK_SETTINGS = 256
MOST_BATCHES = 256
"""Batches of a rectangle: each is computed at up to 1,024 strides of a request."""


class Ranks(NamedTuple):
    """The axes of parallelism."""

    tp: tuple[int, ...] = (1,)
    pp: tuple[int, ...] = (1,)
    ep: tuple[int, ...] = (1,)


class Unit(NamedTuple):
    """A rectangle of a setting: its batches and its lengths, as half-open ranges of numbers."""

    setting: int
    batches: tuple[int, int]
    lengths: tuple[int, int]


@dataclass(frozen=True)
class Grid:
    """The axes, in the order in which they are numbered, and what is the same for every point.

    `recipes` and `caches` are names, None for the model's own.
    """

    models: tuple[Model, ...]
    gpus: tuple[Gpu, ...]
    recipes: tuple[str | None, ...]
    caches: tuple[str | None, ...]
    attention: tuple[str, ...]
    mla: tuple[str, ...]
    fusion: tuple[str, ...]
    ranks: Ranks
    batches: tuple[int, ...]
    prompts: tuple[int, ...]
    gens: tuple[int, ...]
    cached: tuple[int, ...]
    full_attention: bool = False
    skew: float = 0.0
    encoder_seq: str | None = None
    price: float | None = None
    calibration: str = "auto"

    def checked(self) -> Grid:
        """Raises InputError for a grid beyond what can be counted."""
        if self.points > MOST_POINTS:
            raise InputError(f"{self.points:,} points are more than {MOST_POINTS:,}; ask for a smaller grid")
        if max(self.gens) > MOST_STEPS:
            raise InputError(f"--gen {max(self.gens):,}: at most {MOST_STEPS:,} tokens out are added up")
        held = (max(self.prompts) + max(self.gens)) * max(self.batches)
        if held > MOST_HELD or max(self.prompts) > MAX_TOKENS // 2:
            raise InputError(
                f"the longest prompts of the largest batch hold {held:,} tokens: more than {MOST_HELD:,}"
            )
        return self

    @property
    def outer(self) -> tuple[tuple[Any, ...], ...]:
        """The axes of the settings."""
        formats = (self.recipes, self.caches, self.attention, self.mla, self.fusion)
        return (self.models, self.gpus, *formats, *self.ranks)

    @property
    def settings(self) -> int:
        return prod(len(axis) for axis in self.outer)

    @property
    def lengths(self) -> int:
        return len(self.prompts) * len(self.gens) * len(self.cached)

    @property
    def points(self) -> int:
        return self.settings * len(self.batches) * self.lengths

    def setting(self, number: int) -> tuple[Any, ...]:
        """The values of the outer axes of a setting, the last axis counting fastest."""
        picked = []
        for axis in reversed(self.outer):
            number, at = divmod(number, len(axis))
            picked.append(axis[at])
        return tuple(reversed(picked))

    def built(self, number: int) -> Setting:
        """A setting ready to be evaluated. Raises InputError where there can be no such thing."""
        model, gpu, recipe, cache, attention, mla, fusion, tp, pp, ep = self.setting(number)
        run = run_of(
            model,
            recipe,
            cache,
            attention=attention,
            mla=mla,
            fusion=fusion,
            full_attention=self.full_attention,
            skew=self.skew,
        )
        return Setting(model, run, gpu, Parallel(tp, ep, pp), clock_of(self.calibration, gpu)).checked()

    @property
    def _rectangle(self) -> tuple[int, int]:
        """Most batches and most lengths of a rectangle."""
        batches = min(len(self.batches), MOST_BATCHES)
        return batches, min(self.lengths, CHUNK_POINTS // batches)

    @property
    def _per_setting(self) -> tuple[int, int]:
        """Into how many rectangles each side of a setting is cut."""
        batches, lengths = self._rectangle
        return -(-len(self.batches) // batches), -(-self.lengths // lengths)

    @property
    def _together(self) -> int:
        """Rectangles of a chunk: several where they are whole settings, and small."""
        if prod(self._per_setting) > 1:
            return 1
        return min(CHUNK_SETTINGS, max(1, CHUNK_POINTS // (len(self.batches) * self.lengths)))

    @property
    def chunks(self) -> int:
        return -(-self.settings * prod(self._per_setting) // self._together)

    def units(self, chunk: int) -> list[Unit]:
        """The rectangles of a chunk."""
        (across, along), (_, pieces) = self._rectangle, self._per_setting
        each = prod(self._per_setting)
        first = chunk * self._together
        out = []
        for number in range(first, min(first + self._together, self.settings * each)):
            setting, inside = divmod(number, each)
            row, column = divmod(inside, pieces)
            batches = (row * across, min((row + 1) * across, len(self.batches)))
            lengths = (column * along, min((column + 1) * along, self.lengths))
            out.append(Unit(setting, batches, lengths))
        return out

    def size(self, chunk: int) -> int:
        """Points of a chunk."""
        return sum(
            (unit.batches[1] - unit.batches[0]) * (unit.lengths[1] - unit.lengths[0])
            for unit in self.units(chunk)
        )

    def echo(self) -> dict[str, Any]:
        """The axes as the JSON repeats them."""
        return {
            "model": [model.name for model in self.models],
            "gpu": [gpu.name for gpu in self.gpus],
            "weights": list(self.recipes),
            "kv": list(self.caches),
            "attention": list(self.attention),
            "mla": list(self.mla),
            "fusion": list(self.fusion),
            **{name: list(axis) for name, axis in self.ranks._asdict().items()},
            "batch": list(self.batches),
            "prompt": list(self.prompts),
            "gen": list(self.gens),
            "cached": list(self.cached),
            "full_attention": self.full_attention,
            "skew": self.skew,
            "encoder_seq": self.encoder_seq,
            "price": self.price,
            "calibration": self.calibration,
        }

    def digest(self) -> str:
        """What tells this grid from any other: its axes, its sheets and constants, this version."""
        constants = (
            [] if self.calibration == "none" else [own_first(self.calibration, g)[0] for g in self.gpus]
        )
        said = repr((__version__, self.echo(), self.models, self.gpus, constants))
        return hashlib.sha256(said.encode()).hexdigest()[:32]


def mine(chunks: int, shard: tuple[int, int]) -> range:
    """Chunks of part `shard[0]` (from 1) of `shard[1]`: every so manieth, so that all parts take as long."""
    return range(shard[0] - 1, chunks, shard[1])
