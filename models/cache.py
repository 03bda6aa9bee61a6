"""What one layer keeps between steps: the one description that KV sizes, paging and attention read.

How much of it there is, only the methods here say: no other module reads a cache's window, rows or `counts`
(tests/test_layers.py), so a cache of a new shape is one change here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .dimensions import least, rounded_up
from .formats import Format

STATE_ACTIVATION_BYTES = 2
"""Convolution states are kept in the activations' 16-bit type, recurrent states in fp32."""


class Rows(NamedTuple):
    """`heads` rows of `width` values stored per cached token (a K row per KV head, a V row, ...).

    `top_k`: at most so many tokens' rows are read for a query, where an indexer chooses them.
    """

    heads: int
    width: int
    top_k: int | None = None

    def bytes(self, fmt: Format) -> int:
        return self.heads * fmt.row_bytes(self.width)


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

    def bytes(self, activation_bytes: int = STATE_ACTIVATION_BYTES) -> int:
        return self.values * self.columns * (self.value_bytes or activation_bytes)


def seen_rows(new: Any, past: Any, window: int | None = None) -> Any:
    """Key positions that attention of `new` queries reads: theirs, and what is still kept of the `past`."""
    return new + (past if window is None else least(past, window - 1))


class CacheSpec(NamedTuple):
    """Cache of one layer: growing rows (capped by `window`), or a fixed state, or both.

    `kind` is what it is called: attention, latent, state_space, linear_attention, recurrent, cross_attention.
    `stored` is False for a layer that reads another layer's rows. `counts`: what there is a row of, the
    decoder's "tokens" or positions of the "encoder".
    """

    kind: str
    rows: tuple[Rows, ...] = ()
    window: int | None = None
    state: tuple[State, ...] = ()
    stored: bool = True
    counts: str = "tokens"

    def in_library(self) -> CacheSpec:
        """The same cache as the transformers library keeps it: window - 1 tokens between steps, and
        all taps of a convolution."""
        state = tuple(part._replace(columns=part.library_columns) for part in self.state)
        window = None if self.window is None else max(self.window - 1, 1)
        return self._replace(window=window, state=state)

    @property
    def label(self) -> tuple[str, int | None]:
        """What a table calls it: its kind, and its window."""
        return self.kind, self.window

    @property
    def shape(self) -> str:
        """What it has a row of and how wide, in the words of an error: 4 x 64 and 4 x 64 of all tokens."""
        rows = " and ".join(f"{row.heads} x {row.width}" for row in self.rows)
        return f"{rows} of {'all tokens' if self.window is None else f'a window of {self.window:,}'}"

    @property
    def grows(self) -> bool:
        """Whether it has rows, and not a state alone."""
        return bool(self.rows)

    @property
    def capped(self) -> bool:
        """Whether its rows stop growing at a window."""
        return self.window is not None

    @property
    def of_encoder(self) -> bool:
        return self.counts == "encoder"

    @property
    def keeps_tokens(self) -> bool:
        """Whether rows of the decoder's own tokens are stored here."""
        return self.grows and self.stored and not self.of_encoder

    @property
    def values_per_token(self) -> int:
        return sum(row.heads * row.width for row in self.rows)

    def counted(self, tokens: Any, encoder: Any) -> Any:
        """Of the two, what there is a row of."""
        return encoder if self.of_encoder else tokens

    def kept(self, tokens: Any, beside: int = 0, sequences: int = 1) -> Any:
        """Of `tokens` tokens, those that something is kept of: min(T, W), or with the `beside` that an engine
        keeps with each window, for `sequences` of them. Source: Mistral 7B, arXiv 2310.06825, 2."""
        return tokens if self.window is None else least(tokens, self.window * sequences + beside)

    def entries(self, tokens: Any) -> Any:
        """Entries of `rows` at `tokens` tokens: one for each that is kept."""
        return self.kept(tokens)

    def row_shapes(self, tokens: int) -> list[tuple[int, int, int]]:
        """(entries, heads, width) of each of `rows` at `tokens` tokens."""
        return [(self.entries(tokens), row.heads, row.width) for row in self.rows]

    def bytes_per_token(self, fmt: Format) -> int:
        """Bytes that a token adds below any window: Σ heads · (width in `fmt`, scales included).

        2·K·D·b for plain attention. Source: seed 000, section 7.
        """
        return sum(row.bytes(fmt) for row in self.rows)

    def bytes_at(self, tokens: Any, fmt: Format) -> Any:
        """Bytes of the rows at `tokens` tokens."""
        return self.bytes_per_token(fmt) * self.entries(tokens)

    def bytes_in_blocks(self, tokens: int, block: int, fmt: Format) -> int:
        """Bytes of the whole blocks, of `block` tokens each, that hold the rows at `tokens` tokens."""
        return self.bytes_per_token(fmt) * int(rounded_up(self.kept(tokens), block))

    def bytes_over(self, start: int, end: int, fmt: Format) -> int:
        """`bytes_at` summed over lengths start, ..., end - 1: Σ min(t, W) rows."""
        if end <= start:
            return 0
        turn = end if self.window is None else min(max(self.window, start), end)
        growing = (start + turn - 1) * (turn - start) // 2
        return self.bytes_per_token(fmt) * (growing + (end - turn) * (self.window or 0))

    def bytes_touched(self, new: Any, past: Any, fmt: Format) -> Any:
        """Bytes of the rows that a step of `new` tokens after `past` ones reads or writes: those in sight;
        where an indexer chooses, no more than it leaves each query."""
        seen, total = seen_rows(new, past, self.window), 0
        for row in self.rows:
            chosen = seen if row.top_k is None else least(seen, new * row.top_k)
            total = total + chosen * row.bytes(fmt)
        return total

    def state_bytes(self, activation_bytes: int = STATE_ACTIVATION_BYTES) -> int:
        """Bytes of the fixed state for one sequence, as a serving engine keeps it."""
        return sum(part.bytes(activation_bytes) for part in self.state)
