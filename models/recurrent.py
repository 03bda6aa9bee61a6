"""Mixers that keep a state of fixed size: state space, linear attention, recurrences, convolutions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import InputError
from .block import Block, Exchange, Mixer
from .cache import CacheSpec, State
from .dimensions import divided, kv_heads_per_rank, positive
from .tensor import Tensor, vector


class Fixed(Mixer):
    """A mixer whose past is a state of fixed size: none of its widths is pruned, and what context parallelism
    would pass on of it is not counted."""

    def prunable(self) -> dict[str, str]:
        return {}

    def exchange(self) -> Exchange | None:
        return None


@dataclass(frozen=True)
class StateSpace(Fixed):
    """Mamba (no `heads`) or Mamba-2 (`heads` of `inner / heads` channels).

    `inner` channels with `state` numbers each; a causal convolution of `conv_kernel` taps comes
    first. Mamba projects its step size through `dt_rank`, and `inner_norms` adds Jamba's norms of
    dt, B and C; Mamba-2 shares B and C among `groups` and gates through a norm over `inner`.
    Source: Mamba, arXiv 2312.00752, section 3; Mamba-2, arXiv 2405.21060, section 7.
    """

    key = "state_space"

    inner: int
    state: int
    conv_kernel: int
    heads: int | None = None
    groups: int = 1
    dt_rank: int | None = None
    inner_norms: bool = False
    proj_bias: bool = False
    conv_bias: bool = True

    def __post_init__(self) -> None:
        positive(
            "state_space",
            inner=self.inner,
            state=self.state,
            conv_kernel=self.conv_kernel,
            heads=self.heads,
            groups=self.groups,
            dt_rank=self.dt_rank,
        )
        if (self.heads is None) == (self.dt_rank is None):
            raise InputError("state_space: give dt_rank (Mamba) or heads (Mamba-2), one of the two")
        if self.heads is not None and self.inner % self.heads:
            raise InputError(f"state_space: inner {self.inner} is not a multiple of heads {self.heads}")

    @property
    def conv_channels(self) -> int:
        """Channels that are convolved: with Mamba-2, B and C too."""
        return self.inner if self.heads is None else self.inner + 2 * self.groups * self.state

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """in: [2 inner (+ B, C and dt of Mamba-2), hidden], the convolution, x and dt of Mamba, A, D, out."""
        part = "recurrent"
        if self.heads is None:
            rank = self.dt_rank or 0
            out = [
                Tensor(part, "in", 2 * self.inner, hidden),
                Tensor(part, "x", rank + 2 * self.state, self.inner),
                Tensor(part, "dt", self.inner, rank),
                vector(part, "dt_bias", self.inner),
                Tensor(part, "a_log", self.inner, self.state, "vector"),
                vector(part, "skip", self.inner),
            ]
            if self.inner_norms:
                out += [vector("norms", "dt_norm", rank), vector("norms", "bc_norm", self.state, 2)]
        else:
            out = [
                Tensor(part, "in", self.inner + self.conv_channels + self.heads, hidden),
                vector(part, "dt_bias", self.heads),
                vector(part, "a_log", self.heads),
                vector(part, "skip", self.heads),
                vector("norms", "gate_norm", self.inner),
            ]
        out.append(Tensor(part, "out", hidden, self.inner))
        out.append(Tensor(part, "conv", self.conv_channels, self.conv_kernel, "vector"))
        if self.conv_bias:
            out.append(vector(part, "conv_bias", self.conv_channels))
        if self.proj_bias:
            out += [vector(part, "in_bias", out[0].rows), vector(part, "out_bias", hidden)]
        return tuple(out)

    def caches(self) -> tuple[CacheSpec, ...]:
        """conv_kernel - 1 columns of the convolution's channels, and inner x state numbers in fp32."""
        conv = State("conv", self.conv_channels, None, self.conv_kernel - 1, self.conv_kernel)
        return (CacheSpec("state_space", state=(conv, State("recurrent", self.inner * self.state, 4))),)

    def over_ranks(self, tp: int, ep: int) -> Block:
        heads = None if self.heads is None else divided(self.heads, tp, "state-space heads")
        groups = kv_heads_per_rank(self.groups, tp)
        return replace(self, inner=divided(self.inner, tp, "inner"), heads=heads, groups=groups)


@dataclass(frozen=True)
class LinearAttention(Fixed):
    """Attention whose past is a fixed matrix per head: `kind` gated_delta, lightning or rwkv.

    The state is key_dim x value_dim numbers per value head. gated_delta (Qwen3-Next; Gated
    DeltaNet, arXiv 2412.06464) convolves q, k and v first; lightning (MiniMax-01, arXiv 2501.08313)
    does not; rwkv (RWKV-4, arXiv 2305.13048) keeps three numbers per channel and the last input.
    """

    key = "linear_attention"

    kind: str
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("gated_delta", "lightning", "rwkv"):
            raise InputError(f"linear_attention: kind is gated_delta, lightning or rwkv, not '{self.kind}'")
        positive(
            "linear_attention",
            key_heads=self.key_heads,
            value_heads=self.value_heads,
            key_dim=self.key_dim,
            value_dim=self.value_dim,
            conv_kernel=self.conv_kernel,
        )
        if (self.kind == "gated_delta") != (self.conv_kernel is not None):
            raise InputError("linear_attention: conv_kernel belongs to gated_delta, and it needs one")

    @property
    def keys(self) -> int:
        """Width of all keys together."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """Width of all values together."""
        return self.value_heads * self.value_dim

    @property
    def conv_channels(self) -> int:
        """Channels that are convolved: queries, keys and values."""
        return 2 * self.keys + self.values

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """In-projections, the convolution, decays, the norm, out: [hidden, values]."""
        part = "recurrent"
        out = [Tensor(part, "out", hidden, self.values)]
        if self.kind == "gated_delta":
            out += [
                Tensor(part, "in", 2 * self.keys + 2 * self.values, hidden),
                Tensor(part, "ba", 2 * self.value_heads, hidden),
                Tensor(part, "conv", self.conv_channels, self.conv_kernel or 1, "vector"),
                vector(part, "dt_bias", self.value_heads),
                vector(part, "a_log", self.value_heads),
                vector("norms", "gate_norm", self.value_dim),
            ]
        elif self.kind == "lightning":
            out += [
                Tensor(part, "in", 2 * self.keys + self.values, hidden),
                Tensor(part, "gate", self.values, hidden),
                vector("norms", "out_norm", self.values),
            ]
        else:
            out += [
                Tensor(part, "in", 2 * self.keys + self.values, hidden),
                vector(part, "decay", self.keys, 2),
                vector(part, "mix", hidden, 3),
            ]
        return tuple(out)

    def caches(self) -> tuple[CacheSpec, ...]:
        """key_dim x value_dim numbers a value head in fp32; the convolution's columns."""
        if self.kind == "rwkv":
            # The last input of the time mix, and that of the channel mix.
            running = (State("recurrent", 3 * self.keys, 4), State("shift", self.keys, None, 2, 2))
            return (CacheSpec("linear_attention", state=running),)
        state: tuple[State, ...] = (State("recurrent", self.value_heads * self.key_dim * self.value_dim, 4),)
        if self.conv_kernel is not None:
            conv = State("conv", self.conv_channels, None, self.conv_kernel - 1, self.conv_kernel)
            state = (conv, *state)
        return (CacheSpec("linear_attention", state=state),)

    def over_ranks(self, tp: int, ep: int) -> Block:
        keys, values = divided(self.key_heads, tp, "key_heads"), divided(self.value_heads, tp, "value_heads")
        return replace(self, key_heads=keys, value_heads=values)


@dataclass(frozen=True)
class Recurrent(Fixed):
    """RG-LRU block: two projections to `width`, a convolution, a gated linear recurrence, one back.

    The two gates are block-diagonal over `heads`. Source: Griffin, arXiv 2402.19427, section 2.4.
    """

    key = "recurrent"

    width: int
    heads: int
    conv_kernel: int

    def __post_init__(self) -> None:
        positive("recurrent", width=self.width, heads=self.heads, conv_kernel=self.conv_kernel)
        if self.width % self.heads:
            raise InputError(f"recurrent: width {self.width} is not a multiple of heads {self.heads}")

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """in: [2 width, hidden], two block-diagonal gates, convolution, decay, out: [hidden, width]."""
        part, block = "recurrent", self.width // self.heads
        return (
            Tensor(part, "in", 2 * self.width, hidden),
            vector(part, "in_bias", 2 * self.width),
            Tensor(part, "out", hidden, self.width),
            vector(part, "out_bias", hidden),
            Tensor(part, "conv", self.width, self.conv_kernel, "vector"),
            vector(part, "conv_bias", self.width),
            Tensor(part, "gates", block, block, copies=2 * self.heads),
            vector(part, "gates_bias", self.width, 2),
            vector(part, "decay", self.width),
        )

    def caches(self) -> tuple[CacheSpec, ...]:
        """One number a channel in fp32, and conv_kernel - 1 columns."""
        kept = self.conv_kernel - 1
        conv = State("conv", self.width, None, kept, kept)
        return (CacheSpec("recurrent", state=(conv, State("recurrent", self.width, 4))),)

    def over_ranks(self, tp: int, ep: int) -> Block:
        width, heads = divided(self.width, tp, "width"), divided(self.heads, tp, "heads")
        return replace(self, width=width, heads=heads)


@dataclass(frozen=True)
class ShortConvolution(Fixed):
    """A gated convolution of `kernel` taps over `width` channels: three projections in, one out (LFM2)."""

    key = "short_convolution"

    width: int
    kernel: int
    bias: bool = False

    def __post_init__(self) -> None:
        positive("short_convolution", width=self.width, kernel=self.kernel)

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """in: [3 width, hidden], `kernel` taps a channel, out: [hidden, width]."""
        out = [
            Tensor("recurrent", "in", 3 * self.width, hidden),
            Tensor("recurrent", "out", hidden, self.width),
            Tensor("recurrent", "conv", self.width, self.kernel, "vector"),
        ]
        if self.bias:
            sizes = {"in_bias": 3 * self.width, "out_bias": hidden, "conv_bias": self.width}
            out += [vector("recurrent", name, size) for name, size in sizes.items()]
        return tuple(out)

    def caches(self) -> tuple[CacheSpec, ...]:
        """kernel - 1 columns of `width` channels."""
        conv = State("conv", self.width, None, self.kernel - 1, self.kernel)
        return (CacheSpec("state_space", state=(conv,)),)

    def over_ranks(self, tp: int, ep: int) -> Block:
        return replace(self, width=divided(self.width, tp, "width"))
