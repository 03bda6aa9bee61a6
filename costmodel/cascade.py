"""A cascade: models from cheap to dear, each asked only where the answer before it was not good enough.

Source: FrugalGPT, arXiv 2305.05176, section 3; seed ledger, cascade.
"""

from __future__ import annotations

from typing import NamedTuple

from .. import InputError

MAX_TIERS = 16


class Cascade(NamedTuple):
    """`costs` of an answer from each model in turn, and the share of answers `accepted` by each but the last,
    of those that come to it. `scorer`: what judging one answer costs; the last one's is not judged."""

    costs: tuple[float, ...]
    accepted: tuple[float, ...]
    scorer: float = 0.0

    def checked(self) -> Cascade:
        """Raises InputError for fewer than two models, or shares that are none."""
        if not 2 <= len(self.costs) <= MAX_TIERS:
            raise InputError(f"a cascade has 2 to {MAX_TIERS} models, not {len(self.costs)}")
        if len(self.accepted) != len(self.costs) - 1:
            raise InputError(
                f"{len(self.costs)} models need {len(self.costs) - 1} accepted shares (the last model's "
                f"answer is taken), not {len(self.accepted)}"
            )
        if not all(0 <= share <= 1 for share in self.accepted):
            raise InputError("an accepted share is between 0 and 1")
        if not all(0 < cost < 1e30 for cost in self.costs) or not 0 <= self.scorer < 1e30:
            raise InputError("costs are above 0, and a scorer's is not below")
        return self

    @property
    def reached(self) -> tuple[float, ...]:
        """Share of requests that come to each model: Π_{j<i} (1 - p_j)."""
        out = [1.0]
        for share in self.accepted:
            out.append(out[-1] * (1 - share))
        return tuple(out)

    @property
    def judged(self) -> tuple[float, ...]:
        """Each model's answer with the judging of it."""
        return (*(cost + self.scorer for cost in self.costs[:-1]), self.costs[-1])

    @property
    def mean(self) -> float:
        """E[c] = Σ_i (c_i + scorer_i) Π_{j<i} (1 - p_j)."""
        return sum(cost * share for cost, share in zip(self.judged, self.reached, strict=True))

    @property
    def worst(self) -> float:
        """A request that goes all the way."""
        return sum(self.judged)

    @property
    def saving(self) -> float:
        """Cost of the last model alone over the cascade's."""
        return self.costs[-1] / self.mean

    @property
    def break_even(self) -> float:
        """Share that the first model must have accepted for the cascade to cost what the last model alone
        does, the other shares as they are: (c1 + scorer)/c2 for two. Above 1 where it cannot pay."""
        first = self.judged[0]
        rest = self._replace(costs=self.costs[1:], accepted=self.accepted[1:]).mean
        return 1 - (self.costs[-1] - first) / rest
