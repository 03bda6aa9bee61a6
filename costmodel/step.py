"""One forward pass: which sequences go through, how many new tokens each, after how many old ones.

A prefill, a decode, a chunk with decodes riding along, a speculative verify, a prefix-cache hit and
a ragged batch are all lists of segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .. import InputError
from ..hardware.spec import Gpu
from ..models.formats import Format, find_format
from ..models.recipes import Recipe, default_recipe, sixteen_bit
from ..models.spec import Model
from .limits import array_fits, positive_counts


@dataclass(frozen=True)
class Segment:
    """`count` sequences with `new` tokens each, after `past` cached ones, `logits` wanted of each.

    `encoder_new` positions go through the encoder for each sequence in this step; `encoder_past`
    positions of cross-attention KV are there already.
    """

    count: int
    new: int
    past: int = 0
    logits: int = 1
    encoder_new: int = 0
    encoder_past: int = 0

    @property
    def context(self) -> int:
        """Cached tokens at the end of the step, with no window."""
        return self.past + self.new

    @property
    def tokens(self) -> int:
        return self.count * self.new


class Step(NamedTuple):
    """Segments that share one pass over the weights, and the phase a person would call it."""

    phase: str
    segments: tuple[Segment, ...]

    @property
    def tokens(self) -> int:
        return sum(segment.tokens for segment in self.segments)

    @property
    def logit_rows(self) -> int:
        return sum(segment.count * segment.logits for segment in self.segments)

    @property
    def encoder_tokens(self) -> int:
        return sum(segment.count * segment.encoder_new for segment in self.segments)


def prefill(batch: int, tokens: int, all_logits: bool = False, encoder: int = 0) -> Step:
    """`batch` prompts of `tokens` tokens; logits of the last position only unless `all_logits`.

    Arrays (of 64-bit integers) make a step for each of their elements.
    """
    positive_counts(batch=batch, tokens=tokens)
    array_fits(batch, tokens)
    logits = tokens if all_logits else 1
    return Step("prefill", (Segment(batch, tokens, 0, logits, encoder_new=encoder),))


def decode(batch: int, context: int, encoder: int = 0) -> Step:
    """One new token for each of `batch` sequences, `context` tokens long counting the new one.

    Arrays (of 64-bit integers) make a step for each of their elements.
    """
    positive_counts(batch=batch, context=context)
    return Step("decode", (Segment(batch, 1, context - 1, 1, encoder_past=encoder),))


FP16 = find_format("fp16")


@dataclass(frozen=True)
class Run:
    """How a model is run: everything that changes the cost besides the model, the step and the GPU.

    `recipe` None: the checkpoint's own formats. `attention` flash or eager; `mla` absorbed,
    expanded or auto (the one with fewer FLOPs, segment by segment); `fusion` none, engine or ideal;
    `full_attention` counts every query-key pair, not the causal half; `skew` is the Zipf exponent
    of expert popularity (0: uniform). `expert_ranks`: ranks whose own tokens meet at the experts
    (expert parallelism over data-parallel attention; see `costmodel.parallel`).
    """

    recipe: Recipe | None = None
    kv: Format = FP16
    attention: str = "flash"
    mla: str = "auto"
    fusion: str = "engine"
    full_attention: bool = False
    skew: float = 0.0
    expert_ranks: int = 1

    def __post_init__(self) -> None:
        choices = {
            "attention": ("flash", "eager"),
            "mla": ("auto", "absorbed", "expanded"),
            "fusion": ("none", "engine", "ideal"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise InputError(f"{name} is one of {', '.join(allowed)}, not '{getattr(self, name)}'")
        if not 0 <= self.skew <= 10:
            raise InputError(f"skew is a Zipf exponent between 0 and 10, not {self.skew:g}")


@dataclass(frozen=True)
class Plan:
    """A model, a step and how it is run, on a GPU where one is named: what every command evaluates."""

    model: Model
    step: Step
    run: Run = Run()
    gpu: Gpu | None = None

    @property
    def recipe(self) -> Recipe:
        return self.run.recipe or default_recipe(self.model)

    @property
    def activation(self) -> str:
        """Type of the activations, which weight-only formats also compute in."""
        whole = self.recipe.name
        return whole if whole in ("fp32", "tf32", "fp16", "bf16") else sixteen_bit(self.model)

    @property
    def activation_bytes(self) -> int:
        return 4 if self.activation in ("fp32", "tf32") else 2
