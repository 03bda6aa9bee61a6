"""Token mixers: the blocks of a layer that look across positions, with their tensors and caches."""

from __future__ import annotations

from dataclasses import dataclass

from .. import InputError
from .cache import CacheSpec, Rows, State
from .tensor import Tensor, vector

MAX_DIMENSION = 1 << 24
"""No width, head count or expert count of a real model comes near this; larger is a mistake."""


def positive(owner: str, **values: int | None) -> None:
    """Refuse sizes that are not between 1 and `MAX_DIMENSION`; None passes."""
    for name, value in values.items():
        if value is not None and not 1 <= value <= MAX_DIMENSION:
            raise InputError(f"{owner}: {name} must be between 1 and {MAX_DIMENSION:,}, not {value}")


@dataclass(frozen=True)
class Attention:
    """Softmax attention with its own K and V rows: MHA, GQA or MQA by `kv_heads`.

    `window` tokens are visible (None: all). `bias` names the projections that carry one, as a word
    over q, k, v, o. `qk_norm` is "" or "head" (one weight per head_dim) or "full" (over all heads).
    `rope_dim` values of each head are rotated (None: head_dim; 0: none). `gated`: an output gate as
    wide as the queries comes out of the query projection. `sinks`: one learned logit per head.
    `shared_from`: index of the layer whose cache is read; nothing is stored, nor K or V projected.
    `v_from_k`: V is the K projection again (both are stored). `causal` False: every position sees
    every other and nothing is cached. `input_width`: width of its input where not the hidden one.
    `weights_of`: index of the layer whose weights these are; they are read here and stored there.
    """

    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int | None = None
    window: int | None = None
    bias: str = ""
    qk_norm: str = ""
    rope_dim: int | None = None
    gated: bool = False
    sinks: bool = False
    shared_from: int | None = None
    v_from_k: bool = False
    causal: bool = True
    input_width: int | None = None
    weights_of: int | None = None

    def __post_init__(self) -> None:
        positive(
            "attention",
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            v_head_dim=self.v_head_dim,
            window=self.window,
            input_width=self.input_width,
        )
        if self.heads % self.kv_heads:
            raise InputError(
                f"attention: {self.heads} heads cannot share {self.kv_heads} kv_heads evenly; "
                f"kv_heads must divide heads"
            )
        if not set(self.bias) <= set("qkvo"):
            raise InputError(f"attention: bias is a word over q, k, v, o, not '{self.bias}'")
        if self.qk_norm not in ("", "head", "full"):
            raise InputError(f"attention: qk_norm is 'head' or 'full', not '{self.qk_norm}'")
        if self.rope_dim is not None and not 0 <= self.rope_dim <= self.head_dim:
            raise InputError(f"attention: rope_dim must be between 0 and head_dim, not {self.rope_dim}")

    @property
    def v_width(self) -> int:
        """Width of a value head: `v_head_dim`, else head_dim."""
        return self.head_dim if self.v_head_dim is None else self.v_head_dim

    @property
    def rotated(self) -> int:
        """Values of a head that rotary embedding turns."""
        return self.head_dim if self.rope_dim is None else self.rope_dim

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """q, k, v: [heads x dim, hidden], o: [hidden, heads x v_dim]; biases, norms, sinks where said."""
        queries = self.heads * self.head_dim
        keys = self.kv_heads * self.head_dim
        values = self.kv_heads * self.v_width
        outputs = self.heads * self.v_width
        q_rows = queries + (outputs if self.gated else 0)
        stored = self.shared_from is None
        width = self.input_width or hidden
        out = [Tensor("attention", "q", q_rows, width)]
        if stored:
            out.append(Tensor("attention", "k", keys, width))
            if not self.v_from_k:
                out.append(Tensor("attention", "v", values, width))
        out.append(Tensor("attention", "o", hidden, outputs))
        sizes = {"q": q_rows, "k": keys, "v": values, "o": hidden}
        here = "qkvo" if stored else "qo"
        out += [vector("attention", f"{p}_bias", sizes[p]) for p in here if p in self.bias]
        if self.qk_norm:
            full = self.qk_norm == "full"
            out.append(vector("norms", "q_norm", queries if full else self.head_dim))
            if stored:
                out.append(vector("norms", "k_norm", keys if full else self.head_dim))
        if self.sinks:
            out.append(vector("attention", "sinks", self.heads))
        return tuple(out)

    def cache(self) -> CacheSpec:
        """K and V rows of one token, kv_heads of each; none of its own where another layer's are read."""
        rows = (Rows(self.kv_heads, self.head_dim), Rows(self.kv_heads, self.v_width))
        return CacheSpec("attention", rows, self.window, stored=self.shared_from is None and self.causal)


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention: one latent row of `kv_lora_rank + rope_dim` values per token.

    V is a slice of that row, so it is stored once. `q_lora_rank` None: queries are projected
    directly. `index_heads` x `index_dim`: a sparse-attention indexer with its own key cache, of
    which `index_top_k` tokens are then attended. `bias` as in `Attention`, over q, k, o.
    Source: DeepSeek-V2, arXiv 2405.04434, section 2.1; DeepSeek-V3.2 for the indexer.
    """

    heads: int
    kv_lora_rank: int
    nope_dim: int
    rope_dim: int
    v_head_dim: int
    q_lora_rank: int | None = None
    index_heads: int = 0
    index_dim: int = 0
    index_top_k: int | None = None
    bias: str = ""

    def __post_init__(self) -> None:
        positive(
            "latent_attention",
            heads=self.heads,
            kv_lora_rank=self.kv_lora_rank,
            nope_dim=self.nope_dim,
            rope_dim=self.rope_dim,
            v_head_dim=self.v_head_dim,
            q_lora_rank=self.q_lora_rank,
            index_top_k=self.index_top_k,
        )
        if max(self.index_heads, self.index_dim) > MAX_DIMENSION:
            raise InputError(f"latent_attention: index sizes must be at most {MAX_DIMENSION:,}")
        if (self.index_heads > 0) != (self.index_dim > 0) or min(self.index_heads, self.index_dim) < 0:
            raise InputError("latent_attention: index_heads and index_dim come together")
        if self.index_heads and not self.q_lora_rank:
            raise InputError("latent_attention: the indexer projects its queries from q_lora_rank")
        if not set(self.bias) <= set("qko"):
            raise InputError(f"latent_attention: bias is a word over q, k, o, not '{self.bias}'")

    @property
    def qk_dim(self) -> int:
        """Width of a query head, as scores are computed without absorption."""
        return self.nope_dim + self.rope_dim

    @property
    def latent_dim(self) -> int:
        """Values of the row that is cached."""
        return self.kv_lora_rank + self.rope_dim

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """q_a, q_b (or q), kv_a: [latent_dim, hidden], kv_b: [heads x (nope + v), kv_lora_rank], o."""
        queries = self.heads * self.qk_dim
        out: list[Tensor] = []
        if self.q_lora_rank is None:
            out.append(Tensor("attention", "q", queries, hidden))
        else:
            out.append(Tensor("attention", "q_a", self.q_lora_rank, hidden))
            out.append(Tensor("attention", "q_b", queries, self.q_lora_rank))
            out.append(vector("norms", "q_a_norm", self.q_lora_rank))
            if "q" in self.bias:
                out.append(vector("attention", "q_a_bias", self.q_lora_rank))
        out.append(Tensor("attention", "kv_a", self.latent_dim, hidden))
        out.append(vector("norms", "kv_a_norm", self.kv_lora_rank))
        out.append(
            Tensor("attention", "kv_b", self.heads * (self.nope_dim + self.v_head_dim), self.kv_lora_rank)
        )
        out.append(Tensor("attention", "o", hidden, self.heads * self.v_head_dim))
        if "k" in self.bias:
            out.append(vector("attention", "kv_a_bias", self.latent_dim))
        if "o" in self.bias:
            out.append(vector("attention", "o_bias", hidden))
        if self.index_heads and self.q_lora_rank:
            out.append(Tensor("attention", "index_q", self.index_heads * self.index_dim, self.q_lora_rank))
            out.append(Tensor("attention", "index_k", self.index_dim, hidden))
            out.append(Tensor("attention", "index_weights", self.index_heads, hidden))
            out.append(vector("norms", "index_k_norm", self.index_dim, 2))
        return tuple(out)

    def cache(self) -> CacheSpec:
        """One latent row of kv_lora_rank + rope_dim values a token, and the indexer's key."""
        rows = [Rows(1, self.latent_dim, self.index_top_k)]
        if self.index_heads:
            rows.append(Rows(1, self.index_dim))
        return CacheSpec("latent", tuple(rows))


@dataclass(frozen=True)
class StateSpace:
    """Mamba (no `heads`) or Mamba-2 (`heads` of `inner / heads` channels).

    `inner` channels with `state` numbers each; a causal convolution of `conv_kernel` taps comes
    first. Mamba projects its step size through `dt_rank`, and `inner_norms` adds Jamba's norms of
    dt, B and C; Mamba-2 shares B and C among `groups` and gates through a norm over `inner`.
    Source: Mamba, arXiv 2312.00752, section 3; Mamba-2, arXiv 2405.21060, section 7.
    """

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

    def cache(self) -> CacheSpec:
        """conv_kernel - 1 columns of the convolution's channels, and inner x state numbers in fp32."""
        conv = State("conv", self.conv_channels, None, self.conv_kernel - 1, self.conv_kernel)
        return CacheSpec("state_space", state=(conv, State("recurrent", self.inner * self.state, 4)))


@dataclass(frozen=True)
class LinearAttention:
    """Attention whose past is a fixed matrix per head: `kind` gated_delta, lightning or rwkv.

    The state is key_dim x value_dim numbers per value head. gated_delta (Qwen3-Next; Gated
    DeltaNet, arXiv 2412.06464) convolves q, k and v first; lightning (MiniMax-01, arXiv 2501.08313)
    does not; rwkv (RWKV-4, arXiv 2305.13048) keeps three numbers per channel and the last input.
    """

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

    def cache(self) -> CacheSpec:
        """key_dim x value_dim numbers a value head in fp32; the convolution's columns."""
        if self.kind == "rwkv":
            # The last input of the time mix, and that of the channel mix.
            running = (State("recurrent", 3 * self.keys, 4), State("shift", self.keys, None, 2, 2))
            return CacheSpec("linear_attention", state=running)
        state: tuple[State, ...] = (State("recurrent", self.value_heads * self.key_dim * self.value_dim, 4),)
        if self.conv_kernel is not None:
            conv = State("conv", self.conv_channels, None, self.conv_kernel - 1, self.conv_kernel)
            state = (conv, *state)
        return CacheSpec("linear_attention", state=state)


@dataclass(frozen=True)
class Recurrent:
    """RG-LRU block: two projections to `width`, a convolution, a gated linear recurrence, one back.

    The two gates are block-diagonal over `heads`. Source: Griffin, arXiv 2402.19427, section 2.4.
    """

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

    def cache(self) -> CacheSpec:
        """One number a channel in fp32, and conv_kernel - 1 columns."""
        kept = self.conv_kernel - 1
        conv = State("conv", self.width, None, kept, kept)
        return CacheSpec("recurrent", state=(conv, State("recurrent", self.width, 4)))


@dataclass(frozen=True)
class CrossAttention:
    """Attention from the decoder over encoder positions, whose K and V are projected once.

    `source_width`: width of the encoder's output (None: the decoder's own hidden width).
    """

    heads: int
    kv_heads: int
    head_dim: int
    bias: str = ""
    source_width: int | None = None

    def __post_init__(self) -> None:
        positive(
            "cross_attention",
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            source_width=self.source_width,
        )
        if self.heads % self.kv_heads:
            raise InputError("cross_attention: kv_heads must divide heads")
        if not set(self.bias) <= set("qkvo"):
            raise InputError(f"cross_attention: bias is a word over q, k, v, o, not '{self.bias}'")

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """q and o over hidden; k, v: [kv_heads x head_dim, source_width]."""
        source = self.source_width or hidden
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        sizes = {"q": queries, "k": keys, "v": keys, "o": hidden}
        return (
            Tensor("attention", "cross_q", queries, hidden),
            Tensor("attention", "cross_k", keys, source),
            Tensor("attention", "cross_v", keys, source),
            Tensor("attention", "cross_o", hidden, queries),
            *(vector("attention", f"cross_{p}_bias", sizes[p]) for p in "qkvo" if p in self.bias),
        )

    def cache(self) -> CacheSpec:
        """K and V of every encoder position, written once at prefill."""
        row = Rows(self.kv_heads, self.head_dim)
        return CacheSpec("cross_attention", (row, row))


@dataclass(frozen=True)
class ShortConvolution:
    """A gated convolution of `kernel` taps over `width` channels: three projections in, one out (LFM2)."""

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

    def cache(self) -> CacheSpec:
        """kernel - 1 columns of `width` channels."""
        conv = State("conv", self.width, None, self.kernel - 1, self.kernel)
        return CacheSpec("state_space", state=(conv,))


Mixer = (
    Attention | LatentAttention | StateSpace | LinearAttention | Recurrent | ShortConvolution | CrossAttention
)
