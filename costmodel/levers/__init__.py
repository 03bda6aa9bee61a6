"""Levers: what could be done about a deployment. Each is one pure function of it, and stands whole in the
module of what it changes.

A lever takes a `Deployment` (and a value, where it has one) and returns the changed one, or raises InputError
with the reason why it does not apply. What it gains is never estimated: the changed deployment is evaluated
like any other. `docs/levers.md` says how to add one. Equals are listed in the order of the imports below.
"""

# Imported for what they enter in the list, in the order in which equals are shown: neither unused nor sorted.
from . import weights, cache, schedule, drafts, hardware  # noqa: F401, I001
from .drafts import Guess
from .hardware import Part
from .registry import LEVERS, RESOURCES, Lever

__all__ = ["LEVERS", "RESOURCES", "Guess", "Lever", "Part"]
