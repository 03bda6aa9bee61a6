"""`--with int4,gqa=8,spec=0.7/4`: levers as they are written, their values, and those to try unasked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from .. import InputError
from ..costmodel.deployment import Deployment
from ..costmodel.diagnosis import Diagnosis, Effect, diagnose, effect
from ..costmodel.levers import LEVERS, Guess, Lever, Part
from ..hardware.catalogue import load_gpu
from ..hardware.engine import load_engine
from ..models.catalogue import load_model, model_names
from ..models.formats import find_format
from ..models.recipes import find_recipe
from ..sheets import nearest
from .calibrations import clock_of
from .sizes import share, tokens, words

MOST_LEVERS = 20
DRAFTS = ("eagle", "mtp", "lookup")
_SIZED = re.compile(r"(?P<family>.+)-(?P<size>\d+(?:\.\d+)?)b(?P<rest>.*)")


class Named(NamedTuple):
    """A lever with its value, and how both are written; `text` is the value as written."""

    name: str
    lever: Lever
    value: Any
    text: str

    def on(self, plan: Deployment) -> Deployment:
        """The changed deployment. Raises InputError where the lever does not apply."""
        return self.lever.change(plan, self.value) if self.lever.takes else self.lever.change(plan)


def named_levers(text: str, option: str, calibration: str) -> list[Named]:
    """The levers between commas. Raises InputError for unknown ones and for values that are none."""
    every = words(text, option)
    if len(every) > MOST_LEVERS:
        raise InputError(f"{option} has {len(every):,} levers; at most {MOST_LEVERS} go together")
    return [_named(word, option, calibration) for word in every]


def _named(word: str, option: str, calibration: str) -> Named:
    name, equals, text = (part.strip() for part in word.partition("="))
    name = name.lower()
    lever = LEVERS.get(name)
    if lever is None:
        hint = nearest(name, LEVERS) or f"; there are {', '.join(LEVERS)}"
        raise InputError(f"{option} '{name[:40]}' is no lever{hint}")
    if bool(equals) != bool(lever.takes) or (equals and not text):
        wanted = f"{name}={EXAMPLES[lever.takes]}" if lever.takes else f"{name} alone"
        raise InputError(f"{option} '{word[:40]}': it is written {wanted}")
    value = _value(lever, text, f"{option} {name}", calibration) if lever.takes else None
    return Named(f"{name}={text}" if lever.takes else name, lever, value, text)


EXAMPLES = {
    "count": "8",
    "share": "0.6",
    "recipe": "gptq",
    "format": "fp8",
    "model": "llama-3-8b",
    "gpu": "h200",
    "engine": "vllm",
    "guess": "0.7/4",
    "heads": "0.75/0.5",
    "exit": "0.1/4",
}
"""By kind of value, how one is written."""


def _value(lever: Lever, text: str, where: str, calibration: str) -> Any:
    if lever.takes == "gpu":
        part = load_gpu(text)
        price = part.price.usd_per_hour if part.price else None
        return Part(part, clock_of(calibration, part), price)
    simple: dict[str, Callable[[str], Any]] = {
        "count": lambda word: tokens(word, where),
        "share": lambda word: share(word, where),
        "recipe": find_recipe,
        "format": find_format,
        "model": load_model,
        "engine": load_engine,
    }
    if lever.takes in simple:
        return simple[lever.takes](text)
    parts = [part.strip() for part in text.split("/")]
    if lever.takes == "heads":
        return tuple(_number(part, where) for part in parts)
    if not (len(parts) == 2 or (len(parts) == 3 and lever.takes == "guess")) or not all(parts):
        raise InputError(f"{where}={text[:40]}: it is written {EXAMPLES[lever.takes]}")
    first, second = _number(parts[0], where), tokens(parts[1], where)
    if lever.takes != "guess":
        return first, second
    draft = parts[2] if len(parts) == 3 else "eagle"
    return Guess(first, second, draft, None if draft in DRAFTS else load_model(draft))


def _number(text: str, where: str) -> float:
    if re.fullmatch(r"\d{1,6}(?:\.\d{1,9})?", text, re.ASCII) is None:
        raise InputError(f"{where}: '{text[:40]}' is no number")
    return float(text)


def together(plan: Deployment, levers: Iterable[Named], option: str) -> Iterator[tuple[str, Diagnosis]]:
    """The plan after each lever in turn, diagnosed. Raises InputError for the first that does not apply."""
    for one in levers:
        try:
            plan = one.on(plan)
            found = diagnose(plan)
        except InputError as error:
            raise InputError(f"{option} {one.name[:60]} does not apply: {error}") from None
        yield one.name, found


class Refused(NamedTuple):
    """A lever that does not apply here, and why."""

    name: str
    why: str


def every_effect(base: Diagnosis, given: str, calibration: str) -> tuple[list[Effect], list[Refused]]:
    """Each lever at each value that is tried unasked, and those that do not apply.

    `given`: the model's name as it was written, whose smaller relatives are tried as students.
    """
    effects: list[Effect] = []
    refused: list[Refused] = []
    for lever in LEVERS.values():
        try:
            texts = smaller_relatives(given)[:1] if lever.takes == "model" else lever.values(base.plan)
        except InputError as error:
            refused.append(Refused(lever.name, str(error)))
            continue
        for text in texts:
            word = f"{lever.name}={text}" if lever.takes else lever.name
            try:
                one = _named(word, "--with", calibration)
                effects.append(effect(base, one.name, lever, one.on(base.plan)))
            except InputError as error:
                refused.append(Refused(word, str(error)))
    return effects, refused


def smaller_relatives(name: str) -> list[str]:
    """Built-in models called like this one but for a smaller size, the largest of them first: `llama-3-8b`
    of `llama-3-70b`."""
    mine = _SIZED.fullmatch(name)
    if mine is None:
        return []
    found = []
    for other in model_names():
        match = _SIZED.fullmatch(other)
        if match and (match["family"], match["rest"]) == (mine["family"], mine["rest"]):
            found.append((float(match["size"]), other))
    return [other for size, other in sorted(found, reverse=True) if size < float(mine["size"])]
