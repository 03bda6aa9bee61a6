"""Speculative decoding: what a round of drafting and verifying yields, and what it costs.

A round drafts γ tokens and then passes the target once over all of them: a verify step has γ + 1 new tokens
a sequence over the cached context, and yields one token more than it accepts. That pass is free only while
it waits for memory. Source: Leviathan et al., arXiv 2211.17192; seed ledger, sp.*.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from .. import InputError
from ..models.ffn import Projections
from ..models.recipes import find_recipe, sixteen_bit
from ..models.spec import Layer, Model
from .arith import ceil_div
from .kv import cache_bill
from .memory import peak_memory
from .roofline import ridge, turning_tokens, work_math
from .setting import Cost, Setting, step_cost
from .sharding import Parallel
from .step import Segment, Step
from .weights import weight_bill

MAX_DRAFT = 64
MAX_TREE = 1024
OUTSIDE_LAYERS = 2
"""Host work of a pass outside its layers, in layers' worth of launches: one for embedding, mask, last norm
and head, one for choosing tokens and copying them to the host. An assumption, the same for every method;
held to Spec-Bench, 1 leaves a median error of 15 %, 2 of 10, 3 of 7."""
KINDS = ("bound", "floor", "expected")
MATRICES = ("attention", "mlp", "experts", "shared_experts", "recurrent", "projections")


def expected_tokens(alpha: float, gamma: int) -> float:
    """(1 - α^(γ+1)) / (1 - α): tokens of a round whose γ drafted ones are each accepted with probability α.

    Source: arXiv 2211.17192, equation 1.
    """
    return sum(alpha**i for i in range(gamma + 1))


def acceptance(tokens: float, gamma: int) -> float:
    """α at which rounds of γ drafted tokens yield `tokens` in the mean: the inverse of `expected_tokens`.

    Raises InputError where no α does: a round yields between 1 and γ + 1.
    """
    if not 1 <= tokens <= gamma + 1:
        raise InputError(
            f"{tokens:g} tokens of a round of {gamma} drafted ones: it yields between 1 and {gamma + 1}"
        )
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if expected_tokens(middle, gamma) < tokens else (low, middle)
    return (low + high) / 2


def operations(tokens: float, passes: float, draft: float, verify_tokens: int) -> float:
    """(γĉ + γ + 1) / E: FLOPs per token over those of plain decoding, `draft` (ĉ) being those of a draft pass
    over those of a step. Source: arXiv 2211.17192, section 3.4."""
    return (passes * draft + verify_tokens) / tokens


def tree_tokens(ranks: Sequence[Sequence[float]], size: int) -> tuple[float, int]:
    """Tokens of a round that verifies a tree, and how many tokens that tree has, the root counted.

    `ranks[k][j]`: probability that head k's j-th best guess is right, all above it being so. Of all paths the
    `size` most probable are kept, as Medusa grows its tree; E = Σ over nodes of their path's probability, the
    root's 1. One guess a head is the chain 1 + p1 + p1·p2 + ...
    Source: Medusa, arXiv 2401.10774, section 2.3.3; seed ledger, sp.medusa.
    """
    level = every = [1.0]
    for guesses in ranks:
        level = sorted((path * share for path in level for share in guesses), reverse=True)[:size]
        every = every + level
    kept = sorted(every, reverse=True)[:size]
    return sum(kept), len(kept)


class Walk(NamedTuple):
    """Rounds as they went: `accepted` drafted tokens of each, of `gamma` drafted."""

    accepted: tuple[int, ...]
    gamma: int

    def checked(self) -> Walk:
        """Raises InputError where a round accepts more than was drafted."""
        if not 1 <= self.gamma <= MAX_DRAFT:
            raise InputError(f"{self.gamma} drafted tokens a round: between 1 and {MAX_DRAFT}")
        if not self.accepted or not all(0 <= each <= self.gamma for each in self.accepted):
            raise InputError(f"each round accepts between 0 and the {self.gamma} tokens it drafts")
        return self

    @property
    def yields(self) -> tuple[int, ...]:
        """Tokens of each round: what it accepts and the target's own one after it. A last round that accepts
        its whole draft ends the text there: the one more would be the end mark. Source: seed 001, 4."""
        ended = self.accepted[-1] == self.gamma
        return tuple(
            each + (0 if ended and i == len(self.accepted) - 1 else 1) for i, each in enumerate(self.accepted)
        )

    @property
    def tokens(self) -> int:
        return sum(self.yields)

    @property
    def passes(self) -> int:
        """Passes of the target: one a round."""
        return len(self.accepted)

    @property
    def drafted(self) -> int:
        return self.passes * self.gamma

    @property
    def kept(self) -> int:
        return sum(self.accepted)

    @property
    def examined(self) -> int:
        """Drafted tokens that were looked at: up to the first wrong one of each round."""
        return sum(min(each + 1, self.gamma) for each in self.accepted)

    def round(self, draft: float, verify: float) -> Round:
        """The mean round, with costs in steps of the target."""
        return Round(self.tokens / self.passes, self.gamma, draft, verify)


class Round(NamedTuple):
    """`tokens` of a round of `passes` draft passes of `draft` each and a verify pass, against plain steps.

    Costs in seconds, or in steps of the target (`step` 1). `around`: host work of a round beside its passes.
    """

    tokens: float
    passes: float
    draft: float
    verify: float
    step: float = 1.0
    around: float = 0.0

    @property
    def cost(self) -> float:
        return self.passes * self.draft + self.verify + self.around

    @property
    def speedup(self) -> float:
        """E / (γc + v). Source: arXiv 2211.17192, theorem 3.8, with a verify pass that is not free."""
        return self.tokens * self.step / self.cost

    @property
    def break_even_draft(self) -> float | None:
        """A draft pass, in steps of the target, at which nothing is gained: (E - v) / γ; below zero where
        even a free draft loses, None where nothing is drafted by passes."""
        spare = self.tokens * self.step - self.verify - self.around
        return spare / self.passes / self.step if self.passes else None


class Draft(NamedTuple):
    """What drafts. `setting` is one pass of it (None: a lookup in the text, at no cost), over `layers`.

    `at_once`: one pass drafts all tokens (Medusa's heads). `width` tokens of each sequence go through a pass.
    `shared`: it has the target's embedding and head.
    """

    name: str
    setting: Setting | None = None
    layers: int = 0
    at_once: bool = False
    width: int = 1
    shared: bool = False

    def passes(self, gamma: float) -> float:
        if self.setting is None:
            return 0
        return 1 if self.at_once else gamma


LOOKUP = Draft("lookup")
"""Drafted tokens are copied from the text so far, or from a store: the device does nothing for them."""


def model_draft(setting: Setting) -> Draft:
    """A model of its own, a decode step a drafted token."""
    return Draft(setting.model.name, setting, len(setting.model.layers))


def layer_draft(target: Setting, name: str) -> Draft:
    """One layer like the target's last over [embedding, hidden] projected to hidden; embedding and head are
    the target's. An EAGLE draft, or a multi-token-prediction module used again and again.

    Raises InputError for a target whose last layer cannot stand alone.
    Source: EAGLE, arXiv 2401.15077, section 4.1; DeepSeek-V3, arXiv 2412.19437, section 2.2.
    """
    model = target.model
    last = model.layers[-1]
    borrowed = any(
        getattr(block, key, None) is not None
        for block in last.blocks
        for key in ("shared_from", "weights_of")
    )
    if model.encoder is not None or borrowed:
        raise InputError(f"--draft {name}: the last layer of {model.name} does not stand alone")
    fused = Projections(f"{2 * model.hidden}x{model.hidden}")
    one = replace(last, blocks=(fused, *last.blocks), norms=last.norms + 2)
    # In a file's formats, if it is of one: those of the last layer, which is the only one here.
    final = len(model.layers) - 1
    stored = tuple((min(at, 0), part, name, fmt) for at, part, name, fmt in model.stored if at in (-1, final))
    draft = replace(model, layers=(one,), towers=(), stored=stored)
    return Draft(name, target._replace(model=draft), 1, shared=True)


def medusa_draft(target: Setting, heads: int) -> Draft:
    """`heads` heads beside the target's own, each a residual H x H layer and an H x V matrix in 16 bit, all
    at once on the last hidden state. Source: Medusa, arXiv 2401.10774, section 2.1.1."""
    model = target.model
    hidden, vocab = model.hidden, model.vocab
    block = Projections(f"{hidden}x{hidden}*{heads} {hidden}x{vocab}*{heads}")
    stack = replace(
        model, layers=(Layer((block,), norms=0),), encoder=None, input_end=False, output_end=False, stored=()
    )
    run = replace(target.run, recipe=find_recipe(sixteen_bit(model)))
    return Draft("medusa", target._replace(model=stack, run=run, parallel=Parallel()), at_once=True)


class DraftMemory(NamedTuple):
    """Bytes beside the target: the draft's weights and cache. `shared` are those of an embedding and a head
    that it has from the target; `kv_per_token` is of both models together."""

    weights: int
    cache: int
    shared: int
    kv_per_token: int


class Passes(NamedTuple):
    """Kernels of a plain step, of a draft pass (None: nothing is launched) and of a verify pass."""

    plain: Cost
    draft: Cost | None
    verify: Cost


class Verified(NamedTuple):
    """Rounds of one draft length, by kind of time; `passes` are their kernels alone."""

    gamma: float
    verify_tokens: int
    rounds: dict[str, Round | None]
    passes: Passes

    @property
    def best(self) -> Round:
        """By expected times, or by the floors where none are expected."""
        found = self.rounds["expected"] or self.rounds["floor"]
        assert found is not None
        return found


class Speculation(NamedTuple):
    """A target, what drafts for it, and `batch` sequences of `context` tokens, the next one counted.

    `host_s`: seconds the host takes to launch one layer; 0 where steps are replayed from CUDA graphs.
    """

    target: Setting
    draft: Draft
    batch: int
    context: int
    host_s: float = 0.0

    def step(self, new: int) -> Step:
        """`new` tokens of every sequence after those that are cached, logits of each."""
        return Step("verify" if new > 1 else "decode", (Segment(self.batch, new, self.context - 1, new),))

    def passes(self, verify_tokens: int) -> Passes:
        """Kernels of a round that verifies so many tokens of each sequence."""
        draft = self.draft
        return Passes(
            step_cost(self.target, self.step(1)),
            None if draft.setting is None else step_cost(draft.setting, self.step(draft.width)),
            step_cost(self.target, self.step(verify_tokens)),
        )

    def verified(self, tokens: float, gamma: float, verify_tokens: int, passes: Passes) -> Verified:
        """A round that yields `tokens` of `gamma` drafted ones."""
        layers, drafted = len(self.target.model.layers), self.draft.passes(gamma)
        times = [None if each is None else each.times() for each in passes]
        rounds: dict[str, Round | None] = {}
        for kind in KINDS:
            plain, draft, verify = (0.0 if each is None else each[kind] for each in times)
            if plain is None or draft is None or verify is None:
                rounds[kind] = None
                continue
            rounds[kind] = Round(
                tokens,
                drafted,
                self.launched(draft, self.draft.layers) if drafted else 0.0,
                self.launched(verify, layers),
                self.launched(plain, layers),
                OUTSIDE_LAYERS * self.host_s,
            )
        return Verified(gamma, verify_tokens, rounds, passes)

    def launched(self, kernels_s: float, layers: int) -> float:
        """A pass launched layer by layer: the longer of kernels and launches, for the host runs ahead."""
        return max(kernels_s, self.host_s * (layers + OUTSIDE_LAYERS))

    def lengths(self, alpha: float, gammas: Iterable[int]) -> list[Verified]:
        """Rounds of each of these draft lengths."""
        out: list[Verified] = []
        for gamma in gammas:
            if out:
                passes = out[0].passes._replace(verify=step_cost(self.target, self.step(gamma + 1)))
            else:
                passes = self.passes(gamma + 1)
            out.append(self.verified(expected_tokens(alpha, gamma), gamma, gamma + 1, passes))
        return out

    def memory(self) -> DraftMemory:
        """What the draft takes beside the target, at this context."""
        model, kv = self.target.model, self.target.run.kv
        per_token = cache_bill(model, self.context, 1, kv).bytes_per_token
        if self.draft.setting is None:
            return DraftMemory(0, 0, 0, per_token)
        setting = self.draft.setting
        own, shared = setting.model, 0
        whole = weight_bill(own, setting.recipe, self.batch).weight_bytes
        if self.draft.shared:
            own = replace(own, input_end=False, output_end=False)
            shared = whole - weight_bill(own, setting.recipe, self.batch).weight_bytes
        bill = cache_bill(own, self.context, self.batch, setting.run.kv)
        return DraftMemory(whole - shared, bill.logical_bytes, shared, per_token + bill.bytes_per_token)

    def rank_bytes(self, verify_tokens: int) -> int:
        """What the fullest rank holds in a verify pass: the target's bill, and its share of the draft."""
        held = self.context + verify_tokens - 1
        target = peak_memory(self.target, held, self.batch, self.step(verify_tokens)).total
        if self.draft.setting is None:
            return target
        own = self.memory()
        return target + ceil_div(own.weights + own.cache, self.draft.setting.parallel.world)


def free_tokens(setting: Setting) -> float:
    """Tokens of a step up to which its layers' matrices wait for memory, weights alone: ridge · b_w / 2.

    153 for 16-bit weights on an A100, 38 for bare 4-bit ones: a first estimate, for experts too high.
    Source: seed ledger, sp.verify.
    """
    bill = weight_bill(setting.model, setting.recipe)
    matrices = [part for part in bill.components if part.name in MATRICES]
    each = sum(part.bytes for part in matrices) / sum(part.parameters for part in matrices)
    return turning_tokens(ridge(setting.gpu, main_type(setting)).datasheet, each)


def main_type(setting: Setting) -> str:
    """The type that most of a decode step's matrix products are in."""
    amounts: dict[str, int] = {}
    for _, kernels, _ in setting.stages(Step("decode", (Segment(1, 1, 0, 1),))):
        for op in kernels:
            if work_math(op.work):
                amounts[work_math(op.work)] = amounts.get(work_math(op.work), 0) + op.matmul_flops
    return max(amounts, key=lambda name: amounts[name])


def fastest(lengths: Iterable[Verified]) -> Verified:
    """The draft length that gains most; the shortest of equals."""
    return max(lengths, key=lambda each: (each.best.speedup, -each.gamma))


def heuristic_draft(tokens: float) -> tuple[float, float]:
    """(α, mean γ) of transformers' assisted generation where its rounds yield `tokens` in the mean.

    It drafts two more after a round that was accepted whole and one fewer, down to one, after any other. That
    walk rests where as many rounds go up past a length as come down: π_{n+1}(1 - α^{n+1}) =
    π_n·α^n + π_{n-1}·α^{n-1}. Raises InputError below 1 token.
    Source: transformers 4.37, AssistedCandidateGenerator.update_candidate_strategy.
    """
    if tokens <= 1:
        raise InputError(f"{tokens:g} tokens a round: a round that accepts anything yields more than 1")
    low, high, length = 0.0, 1 - 1e-6, 1.0
    for _ in range(50):
        alpha = (low + high) / 2
        shares = [0.0, 1.0]
        for n in range(1, MAX_DRAFT):
            up = shares[n] * alpha**n + (shares[n - 1] * alpha ** (n - 1) if n > 1 else 0.0)
            shares.append(up / (1 - alpha ** (n + 1)))
        total = sum(shares)
        length = sum(n * share for n, share in enumerate(shares)) / total
        yields = sum(expected_tokens(alpha, n) * share for n, share in enumerate(shares)) / total
        low, high = (alpha, high) if yields < tokens else (low, alpha)
    return (low + high) / 2, length


def target_model(model: Model) -> Model:
    """The model, if it can verify drafts. Raises InputError for an encoder-decoder."""
    if model.encoder is not None:
        raise InputError(f"{model.name}: speculation is of decoders; this one has an encoder")
    return model
