"""Inference engines: how the time of their steps differs from that of their kernels, and what they reserve.

A profile (`hardware/engines/*.yaml`) holds few constants that carry over between GPUs; the formulas that
read them stand in `costmodel/times/engine.py` and `costmodel/engines.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .. import InputError
from ..sheets import Section, nearest, read_yaml

FOLDER = Path(__file__).parent / "engines"
KERNELS = ("calibrated", "own")
SHARES_OF = ("total", "free", "static", "free_of_weights", "none")


class Machine(NamedTuple):
    """What machines with one GPU were seen to do: factors on the kernels of decode steps and of prefills,
    and on the host's time."""

    gpu: str
    decode: float = 1.0
    prefill: float = 1.0
    host: float = 1.0


@dataclass(frozen=True)
class EngineTimes:
    """Constants of an engine's step times; `costmodel.times.engine` says what each does.

    `error`: median |predicted / measured - 1| of decode steps of models kept out of the fit, `prefill_error`
    of prefills, `gpu_error` of GPUs kept out; `assumed`: no request was measured, the constants are guessed.
    """

    source: str
    error: float
    gpu_error: float
    prefill_error: float = 0.3
    kernels: str = "calibrated"
    gap: float = 1.0
    prefill_gap: float = 1.0
    link_gap: float = 1.0
    read_share_16: float = 1.0
    read_share_8: float = 1.0
    read_share_4: float = 1.0
    compute_share: float = 1.0
    load_bytes_per_clock: float | None = None
    attend_bytes_per_clock: float | None = None
    layer_us: float = 0.0
    launch_us: float = 0.0
    sequence_us: float = 0.0
    rank_layer_us: float = 0.0
    hop_us: float = 0.0
    prefill_layer_us: float = 0.0
    overlapped: bool = False
    mixing: float = 1.0
    assumed: bool = False
    machines: tuple[Machine, ...] = ()

    def __post_init__(self) -> None:
        if self.kernels not in KERNELS:
            raise InputError(f"kernels is {' or '.join(KERNELS)}, not '{self.kernels}'")
        for name in ("error", "gpu_error", "prefill_error", "gap", "prefill_gap", "mixing"):
            if not 0 <= getattr(self, name) <= 10:
                raise InputError(f"{name} must be between 0 and 10, not {getattr(self, name):g}")
        if not 0 <= self.link_gap <= 1000:
            raise InputError(f"link_gap must be between 0 and 1000, not {self.link_gap:g}")
        for name in ("read_share_16", "read_share_8", "read_share_4", "compute_share"):
            if not 0.001 <= getattr(self, name) <= 1:
                raise InputError(f"{name} must be between 0.001 and 1, not {getattr(self, name):g}")
        for name in ("load_bytes_per_clock", "attend_bytes_per_clock"):
            value = getattr(self, name)
            if value is not None and not 0.01 <= value <= 1e4:
                raise InputError(f"{name} must be between 0.01 and 10,000, not {value:g}")
        for name in ("layer_us", "launch_us", "sequence_us", "rank_layer_us", "hop_us", "prefill_layer_us"):
            if not 0 <= getattr(self, name) <= 1e6:
                raise InputError(f"{name} must be between 0 and 1e6, not {getattr(self, name):g}")

    def without_host(self) -> EngineTimes:
        """The same engine with a host that takes no time."""
        return replace(
            self,
            layer_us=0.0,
            launch_us=0.0,
            sequence_us=0.0,
            rank_layer_us=0.0,
            hop_us=0.0,
            prefill_layer_us=0.0,
        )

    def machine(self, gpu: str) -> Machine | None:
        """The machines with this GPU, None if none was seen."""
        return next((machine for machine in self.machines if machine.gpu == gpu), None)


class Card(NamedTuple):
    """Cards on which an engine's steps are of another size: those of `from_gib` and `below_gib` GiB, whose
    name has `named` in it. `chunk_tokens` and `sequences` are the most of one step."""

    name: str
    chunk_tokens: int
    sequences: int
    from_gib: int = 0
    below_gib: int = 1 << 20
    named: str = ""


@dataclass(frozen=True)
class EngineMemory:
    """What an engine allocates by default; `costmodel.engines` says how.

    `share` of the `share_of` memory (total, or what is free after the weights) is for the cache's pool; None
    where the rule has a share of its own (static). `chunk_tokens` and `sequences` are the most of one step,
    but on `cards`. `context_mib` is the CUDA context, `graphs_mib` the captured graphs, `nccl_mib` what ranks
    take to talk. `window_share`: of the full pool, what one of windows has (SGLang).

    Of an engine that tries out its widest step before it sizes the pool (vLLM): `sampler_bytes`, of each
    sequence and word of the vocabulary while it samples; `workspaces`, whether those of its experts stay;
    `mxfp4_width`, `mxfp4_hidden`: multiples that widths of experts in MXFP4 are padded to.
    """

    version: str
    source: str
    block_tokens: int
    share_of: str
    chunk_tokens: int
    context_mib: int
    graphs_mib: int
    nccl_mib: int
    share: float | None = None
    sequences: int = 256
    cards: tuple[Card, ...] = ()
    window_share: float | None = None
    sampler_bytes: float = 0.0
    workspaces: bool = False
    mxfp4_width: int = 1
    mxfp4_hidden: int = 1

    def __post_init__(self) -> None:
        if self.share_of not in SHARES_OF:
            raise InputError(f"share_of is one of {', '.join(SHARES_OF)}, not '{self.share_of}'")
        if (self.share is None) != (self.share_of == "static"):
            raise InputError("share is needed, but with share_of: static, which has one of its own")
        for name in ("share", "window_share"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                raise InputError(f"{name} must be above 0 and at most 1, not {value:g}")
        for name in ("block_tokens", "chunk_tokens", "sequences", "mxfp4_width", "mxfp4_hidden"):
            if not 1 <= getattr(self, name) <= 1 << 20:
                raise InputError(f"{name} must be between 1 and 1,048,576, not {getattr(self, name)}")
        for name in ("context_mib", "graphs_mib", "nccl_mib", "sampler_bytes"):
            if not 0 <= getattr(self, name) <= 1 << 20:
                raise InputError(f"{name} must be between 0 and 1,048,576, not {getattr(self, name)}")


@dataclass(frozen=True)
class Engine:
    """One engine: `times` None where no request of it was measured, `memory` None where its allocator is not
    modelled; `stack`: what calibrations call its kernels, "" where none of them were measured."""

    name: str
    title: str
    stack: str = ""
    times: EngineTimes | None = None
    memory: EngineMemory | None = None
    notes: str = ""


@cache
def engine_names() -> tuple[str, ...]:
    """Names of the profiles that ship, sorted; no file is read."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


@cache
def load_engine(given: str) -> Engine:
    """An engine by name. Raises InputError for an unknown one, with the nearest."""
    name = given.strip().lower()
    name = ALIASES.get(name, name)
    if name not in engine_names():
        known = [*engine_names(), *ALIASES]
        hint = nearest(name, known) or f"; known: {', '.join(engine_names())}"
        raise InputError(f"unknown engine '{given[:60]}'{hint}")
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    return engine_from_text(text, f"{name}.yaml", trusted=True)


ALIASES = {
    "trtllm": "tensorrt-llm",
    "trt-llm": "tensorrt-llm",
    "transformers": "hf",
    "llamacpp": "llama.cpp",
    "llama-cpp": "llama.cpp",
    "ollama": "llama.cpp",
    "mlc": "mlc-llm",
    "turbomind": "lmdeploy",
}


def engine_from_text(text: str, origin: str, trusted: bool = False) -> Engine:
    """The engine that a profile describes. Raises SheetError naming file, line and what is allowed."""
    sheet = Section(read_yaml(text, origin, trusted), origin, text)
    times, memory = sheet.section("times"), sheet.section("memory")
    return sheet.build(
        Engine,
        times=times.build(EngineTimes, machines=_machines(times)) if times else None,
        memory=memory.build(EngineMemory, cards=_cards(memory)) if memory else None,
    )


def _cards(memory: Section) -> tuple[Card, ...]:
    section = memory.section("cards")
    if section is None:
        return ()
    out = []
    for name in section.data:
        one = section.section(name)
        assert one is not None
        card = Card(
            name,
            one.take("chunk_tokens", "int"),
            one.take("sequences", "int"),
            one.take("from_gib", "int", 0),
            one.take("below_gib", "int", 1 << 20),
            one.take("named", "str", ""),
        )
        for key in ("chunk_tokens", "sequences"):
            if not 1 <= getattr(card, key) <= 1 << 20:
                raise one.error("must be between 1 and 1,048,576", key)
        one.close()
        out.append(card)
    return tuple(out)


def _machines(times: Section) -> tuple[Machine, ...]:
    section = times.section("machines")
    if section is None:
        return ()
    out = []
    for gpu in section.data:
        one = section.section(gpu)
        assert one is not None
        factors = {name: one.take(name, "float", 1.0) for name in ("decode", "prefill", "host")}
        for name, factor in factors.items():
            if not 0.01 <= factor <= 100:
                raise one.error("must be between 0.01 and 100", name)
        one.close()
        out.append(Machine(gpu, **factors))
    return tuple(out)
