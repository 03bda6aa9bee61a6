"""What `infercost speculate` is told of acceptance: --alpha, --accepted or --medusa, --gamma, --tree."""

from __future__ import annotations

from typing import NamedTuple

from .. import InputError
from ..costmodel.speculative import MAX_DRAFT, MAX_TREE, acceptance, tree_tokens
from .inputs import grid
from .sizes import token_list, tokens, words
from .speculate_options import Asked, between, number, numbers

MOST_POINTS = 200
MOST_HEADS, MOST_GUESSES = 16, 64


class Guess(NamedTuple):
    """What is known of acceptance: `alpha` a token, or `tokens` of a round of `gamma` drafted ones, verified
    in `tree` tokens. `gamma` None: the best."""

    gamma: int | None
    alpha: float | None
    tokens: float | None = None
    tree: int | None = None


def guesses_of(asked: Asked) -> list[Guess]:
    """Every guess of the lists given. Raises InputError for options that do not go together."""
    ways = [name for name in ("alpha", "medusa") if name in asked.given()]
    if len(ways) > 1:
        raise InputError("--alpha is of a chain, --medusa of heads: give one of them")
    tree = None if asked.tree is None else tokens(asked.tree, "--tree")
    if tree is not None and not 2 <= tree <= MAX_TREE:
        raise InputError(f"--tree is between 2 and {MAX_TREE:,} tokens, not {tree:,}")
    if asked.medusa is not None:
        if asked.draft is not None or asked.gamma is not None:
            raise InputError("--medusa names what drafts, and how many heads: no --draft, no --gamma")
        ranks = _heads(asked.medusa)
        found, nodes = tree_tokens(ranks, tree or len(ranks) + 1)
        yields = found if asked.accepted is None else between(asked.accepted, "--accepted", 1, len(ranks) + 1)
        return [Guess(len(ranks), None, yields, tree or nodes)]
    gammas = [None] if asked.gamma is None else token_list(asked.gamma, "--gamma")
    for gamma in gammas:
        if gamma is not None and gamma > MAX_DRAFT:
            raise InputError(f"--gamma is between 1 and {MAX_DRAFT}, not {gamma:,}")
    if asked.accepted is not None:
        if asked.alpha is not None:
            raise InputError("--alpha and --accepted say the same thing: give one of them")
        if len(gammas) != 1 or gammas[0] is None:
            raise InputError("--accepted was measured at one draft length: give it with --gamma")
        between(asked.accepted, "--accepted", 1, gammas[0] + 1)
        alpha = None if tree else acceptance(asked.accepted, gammas[0])
        return [Guess(gammas[0], alpha, asked.accepted, tree)]
    if tree is not None:
        raise InputError("--tree needs --medusa, or --accepted and --gamma (its depth)")
    if asked.alpha is None:
        raise InputError(
            "speculate needs how often a draft is right: --alpha 0.7, --accepted 2.8 --gamma 4, or --medusa"
        )
    alphas = numbers(asked.alpha, "--alpha", 0, 1)
    return [Guess(gamma, alpha) for alpha, gamma in grid(alphas, gammas, most=MOST_POINTS)]


def _heads(text: str) -> list[list[float]]:
    """`0.75/0.1,0.5/0.2`: a head between commas, its guesses between slashes."""
    heads = [
        [number(rank, "--medusa", 0, 1) for rank in part.split("/")[: MOST_GUESSES + 1]]
        for part in words(text, "--medusa")
    ]
    if len(heads) > MOST_HEADS or any(len(ranks) > MOST_GUESSES for ranks in heads):
        raise InputError(f"--medusa: at most {MOST_HEADS} heads, and {MOST_GUESSES} guesses of each")
    if any(sum(ranks) > 1 + 1e-9 for ranks in heads):
        raise InputError("--medusa: the guesses of a head are right at most once in all")
    return heads
