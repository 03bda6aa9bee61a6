"""Levers that take fewer passes for the same tokens: speculation, Medusa heads, early exit."""

from __future__ import annotations

from typing import NamedTuple

from ... import InputError
from ...models.spec import Model
from ..deployment import Deployment, Drafting, Exiting
from ..speculative import MAX_DRAFT, MAX_TREE, expected_tokens, tree_tokens
from .registry import lever


class Guess(NamedTuple):
    """The value of `spec`: each of `gamma` drafted tokens is right with probability `alpha`."""

    alpha: float
    gamma: int
    draft: str = "eagle"
    model: Model | None = None


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
