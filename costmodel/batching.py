"""Lengths of prompts and outputs, and what a batch loses that waits for the longest of them.

A static batch runs until its last sequence is done, so of its slots E[length] / E[longest] is used: 1/H_B for
exponential lengths out, (B+1)/2B for uniform ones, both in the limit of many tokens. Continuous batching
refills a slot at the step after it is free. Source: seed ledger, cb.static; Orca, OSDI 2022, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, exp, expm1, floor, log, log1p

from .limits import positive_counts

EULER_GAMMA = 0.5772156649015329
MANY = 1000
"""Terms of the harmonic numbers that are added up one by one."""
NEGLIGIBLE = 1e-15


def harmonic(n: int) -> float:
    """H_n = 1 + 1/2 + ... + 1/n; beyond a thousand terms by its expansion (Euler-Maclaurin)."""
    if n <= MANY:
        return sum(1 / i for i in range(1, n + 1))
    return log(n) + EULER_GAMMA + 1 / (2 * n) - 1 / (12 * n * n)


@dataclass(frozen=True)
class Lengths:
    """Tokens in and out of the requests that keep coming; `prompt` and `gen` are means.

    `kind`: fixed; exponential (memoryless, in whole tokens: geometric on 1, 2, ...); uniform (on 1 to
    2·gen - 1); or trace, whose (prompt, out) pairs are `observed`. Prompts vary in a trace only.
    """

    kind: str
    prompt: float
    gen: float
    observed: tuple[tuple[int, int], ...] = ()

    def checked(self) -> Lengths:
        """Raises InputError where a length is out of bounds."""
        positive_counts(prompt=self.prompt, gen=self.gen)
        return self

    @cached_property
    def _outs(self) -> list[int]:
        return sorted(out for _, out in self.observed)

    @property
    def steps(self) -> float:
        """E[G] - 1 decode steps: the first token is the prefill's."""
        return self.gen - 1

    @cached_property
    def mean_context(self) -> float:
        """Tokens that a decode step attends to, the new one counted, in the mean over steps.

        E[Σ_{i<G} (P + i)] / E[G - 1]: long outputs weigh more, for they are there more often. P + G/2 for
        fixed lengths, P + E[G] for exponential ones.
        """
        if not self.steps:
            return self.prompt + 1
        if self.kind == "trace":
            attended = sum((g - 1) * p + g * (g - 1) / 2 for p, g in self.observed) / len(self.observed)
            return attended / self.steps
        return self.prompt + (self._second_moment - self.gen) / 2 / self.steps

    @property
    def _second_moment(self) -> float:
        if self.kind == "exponential":
            return 2 * self.gen**2 - self.gen
        if self.kind == "uniform":
            most = 2 * self.gen - 1
            return (most + 1) * (2 * most + 1) / 6
        return self.gen**2

    def longest(self, batch: int) -> float:
        """Expected tokens of the longest of `batch` outputs: Σ_{k≥0} (1 - P(G ≤ k)^B).

        Of a trace: of `batch` draws from it.
        """
        if self.gen == 1 or batch == 1 or self.kind == "fixed":
            return self.gen
        if self.kind == "exponential":
            return _longest_geometric(self.gen, batch)
        if self.kind == "uniform":
            return _longest_uniform(2 * self.gen - 1, batch)
        total, below = 0.0, 0.0
        for rank, out in enumerate(self._outs, 1):
            upto = (rank / len(self._outs)) ** batch
            total, below = total + out * (upto - below), upto
        return total

    def utilisation(self, batch: int) -> float:
        """Share of a static batch's slot steps that yield a token: E[G] / E[longest], a ratio of means."""
        return self.gen / self.longest(batch)

    def limit(self, batch: int) -> float | None:
        """The same for outputs of many tokens, by the textbook's forms; None for a trace."""
        forms = {"fixed": 1.0, "exponential": 1 / harmonic(batch), "uniform": (batch + 1) / (2 * batch)}
        return forms.get(self.kind)

    def out(self, chance: float) -> int:
        """Tokens out that a `chance` between 0 and 1 (not 1) draws: the inverse of the distribution."""
        if self.gen == 1 or self.kind == "fixed":
            return round(self.gen)
        if self.kind == "exponential":
            return 1 + floor(log1p(-chance) / log1p(-1 / self.gen))
        if self.kind == "uniform":
            return 1 + floor(chance * (2 * self.gen - 1))
        return self._outs[floor(chance * len(self._outs))]


def _longest_geometric(mean: float, batch: int) -> float:
    """E[max] of `batch` > 1 geometric lengths: H_B/λ + 1/2 with λ = -ln(1 - 1/mean), which is Σ by
    Euler-Maclaurin up to λ³/120 tokens; of short ones (λ > 0.1) the sum itself.

    Source: Eisenberg, Statistics and Probability Letters 78 (2008) 135, "On the expectation of the maximum
    of IID geometric random variables".
    """
    rate = -log1p(-1 / mean)
    if rate < 0.1:
        return harmonic(batch) / rate + 0.5
    terms = ceil((log(batch) - log(NEGLIGIBLE)) / rate)
    # 1 - (1 - x)^B without losing a small x.
    tails = (exp(-rate * k) for k in range(1, terms + 1))
    return 1 - sum(expm1(batch * log1p(-tail)) for tail in tails)


def _longest_uniform(most: float, batch: int) -> float:
    """E[max] of `batch` lengths uniform on 1..N: N - Σ_{k<N} (k/N)^B, from the largest term down; of few
    sequences (two at least) by Euler-Maclaurin, N·B/(B+1) + 1/2 - B/12N."""
    if batch <= most / 10:
        return most * batch / (batch + 1) + 0.5 - batch / (12 * most)
    total, k = 0.0, round(most) - 1
    while k > 0 and (term := (k / most) ** batch) > NEGLIGIBLE:
        total, k = total + term, k - 1
    return most - total
