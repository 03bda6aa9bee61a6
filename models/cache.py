"""What one layer keeps between steps: the one description that KV sizes, paging and attention read."""

from __future__ import annotations

from typing import NamedTuple


class Rows(NamedTuple):
    """`heads` rows of `width` values stored per cached token (a K row per KV head, a V row, ...).

    `top_k`: at most so many tokens' rows are read for a query, where an indexer chooses them.
    """

    heads: int
    width: int
    top_k: int | None = None


class State(NamedTuple):
    """A part of a fixed-size state: `values` numbers, kept `columns` times.

    A convolution keeps its last `kernel - 1` inputs in a serving engine, all `kernel` of them in
    the transformers library. `value_bytes` None means the activations' own width (16 bit).
    """

    name: str
    values: int
    value_bytes: int | None = None
    columns: int = 1
    library_columns: int = 1


class CacheSpec(NamedTuple):
    """Cache of one layer: growing rows (capped by `window`), or a fixed state, or both.

    `kind` is attention, latent, state_space, linear_attention, recurrent or cross_attention (whose
    rows count encoder positions). `stored` is False for a layer that reads another layer's rows.
    """

    kind: str
    rows: tuple[Rows, ...] = ()
    window: int | None = None
    state: tuple[State, ...] = ()
    stored: bool = True

    def in_library(self) -> CacheSpec:
        """The same cache as the transformers library keeps it: window - 1 tokens between steps, and
        all taps of a convolution."""
        state = tuple(part._replace(columns=part.library_columns) for part in self.state)
        window = None if self.window is None else max(self.window - 1, 1)
        return self._replace(window=window, state=state)

    @property
    def values_per_token(self) -> int:
        return sum(row.heads * row.width for row in self.rows)
