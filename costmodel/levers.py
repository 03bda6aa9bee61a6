"""Levers: what could be done about a deployment. Each is one pure function of it, and stands here whole.

A lever takes a `Deployment` (and a value, where it has one) and returns the changed one, or raises InputError
with the reason why it does not apply. What it gains is never estimated: the changed deployment is evaluated
like any other. `docs/levers.md` says how to add one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from .. import InputError
from ..hardware.engine import Engine
from ..hardware.spec import Gpu
from ..models.attention import Attention
from ..models.ffn import Experts
from ..models.formats import Format, find_format
from ..models.recipes import Recipe, find_recipe
from ..models.spec import Block, Model
from .compression import Kept, present, pruned
from .deployment import BLOCK_TOKENS, Deployment, Drafting, Exiting, fits
from .expected import Clock
from .kv import cache_bill
from .offload import Offload
from .request import Setting
from .speculative import MAX_DRAFT, MAX_TREE, expected_tokens, tree_tokens
from .weights import weight_bill

RESOURCES = {
    "arithmetic": "arithmetic of the matrices",
    "scores": "arithmetic of attention",
    "weights": "the weights",
    "cache": "the cache",
    "activations": "activations",
    "launches": "starting small kernels",
    "links": "links between devices",
    "host": "the engine's host",
    "waiting": "waiting for other prompts",
}
"""What time and memory go to; a lever names those that it attacks."""
Tries = tuple[str, ...] | Callable[[Deployment], Iterable[str]]


class Lever(NamedTuple):
    """`change` of a deployment; `takes`: the kind of its value ("" for none); `tries`: values to rank where
    none is named, as a person would write them; `price` begins with its kind: none, quality, training,
    hardware, latency or assumed; `options` of `serve` that say the same ("" where none do).
    """

    name: str
    change: Callable[..., Deployment]
    takes: str
    tries: Tries
    attacks: tuple[str, ...]
    does: str
    price: str
    options: str

    def values(self, plan: Deployment) -> tuple[str, ...]:
        """The values to try on `plan`; one empty one where the lever takes none."""
        if not self.takes:
            return ("",)
        return tuple(self.tries(plan)) if callable(self.tries) else self.tries


LEVERS: dict[str, Lever] = {}
"""Every lever by its name, in the order in which equals are listed."""


def lever(
    name: str,
    *,
    does: str,
    price: str,
    options: str = "",
    attacks: str = "",
    takes: str = "",
    tries: Tries = (),
) -> Callable[[Callable[..., Deployment]], Callable[..., Deployment]]:
    """Enter a function in `LEVERS`."""

    def enter(change: Callable[..., Deployment]) -> Callable[..., Deployment]:
        LEVERS[name] = Lever(name, change, takes, tries, tuple(attacks.split()), does, price, options)
        return change

    return enter


class Part(NamedTuple):
    """The value of `gpu`: a part, the clock of its expected times, and what an hour of it costs."""

    gpu: Gpu
    clock: Clock | None
    usd_per_hour: float | None


class Guess(NamedTuple):
    """The value of `spec`: each of `gamma` drafted tokens is right with probability `alpha`."""

    alpha: float
    gamma: int
    draft: str = "eagle"
    model: Model | None = None


def _setting(plan: Deployment, **changes: Any) -> Deployment:
    return plan._replace(setting=plan.setting._replace(**changes))


def _run(plan: Deployment, **changes: Any) -> Deployment:
    return _setting(plan, run=replace(plan.setting.run, **changes))


def _model(plan: Deployment, change: Callable[[Block], Block]) -> Deployment:
    """The plan with every block of the decoder's layers changed."""
    model = plan.setting.model
    layers = tuple(
        replace(layer, blocks=tuple(change(block) for block in layer.blocks)) for layer in model.layers
    )
    return _setting(plan, model=replace(model, layers=layers))


def _attentions(setting: Setting) -> list[Attention]:
    """The plain attention of a model. Raises InputError where there is none."""
    blocks = [block for layer, _ in setting.model.groups for block in layer.blocks]
    found = [block for block in blocks if isinstance(block, Attention)]
    if not found:
        raise InputError(f"{setting.model.name} has no plain attention")
    return found


# Weights


def _stored(plan: Deployment, recipe: Recipe) -> Deployment:
    """Weights by `recipe`; InputError where they would take no fewer bytes."""
    model, own = plan.setting.model, plan.setting.recipe
    if weight_bill(model, recipe).weight_bytes >= weight_bill(model, own).weight_bytes:
        raise InputError(f"weights are in {own.name}: {recipe.name} takes no fewer bytes")
    return _run(plan, recipe=recipe)


def _base_format(plan: Deployment) -> str:
    """The one format of the layers' matrices. Raises InputError for a mix."""
    own = plan.setting.recipe.name
    try:
        return find_format(own).name
    except InputError:
        raise InputError(f"weights are a mix ({own}): zeros are left out of one format") from None


@lever(
    "fp8",
    attacks="weights arithmetic",
    does="8-bit weights are half the bytes, and FP8 products twice as fast where the GPU has them",
    price="quality: near 16 bit in published figures; FP8 units (Ada, Hopper, CDNA3 on) for the products",
    options="--weights fp8-row",
)
def fp8(plan: Deployment) -> Deployment:
    return _stored(plan, find_recipe("fp8-row"))


@lever(
    "int8",
    attacks="weights arithmetic",
    does="8-bit weights and activations (SmoothQuant): half the bytes, INT8 products twice as fast",
    price="quality: near 16 bit once outliers are smoothed into the weights, with a calibration set",
    options="--weights int8-row",
)
def int8(plan: Deployment) -> Deployment:
    return _stored(plan, find_recipe("int8-row"))


@lever(
    "int4",
    attacks="weights",
    does="4-bit weights in groups of 128 are read in about a quarter of the bytes; products stay in 16 bit",
    price="quality: a measurable loss (GPTQ, AWQ); a calibration set",
    options="--weights gptq",
)
def int4(plan: Deployment) -> Deployment:
    return _stored(plan, find_recipe("gptq"))


@lever(
    "fp4",
    attacks="weights arithmetic",
    does="NVFP4 weights and activations: about a quarter of the bytes, FP4 products",
    price="quality: a measurable loss; needs FP4 units (Blackwell)",
    options="--weights nvfp4",
)
def fp4(plan: Deployment) -> Deployment:
    if plan.setting.gpu.peak("fp4") is None:
        raise InputError(f"{plan.setting.gpu.name} has no FP4 units; int4 has the same bytes")
    return _stored(plan, find_recipe("nvfp4"))


@lever(
    "weights",
    takes="recipe",
    attacks="weights arithmetic",
    does="weights in another format",
    price="quality: by the format",
    options="--weights {value}",
)
def weights(plan: Deployment, recipe: Recipe) -> Deployment:
    return _stored(plan, recipe)


@lever(
    "2:4",
    attacks="weights arithmetic",
    does="two of every four weights are zero: 9/16 of the bytes, half of the products",
    price="training: pruned weights are trained again; needs 2:4 units",
)
def two_of_four(plan: Deployment) -> Deployment:
    gpu = plan.setting.gpu
    if gpu.sparsity is None:
        raise InputError(f"{gpu.name} has no units for 2:4 products")
    return _stored(plan, find_recipe(f"{_base_format(plan)}-2:4"))


@lever(
    "sparse",
    takes="share",
    tries=("0.6",),
    attacks="weights",
    does="zeros left out, kept as a bitmap: fewer bytes, the same products",
    price="quality: SparseGPT's range; assumed is a kernel that reads them so, which engines do not have",
)
def sparse(plan: Deployment, share: float) -> Deployment:
    if not 1e-9 <= share <= 1 - 1e-9:
        raise InputError(f"the share that is zero is between 0 and 1, not {share:g}")
    digits = f"{share:.9f}".rstrip("0").rstrip(".")
    return _stored(plan, find_recipe(f"{_base_format(plan)}-bitmap-{digits}"))


@lever(
    "layers",
    takes="count",
    tries=lambda plan: [str(max(1, len(plan.setting.model.layers) * 3 // 4))],
    attacks="weights arithmetic cache scores launches links activations",
    does="a shallower model: everything a layer costs goes with it",
    price="training: what is left is trained again (a few per cent of the pre-training, Sheared LLaMA)",
)
def shallower(plan: Deployment, layers: int) -> Deployment:
    return _pruned(plan, "layers", Kept(layers=layers))


@lever(
    "ffn",
    takes="count",
    tries=lambda plan: [str(max(1, min(present(plan.setting.model, "ffn"), default=0) * 3 // 4))],
    attacks="weights arithmetic",
    does="narrower MLPs: fewer weights and products, the same cache",
    price="training: what is left is trained again (a few per cent of the pre-training, Sheared LLaMA)",
)
def narrower(plan: Deployment, channels: int) -> Deployment:
    return _pruned(plan, "ffn", Kept(ffn=channels))


def _pruned(plan: Deployment, what: str, kept: Kept) -> Deployment:
    smaller = pruned(plan.setting.model, kept)
    if smaller.layers == plan.setting.model.layers:
        raise InputError(f"{plan.setting.model.name} has no more {what} than that")
    return _setting(plan, model=smaller)


@lever(
    "model",
    takes="model",
    attacks="weights arithmetic cache scores activations launches",
    does="a smaller model that learns from this one (distillation)",
    price="training: the student's, and the teacher's passes or texts; quality is the student's",
)
def model(plan: Deployment, other: Model) -> Deployment:
    own = plan.setting.model
    if other.parameters >= own.parameters:
        raise InputError(f"{other.name} is no smaller than {own.name}")
    if (own.encoder is None) != (other.encoder is None):
        raise InputError(f"{other.name} and {own.name}: one has an encoder and the other none")
    fixed = other.encoder.positions if other.encoder else None
    encoder = (fixed or plan.work.encoder) if other.encoder else 0
    return _setting(plan, model=other)._replace(work=plan.work._replace(encoder=encoder))


# Cache and attention


def _cached_in(plan: Deployment, fmt: Format) -> Deployment:
    """The cache in `fmt`; InputError where that is no fewer bytes."""
    model, own = plan.setting.model, plan.setting.run.kv
    held = [cache_bill(model, plan.held_tokens, 1, each).logical_bytes for each in (fmt, own)]
    if held[0] >= held[1]:
        raise InputError(f"the cache is in {own.name}: {fmt.name} takes no fewer bytes")
    return _run(plan, kv=fmt)


@lever(
    "kv-fp8",
    attacks="cache",
    does="an 8-bit cache is half the bytes, held and read",
    price="quality: near 16 bit; FP8 attention kernels",
    options="--kv fp8",
)
def kv_fp8(plan: Deployment) -> Deployment:
    return _cached_in(plan, find_format("fp8"))


@lever(
    "kv-int4",
    attacks="cache",
    does="a 4-bit cache with a scale for 32 values is 0.28 of the bytes, held and read",
    price="quality: a measurable loss on long contexts (KIVI, KVQuant); kernels of its own",
    options="--kv int4-g32",
)
def kv_int4(plan: Deployment) -> Deployment:
    return _cached_in(plan, find_format("int4-g32"))


@lever(
    "kv",
    takes="format",
    attacks="cache",
    does="the cache in another format",
    price="quality: by the format",
    options="--kv {value}",
)
def kv(plan: Deployment, fmt: Format) -> Deployment:
    return _cached_in(plan, fmt)


def _kv_heads(plan: Deployment, count: int) -> Deployment:
    have = [block.kv_heads for block in _attentions(plan.setting)]
    if min(have) <= count:
        raise InputError(f"{plan.setting.model.name} has {min(have)} KV heads already")
    return _setting(plan, model=plan.setting.model.with_attention(kv_heads=count))


@lever(
    "gqa",
    takes="count",
    tries=("8",),
    attacks="cache",
    does="query heads share K and V heads: fewer rows held and read, smaller K and V matrices",
    price="training: up-training with mean-pooled heads, about 5 % of the pre-training (arXiv 2305.13245)",
    options="--kv-heads {value}",
)
def gqa(plan: Deployment, kv_heads: int) -> Deployment:
    return _kv_heads(plan, kv_heads)


@lever(
    "mqa",
    attacks="cache",
    does="one K and V head for all queries: the smallest cache that attention has",
    price="training: up-training; quality below GQA's (arXiv 2305.13245); a copy on each rank of tp",
    options="--kv-heads 1",
)
def mqa(plan: Deployment) -> Deployment:
    return _kv_heads(plan, 1)


@lever(
    "window",
    takes="count",
    tries=("4k", "1k"),
    attacks="cache scores",
    does="attention sees no further back than the window: rows beyond are neither held nor read",
    price="training: with the window (Mistral 7B, arXiv 2310.06825); further back only through layers",
)
def window(plan: Deployment, tokens: int) -> Deployment:
    seen = [block.window or plan.work.held_tokens for block in _attentions(plan.setting)]
    if max(seen) <= tokens:
        raise InputError(f"no layer sees more than {max(seen):,} tokens")

    def narrowed(block: Block) -> Block:
        if not isinstance(block, Attention):
            return block
        return replace(block, window=min(tokens, block.window or tokens))

    return _model(plan, narrowed)


@lever(
    "flash",
    attacks="activations",
    does="attention in one kernel: the scores stay on the chip, not written and read",
    price="none: the same results; a kernel for this GPU and head width",
)
def flash(plan: Deployment) -> Deployment:
    if plan.setting.run.attention == "flash":
        raise InputError("attention is fused (flash) already")
    return _run(plan, attention="flash")


@lever(
    "fusion",
    attacks="launches activations",
    does="elementwise kernels run with their neighbours: fewer starts, fewer passes over activations",
    price="none: the same results; an engine or a compiler that does it",
)
def fusion(plan: Deployment) -> Deployment:
    if plan.setting.run.fusion != "none":
        raise InputError(f"kernels are fused already ({plan.setting.run.fusion})")
    return _run(plan, fusion="engine")


# Requests and schedules


def _larger(plan: Deployment) -> list[str]:
    """Up to eight times as many sequences, as far as they fit."""
    tried = [plan.batch * times for times in (8, 4, 2)]
    return [str(many) for many in tried if fits(plan, many) is not False][:1]


@lever(
    "batch",
    takes="count",
    tries=_larger,
    attacks="weights launches",
    does="more sequences share each read of the weights",
    price="latency: every token waits for the others; enough requests at once",
    options="--batch {value}",
)
def batch(plan: Deployment, sequences: int) -> Deployment:
    if sequences <= plan.batch:
        raise InputError(f"{plan.batch:,} sequences are no fewer than {sequences:,}")
    return plan._replace(batch=sequences)


def _half_in_blocks(tokens: float) -> int:
    return max(1, round(tokens / 2) // BLOCK_TOKENS * BLOCK_TOKENS)


@lever(
    "cached",
    takes="count",
    tries=lambda plan: [str(_half_in_blocks(plan.work.lengths.prompt))],
    attacks="arithmetic scores waiting",
    does="the first prompt tokens are in a prefix cache: not computed again, and kept once for all requests",
    price="assumed: that requests begin with so many equal tokens; the cache of the prefix stays",
)
def cached(plan: Deployment, tokens: int) -> Deployment:
    if tokens <= plan.work.shared:
        raise InputError(f"{plan.work.shared:,} prompt tokens are cached already")
    return plan._replace(work=plan.work._replace(shared=tokens).checked())


@lever(
    "continuous",
    attacks="waiting",
    does="a free slot is refilled at once, and a first token waits for one prompt, not for a batch of them",
    price="none: the scheduler of every serving engine",
    options="--policy continuous",
)
def continuous(plan: Deployment) -> Deployment:
    if plan.policy != "static":
        raise InputError(f"requests are scheduled one by one already ({plan.policy})")
    return plan._replace(policy="continuous")


@lever(
    "chunked",
    takes="count",
    tries=("512",),
    attacks="waiting",
    does="prompts ride with the decodes in pieces: no token waits for a whole prompt",
    price="latency: a first token takes several steps; weights and cache are read again for each piece",
    options="--policy chunked --chunk {value}",
)
def chunked(plan: Deployment, tokens: int) -> Deployment:
    if plan.policy == "chunked" and plan.chunk == tokens:
        raise InputError(f"prompts are in chunks of {tokens:,} already")
    return plan._replace(policy="chunked", chunk=tokens)


@lever(
    "disaggregated",
    attacks="waiting",
    does="prompts are computed on GPUs of their own: no token waits for another request's prompt",
    price="hardware: more GPUs, and a link that carries each request's cache",
    options="--policy disaggregated",
)
def disaggregated(plan: Deployment) -> Deployment:
    if plan.policy == "disaggregated":
        raise InputError("prompts are computed apart already")
    return plan._replace(policy="disaggregated")


@lever(
    "paged",
    attacks="cache",
    does="the cache grows in blocks: nothing is reserved that no token fills",
    price="none: attention reads through a table of blocks (PagedAttention, arXiv 2309.06180)",
)
def paged(plan: Deployment) -> Deployment:
    if plan.reserved is None:
        raise InputError("the cache is paged already")
    return plan._replace(reserved=None)


# Fewer passes


@lever(
    "spec",
    takes="guess",
    tries=("0.7/4",),
    attacks="weights cache launches links",
    does="one pass checks several drafted tokens, while it waits for memory anyway",
    price="training: a draft (EAGLE's layer unless another is named), its memory; the acceptance is assumed",
)
def spec(plan: Deployment, guess: Guess) -> Deployment:
    if not 1 <= guess.gamma <= MAX_DRAFT:
        raise InputError(f"{guess.gamma} drafted tokens a round: between 1 and {MAX_DRAFT}")
    if not 0 <= guess.alpha <= 1:
        raise InputError(f"an acceptance is between 0 and 1, not {guess.alpha:g}")
    tokens = expected_tokens(guess.alpha, guess.gamma)
    drafting = Drafting(guess.draft, tokens, guess.gamma, guess.gamma + 1, guess.model)
    drafting.on(plan.setting)
    return plan._replace(drafting=drafting)


@lever(
    "medusa",
    takes="heads",
    tries=("0.75/0.5",),
    attacks="weights cache launches links",
    does="heads beside the model's own draft all at once, and one pass checks what they guess",
    price="training: the heads; how often each is right is assumed",
)
def medusa(plan: Deployment, right: tuple[float, ...]) -> Deployment:
    if not (1 <= len(right) <= MAX_DRAFT and all(0 <= each <= 1 for each in right)):
        raise InputError(f"heads are right with probabilities between 0 and 1, for 1 to {MAX_DRAFT} heads")
    tokens, size = tree_tokens([[each] for each in right], MAX_TREE)
    return plan._replace(drafting=Drafting("medusa", tokens, len(right), size))


@lever(
    "exit",
    takes="exit",
    tries=("0.1/4",),
    attacks="weights arithmetic cache launches",
    does="tokens that are sure leave before the last layer, and pay a head at every check",
    price="training: heads that may be asked early; quality by the threshold; what leaves is assumed",
)
def early_exit(plan: Deployment, leaving: tuple[float, int]) -> Deployment:
    exiting = Exiting(*leaving)
    exiting.of(plan.setting.model)
    return plan._replace(exiting=exiting)


# Hardware


def _ranks(plan: Deployment) -> list[str]:
    now = plan.setting.parallel.tp
    return [str(now * times) for times in (2, 4, 8) if now * times <= 8]


@lever(
    "tp",
    takes="count",
    tries=_ranks,
    attacks="weights arithmetic cache scores activations",
    does="ranks share every matrix and the cache: each does its part, and they add up over the link",
    price="hardware: so many times the GPUs, and a fast link between them",
    options="--tp {value}",
)
def tp(plan: Deployment, ranks: int) -> Deployment:
    own = plan.setting.parallel
    if ranks <= own.tp:
        raise InputError(f"there are {own.tp} tensor-parallel ranks already")
    together = own.ep > 1 and own.ep == own.tp
    return _setting(plan, parallel=replace(own, tp=ranks, ep=ranks if together else own.ep))


@lever(
    "pp",
    takes="count",
    tries=("2",),
    attacks="weights cache",
    does="stages share out the layers: each holds its part, and a request passes them in turn",
    price="hardware: so many times the GPUs, which one request keeps busy one at a time",
)
def pp(plan: Deployment, stages: int) -> Deployment:
    own = plan.setting.parallel
    if stages <= own.pp:
        raise InputError(f"there are {own.pp} pipeline stages already")
    return _setting(plan, parallel=replace(own, pp=stages))


@lever(
    "cp",
    takes="count",
    tries=("2",),
    attacks="arithmetic scores cache activations",
    does="groups of ranks share out each sequence's tokens: its prefill and its cache, not the weights",
    price="hardware: so many times the GPUs, and a fast link between them",
)
def cp(plan: Deployment, groups: int) -> Deployment:
    own = plan.setting.parallel
    if groups <= own.cp:
        raise InputError(f"there are {own.cp} groups of context parallelism already")
    return _setting(plan, parallel=replace(own, cp=groups))


@lever(
    "ep",
    takes="count",
    tries=lambda plan: [str(plan.setting.parallel.tp if plan.setting.parallel.tp > 1 else 8)],
    attacks="weights",
    does="ranks share out the experts: each holds and reads its own (without tp, with a batch of its own)",
    price="hardware: so many GPUs, and a link that carries every token to its experts and back",
    options="--ep {value}",
)
def ep(plan: Deployment, ranks: int) -> Deployment:
    if ranks <= plan.setting.parallel.ep:
        raise InputError(f"experts are shared out over {plan.setting.parallel.ep} ranks already")
    if not any(isinstance(b, Experts) for layer in plan.setting.model.layers for b in layer.blocks):
        raise InputError(f"{plan.setting.model.name} has no experts to share out")
    return _setting(plan, parallel=replace(plan.setting.parallel, ep=ranks))


HOST_LINK_BYTES_PER_S = 32e9
"""PCIe 4.0 x16, one way."""


@lever(
    "offload",
    takes="count",
    tries=lambda plan: [str(max(1, len(plan.setting.model.layers) // 2))],
    attacks="weights",
    does="weights of so many layers stay in the host's memory and cross a 32 GB/s link in every step",
    price="latency: a step takes as long as the link; the host's memory",
)
def offload(plan: Deployment, layers: int) -> Deployment:
    left = plan.setting.offload.layers if plan.setting.offload else 0
    if layers <= left:
        raise InputError(f"{left} layers are on the host already")
    return _setting(plan, offload=Offload(layers, False, HOST_LINK_BYTES_PER_S).checked(plan.setting.model))


@lever(
    "engine",
    takes="engine",
    tries=lambda plan: ("vllm", "sglang", "tensorrt-llm") if plan.setting.engine else (),
    attacks="host launches links",
    does="another engine: what its host takes between kernels (CUDA graphs), and its gaps",
    price="none: another program; quality and features are its own",
    options="--engine {value}",
)
def engine(plan: Deployment, other: Engine) -> Deployment:
    if other == plan.setting.engine:
        raise InputError(f"it runs on {other.name} already")
    return _setting(plan, engine=other)


@lever(
    "gpu",
    takes="gpu",
    tries=("a100", "l40s", "h100", "h200", "b200", "mi300x"),
    attacks="weights arithmetic cache scores activations launches",
    does="another GPU: its bandwidth, its peaks, its memory, its price",
    price="hardware: the GPU, at its sheet's price",
    options="--gpu {value}",
)
def gpu(plan: Deployment, part: Part) -> Deployment:
    if part.gpu == plan.setting.gpu:
        raise InputError(f"it runs on {part.gpu.name} already")
    return _setting(plan, gpu=part.gpu, clock=part.clock)._replace(usd_per_hour=part.usd_per_hour)
