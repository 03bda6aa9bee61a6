"""What the Python functions give back: a command's document, its contract typed, tables for a notebook."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar, overload

from .. import InfercostError, InputError
from .output.report import Report

if TYPE_CHECKING:
    import pandas

T = TypeVar("T")
HEADER = ("schema", "inputs", "conventions", "sources", "inferred")
"""Keys of every document, whatever was asked."""


class Key(Generic[T]):
    """One key of the document as a typed attribute. `meaning` is for a reader; units are in the name."""

    def __init__(self, meaning: str, shape: Callable[..., T] | None = None) -> None:
        self.meaning, self.shape = meaning, shape
        self.__doc__ = meaning

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, result: None, owner: type) -> Key[T]: ...

    @overload
    def __get__(self, result: Result, owner: type) -> T: ...

    def __get__(self, result: Result | None, owner: type) -> Any:
        if result is None:
            return self
        if self.name not in result.document:
            many = "points" in result.document
            way_out = "; each of .points has its own" if many else f"; it has {', '.join(result.document)}"
            raise AttributeError(f"this result has no {self.name}{way_out}")
        value = result.document[self.name]
        return self.shape(**value) if self.shape and value is not None else value


class Times(NamedTuple):
    """Seconds, three ways: null where nothing of the kind is known."""

    bound: float | None
    floor: float | None
    expected: float | None


class Ridge(NamedTuple):
    """FLOP per byte; `headline` is the one that leads."""

    headline: float
    textbook: float
    datasheet: float
    calibrated: float | None


@dataclass(frozen=True, repr=False)
class Result:
    """One answer. `document` is what the command prints with `--json`; `command` is that command line.

    `print(result)` shows the command's screen, a notebook its tables and picture. Where lists were given,
    `points` holds a result for each combination; of a single answer it is that answer alone.
    """

    command: str
    document: dict[str, Any]
    report: Report = field(compare=False)
    draw: Callable[[], str] | None = field(default=None, compare=False)

    inputs = Key[dict[str, Any]]("what was asked, options and their defaults")
    conventions = Key[dict[str, str]]("what the keys mean")
    sources = Key[dict[str, str]]("where the figures of each sheet come from")

    @property
    def points(self) -> tuple[Self, ...]:
        """A result for each combination of the lists that were given."""
        return tuple(self._points(type(self)))

    def _points(self, kind: type[Any]) -> list[Any]:
        if "points" not in self.document:
            return [self]
        header = {key: self.document[key] for key in HEADER if key in self.document}
        return [
            kind(
                self.command,
                {**header, **point, "inputs": header["inputs"] | point["inputs"]},
                self.report,
                self.draw,
            )
            for point in self.document["points"]
        ]

    def __getitem__(self, key: str) -> Any:
        return self.document[key]

    def __repr__(self) -> str:
        said = self.report.answer[0] if self.report.answer else self.command
        return f"<{type(self).__name__}: {said}>"

    def __str__(self) -> str:
        from .output.as_text import render

        return render(self.report)

    def svg(self) -> str:
        """The picture, as the command's `--plot FILE.svg` draws it; it is drawn when it is asked for.

        Raises InputError where the command draws none, or none of so much.
        """
        if self.draw is None:
            raise InputError(f"{self.command[:60]} draws no picture")
        return self.draw()

    def _repr_html_(self) -> str:
        from .output.as_html import render

        picture = ""
        if self.draw is not None:
            with suppress(InfercostError):
                picture = self.draw()
        return render(self.report, picture)

    def to_pandas(self) -> pandas.DataFrame:
        """The main table as `--csv` has it: raw numbers, a column for each key. Of a point: the whole table.

        Raises InputError where the command has no table.
        """
        if not self.report.records:
            raise InputError(f"{self.command[:60]} has no table; its figures are in .document")
        import pandas

        return pandas.DataFrame(self.report.records)


class Kv(Result):
    """Cache and state (`infercost kv`)."""

    logical_bytes = Key[int]("growing cache and state of every sequence, all layers, scales included")
    bytes_per_token = Key[int]("one sequence, all storing layers, below any window")
    state_bytes = Key[int]("the part that does not grow")
    groups = Key[list[dict[str, Any]]]("kind, layers, window and bytes of each group of layers")
    allocated_bytes = Key[int]("with engine or alloc: what the allocator takes")
    block_tokens = Key[int]("with engine or alloc: tokens of a block")
    max_concurrency = Key[float | None]("with an engine's pool: sequences it holds")


class Weights(Result):
    """Weights (`infercost weights`)."""

    parameters = Key[int]("a tied table once, towers included")
    active_parameters = Key[int]("all but the routed experts beyond top_k")
    weight_bytes = Key[int]("resident bytes")
    bits_per_weight = Key[float]("resident bits over parameters")
    read_bytes_per_step = Key[float]("what a decode step reads; expected experts")
    components = Key[list[dict[str, Any]]]("name, format, parameters and bytes of each component")


class Ops(Result):
    """Operations of a prefill and a decode step (`infercost ops`)."""

    ops = Key[list[dict[str, Any]]]("each operation: FLOPs, bytes by class, intensity, verdict, times")
    totals = Key[dict[str, dict[str, Any]]]("by phase: FLOPs, bytes, bound_s, floor_s, expected_s")


class Roofline(Result):
    """Ridge points, and operations under the roof (`infercost roofline`)."""

    gpu = Key[str]("name of the sheet")
    dtype = Key[str]("whose peak")
    peak_flops_per_s = Key[float]("dense, by the datasheet")
    bandwidth_bytes_per_s = Key[float]("of device memory, by the datasheet")
    ridge = Key[Ridge]("FLOP per byte", Ridge)
    ops = Key[list[dict[str, Any]]]("operations under the roof, where a model was given")
    measured = Key[list[dict[str, Any]]]("points of a probe, where they were given")


class Request(Result):
    """One request (`infercost request`)."""

    ttft_s = Key[Times]("time to first token", Times)
    tpot_s = Key[Times]("mean time of a decode step", Times)
    e2e_s = Key[Times]("prefill and every decode step", Times)
    confidence = Key[dict[str, Any] | None]("how far to trust the expected times")
    decode_steps = Key[int]("tokens out less the one that the prefill yields")
    output_tokens_per_s = Key[float | None]("tokens out of the batch over the end-to-end time")
    mfu = Key[float | None]("matrix FLOPs over what the devices could do in that time")
    mbu = Key[float | None]("weights and cache read over what the devices could move")
    peak_memory_bytes = Key[int]("of the fullest rank")
    fits = Key[bool | None]("whether that is within the device's capacity; null: none is known")
    energy_j = Key[float | None]("at most so much for each request; null without a power")
    usd = Key[float | None]("dollars of each request; null without a price")
    timeline = Key[list[dict[str, Any]]]("cache over time")


class Fit(Result):
    """Whether it fits (`infercost fit`)."""

    fits = Key[bool]("whether the terms are within the budget")
    budget_bytes = Key[int]("what may be taken of a device")
    terms = Key[list[dict[str, Any]]]("name and bytes of each term, fullest rank")
    total_bytes = Key[int]("the terms together")
    free_bytes = Key[int]("budget less terms; negative: too much")
    max_seq = Key[int | None]("longest sequences; null: any length")
    max_batch = Key[int | None]("most sequences; null: any number")
    max_concurrency = Key[float | None]("sequences whose cache fits beside the rest")
    gpus_needed = Key[int | None]("fewest ranks; null: no split was found")


class ServePoint(Result):
    """One load on one setting."""

    policy = Key[str]("schedule")
    batch = Key[int]("sequences at once")
    ttft_s = Key[float]("time to first token, queueing included, in seconds")
    tpot_s = Key[float]("time of a token after the first, in seconds")
    output_tokens_per_s = Key[float]("of all sequences")
    usd_per_million_output = Key[float | None]("dollars per million tokens out; null without a price")
    verdict = Key[str]("what the decode waits for")


class Serve(Result):
    """Throughput against latency (`infercost serve`); its points are loads."""

    best = Key[dict[str, Any] | None]("the point of most throughput within the limits; null: none")
    most_batch = Key[int | None]("most sequences that fit")

    @property
    # A load is no study of loads, so its type is not the narrower one that an override should have.
    def points(self) -> tuple[ServePoint, ...]:  # type: ignore[override]
        """Every batch and policy."""
        return tuple(self._points(ServePoint))


class Diagnose(Result):
    """What binds, and every lever ranked (`infercost diagnose`)."""

    objective = Key[str]("what the levers are ranked by")
    figures = Key[dict[str, Any]]("of the deployment as it is")
    verdicts = Key[dict[str, Any]]("what prefill, decode and memory wait for")
    levers = Key[list[dict[str, Any]]]("name, before, after, gain, why, price and command, best first")
