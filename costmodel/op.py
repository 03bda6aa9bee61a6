"""Operations: a name, a count and a `work`, the object that knows its FLOPs and bytes.

A work says exactly which kernel runs at which shape, so the roofline, the time model and the probe
all read the same object. FLOPs: a multiply-add is 2; `matmul_flops` run on matrix units,
`vector_flops` on the others. Bytes are those one kernel must move to or from memory, by class:
weights, activations, kv (the cache) and state (recurrent state).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

Number = Any
"""int, float or a numpy array of them; counts of a scalar run are exact integers."""


WIDE, BYTE = 1.5, 0.75
"""Bytes per value, scales included, from which a matrix counts as 16 bit, and as 8 bit."""


def stored_bits(bytes_per_value: float) -> int:
    """16, 8 or 4: as what values of so many bytes are read."""
    return 16 if bytes_per_value >= WIDE else 8 if bytes_per_value >= BYTE else 4


class Bytes(NamedTuple):
    """Bytes moved, by class."""

    weights: Number = 0
    activations: Number = 0
    kv: Number = 0
    state: Number = 0

    @property
    def total(self) -> Number:
        return self.weights + self.activations + self.kv + self.state


@dataclass(frozen=True)
class Gemm:
    """`batch` products [rows, inner] x [inner, outer], whose weights take `weight_bytes` in all.

    FLOPs 2·M·I·O; bytes b_x·M·I + weights + b_y·M·O. `math` is the type the matrix units use, `stored`
    the format of the weights.
    Source: seed ledger, int.matmul, "bytes-true rule for one GEMM".
    """

    rows: Number
    inner: int
    outer: int
    weight_bytes: Number
    math: str
    activation_bytes: int = 2
    batch: int = 1
    stored: str = ""

    kind = "gemm"

    @property
    def bytes_per_weight(self) -> Number:
        return self.weight_bytes / (self.batch * self.inner * self.outer)

    @property
    def matmul_flops(self) -> Number:
        return 2 * self.batch * self.rows * self.inner * self.outer

    @property
    def vector_flops(self) -> Number:
        return 0

    @property
    def bytes(self) -> Bytes:
        moved = self.batch * self.rows * (self.inner + self.outer) * self.activation_bytes
        return Bytes(weights=self.weight_bytes, activations=moved)


@dataclass(frozen=True)
class GroupedGemm:
    """`rows` routed rows spread over experts of which `distinct` are expected to be touched.

    Only touched experts' weights are read: `distinct` is an expectation, and so are the bytes.
    `input_rows` rows come from memory: a token routed to several experts is read once.
    """

    rows: Number
    input_rows: Number
    inner: int
    outer: int
    distinct: Number
    expert_bytes: Number
    math: str
    activation_bytes: int = 2
    stored: str = ""

    kind = "grouped_gemm"

    @property
    def bytes_per_weight(self) -> Number:
        return self.expert_bytes / (self.inner * self.outer)

    @property
    def matmul_flops(self) -> Number:
        return 2 * self.rows * self.inner * self.outer

    @property
    def vector_flops(self) -> Number:
        return 0

    @property
    def bytes(self) -> Bytes:
        moved = (self.input_rows * self.inner + self.rows * self.outer) * self.activation_bytes
        return Bytes(weights=self.distinct * self.expert_bytes, activations=moved)


SOFTMAX_FLOPS = 4
"""Vector FLOPs of softmax per query-key pair and head: subtract, exponent, sum, scale."""


@dataclass(frozen=True)
class Attend:
    """`sequences` of `new` queries over `context` keys each, `pairs` of them visited a sequence.

    `stage` fused (FlashAttention: Q, K, V, O once, no score matrix), or one of the three kernels
    of eager attention, qk, softmax and pv, which write and read `new` x `context` scores.
    `row_bytes`: one key position of K and V over all KV heads as the kernel reads it; from the
    cache (`cached`) or from freshly computed activations. MLA absorbed: one KV head, qk_dim 576,
    v_dim 512, V inside K. Queries that visit fewer pairs than all are themselves among the keys.
    `weight_bytes`: learned attention sinks. `window`: keys a query may see, 0 for all; `v_in_k`: a row of the
    cache holds K and V at once.
    Source: FlashAttention-2, arXiv 2307.08691, section 3; seed ledger tables 9.1 and 9.2.
    """

    sequences: Number
    new: Number
    context: Number
    pairs: Number
    heads: int
    kv_heads: int
    qk_dim: int
    v_dim: int
    row_bytes: Number
    math: str
    stage: str = "fused"
    cached: bool = True
    weight_bytes: Number = 0
    activation_bytes: int = 2
    window: Number = 0
    v_in_k: bool = False

    kind = "attend"

    def __post_init__(self) -> None:
        """Raises ValueError for what no attention is (arrays are not looked into): a builder got it wrong,
        and its times would be those of nothing."""
        if any(hasattr(value, "ndim") for value in (self.new, self.context, self.pairs)):
            return
        every = self.new * self.context
        if not 0 <= self.pairs <= every:
            raise ValueError(f"{self.new} queries over {self.context} keys do not visit {self.pairs} pairs")
        if self.pairs < every and self.new > self.context:
            raise ValueError(f"{self.new} causal queries are not all among {self.context} keys")

    @property
    def bytes_per_value(self) -> Number:
        """Of K and V as the kernel reads them, scales included."""
        return self.row_bytes / (self.kv_heads * (self.qk_dim + (0 if self.v_in_k else self.v_dim)))

    @property
    def _score_values(self) -> Number:
        return self.sequences * self.heads * self.new * self.context

    @property
    def matmul_flops(self) -> Number:
        widths = {"fused": self.qk_dim + self.v_dim, "qk": self.qk_dim, "pv": self.v_dim, "softmax": 0}
        return 2 * self.sequences * self.heads * self.pairs * widths[self.stage]

    @property
    def vector_flops(self) -> Number:
        if self.stage in ("qk", "pv"):
            return 0
        return SOFTMAX_FLOPS * self.sequences * self.heads * self.pairs

    @property
    def bytes(self) -> Bytes:
        b, queries = self.activation_bytes, self.sequences * self.new * self.heads
        keys = self.sequences * self.context * self.row_bytes
        if self.stage == "softmax":
            return Bytes(self.weight_bytes, 2 * self._score_values * b)
        if self.stage == "fused":
            moved = queries * (self.qk_dim + self.v_dim) * b
        elif self.stage == "qk":
            moved = queries * self.qk_dim * b + self._score_values * b
        else:
            moved = queries * self.v_dim * b + self._score_values * b
        if self.cached:
            return Bytes(self.weight_bytes, moved, kv=keys)
        return Bytes(self.weight_bytes, moved + keys)


@dataclass(frozen=True)
class Pointwise:
    """An elementwise kernel over `values` results: RoPE, add+norm, SiLU·up, a cache append, ...

    `reads` and `writes` are activations moved per result value; `flops_per_value` vector FLOPs; `rows`
    of tokens that the values are spread over.
    """

    name: str
    values: Number
    reads: float
    writes: float
    flops_per_value: int
    weight_bytes: Number = 0
    kv_bytes: Number = 0
    activation_bytes: int = 2
    rows: Number = 1

    kind = "pointwise"

    @property
    def matmul_flops(self) -> Number:
        return 0

    @property
    def vector_flops(self) -> Number:
        return self.flops_per_value * self.values

    @property
    def bytes(self) -> Bytes:
        moved = self.values * self.activation_bytes * (self.reads + self.writes)
        return Bytes(weights=self.weight_bytes, activations=whole(moved), kv=self.kv_bytes)


@dataclass(frozen=True)
class Gather:
    """`rows` rows of `row_bytes` looked up in a weight table (`cached`: in the KV cache) and written
    as `width` activations each: bytes, no FLOPs."""

    rows: Number
    width: int
    row_bytes: Number
    cached: bool = False
    activation_bytes: int = 2

    kind = "gather"

    @property
    def matmul_flops(self) -> Number:
        return 0

    @property
    def vector_flops(self) -> Number:
        return 0

    @property
    def bytes(self) -> Bytes:
        read, written = self.rows * self.row_bytes, self.rows * self.width * self.activation_bytes
        if self.cached:
            return Bytes(activations=written, kv=read)
        return Bytes(weights=read, activations=written)


@dataclass(frozen=True)
class Scan:
    """A recurrence over `tokens` tokens of `sequences` sequences, counted in its recurrent form.

    `flops_per_token` vector FLOPs; the state is read and written once per sequence and step;
    `width` activations go in and `out_width` come out per token.
    """

    name: str
    sequences: Number
    tokens: Number
    width: int
    out_width: int
    flops_per_token: int
    state_bytes: int
    weight_bytes: Number = 0
    activation_bytes: int = 2

    kind = "scan"

    @property
    def matmul_flops(self) -> Number:
        return 0

    @property
    def vector_flops(self) -> Number:
        return self.flops_per_token * self.tokens

    @property
    def bytes(self) -> Bytes:
        moved = self.tokens * (self.width + self.out_width) * self.activation_bytes
        return Bytes(self.weight_bytes, moved, state=2 * self.sequences * self.state_bytes)


@dataclass(frozen=True)
class Collective:
    """`message_bytes` per rank through `world` ranks: all_reduce, all_gather, reduce_scatter,
    all_to_all, or send to one neighbour. `wire_bytes` leave each rank (ring for reductions, gathers).

    `eager`: launched by the host each time, not replayed from a CUDA graph.
    """

    name: str
    message_bytes: Number
    world: int
    eager: bool = False

    kind = "collective"

    @property
    def matmul_flops(self) -> Number:
        return 0

    @property
    def vector_flops(self) -> Number:
        return 0

    @property
    def bytes(self) -> Bytes:
        return Bytes()

    @property
    def wire_bytes(self) -> Number:
        """Bytes each rank sends: 2(w-1)/w, (w-1)/w or all of the message."""
        shares = {"all_reduce": 2 * (self.world - 1), "send": self.world}
        share = shares.get(self.name, self.world - 1)
        return self.message_bytes * share / self.world


Work = Gemm | GroupedGemm | Attend | Pointwise | Gather | Scan | Collective


def contents(work: Work) -> tuple[Any, ...]:
    """What equal works of arrays share, which have no hash: their kind and what is in their fields."""
    return type(work), *(
        (value.shape, value.dtype.str, value.tobytes()) if hasattr(value, "ndim") else value
        for value in vars(work).values()
    )


@dataclass(frozen=True)
class Op:
    """`count` launches of the same work, under the name a person would use."""

    phase: str
    name: str
    work: Work
    count: int

    @property
    def matmul_flops(self) -> Number:
        return self.count * self.work.matmul_flops

    @property
    def vector_flops(self) -> Number:
        return self.count * self.work.vector_flops

    @property
    def bytes(self) -> Bytes:
        return Bytes(*(self.count * part for part in self.work.bytes))


def whole(value: Number) -> Number:
    """An integer where the value is one: reads per value may be fractions whose sum is not."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
