"""Published methods of speculation as passes: what drafts, how often, how many tokens are verified.

The settings are those that Spec-Bench runs each method with; with them and one host constant for all methods,
an accepted length gives a speed-up. Source: Spec-Bench, arXiv 2401.07851, and github.com/hemingkx/Spec-Bench.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from .. import InputError
from .setting import Setting
from .speculative import (
    LOOKUP,
    Draft,
    Passes,
    Speculation,
    heuristic_draft,
    layer_draft,
    medusa_draft,
    model_draft,
)
from .times.family import US

EAGER_HOST_US_PER_LAYER = 450.0
"""What PyTorch takes to launch a layer without CUDA graphs. Fitted (`fitted_host_us`: the least mean error)
to the 26 rows of Spec-Bench that have an accepted length, all methods together."""
HOST_GRID_US = tuple(range(0, 1050, 50))
CONTEXT = 512
"""Tokens of context: Spec-Bench's prompts and answers are some hundreds long. An assumption."""


class Method(NamedTuple):
    """`draft`: model (a model of its own), layer (EAGLE), heads (one pass of several), head (several passes
    of one), lookup (nothing on the device). `passes` of `width` tokens, then `verify` tokens in the target; 0
    passes of a model: as many as transformers' heuristic settles at."""

    draft: str
    passes: int
    width: int
    verify: int
    source: str


METHODS = {
    "sps": Method("model", 0, 1, 0, "transformers' assisted generation and its heuristic draft length"),
    "draft model": Method("model", 0, 1, 0, "a chain; its length is the row's gamma"),
    "pld": Method("lookup", 0, 1, 11, "prompt lookup of 10 tokens: evaluation/inference_pld.py"),
    "rest": Method("lookup", 0, 1, 65, "64 retrieved tokens: evaluation/inference_rest.py"),
    "lookahead": Method("lookup", 0, 1, 56, "(W + G)(N - 1) at N 5, W 7, G 7: eval.sh; arXiv 2402.02057"),
    "recycling": Method("lookup", 0, 1, 81, "a tree of 80: model/recycling/tree_template_.py"),
    "medusa": Method("heads", 4, 1, 64, "4 heads, a tree of 63: mc_sim_7b_63 of FasterDecoding/Medusa"),
    "hydra": Method("head", 4, 10, 64, "4 heads in turn, a tree of 63: model/hydra/hydra_choices.py"),
    "eagle": Method("layer", 5, 4, 26, "a tree of 25, 5 deep: EAGLE's mc_sim_7b_63"),
    "eagle2": Method("layer", 6, 10, 60, "60 tokens, depth 5, top 10: evaluation/inference_eagle2.py"),
    "samd+eagle2": Method("layer", 6, 10, 60, "as EAGLE-2; rounds drafted from a suffix automaton cost less"),
}


class Case(NamedTuple):
    """A measured speed-up with its accepted length, and the kernels of its passes."""

    line: int
    target: str
    gpu: str
    method: str
    tokens: float
    measured: float
    speculation: Speculation
    gamma: float
    verify_tokens: int
    passes: Passes

    def predicted(self, host_us: float) -> float:
        """Speed-up with this host constant."""
        at = self.speculation._replace(host_s=host_us * US)
        return at.verified(self.tokens, self.gamma, self.verify_tokens, self.passes).best.speedup

    def error(self, host_us: float) -> float:
        """Predicted / measured - 1."""
        return self.predicted(host_us) / self.measured - 1


def find_method(name: str) -> Method | None:
    return METHODS.get(name.strip().lower())


def speculation_of(
    method: Method, target: Setting, drafter: Setting | None, batch: int, tokens: float, gamma: int | None
) -> tuple[Speculation, float, int]:
    """The speculation of a method on a target, its draft length and the tokens it verifies.

    Raises InputError where a draft model is wanted and none is given.
    """
    width = method.width
    if method.draft == "model":
        if drafter is None:
            raise InputError("a draft model, and none is named")
        length: float = heuristic_draft(tokens)[1] if gamma is None else gamma
        return Speculation(target, model_draft(drafter), batch, CONTEXT), length, math.ceil(length) + 1
    if method.draft == "lookup":
        draft: Draft = LOOKUP
    elif method.draft == "layer":
        draft = layer_draft(target, "eagle")._replace(width=width)
    elif method.draft == "heads":
        draft = medusa_draft(target, method.passes)
    else:
        draft = medusa_draft(target, 1)._replace(name="hydra", at_once=False, width=width)
    return Speculation(target, draft, batch, CONTEXT), method.passes, method.verify


def fitted_host_us(cases: Iterable[Case]) -> float:
    """The host constant, of the grid, with the least mean error over all cases; the smallest of equals."""
    every = list(cases)
    return float(min(HOST_GRID_US, key=lambda host: sum(abs(case.error(host)) for case in every)))


class Errors(NamedTuple):
    """Errors of one method, or of all: |predicted / measured - 1|, and `bias`, the median signed one."""

    rows: int
    median: float
    mean: float
    bias: float


def errors(signed: Iterable[float]) -> Errors:
    every = list(signed)
    apart = [abs(each) for each in every]
    return Errors(len(every), _median(apart), sum(apart) / len(apart), _median(every))


def _median(values: list[float]) -> float:
    ordered, middle = sorted(values), len(values) // 2
    return (ordered[middle] + ordered[~middle]) / 2


def method_left_out(cases: Iterable[Case]) -> dict[str, tuple[float, list[float]]]:
    """By method: the host constant that the other methods' cases want, and this one's errors with it."""
    every = list(cases)
    out = {}
    for name in dict.fromkeys(case.method for case in every):
        others = [case for case in every if case.method != name]
        host = fitted_host_us(others) if others else EAGER_HOST_US_PER_LAYER
        out[name] = host, [case.error(host) for case in every if case.method == name]
    return out
