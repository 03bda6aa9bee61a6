"""What `infercost report` knows: other commands' documents, and a lattice of requests around it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from .. import InfercostError, InputError
from ..costmodel.memory import FORMATS, Given, Load
from ..costmodel.setting import Setting
from ..costmodel.sharding import Parallel
from ..hardware.catalogue import load_gpu
from ..hardware.spec import Gpu
from ..models.spec import Model
from .engine_flags import CONCATENATING, Flags
from .inputs import WhatIf, models
from .pictures.memory import Held, contexts
from .runs import run_of
from .sizes import byte_size
from .subcommand import document_of

MOST_BATCH = 256
PROMPTS_AROUND = 3
"""Times that the prompt is halved and doubled."""
WEIGHTS = (None, *FORMATS)
CACHES = (None, "fp8")


class Asked(NamedTuple):
    """The options of the report, as they were typed; lengths and batch as numbers."""

    model: str
    gpu: str
    prompt: int
    gen: int
    batch: int
    tp: int
    ep: int
    weights: str | None
    kv: str | None
    engine: str | None
    price: float | None
    calibration: str
    ttft: str | None
    tpot: str | None
    capacity: str | None

    def words(self, command: str, **more: object) -> tuple[str, ...]:
        """`command` with the options that it shares with the report, and `more` of its own."""
        given: dict[str, object] = {
            "model": self.model,
            "gpu": self.gpu,
            "weights": self.weights,
            "kv": self.kv,
            **more,
        }
        # One word each, so that a value may begin with a dash.
        return (command, *(f"--{name}={value}" for name, value in given.items() if value is not None))

    @property
    def ranks(self) -> dict[str, object]:
        return {"tp": self.tp, "ep": self.ep}

    @property
    def times(self) -> dict[str, object]:
        return {"calibration": self.calibration, "engine": self.engine, "price": self.price}


class Bill(NamedTuple):
    """Bytes of the fullest rank by term, as `infercost fit` adds them up, and its budget."""

    terms: dict[str, int]
    budget_bytes: int

    @property
    def total_bytes(self) -> int:
        return sum(self.terms.values())


class Lattice(NamedTuple):
    """Requests over every format, prompt and batch: `points[format][prompt][batch]`, each a point of
    `infercost request` with its `fit`."""

    formats: list[tuple[str, str]]
    prompts: list[int]
    batches: list[int]
    points: list[list[list[dict[str, Any]]]]


class Study(NamedTuple):
    """Every document of the page; None where a command has no answer here (`absent` says
    why)."""

    asked: Asked
    model: Model
    gpu: Gpu
    fit: dict[str, Any]
    over_context: list[Held]
    request: dict[str, Any]
    roofline: dict[str, Any]
    serve: dict[str, Any] | None
    diagnose: dict[str, Any] | None
    lattice: Lattice
    absent: dict[str, str]

    @property
    def title(self) -> str:
        """The model and its GPUs by their titles."""
        devices = self.request["devices"]
        many = f"{devices} x " if devices > 1 else ""
        return f"{self.model.called} on {many}{self.gpu.title}"


def study(asked: Asked) -> Study:
    """Run the commands. Raises what the bill, the request or the roofline raise: without them is no page."""
    lengths = {"prompt": asked.prompt, "gen": asked.gen}
    request = document_of(asked.words("request", batch=asked.batch, **lengths, **asked.ranks, **asked.times))
    held, encoder = _held(request["inputs"])
    more = {"encoder-seq": encoder or None, "engine": asked.engine, "capacity": asked.capacity, **asked.ranks}
    fit = document_of(asked.words("fit", seq=held, batch=asked.batch, **more))
    model, gpu = models(asked.model, WhatIf(), "report")[0], load_gpu(asked.gpu)
    over = [
        Held(tokens, _bill(asked, model, gpu, tokens, encoder, asked.batch).terms)
        for tokens in contexts(held, fit["max_seq"])
    ]
    roofline = document_of(
        asked.words("roofline", seq=asked.prompt, batch=asked.batch, calibration=asked.calibration)
    )
    absent: dict[str, str] = {}
    limits = {"ttft": asked.ttft, "tpot": asked.tpot}
    serve = _tried(asked.words("serve", **lengths, **asked.ranks, **asked.times, **limits), absent)
    times = {"calibration": asked.calibration, "price": asked.price}
    diagnose = _tried(asked.words("diagnose", batch=asked.batch, **lengths, **asked.ranks, **times), absent)
    lattice = _lattice(asked, model, gpu)
    return Study(asked, model, gpu, fit, over, request, roofline, serve, diagnose, lattice, absent)


def _held(inputs: dict[str, Any]) -> tuple[int, int]:
    """Tokens of a sequence in the cache at the end, and positions of its encoder."""
    return inputs["prompt"] + inputs["gen"] - 1, inputs["encoder_seq"] or 0


def _bill(asked: Asked, model: Model, gpu: Gpu, tokens: int, encoder: int, batch: int) -> Bill:
    """What `infercost fit` bills, without its limits: they take a hundred times as long."""
    flags = Flags(engine=asked.engine).checked()
    run = run_of(model, asked.weights, asked.kv)
    setting = Setting(model, run, gpu, Parallel(asked.tp, asked.ep))
    load = Load(
        tokens,
        batch,
        None,
        flags.chunk_tokens(gpu),
        encoder,
        flags.engine == CONCATENATING,
        given=Given(capacity=None if asked.capacity is None else byte_size(asked.capacity, "--capacity")),
        reserve=flags.reserve(gpu),
    )
    memory = load.memory(setting)
    terms = {name: value for name, value in memory._asdict().items() if value}
    return Bill(terms, load.budget_bytes(setting, memory))


def _tried(words: tuple[str, ...], absent: dict[str, str]) -> dict[str, Any] | None:
    try:
        return document_of(words)
    except InputError as error:
        absent[words[0]] = str(error)
        return None


def _lattice(asked: Asked, model: Model, gpu: Gpu) -> Lattice:
    prompts, batches = _prompts(asked.prompt), _batches(asked.batch)
    formats: list[tuple[str, str]] = []
    points = []
    for one in _formats(asked):
        table = _requests(one, prompts, batches)
        if table is None:
            continue
        inputs = table[0][0]["inputs"]
        names = (inputs["weights"], inputs["kv"])
        if names not in formats:
            formats.append(names)
            points.append(table)
            for point in (point for row in table for point in row):
                bill = _bill(one, model, gpu, *_held(point["inputs"]), point["inputs"]["batch"])
                point["fit"] = {**bill._asdict(), "total_bytes": bill.total_bytes}
    return Lattice(formats, prompts, batches, points)


def _prompts(asked: int) -> list[int]:
    around = {asked << i for i in range(PROMPTS_AROUND + 1)} | {asked >> i for i in range(PROMPTS_AROUND + 1)}
    return sorted(each for each in around if 1 <= each <= max(asked, 1 << 20))


def _batches(asked: int) -> list[int]:
    return sorted({asked, *(1 << i for i in range(MOST_BATCH.bit_length()))})


def _formats(asked: Asked) -> Iterable[Asked]:
    """The report's own formats first, then narrower weights and caches."""
    for weights in WEIGHTS:
        for kv in CACHES:
            yield asked._replace(
                weights=asked.weights if weights is None else weights, kv=asked.kv if kv is None else kv
            )


def _requests(asked: Asked, prompts: list[int], batches: list[int]) -> list[list[dict[str, Any]]] | None:
    """`table[prompt][batch]`, without time lines; None where the model or the GPU has no such format."""
    lists = {
        "prompt": ", ".join(map(str, prompts)),
        "gen": asked.gen,
        "batch": ",".join(map(str, batches)),
    }
    try:
        found = document_of(asked.words("request", **lists, **asked.ranks, **asked.times))
    except InfercostError:
        return None
    # Each has a time line of its own, which is most of it and which no figure needs.
    points = iter(
        {key: value for key, value in point.items() if key != "timeline"} for point in found["points"]
    )
    return [[next(points) for _ in batches] for _ in prompts]
