"""Requests one by one through a device: a small discrete-event simulation of the schedules.

Events are ends of steps; decode steps in which nothing comes or goes are taken together, at their mean
context. The same rules as the closed forms of `serving`: static (all that wait, up to the slots, until the
longest is done), continuous (a free slot takes a prompt at once, in a step of its own), chunked (prompt
tokens up to a chunk ride along with the decodes, first come first served). No preemption: slots are what
memory allows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import islice
from math import inf, sqrt
from typing import NamedTuple

from .. import InputError
from .search import most_within
from .serving import POLICIES as EVERY
from .step_times import StepTimes

Z95 = 1.959964
"""Standard errors on either side of a mean that hold 95 % of a normal distribution."""
POLICIES = EVERY[:3]
"""Those that one device runs by itself."""
MOST_CHUNKS = 2_000_000


class Job(NamedTuple):
    """One request: when it comes (of an open system), tokens in, tokens out."""

    arrival_s: float
    prompt: int
    gen: int


class Share(NamedTuple):
    """Slot steps with a token over all slot steps, a ratio of means, and half its 95 % confidence interval
    (None where batches are not independent draws); `mean_of_batches`: each batch's own share, averaged."""

    value: float
    half_width: float | None = None
    mean_of_batches: float | None = None


class Times(NamedTuple):
    """Of one request: to the first token, and between the others (None where one comes out)."""

    ttft_s: float
    tpot_s: float | None


class Outcome(NamedTuple):
    """When each job came, had its first and its last token, in seconds; `used` slots.

    `starting`: so many first jobs of a closed system, which found it empty, are not in `times`.
    """

    jobs: Sequence[Job]
    came_s: list[float]
    first_s: list[float]
    done_s: list[float]
    used: Share
    starting: int = 0

    @property
    def times(self) -> list[Times]:
        rows = zip(self.jobs, self.came_s, self.first_s, self.done_s, strict=True)
        return [
            Times(first - came, (done - first) / (job.gen - 1) if job.gen > 1 else None)
            for job, came, first, done in islice(rows, self.starting, None)
        ]

    @property
    def seconds(self) -> float:
        """From the first arrival to the last token."""
        return max(self.done_s) - min(self.came_s)

    @property
    def output_tokens_per_s(self) -> float:
        return sum(job.gen for job in self.jobs) / self.seconds

    @property
    def requests_per_s(self) -> float:
        return len(self.jobs) / self.seconds


def simulate(
    jobs: Sequence[Job],
    times: StepTimes,
    policy: str,
    slots: int,
    users: int | None = None,
    chunk: int | None = None,
    ramp_s: float = 0.0,
) -> Outcome:
    """Run `jobs` to their end over `slots`.

    `users`: a closed system of so many, each of whom sends the next job when the last one is done, the first
    ones spread over `ramp_s`; None: jobs come at their own times.

    Raises InputError where there is none, more chunks than are worth running, or no such policy.
    """
    if policy not in POLICIES:
        raise InputError(f"simulated are {', '.join(POLICIES)}, not '{policy}'")
    if not jobs:
        raise InputError("a simulation needs at least one request")
    arrivals = _Arrivals(jobs, users, ramp_s)
    if policy == "static":
        return _static(jobs, times, slots, arrivals)
    if policy == "chunked" and chunk is not None:
        pieces = sum(1 + (job.prompt - 1) // chunk for job in jobs)
        if pieces > MOST_CHUNKS:
            raise InputError(
                f"{pieces:,} chunks are more than {MOST_CHUNKS:,}; a longer chunk or fewer requests"
            )
        return _flowing(jobs, times, slots, arrivals, chunk)
    return _flowing(jobs, times, slots, arrivals, None)


class _Arrivals:
    """Jobs that have come and wait, and those still to come."""

    def __init__(self, jobs: Sequence[Job], users: int | None, ramp_s: float) -> None:
        self.came_s = [job.arrival_s for job in jobs]
        self.waiting: deque[int] = deque()
        self._coming = deque(sorted(range(len(jobs)), key=lambda i: jobs[i].arrival_s))
        self._unsent: deque[int] = deque()
        self.starting = 0
        if users is not None:
            first = min(users, len(jobs))
            for i in range(first):
                self.came_s[i] = ramp_s * i / users
            self._coming, self._unsent = deque(range(first)), deque(range(first, len(jobs)))
            self.starting = first if self._unsent else 0

    @property
    def next_s(self) -> float:
        """When the next one comes by itself."""
        return self.came_s[self._coming[0]] if self._coming else inf

    @property
    def left(self) -> bool:
        return bool(self.waiting or self._coming or self._unsent)

    def release(self, now: float) -> None:
        """A user of a closed system sends the next job."""
        if self._unsent:
            job = self._unsent.popleft()
            self.came_s[job] = now
            self.waiting.append(job)

    def until(self, now: float) -> None:
        """Let those in that have come by `now`."""
        while self.next_s <= now:
            self.waiting.append(self._coming.popleft())


def _static(jobs: Sequence[Job], times: StepTimes, slots: int, arrivals: _Arrivals) -> Outcome:
    first_s, done_s = [0.0] * len(jobs), [0.0] * len(jobs)
    shares: list[tuple[int, int]] = []
    now = 0.0
    while arrivals.left:
        arrivals.until(now)
        if not arrivals.waiting:
            now = arrivals.next_s
            continue
        batch = [arrivals.waiting.popleft() for _ in range(min(slots, len(arrivals.waiting)))]
        prompt = sum(jobs[i].prompt for i in batch) / len(batch)
        now += times.prefill_s(len(batch), prompt)
        start, taken = now, 0
        for i in sorted(batch, key=lambda i: jobs[i].gen):
            steps = jobs[i].gen - 1
            # The steps since the last one that was done, at the middle of their contexts.
            middle = prompt + (taken + steps + 1) / 2
            start += (steps - taken) * times.decode_s(len(batch), middle) if steps > taken else 0.0
            first_s[i], done_s[i], taken = now, start, steps
            arrivals.release(start)
        now = start
        shares.append((sum(jobs[i].gen for i in batch), len(batch) * (taken + 1)))
    return Outcome(jobs, arrivals.came_s, first_s, done_s, _share(shares), arrivals.starting)


def _share(batches: list[tuple[int, int]]) -> Share:
    """Σ used / Σ all, its interval by the delta method over independent batches."""
    used, every = sum(a for a, _ in batches), sum(b for _, b in batches)
    ratio, count = used / every, len(batches)
    own = sum(a / b for a, b in batches) / count
    if count < 2:
        return Share(ratio, None, own)
    variance = sum((a - ratio * b) ** 2 for a, b in batches) / (count - 1)
    return Share(ratio, Z95 * sqrt(variance / count) / (every / count), own)


class _Slots:
    """Sequences that decode: how many, how much context together, and at which step each is done."""

    def __init__(self, times: StepTimes) -> None:
        self.times, self.step, self.busy, self.context = times, 0, 0, 0
        self._ends: list[tuple[int, int]] = []

    def put(self, job: int, prompt: int, steps: int) -> None:
        heappush(self._ends, (self.step + steps, job))
        self.busy, self.context = self.busy + 1, self.context + prompt + 1

    @property
    def mean_context(self) -> float:
        return self.context / self.busy

    @property
    def to_next_end(self) -> int:
        return self._ends[0][0] - self.step

    def span_s(self, steps: int) -> float:
        """The next `steps` decode steps, in which nothing comes or goes."""
        return steps * self.times.decode_s(self.busy, self.mean_context + (steps - 1) / 2)

    def steps_until(self, seconds: float, most: int) -> int:
        """The fewest steps (1 to `most`) after which `seconds` have passed."""
        if self.span_s(most) <= seconds:
            return most
        return 1 + most_within(lambda steps: self.span_s(steps) < seconds, most - 1)

    def advance(self, steps: int, prompts: Sequence[Job]) -> list[int]:
        """Take the steps; the jobs that are done then."""
        self.step, self.context = self.step + steps, self.context + steps * self.busy
        done = []
        while self._ends and self._ends[0][0] <= self.step:
            job = heappop(self._ends)[1]
            done.append(job)
            self.busy -= 1
            self.context -= prompts[job].prompt + prompts[job].gen
        return done


def _flowing(
    jobs: Sequence[Job], times: StepTimes, slots: int, arrivals: _Arrivals, chunk: int | None
) -> Outcome:
    """Continuous batching; with a `chunk`, prompts go along with the decodes instead of before them."""
    first_s, done_s = [0.0] * len(jobs), [0.0] * len(jobs)
    running = _Slots(times)
    filling: deque[list[int]] = deque()
    now, used, every = 0.0, 0, 0

    def ended(found: list[int]) -> None:
        for job in found:
            done_s[job] = now
            arrivals.release(now)

    def begun(job: int) -> None:
        first_s[job] = now
        if jobs[job].gen > 1:
            running.put(job, jobs[job].prompt, jobs[job].gen - 1)
        else:
            ended([job])

    while arrivals.left or running.busy or filling:
        arrivals.until(now)
        while arrivals.waiting and running.busy + len(filling) < slots:
            job = arrivals.waiting.popleft()
            if chunk is None:
                now += times.prefill_s(1, jobs[job].prompt)
                begun(job)
                arrivals.until(now)
            else:
                filling.append([job, min(times.work.shared, jobs[job].prompt - 1)])
        if filling and chunk is not None:
            ready, tokens, past = _fill(filling, jobs, chunk)
            context = running.mean_context if running.busy else 0.0
            now += times.mixed_s(running.busy, context, tokens, past)
            used, every = used + running.busy + len(ready), every + slots
            ended(running.advance(1, jobs))
            for job in ready:
                begun(job)
        elif running.busy:
            steps = running.to_next_end
            if running.busy < slots and arrivals.next_s < inf:
                steps = running.steps_until(arrivals.next_s - now, steps)
            now += running.span_s(steps)
            if arrivals.left:
                used, every = used + steps * running.busy, every + steps * slots
            ended(running.advance(steps, jobs))
        elif arrivals.left and not arrivals.waiting:
            now = max(now, arrivals.next_s)
    share = Share(used / every if every else 1.0)
    return Outcome(jobs, arrivals.came_s, first_s, done_s, share, arrivals.starting)


def _fill(filling: deque[list[int]], jobs: Sequence[Job], chunk: int) -> tuple[list[int], int, float]:
    """The next `chunk` prompt tokens, oldest prompts first: which prompts are then complete, how many tokens,
    and after how many others they would visit as many keys if they were of one prompt."""
    ready: list[int] = []
    left, pairs = chunk, 0.0
    while filling and left:
        job, past = filling[0]
        new = min(left, jobs[job].prompt - past)
        pairs += new * past + new * new / 2
        left -= new
        filling[0][1] = past + new
        if past + new == jobs[job].prompt:
            ready.append(job)
            filling.popleft()
    tokens = chunk - left
    return ready, tokens, max(0.0, pairs / tokens - tokens / 2)
