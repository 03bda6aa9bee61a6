"""One load on one setting, held to its budget: what fits, what else would, and its JSON."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..costmodel.engines import Pool
from ..costmodel.memory import (
    Change,
    Load,
    Memory,
    gpus_needed,
    largest_batch,
    longest,
    what_would_fit,
)
from ..costmodel.parallel import shard
from ..costmodel.setting import Setting
from ..costmodel.sharding import Parallel
from ..costmodel.step import decode


class Answer(NamedTuple):
    """One load on one setting, evaluated."""

    load: Load
    setting: Setting
    memory: Memory
    budget_bytes: int
    pool: Pool | None
    max_seq: int | None
    max_batch: int | None
    needed: Parallel | None
    changes: list[Change]

    @property
    def free_bytes(self) -> int:
        return self.budget_bytes - self.memory.total

    @property
    def concurrency(self) -> float | None:
        """Sequences whose cache fits beside everything else, in parts of one; as the engine says it."""
        if self.pool is not None:
            return self.pool.concurrency
        each = self.memory.cache / self.load.batch
        left = self.budget_bytes - self.memory.beside_cache
        return max(0.0, left / each) if each else None


def answer_of(load: Load, setting: Setting) -> Answer:
    memory = load.memory(setting)
    budget = load.budget_bytes(setting, memory)
    fits = memory.total <= budget
    return Answer(
        load,
        setting,
        memory,
        budget,
        load.pool(setting, memory),
        longest(load, setting),
        largest_batch(load, setting),
        gpus_needed(load, setting),
        [] if fits else what_would_fit(load, setting),
    )


def point_of(answer: Answer) -> dict[str, Any]:
    setting, load, needed = answer.setting, answer.load, answer.needed
    return {
        "inputs": {
            "model": setting.model.name,
            "gpu": setting.gpu.name,
            "seq": load.tokens,
            "batch": load.batch,
            "encoder_seq": load.encoder or None,
            "weights": setting.recipe.name,
            "kv": setting.run.kv.name,
            "tp": setting.parallel.tp,
            "pp": setting.parallel.pp,
            "ep": setting.parallel.ep,
            "chunk": load.chunk,
        },
        "fits": answer.free_bytes >= 0,
        "capacity_bytes": load.given.capacity or setting.gpu.capacity_bytes,
        "share": load.share_of(setting),
        "budget_bytes": answer.budget_bytes,
        "terms": [{"name": name, "bytes": value} for name, value in terms_of(answer.memory).items()],
        "logits_bytes": logits_bytes(setting, load.batch),
        "total_bytes": answer.memory.total,
        "free_bytes": answer.free_bytes,
        "max_seq": answer.max_seq,
        "max_batch": answer.max_batch,
        "max_concurrency": answer.concurrency,
        "pool": answer.pool and answer.pool._asdict(),
        "smallest_share": load.smallest_share(setting, answer.memory),
        "share_without_graphs": without_graphs(answer),
        "gpus_needed": needed.world if needed else None,
        "gpus_as": {"tp": needed.tp, "pp": needed.pp} if needed else None,
        "would_fit": [change._asdict() for change in answer.changes],
    }


def terms_of(memory: Memory) -> dict[str, int]:
    """The terms that are always there, and those of the others that are not zero."""
    always = ("weights", "cache", "activations")
    return {name: value for name, value in memory._asdict().items() if name in always or value}


def logits_bytes(setting: Setting, batch: int) -> int:
    """Scores of `batch` sequences on one rank."""
    plan = shard(setting.plan(decode(batch, 2)), setting.parallel, setting.parallel.pp - 1)
    return int(plan.step.logit_rows * plan.model.vocab * plan.activation_bytes)


def without_graphs(answer: Answer) -> float | None:
    """The share of the total that leaves the same cache without CUDA graphs (vLLM logs it since 0.21)."""
    load, setting = answer.load, answer.setting
    if load.reserve is None or load.reserve.memory.share_of != "total" or not answer.memory.graphs:
        return None
    if load.given.pool is not None or load.given.blocks is not None:
        return None
    return load.share_of(setting) - answer.memory.graphs / load.capacity_bytes(setting)


def as_row(point: dict[str, Any]) -> dict[str, Any]:
    """A point as one CSV row."""
    out = dict(point["inputs"])
    out |= {f"{term['name']}_bytes": term["bytes"] for term in point["terms"]}
    skipped = ("inputs", "terms", "gpus_as", "would_fit")
    return out | {key: value for key, value in point.items() if key not in skipped}
