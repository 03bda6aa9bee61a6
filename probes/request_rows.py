"""Measured requests: rows of a CSV into what was run, and the steps whose times add up to what was seen.

Columns as in ../shared/end_to_end/latency.csv: what ran (engine, gpu, n_gpus, tp, parallel, model,
weight_format, kv_dtype), on how much (batch, prompt_len, gen_len, ctx_start), and what was seen (metric,
value, scope). A row becomes seconds, and its prediction a sum of steps: prefills, decode steps at their
mean context, and in a closed loop the prefills of others that a decode step shares the engine with.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .. import InfercostError, InputError
from ..costmodel.setting import Setting
from ..costmodel.sharding import Parallel
from ..costmodel.step import Run, Segment, Step, decode
from ..hardware.catalogue import is_known, load_gpu
from ..hardware.spec import Gpu
from ..models.catalogue import find_named
from ..models.formats import find_format
from ..models.recipes import Recipe, default_recipe, find_recipe, sixteen_bit
from ..models.spec import Model
from ..sheets import read_file
from .left_out import leave_out

NEEDED = ("engine", "gpu", "model", "weight_format", "batch", "metric", "value", "scope")
MAX_ROWS = 1_000_000
MAX_BYTES = 64 << 20
MAX_TOKENS = 1 << 24
MICRO_BATCH = 512
"""Tokens that llama.cpp passes through its stages at a time (--ubatch-size)."""
GPUS = {
    "a100-argonne": "a100-40g-sxm",
    "a100-sxm-80gb": "a100-80g-sxm",
    "a100-sxm-80gb-330w": "a100-80g-sxm",
    "a100-pcie-80gb": "a100-80g-pcie",
    "h100-sxm-80gb": "h100-sxm",
    "h100-sxm-80gb-350wcap": "h100-sxm",
    "h100-pcie-80gb": "h100-pcie",
    "h200-sxm-141gb": "h200-sxm",
    "b200-sxm-180gb": "b200",
    "gb200-nvl": "gb200",
    "gb300-288gb": "gb300",
    "apple-m1-7c": "apple-m1",
    "apple-m1max-32c": "apple-m1-max",
    "apple-m2ultra-76c": "apple-m2-ultra",
    "apple-m3max-40c": "apple-m3-max",
    "rtxpro6000": "rtx-pro-6000-bw",
    "rtx6000ada": "rtx6000-ada",
}
"""Spellings of published tables; `Argonne`: their A100 is taken as the 40 GB SXM part (PROVENANCE.md)."""
ENGINES = {
    "trtllm": "tensorrt-llm",
    "tensorrt-llm": "tensorrt-llm-0",
    "deepspeed": "deepspeed-gaudi",
    "ollama": "llama.cpp",
    "transformers": "hf",
    "hf-transformers": "hf",
}
FORMATS = {
    "f16": "fp16",
    "4bit": "gptq",
    "gptq-4b-g128": "gptq",
    "int4_wo": "gptq",
    "awq": "awq",
    "fp8": "fp8-row",
    "fp8_block": "fp8-block",
    "mxfp4": "mxfp4_moe",
    "int8": "int8-row",
}


class Row(NamedTuple):
    """One measured request: `setting` without a clock, and `terms`, the steps whose sum it is.

    `clean`, `defined`: what the file says of it (no known fault; model, GPU and lengths all known).
    """

    line: int
    source: str
    engine: str
    profile: str
    scope: str
    metric: str
    setting: Setting
    terms: tuple[Term, ...]
    measured_s: float
    clean: bool
    defined: bool

    @property
    def gpu(self) -> str:
        return self.setting.gpu.name


class Term(NamedTuple):
    """`times` a step; `mixed`: a prefill of another request that shares the engine, at its own weight;
    `pieces`: micro-batches that follow each other through the pipeline stages."""

    times: float
    step: Step
    mixed: bool = False
    pieces: int = 1

    def share(self, stages: int) -> float:
        """Of the stages' times one after the other, what is left where they work on different pieces."""
        return (self.pieces + stages - 1) / (self.pieces * stages) if self.pieces > 1 else 1.0


def rows(path: str, excluded: Counter[str]) -> Iterator[Row]:
    """The rows of a file that a prediction can be made for; why the others are left out is counted.

    Raises InputError for a file that is none of this kind.
    """
    try:
        table = csv.DictReader(io.StringIO(read_file(Path(path), MAX_BYTES, "a file of requests")))
        missing = [name for name in NEEDED if name not in (table.fieldnames or ())]
        if missing:
            raise InputError(f"{path}: no column {', '.join(missing)}; needed are {', '.join(NEEDED)}")
        reader = _Reader()
        for line, raw in enumerate(table, start=2):
            if line > MAX_ROWS:
                raise InputError(f"{path}: more than {MAX_ROWS:,} rows")
            try:
                yield reader.row(line, {key: (value or "").strip() for key, value in _cells(raw)})
            except LeftOutError as reason:
                leave_out(excluded, str(reason))
    except csv.Error as error:
        raise InputError(f"{path}: no CSV: {error}") from None


def _cells(raw: dict[Any, Any]) -> Iterator[tuple[str, str]]:
    """Named cells alone: a row with too many has a list under None."""
    return (
        (key, value) for key, value in raw.items() if isinstance(key, str) and not isinstance(value, list)
    )


class LeftOutError(Exception):
    """Why a row has no prediction."""


class _Reader:
    """Rows into settings; models and formats that return are looked up once."""

    def __init__(self) -> None:
        self._models: dict[str, Model | None] = {}
        self._gpus: dict[str, Gpu | None] = {}

    def row(self, line: int, cells: dict[str, str]) -> Row:
        model = self._found(self._models, cells["model"], _model)
        if model is None:
            raise LeftOutError("of models that no sheet describes")
        gpu = self._found(self._gpus, cells["gpu"], _gpu)
        if gpu is None:
            raise LeftOutError("of GPUs that no sheet describes")
        if cells["scope"] not in ("single_stream", "static_batch", "closed_loop"):
            raise LeftOutError("of a load that the row does not say (servers, offline, disaggregated)")
        value = _number(cells, "value")
        batch, ranks = max(1, int(_number(cells, "batch", 1))), int(_number(cells, "n_gpus", 1))
        parallel, batch = _layout(cells, batch, ranks)
        run = Run(recipe=_recipe(cells, model), kv=_kv(cells, model))
        setting = Setting(model, run, gpu, parallel)
        terms, measured = terms_of(cells, batch, value)
        profile = _profile(cells)
        clean = cells.get("clean", "True") != "False"
        return Row(
            line,
            cells.get("source", ""),
            cells["engine"],
            profile,
            cells["scope"],
            cells["metric"],
            setting,
            terms,
            measured,
            clean,
            cells.get("roofline_defined", "True") != "False",
        )

    def _found(self, known: dict[str, Any], name: str, find: Callable[[str], Any]) -> Any:
        if name not in known:
            try:
                known[name] = find(name)
            except InfercostError:
                known[name] = None
        return known[name]


def _model(name: str) -> Model:
    """By the sheet's name, or a published spelling of it: an owner before, a format behind."""
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
        raise InputError(f"no model '{name[:60]}'")
    plain = re.sub(r"[-_](fp8|nvfp4|instruct)\b", "", name.rpartition("/")[2].lower())
    found = find_named(re.sub(r"[-_](fp8|nvfp4|instruct)\b", "", plain))
    if found is None:
        raise InputError(f"no model '{name[:60]}'")
    return found


def _gpu(name: str) -> Gpu:
    plain = name.strip().lower().replace(" ", "-").removeprefix("nvidia-")
    plain = GPUS.get(plain, plain)
    if not is_known(plain):
        raise InputError(f"no GPU '{name[:60]}'")
    return load_gpu(plain)


def _number(cells: dict[str, str], name: str, default: float | None = None) -> float:
    text = cells.get(name, "")
    if not text and default is not None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= MAX_TOKENS or (name == "value" and value == 0):
        raise LeftOutError(f"with no sensible {name}")
    return value


def _layout(cells: dict[str, str], batch: int, ranks: int) -> tuple[Parallel, int]:
    """How the devices share the work, and the sequences of each rank that has its own.

    Notes in aiconfigurator's manner (attn_dp, moe_tp, moe_ep) count a group twice where the experts are
    shared both ways over the same ranks: `n_gpus` is then their square.
    """
    kind, notes = cells.get("parallel", ""), cells.get("notes", "")
    said = {name: int(float(value)) for name, value in re.findall(r"(\w+)=(\d{1,9}(?:\.\d+)?)\b", notes)}
    experts, inside = said.get("moe_ep", 1), said.get("moe_tp", 1)
    own = said.get("attn_dp", 1)
    if experts > 1 and experts == inside and ranks == experts * inside:
        ranks = experts
        if own > ranks:
            own, batch = ranks, max(1, said.get("concurrency", batch * own) // ranks)
    try:
        if ranks <= 1:
            return Parallel(), batch
        if own > 1:
            return Parallel(ep=ranks), batch
        if kind == "layer_split":
            return Parallel(pp=ranks), batch
        if kind in ("tp", "row_split"):
            return Parallel(tp=ranks, ep=ranks if experts == ranks else 1), batch
    except InputError:
        pass
    raise LeftOutError("of a layout that is not modelled")


def _recipe(cells: dict[str, str], model: Model) -> Recipe:
    own, given = default_recipe(model), cells["weight_format"].lower()
    kind = re.search(r"fp[48]", given)
    if kind and kind[0] in own.name and cells["engine"] != "llama.cpp":
        return own
    if given.startswith("exl2-"):
        bits = re.match(r"exl2-(\d)", given)
        return find_recipe(f"int{bits[1]}-g128" if bits and bits[1] in "234" else "q5_0")
    if given == "4bit" and cells["engine"] == "llama.cpp":
        given = "q4_0"
    try:
        return find_recipe(FORMATS.get(given, given))
    except InputError:
        raise LeftOutError("in formats that are not known") from None


def _kv(cells: dict[str, str], model: Model) -> Any:
    given = cells.get("kv_dtype", "").lower()
    narrow = cells["weight_format"].lower() in ("fp8", "fp8_block", "nvfp4")
    if not given and cells["engine"].lower() in ("trtllm", "tensorrt-llm") and narrow:
        given = "fp8"
    return find_format(given if given in ("fp8", "int8") else sixteen_bit(model))


def _profile(cells: dict[str, str]) -> str:
    """The engine's profile of that time and way of running (`hardware/engines/`)."""
    engine, source = cells["engine"].lower(), cells.get("source", "")
    if engine == "llama.cpp":
        if cells.get("parallel") == "row_split":
            return "llama.cpp-2023"
        return "llama.cpp-2024" if source.startswith("argonne") else engine
    if cells["engine"] == "vLLM":
        return "vllm-2023-11" if source.startswith("mlc-ai") else "vllm-2024"
    return ENGINES.get(engine, engine)


def terms_of(cells: dict[str, str], batch: int, value: float) -> tuple[tuple[Term, ...], float]:
    """The steps a metric is the time of, and that time in seconds."""
    prompt, gen = int(_number(cells, "prompt_len", 0)), int(_number(cells, "gen_len", 0))
    start = int(_number(cells, "ctx_start", 0))
    metric = cells["metric"]
    held = start or prompt
    steps = max(gen - 1, 1)
    token = decode(batch, max(2, held + 1 + steps // 2))

    def prompts(count: int) -> Step:
        if not prompt:
            raise LeftOutError("with no prompt length")
        return Step("prefill", (Segment(count, prompt, start),))

    match metric:
        case "decode_tok_s":
            return (Term(1, token),), batch / value
        case "tpot_ms" if cells["scope"] == "closed_loop":
            if not gen:
                raise LeftOutError("with no output length")
            return (Term(1, token), Term(batch / gen, prompts(1), mixed=True)), value / 1e3
        case "tpot_ms":
            return (Term(1, token),), value / 1e3
        case "prefill_tok_s":
            split = cells.get("parallel") == "layer_split"
            pieces = max(1, prompt // MICRO_BATCH) if split else 1
            return (Term(1, prompts(batch), pieces=pieces),), batch * prompt / value
        case "ttft_ms" if cells["scope"] != "closed_loop":
            return (Term(1, prompts(batch)),), value / 1e3
        case "e2e_latency_ms" | "output_tok_s_static" if gen:
            seconds = value / 1e3 if metric == "e2e_latency_ms" else batch * gen / value
            return (Term(1, prompts(batch)), Term(gen - 1, token)), seconds
    raise LeftOutError("whose metric is of a load (queueing is in it)")
