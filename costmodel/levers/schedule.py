"""Levers on how requests are put together: batch, prefix cache, policies, paging."""

from __future__ import annotations

from ... import InputError
from ..deployment import Deployment, fits
from ..kv import BLOCK_TOKENS
from .registry import lever


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
