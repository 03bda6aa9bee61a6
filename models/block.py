"""What a block of a layer says of itself. A kind of block is a frozen dataclass that says all of it.

Which kinds there are stands in kinds.py, and the operations of each in ../costmodel/forward.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

from .cache import CacheSpec
from .tensor import Tensor


class Exchange(NamedTuple):
    """Values of a token that groups of context parallelism pass on.

    In a prefill `fresh`, its keys and values; in a decode `partial`, each group's output of all heads, with
    the maximum and the sum of each.
    """

    fresh: int
    partial: int


@dataclass(frozen=True)
class Block(ABC):
    """A part of a layer. `key` is what a sheet calls its kind.

    One that is not `main` is a side path: it adds nothing to the residual stream.
    """

    key = ""
    main = True

    @abstractmethod
    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """Everything it reads in a step, of a model that is `hidden` wide."""

    @abstractmethod
    def caches(self) -> tuple[CacheSpec, ...]:
        """What it keeps of past tokens; several where they are kept in different ways."""

    @abstractmethod
    def over_ranks(self, tp: int, ep: int) -> Block:
        """What one of `tp` tensor-parallel and `ep` expert-parallel ranks holds of it; itself for one.

        Raises InputError where something does not divide.
        """

    @abstractmethod
    def prunable(self) -> dict[str, str]:
        """Its fields that structured pruning cuts, by what costmodel.compression.Kept calls them."""

    @abstractmethod
    def exchange(self) -> Exchange | None:
        """What context parallelism passes on; None where tokens are dealt out without a word."""


class Mixer(Block):
    """A block that looks across positions."""


class FeedForward(Block):
    """A block that treats every position alone."""

    def caches(self) -> tuple[CacheSpec, ...]:
        return ()

    def exchange(self) -> Exchange | None:
        return None
