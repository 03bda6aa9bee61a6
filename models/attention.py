"""Mixers that keep rows of past tokens: attention, latent attention, cross attention."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import InputError
from .block import Block, Exchange, Mixer
from .cache import CacheSpec, Rows
from .dimensions import MAX_DIMENSION, divided, kv_heads_per_rank, positive
from .tensor import Tensor, vector


@dataclass(frozen=True)
class Attention(Mixer):
    """Softmax attention with its own K and V rows: MHA, GQA or MQA by `kv_heads`.

    `window` tokens are visible (None: all). `bias` names the projections that carry one, as a word
    over q, k, v, o. `qk_norm` is "" or "head" (one weight per head_dim) or "full" (over all heads).
    `rope_dim` values of each head are rotated (None: head_dim; 0: none). `gated`: an output gate as
    wide as the queries comes out of the query projection. `sinks`: one learned logit per head.
    `shared_from`: index of the layer whose cache is read (in a sheet also -n, the n-th before it): rows
    as many, as wide and kept as long; nothing is stored, nor K or V projected.
    `v_from_k`: V is the K projection again (both are stored). `causal` False: every position sees
    every other and nothing is cached. `input_width`: width of its input where not the hidden one.
    `weights_of`: index of the layer whose weights these are; they are read here and stored there.
    """

    key = "attention"

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

    def caches(self) -> tuple[CacheSpec, ...]:
        """K and V rows of one token, kv_heads of each; none of its own where another layer's are read."""
        rows = (Rows(self.kv_heads, self.head_dim), Rows(self.kv_heads, self.v_width))
        stored = self.shared_from is None and self.causal
        return (CacheSpec("attention", rows, self.window, stored=stored),)

    def over_ranks(self, tp: int, ep: int) -> Block:
        heads = divided(self.heads, tp, "heads")
        return replace(self, heads=heads, kv_heads=kv_heads_per_rank(self.kv_heads, tp))

    def prunable(self) -> dict[str, str]:
        return {"heads": "heads", "kv_heads": "kv_heads"}

    def exchange(self) -> Exchange | None:
        rows = sum(cache.values_per_token for cache in self.caches())
        return Exchange(rows, self.heads * self.v_width + 2 * self.heads)


@dataclass(frozen=True)
class LatentAttention(Mixer):
    """Multi-head latent attention: one latent row of `kv_lora_rank + rope_dim` values per token.

    V is a slice of that row, so it is stored once. `q_lora_rank` None: queries are projected
    directly. `index_heads` x `index_dim`: a sparse-attention indexer with its own key cache, of
    which `index_top_k` tokens are then attended. `bias` as in `Attention`, over o, k (the
    latent's projection) and q (its first one, so only with a `q_lora_rank`).
    Source: DeepSeek-V2, arXiv 2405.04434, section 2.1; DeepSeek-V3.2 for the indexer.
    """

    key = "latent_attention"

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

    def caches(self) -> tuple[CacheSpec, ...]:
        """One latent row of kv_lora_rank + rope_dim values a token, and the indexer's key."""
        rows = [Rows(1, self.latent_dim, self.index_top_k)]
        if self.index_heads:
            rows.append(Rows(1, self.index_dim))
        return (CacheSpec("latent", tuple(rows)),)

    def over_ranks(self, tp: int, ep: int) -> Block:
        """Its heads; every rank has the whole cache, whose one row all of them read."""
        return replace(self, heads=divided(self.heads, tp, "heads"))

    def prunable(self) -> dict[str, str]:
        return {"heads": "heads"}

    def exchange(self) -> Exchange | None:
        rows = sum(cache.values_per_token for cache in self.caches())
        return Exchange(rows, self.heads * self.v_head_dim + 2 * self.heads)


@dataclass(frozen=True)
class CrossAttention(Mixer):
    """Attention from the decoder over encoder positions, whose K and V are projected once.

    `source_width`: width of the encoder's output (None: the decoder's own hidden width).
    """

    key = "cross_attention"

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

    def caches(self) -> tuple[CacheSpec, ...]:
        """K and V of every encoder position, written once at prefill."""
        row = Rows(self.kv_heads, self.head_dim)
        return (CacheSpec("cross_attention", (row, row), counts="encoder"),)

    def over_ranks(self, tp: int, ep: int) -> Block:
        heads = divided(self.heads, tp, "heads")
        return replace(self, heads=heads, kv_heads=kv_heads_per_rank(self.kv_heads, tp))

    def prunable(self) -> dict[str, str]:
        return {"heads": "heads", "kv_heads": "kv_heads"}

    def exchange(self) -> Exchange | None:
        return None
