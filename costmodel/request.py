"""One request: prompt, prefill, decode steps, output; and what the KV cache saves of it.

The first token comes out of the prefill, so G tokens take G - 1 decode steps, the i-th at a context of
P + i tokens. A step is its kernels one after the other, on every pipeline stage in turn; what the host
does between launches is not in it. Source: the seed ledger, decode.steps and seed3.recount.
"""

from __future__ import annotations

from typing import NamedTuple

from .. import InputError
from .limits import positive_counts
from .op import Number
from .setting import Cost, Setting, step_cost
from .step import Segment, Step, decode, prefill


class Request(NamedTuple):
    """`batch` equal requests at once: `prompt` tokens each, `cached` of them in a prefix cache already,
    `gen` tokens out; `encoder` positions of an encoder-decoder.

    With data-parallel attention (ep > 1, tp = 1) `batch` is that of one rank.
    """

    prompt: int
    gen: int
    batch: int = 1
    cached: int = 0
    encoder: int = 0

    def checked(self) -> Request:
        """Raises InputError where a count is out of bounds or the whole prompt is cached."""
        positive_counts(prompt=self.prompt, gen=self.gen, batch=self.batch)
        if not 0 <= self.cached < self.prompt:
            raise InputError(
                f"{self.cached:,} cached tokens of a prompt of {self.prompt:,}: all but one at most, for "
                "the logits come from computing the last"
            )
        return self

    @property
    def decode_steps(self) -> int:
        """G - 1: the first token is the prefill's."""
        return self.gen - 1

    @property
    def held_tokens(self) -> int:
        """Tokens in the cache at the end: the last one out is never put in."""
        return self.prompt + self.gen - 1

    def prefill(self) -> Step:
        """What of the prompt is not cached, after what is."""
        new = Segment(self.batch, self.prompt - self.cached, self.cached, 1, encoder_new=self.encoder)
        return Step("prefill", (new,))

    def decode(self, contexts: Number) -> Step:
        """The step, or an array of them, at `contexts` tokens, the new one counted."""
        return decode(self.batch, contexts, self.encoder)

    def recount(self, lengths: Number) -> Step:
        """A pass without a cache: everything so far, again."""
        return prefill(self.batch, lengths, encoder=self.encoder)

    def token_passes(self, cache: bool = True) -> int:
        """Tokens of one sequence that go through the model: P + G - 1, or G·P + G(G-1)/2 without a cache."""
        if cache:
            return self.prompt - self.cached + self.gen - 1
        return self.gen * self.prompt + self.gen * (self.gen - 1) // 2


class Dollars(NamedTuple):
    """What the devices cost while they work: of one request, and per million tokens of each kind.

    `cached_input`: what a token costs that is found in a prefix cache, because later tokens attend to it.
    """

    request: float
    input: float | None
    cached_input: float | None
    output: float | None


def dollars(
    setting: Setting, request: Request, ttft: Cost | None, decoding: Cost | None, usd_per_hour: float
) -> Dollars:
    """Price × devices × time, shared evenly by the requests; input (encoder positions with it) pays the
    prefill, output the decode.

    request = input × computed tokens + cached_input × cached ones + output × decode steps.
    """
    per_s = usd_per_hour / 3600 * setting.devices / (request.batch * setting.replicas)
    million = 1e6 * per_s
    computed = request.prompt - request.cached + request.encoder
    reading = fresh = ttft.best if ttft else 0.0
    if request.cached and ttft:
        alone = request._replace(prompt=request.prompt - request.cached, cached=0)
        fresh = min(reading, step_cost(setting, alone.prefill()).best)
    generating = decoding.best if decoding else 0.0
    return Dollars(
        per_s * (reading + generating),
        million * fresh / computed if ttft else None,
        million * (reading - fresh) / request.cached if request.cached else None,
        million * generating / request.decode_steps if decoding else None,
    )


def energy_j(setting: Setting, request: Request, seconds: float) -> float | None:
    """Board power × devices × time, shared by the requests: at most this much for each; None where the sheet
    names no power."""
    power = setting.gpu.power_w
    return None if power is None else power * setting.devices * seconds / (request.batch * setting.replicas)
