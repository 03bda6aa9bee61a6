"""The list of levers, and how one enters it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from ..deployment import Deployment

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


def with_setting(plan: Deployment, **changes: Any) -> Deployment:
    """`plan` with fields of its setting changed."""
    return plan._replace(setting=plan.setting._replace(**changes))


def with_run(plan: Deployment, **changes: Any) -> Deployment:
    """`plan` with fields of its setting's run changed."""
    return with_setting(plan, run=replace(plan.setting.run, **changes))
