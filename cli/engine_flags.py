"""The flags that change what an engine allocates, as `kv` and `fit` take them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import typer

from .. import InputError
from . import options as o
from .sizes import byte_size, tokens
from .unused import given, refuse

if TYPE_CHECKING:
    from ..costmodel.engines import How
    from ..costmodel.memory import Reserve
    from ..hardware.engine import EngineMemory
    from ..hardware.spec import Gpu

CONCATENATING = "hf"
"""The one `--engine` that has no pool: the library's cache, layer by layer."""


FLAGS = (
    *("--block", "--ubatch", "--dcp", "--window-share", "--kv-budget", "--num-gpu-blocks"),
    "--max-num-batched-tokens",
)


def read_by() -> dict[str, tuple[str, ...]]:
    """The engines that each flag changes anything in."""
    from ..costmodel.engines import ALLOCATORS, POOLED

    return {
        "--block": POOLED,
        "--ubatch": ("llama.cpp",),
        "--dcp": ("vllm",),
        "--window-share": ("sglang",),
        "--kv-budget": ALLOCATORS,
        "--num-gpu-blocks": POOLED,
    }


def refuse_unread(
    ctx: typer.Context, engine: str | None, readers: Callable[[], dict[str, tuple[str, ...]]]
) -> None:
    """Raises InputError for flags that were given and that `engine` (None: none) does not read.

    `readers` is asked only where one is given: a plain question loads nothing about engines.
    """
    typed = [name for name in given(ctx) if name in FLAGS]
    known = readers() if typed else {}
    odd = [name for name in typed if engine not in known.get(name, (engine,))]
    if not odd:
        return
    whose = ", ".join(known[odd[0]])
    why = f"{odd[0]} changes what an engine allocates: give --engine {whose}"
    refuse(ctx, f"--engine {engine}" if engine else "", odd, why)


class Flags(NamedTuple):
    """The engine and those of its flags that change what it allocates, as they were typed."""

    engine: o.Engine = None
    block: o.Block = None
    chunk: o.BatchedTokens = None
    micro_batch: o.MicroBatch = None
    tp: o.Tp = 1
    context_ranks: o.ContextRanks = 1
    window_share: o.WindowShare = None
    budget: o.KvBudget = None
    blocks: o.Blocks = None

    def checked(self) -> Flags:
        """With the engine's plain name. Raises InputError for one without a modelled allocator."""
        if self.engine is None:
            return self
        from ..costmodel.engines import ALLOCATORS
        from ..hardware.engine import load_engine

        known = load_engine(self.engine)
        if known.name != CONCATENATING and known.memory is None:
            listed = ", ".join((CONCATENATING, *ALLOCATORS))
            raise InputError(f"what {known.name} allocates is not modelled; --engine is one of {listed}")
        if not 1 <= self.context_ranks <= 4096:
            raise InputError(f"--dcp is between 1 and 4096, not {self.context_ranks}")
        if self.window_share is not None and not 0 < self.window_share <= 1:
            raise InputError(f"--window-share is a part of one, above 0, not {self.window_share:g}")
        if self.blocks is not None and not 1 <= self.blocks <= 1 << 40:
            raise InputError(f"--num-gpu-blocks is a count of blocks, not {self.blocks}")
        return self._replace(engine=known.name)

    @property
    def memory(self) -> EngineMemory | None:
        """What the engine reserves; None for the library and for no engine."""
        if self.engine is None:
            return None
        from ..hardware.engine import load_engine

        return load_engine(self.engine).memory

    def how(self, gpu: Gpu | None) -> How:
        """The flags that were given, the others as the engine sets them itself on `gpu`."""
        from ..costmodel.engines import engine_flags

        assert self.memory is not None
        own = engine_flags(self.memory, gpu)
        return own._replace(
            block_tokens=tokens(self.block, "--block") if self.block else own.block_tokens,
            in_flight=self.chunk_tokens(gpu),
            ranks_of_context=self.context_ranks,
            window_share=own.window_share if self.window_share is None else self.window_share,
        )

    def chunk_tokens(self, gpu: Gpu | None) -> int:
        """Tokens of one step: as given, or as the engine takes them on `gpu` (llama.cpp a micro-batch)."""
        if self.engine == "llama.cpp" and self.micro_batch is not None:
            return tokens(self.micro_batch, "--ubatch")
        if self.chunk is not None:
            return tokens(self.chunk, "--max-num-batched-tokens")
        if self.memory:
            from ..costmodel.engines import engine_flags

            return engine_flags(self.memory, gpu).in_flight
        from ..costmodel.memory import CHUNK_TOKENS

        return CHUNK_TOKENS

    def reserve(self, gpu: Gpu | None) -> Reserve | None:
        """The engine's allocator on `gpu`; None for the library and for no engine."""
        memory = self.memory
        if not (self.engine and memory):
            return None
        from ..costmodel.memory import Reserve

        return Reserve(self.engine, memory, self.how(gpu))

    @property
    def budget_bytes(self) -> int | None:
        return None if self.budget is None else byte_size(self.budget, "--kv-budget")
