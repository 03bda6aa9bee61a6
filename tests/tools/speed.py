"""Whole configurations a second: model, GPU, batch and length, both phases, expected times, one core.

    OMP_NUM_THREADS=1 python tests/tools/speed.py

Every configuration has a random batch and length of its own. Prints the rate vectorised, the time of a
single call, and how far the two ways of computing are apart.
"""

from __future__ import annotations

import time

import numpy as np

from infercost.cli.calibrations import own_first
from infercost.costmodel.forward import ops
from infercost.costmodel.step import Plan, Run, decode, prefill
from infercost.costmodel.times.expected import Clock
from infercost.hardware.catalogue import load_gpu
from infercost.models.catalogue import load_model

MODELS, GPUS = ("llama-7b", "llama-3-8b"), ("a100", "h100", "b200")
CHUNK = 4096
ROUNDS = 12
SINGLE = 40


def clock_of(name: str) -> Clock:
    gpu = load_gpu(name)
    return Clock(gpu, *own_first("auto", gpu))


def evaluate(model: object, clock: Clock, batch: object, length: object) -> tuple[object, object]:
    """Expected seconds of a prefill and of a decode step."""
    out = []
    for step in (prefill(batch, length), decode(batch, length)):
        out.append(clock.total(ops(Plan(model, step, Run(), clock.gpu))).seconds)
    return out[0], out[1]


def main() -> None:
    rng = np.random.default_rng(0)
    for name in MODELS:
        model = load_model(name)
        for gpu in GPUS:
            clock = clock_of(gpu)
            sets = [(rng.integers(1, 257, CHUNK), rng.integers(16, 8193, CHUNK)) for _ in range(ROUNDS)]
            evaluate(model, clock, *sets[0])
            begin = time.process_time()
            for batch, length in sets:
                both = evaluate(model, clock, batch, length)
            vector = CHUNK * ROUNDS / (time.process_time() - begin)
            begin = time.process_time()
            worst = 0.0
            for i in range(SINGLE):
                alone = evaluate(model, clock_of(gpu), int(batch[i]), int(length[i]))
                worst = max(worst, *(abs(a / b[i] - 1) for a, b in zip(alone, both, strict=True)))
            single = (time.process_time() - begin) / SINGLE
            print(
                f"{name:14} {gpu:6} {vector:12,.0f} configurations/s   one alone {1e3 * single:6.2f} ms"
                f"   apart {worst:.1e}"
            )


if __name__ == "__main__":
    main()
