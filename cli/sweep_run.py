"""The chunks of a sweep, computed in this process or in several, with what is done shown on a terminal."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .sweep_filter import Filter, conditions, holds, kept
from .sweep_grid import Grid
from .sweep_points import Columns, evaluate

MOST_JOBS = 256
AHEAD = 4
"""Chunks of each process that are asked for before they are needed: bounds what waits to be read."""


class Work(NamedTuple):
    """What is done with every chunk: evaluated, held to conditions, filtered."""

    grid: Grid
    wanted: Filter
    asserted: tuple[str, ...] = ()


class Target(NamedTuple):
    """Where a sweep is written, which shard of it, and how."""

    output: Path
    form: str
    shard: tuple[int, int] = (1, 1)
    jobs: int = 1
    restart: bool = False
    quiet: bool = False


class Result(NamedTuple):
    """A chunk: what is kept of it, points that there cannot be by reason, points at which a condition of
    --assert does not hold."""

    chunk: int
    columns: Columns
    impossible: dict[str, int]
    failed: dict[str, int]


def computed(work: Work, chunk: int) -> Result:
    """One chunk."""
    found = evaluate(work.grid, chunk)
    left = kept(found.columns, work.wanted)
    return Result(chunk, left, dict(found.impossible), failing(left, work.asserted))


def failing(columns: Columns, asserted: tuple[str, ...]) -> Counter[str]:
    """At how many points each condition of --assert does not hold, of those that do not hold at all."""
    every = zip(asserted, conditions(asserted, "--assert"), strict=True)
    return +Counter({written: int((~holds(columns, each)).sum()) for written, each in every})


Task = Callable[[Work, int], Any]
_WORK: list[tuple[Task, Work]] = []
"""What a process of the pool was started for."""


def results(task: Task, work: Work, chunks: list[int], jobs: int) -> Iterator[Any]:
    """`task` of every chunk, in their order, by as many processes as there are `jobs`."""
    if min(jobs, len(chunks)) <= 1:
        for chunk in chunks:
            yield task(work, chunk)
        return
    from collections import deque
    from concurrent.futures import Future, ProcessPoolExecutor
    from multiprocessing import active_children, get_context

    others = set(active_children())
    pool = ProcessPoolExecutor(
        min(jobs, len(chunks)), mp_context=get_context("spawn"), initializer=_start, initargs=(task, work)
    )
    try:
        waiting: deque[Future[Any]] = deque()
        for chunk in chunks:
            waiting.append(_submitted(pool, chunk))
            if len(waiting) >= AHEAD * jobs:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BaseException:
        # Interrupted, or no longer wanted: chunks under way are not waited for.
        for process in set(active_children()) - others:
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _submitted(pool: Any, chunk: int) -> Any:
    """A chunk that is to be done. A process that this starts is never interrupted, not while it begins."""
    import signal

    if not hasattr(signal, "pthread_sigmask"):
        return pool.submit(_do, chunk)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(_do, chunk)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(task: Task, work: Work) -> None:
    """Begin a process of the pool: it leaves interrupts to the one that started it, and ends with it."""
    import multiprocessing
    import signal
    import threading

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    _WORK[:] = [(task, work)]


def _do(chunk: int) -> Any:
    task, work = _WORK[0]
    return task(work, chunk)


class Progress:
    """A line on standard error, where that is a terminal: points done of all, a second, seconds left."""

    def __init__(self, points: int, quiet: bool = False) -> None:
        stream = sys.stderr
        self._shown = not quiet and stream is not None and stream.isatty()
        self._points, self._done, self._begin, self._last = points, 0, time.monotonic(), 0.0

    def add(self, points: int) -> None:
        self._done += points
        now = time.monotonic()
        if not self._shown or now - self._last < 0.1:
            return
        self._last = now
        rate = self._done / max(now - self._begin, 1e-9)
        filled = 24 * self._done // max(self._points, 1)
        left = (self._points - self._done) / rate if rate else 0.0
        bar = "#" * filled + "." * (24 - filled)
        sys.stderr.write(
            f"\r[{bar}] {self._done:,} of {self._points:,} points, {rate:,.0f}/s, {left:,.0f} s left\x1b[K"
        )
        sys.stderr.flush()

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
