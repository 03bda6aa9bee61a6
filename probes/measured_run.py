"""One benchmark's own result file into measured times: vllm bench, llama-bench, genai-perf.

A file says how long requests took and on how many tokens, seldom on what: the model and the GPU are the
caller's. Field names: `vllm bench serve --save-result` (and SGLang's bench_serving, which has the same),
`llama-bench -o json|csv`, genai-perf's and AIPerf's profile_export JSON.
"""

from __future__ import annotations

import csv
import io
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from .. import InputError
from ..sheets import MAX_JSON_BYTES, SheetError, parse_json, read_file
from .request_rows import MAX_TOKENS, LeftOutError, Term, terms_of

MAX_TESTS = 1000


class Seen(NamedTuple):
    """One figure of a run: `terms` are the steps it is the time of, empty where a load's queue is in it."""

    label: str
    prompt: int
    gen: int
    batch: int
    seconds: float
    terms: tuple[Term, ...]


class Ran(NamedTuple):
    """A file: which tool wrote it, and its figures."""

    tool: str
    seen: tuple[Seen, ...]


def measured_run(path: str) -> Ran:
    """What a file holds. Raises InputError for anything but a result of a known tool."""
    text = read_file(Path(path), MAX_JSON_BYTES, "a result")
    data = _parsed(text, path)
    if isinstance(data, list) and data and all(isinstance(one, dict) and "avg_ts" in one for one in data):
        return Ran("llama-bench", tuple(_llama_bench(one, path) for one in data[:MAX_TESTS]))
    if isinstance(data, dict) and "mean_ttft_ms" in data:
        return Ran("vllm bench", _serving(data, path))
    if isinstance(data, dict) and isinstance(data.get("time_to_first_token"), dict):
        return Ran("genai-perf", _genai_perf(data, path))
    raise InputError(
        f"{path}: no result of a known tool; read are those of `vllm bench serve --save-result`, "
        "`llama-bench -o json` (or csv) and genai-perf's JSON"
    )


def _parsed(text: str, path: str) -> Any:
    """JSON, JSON lines, or a CSV's rows."""
    with suppress(SheetError):
        return parse_json(text, path)
    lines = text.splitlines()[: MAX_TESTS + 1]
    try:
        if lines and lines[0].lstrip().startswith("{"):
            return [parse_json(line, path) for line in lines if line.strip()]
        return list(csv.DictReader(io.StringIO("\n".join(lines))))
    except (SheetError, csv.Error):
        raise InputError(f"{path}: neither JSON nor CSV") from None


def _number(data: Any, key: str, path: str, default: float | None = None) -> float:
    value = data.get(key, default)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if not 0 <= number <= 1e12:
        raise InputError(f"{path}: '{key}' is no sensible number")
    return number


def _seen(
    label: str, metric: str, prompt: float, gen: float, batch: float, value: float, depth: float = 0
) -> Seen:
    """A figure of `value` (milliseconds, or tokens a second) with the steps it is made of."""
    cells = {
        "metric": metric,
        "scope": "closed_loop" if batch > 1 and metric != "e2e_latency_ms" else "single_stream",
        "prompt_len": str(int(prompt)),
        "gen_len": str(int(gen)),
        "ctx_start": str(int(depth)),
    }
    most = (prompt, gen, batch, depth)
    if max(most) > MAX_TOKENS or value <= 0:
        raise InputError(f"{label}: no sensible figure")
    many = max(1, int(batch))
    try:
        terms, seconds = terms_of(cells, many, value)
    except LeftOutError:
        terms, seconds = (), value / 1e3
    return Seen(label, int(prompt), int(gen), many, seconds, terms)


def _llama_bench(data: dict[str, Any], path: str) -> Seen:
    prompt, gen = _number(data, "n_prompt", path, 0), _number(data, "n_gen", path, 0)
    depth, rate = _number(data, "n_depth", path, 0), _number(data, "avg_ts", path)
    at = f" at {int(depth):,}" if depth else ""
    if prompt and gen:
        name = f"pp{int(prompt)}+tg{int(gen)}{at}"
        return _seen(name, "e2e_latency_ms", prompt, gen, 1, 1e3 * (prompt + gen) / max(rate, 1e-9), depth)
    if prompt:
        return _seen(f"pp{int(prompt)}{at}", "prefill_tok_s", prompt, 0, 1, rate, depth)
    return _seen(f"tg{int(gen)}{at}", "decode_tok_s", 0, gen, 1, rate, depth)


def _serving(data: dict[str, Any], path: str) -> tuple[Seen, ...]:
    completed = max(1.0, _number(data, "completed", path))
    prompt = round(_number(data, "total_input_tokens", path) / completed)
    gen = round(_number(data, "total_output_tokens", path) / completed)
    batch = data.get("max_concurrency") or 1
    many = _number({"max_concurrency": batch}, "max_concurrency", path)
    figures = [
        ("mean time to first token", "ttft_ms", "mean_ttft_ms"),
        ("mean time per output token", "tpot_ms", "mean_tpot_ms"),
        ("mean end to end", "e2e_latency_ms", "mean_e2el_ms"),
    ]
    return _figures(figures, data, prompt, gen, many, path)


def _genai_perf(data: dict[str, Any], path: str) -> tuple[Seen, ...]:
    def mean(key: str) -> float:
        part = data.get(key)
        if not isinstance(part, dict):
            raise InputError(f"{path}: no '{key}'")
        scale = {"ms": 1.0, "s": 1e3, "us": 1e-3, "ns": 1e-6}.get(str(part.get("unit", "ms")), 1.0)
        return _number(part, "avg", path) * scale

    prompt, gen = round(mean("input_sequence_length")), round(mean("output_sequence_length"))
    held: Any = data.get("input_config")
    for key in ("perf_analyzer", "stimulus", "loadgen"):
        held = held.get(key, held) if isinstance(held, dict) else {}
    many = _number(held if isinstance(held, dict) else {}, "concurrency", path, 1) or 1
    flat = {key: mean(key) for key in data if key in GENAI}
    figures = [(label, metric, key) for key, (label, metric) in GENAI.items()]
    return _figures(figures, flat, prompt, gen, many, path)


GENAI = {
    "time_to_first_token": ("mean time to first token", "ttft_ms"),
    "inter_token_latency": ("mean time per output token", "tpot_ms"),
    "request_latency": ("mean end to end", "e2e_latency_ms"),
}


def _figures(
    figures: list[tuple[str, str, str]], data: dict[str, Any], prompt: int, gen: int, many: float, path: str
) -> tuple[Seen, ...]:
    out = []
    for label, metric, key in figures:
        value = _number(data, key, path, 0)
        # With others in the engine, a first token and a whole request have waited in its queue.
        queued = many > 1 and metric != "tpot_ms"
        if value and (gen > 1 or metric != "tpot_ms"):
            one = _seen(label, metric, prompt, gen, 1 if queued else many, value)
            out.append(one._replace(batch=int(many), terms=() if queued else one.terms))
    return tuple(out)
