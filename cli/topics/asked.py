"""What a topic is asked about: a model on a GPU, at lengths, in formats."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import NamedTuple

from ...costmodel.kv import CacheBill, cache_bill
from ...costmodel.limits import positive_counts
from ...costmodel.request import Request
from ...costmodel.rope_scaling import scaling
from ...costmodel.setting import Cost, Setting, step_cost
from ...costmodel.step import Run, Step, decode, prefill
from ...costmodel.weights import WeightBill, weight_bill
from ...hardware.catalogue import load_gpu
from ...hardware.spec import Gpu
from ...models.catalogue import load_model
from ...models.formats import Format, find_format
from ...models.recipes import Recipe, find_recipe
from ...models.spec import Model
from ..calibrations import clock_of
from ..inputs import WhatIf, encoder_positions, kv_formats

SHAPE = "--layers --heads --kv-heads --head-dim"
LENGTHS = ("--seq", "--prompt")
"""How commands name the length: one of them is enough."""
ASKS = f"--gpu --batch --weights --kv --calibration {SHAPE} --window"
TAKES = {
    "kv": f"--seq --batch --kv {SHAPE} --window",
    "weights": f"--batch --weights {SHAPE}",
    "fit": f"--gpu --seq --batch --weights --kv {SHAPE} --window",
    "ops": f"--seq {ASKS}",
    "quant": f"--seq {ASKS}",
    "request": f"--prompt --gen {ASKS}",
    "serve": f"--prompt --gen {ASKS}",
    "diagnose": f"--prompt --gen {ASKS}",
    "compress": "--gpu --prompt --gen --batch --weights --kv --calibration",
    "speculate": "--gpu --seq --batch --weights --kv --calibration",
}
"""The options of `explain` that a command has, too, as its own names (`--gen` of kv and speculate is of other
questions)."""


class Case(NamedTuple):
    """A model on a GPU, `batch` sequences of `tokens` tokens and `gen` more to come.

    `scale` and `rope_base` are of rotary positions. `model_name`, `gpu_name`: as they were asked for;
    `what_if`: options that changed the model's shape; `given`: those and the others that were given, but the
    model and the GPU, as the words of a command line.
    """

    setting: Setting
    tokens: int
    batch: int
    gen: int
    encoder: int
    scale: float
    rope_base: float
    model_name: str
    gpu_name: str
    what_if: dict[str, int]
    given: dict[str, object]

    @property
    def model(self) -> Model:
        return self.setting.model

    @property
    def gpu(self) -> Gpu:
        return self.setting.gpu

    @property
    def kv(self) -> Format:
        return self.setting.run.kv

    def of(self, model: Model) -> Case:
        """The same of another model."""
        return self._replace(setting=self.setting._replace(model=model))

    def stored(self, recipe: str | Recipe) -> Case:
        """The same with weights of another recipe."""
        chosen = find_recipe(recipe) if isinstance(recipe, str) else recipe
        return self._replace(setting=self.setting._replace(run=replace(self.setting.run, recipe=chosen)))

    def cached(self, fmt: str) -> Case:
        """The same with a cache of another format."""
        run = replace(self.setting.run, kv=find_format(fmt))
        return self._replace(setting=self.setting._replace(run=run))

    def long(self, tokens: int) -> Case:
        """The same at another length. Raises InputError where that is out of bounds."""
        positive_counts(tokens=tokens)
        return self._replace(tokens=tokens)

    def attending(self, kernel: str) -> Case:
        """The same with `flash` or `eager` attention."""
        run = replace(self.setting.run, attention=kernel)
        return self._replace(setting=self.setting._replace(run=run))

    @property
    def request(self) -> Request:
        """`tokens` in, `gen` out, `batch` at once."""
        return Request(self.tokens, self.gen, self.batch, encoder=self.encoder).checked()

    @property
    def prompt_step(self) -> Step:
        return prefill(self.batch, self.tokens, encoder=self.encoder)

    @property
    def decode_step(self) -> Step:
        """One token for each sequence at a context of `tokens`, the new one counted."""
        return decode(self.batch, self.tokens, self.encoder)

    def prefill_cost(self) -> Cost:
        return step_cost(self.setting, self.prompt_step)

    def decode_cost(self) -> Cost:
        return step_cost(self.setting, self.decode_step)

    def cache(self) -> CacheBill:
        return cache_bill(self.model, self.tokens, self.batch, self.kv, self.encoder)

    def weights(self) -> WeightBill:
        return weight_bill(self.model, self.setting.recipe, self.batch)

    def command(self, name: str, *words: object) -> str:
        """The command line `infercost NAME --model ... WORDS`, with every given option that it takes and that
        is not among the words."""
        takes = TAKES[name].split()
        said = {str(word) for word in words}
        if said & set(LENGTHS):
            said.update(LENGTHS)
        first = ("--gpu", self.gpu_name) if "--gpu" in takes else ()
        rest = [pair for pair in self.given.items() if pair[0] in takes and pair[0] not in said]
        args = ("infercost", name, "--model", self.model_name, *first, *words, *(w for p in rest for w in p))
        return shlex.join(str(each) for each in args)


class Asked(NamedTuple):
    """The options of the command as they were given; None takes what the topic is best seen at."""

    model: str | None
    gpu: str
    tokens: int | None
    batch: int | None
    gen: int | None
    weights: str | None
    kv: str | None
    calibration: str
    scale: float
    rope_base: float
    what_if: WhatIf

    def at(
        self,
        tokens: int = 1024,
        batch: int = 1,
        gen: int = 256,
        model: str = "llama-7b",
        kv: str | None = None,
    ) -> Case:
        """The case, with a topic's own defaults for what is not given."""
        named = self.model or model
        one = self.what_if.apply(load_model(named))
        gpu = load_gpu(self.gpu)
        length = self.tokens or tokens
        scale, base = scaling(self.scale, self.rope_base)
        run = Run(
            recipe=None if self.weights is None else find_recipe(self.weights),
            kv=kv_formats(self.kv or kv, one)[0],
        )
        return Case(
            Setting(one, run, gpu, clock=clock_of(self.calibration, gpu)),
            length,
            self.batch or batch,
            self.gen or gen,
            encoder_positions(one, None, length),
            scale,
            base,
            named,
            self.gpu,
            self.what_if.given(),
            self.given(),
        )

    def given(self) -> dict[str, object]:
        """The options that were given, but the model and the GPU, by their names in other commands."""
        options = {
            **dict.fromkeys(LENGTHS, self.tokens),
            "--gen": self.gen,
            "--batch": self.batch,
            "--weights": self.weights,
            "--kv": self.kv,
            "--calibration": None if self.calibration == "auto" else self.calibration,
            **{f"--{name.replace('_', '-')}": n for name, n in self.what_if.given().items()},
        }
        return {name: value for name, value in options.items() if value is not None}
