"""Fits the engines' profiles to measured requests, and writes the tables of their errors into the docs.

    python tests/tools/engines.py

Deterministic: the same file gives the same profiles and tables. Some minutes on two cores. What an engine
reserves (`memory:` of a profile) is kept as it stands.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import least_squares

from infercost import InfercostError
from infercost.cli.calibrations import shipped_clock
from infercost.hardware.engine import FOLDER, EngineTimes, Machine
from infercost.probes.end_to_end import Evaluator, Parts, impossible
from infercost.probes.request_rows import rows

ROOT = Path(__file__).parents[2]
MEASURED = ROOT.parent / "shared" / "end_to_end" / "latency.csv"
SOURCE = "fitted by tests/tools/engines.py to published requests (docs/sources.md): "
NOTHING = EngineTimes("", 0, 0)
Test = Callable[[Parts], bool]


class Stage(NamedTuple):
    """Constants fitted together, on which rows, and which factor of a machine with them."""

    names: str
    on: Test
    machine: str = ""
    loose: float = 0.1
    priors: Mapping[str, float] = MappingProxyType({})


class Fit(NamedTuple):
    """One profile: where its constants start, and the stages they are fitted in."""

    name: str
    sources: str
    start: EngineTimes
    stages: tuple[Stage, ...]


def metric(*names: str) -> Test:
    return lambda parts: parts.row.metric in names


def nvidia(parts: Parts) -> bool:
    return parts.row.setting.gpu.vendor == "NVIDIA"


def single(parts: Parts) -> bool:
    return parts.row.scope == "single_stream"


def decoding(parts: Parts) -> bool:
    return parts.row.metric in ("decode_tok_s", "tpot_ms", "e2e_latency_ms", "output_tok_s_static")


def reading(parts: Parts) -> bool:
    return parts.row.metric in ("prefill_tok_s", "ttft_ms")


OWN = replace(NOTHING, kernels="own", read_share_16=0.93, read_share_8=0.93, read_share_4=0.93)
SHARES = dict.fromkeys(("read_share_16", "read_share_8", "read_share_4"), 1.0)
LOOSE_SHARES = dict.fromkeys(SHARES, 0.1)
"""How firmly the share of the bandwidth is held to where it starts, 0.93, what copies reach: one model alone
cannot tell it from the time per layer."""
LLAMA = replace(
    OWN,
    load_bytes_per_clock=8,
    attend_bytes_per_clock=15,
    layer_us=90,
    hop_us=190,
    compute_share=0.4,
    prefill_layer_us=100,
)
SERVED = replace(
    NOTHING,
    gap=0.6,
    prefill_gap=0.65,
    link_gap=0.06,
    layer_us=60,
    rank_layer_us=40,
    sequence_us=90,
    prefill_layer_us=85,
)
TENSORRT = replace(
    SERVED, gap=0.45, link_gap=0.063, layer_us=50, rank_layer_us=20, sequence_us=25, prefill_layer_us=80
)
READ = "read_share_16 read_share_8 read_share_4"
LOADS = f"{READ} load_bytes_per_clock attend_bytes_per_clock layer_us hop_us"
HOST = "gap layer_us rank_layer_us sequence_us"
GAP = {"gap": 0.2}
ARGONNE = "LLM-Inference-Bench (Argonne 2024)"
FITS = (
    Fit(
        "llama.cpp",
        "XiongjieDai 2024-05, llama.cpp-benches on a DGX Spark, llm-perf-bench 2023-11, ollama-benchmark",
        LLAMA,
        (
            Stage(LOADS, lambda p: nvidia(p) and decoding(p), "decode", loose=0.3, priors=SHARES),
            Stage("", lambda p: not nvidia(p) and decoding(p), "decode", loose=0.01),
            Stage("compute_share prefill_layer_us", reading, "prefill"),
        ),
    ),
    Fit(
        "llama.cpp-2023",
        "llm-perf-bench 2023-11, rows of every matrix over the cards",
        replace(LLAMA, link_gap=1, rank_layer_us=100),
        (Stage("layer_us rank_layer_us link_gap", decoding, priors=SHARES),),
    ),
    Fit(
        "llama.cpp-2024",
        ARGONNE,
        replace(LLAMA, layer_us=500),
        (Stage("layer_us hop_us load_bytes_per_clock", decoding, "decode"),),
    ),
    Fit(
        "gpt-fast",
        "pytorch-labs/gpt-fast README, A100-80GB at 330 W",
        replace(OWN, layer_us=50, link_gap=2, read_share_8=0.75, read_share_4=0.6, read_share_16=0.85),
        (Stage(f"{READ} layer_us link_gap", decoding, priors=LOOSE_SHARES),),
    ),
    Fit(
        "exllamav2",
        "exllamav2 README and llm-perf-bench 2023-11",
        replace(OWN, layer_us=35, hop_us=100),
        (Stage("read_share_4 layer_us hop_us", decoding, "decode", priors={**SHARES, "hop_us": 0.03}),),
    ),
    Fit(
        "mlc-llm",
        "mlc-ai/llm-perf-bench 2023-11",
        replace(OWN, layer_us=40, rank_layer_us=95),
        (Stage("read_share_16 read_share_4 layer_us rank_layer_us", decoding, "decode", priors=SHARES),),
    ),
    Fit(
        "vllm-2023",
        "splitwise-sim (vLLM of 2023, eager)",
        replace(NOTHING, launch_us=38, sequence_us=300, overlapped=True, prefill_layer_us=100),
        (
            Stage("launch_us sequence_us", decoding, "host", loose=0.03),
            Stage("prefill_layer_us", reading, "prefill"),
        ),
    ),
    Fit(
        "vllm-2023-11",
        "llm-perf-bench 2023-11 (AWQ and 16 bit)",
        replace(NOTHING, launch_us=38, overlapped=True, prefill_layer_us=100),
        (Stage("launch_us", decoding, "decode"),),
    ),
    Fit("vllm-2024", ARGONNE, SERVED, (Stage(HOST, decoding, "decode", priors=GAP),)),
    Fit("deepspeed-mii", ARGONNE, replace(SERVED, layer_us=200), (Stage(HOST, decoding, priors=GAP),)),
    Fit("deepspeed-gaudi", ARGONNE, SERVED, (Stage(HOST, decoding, priors=GAP),)),
    Fit(
        "tensorrt-llm-0",
        "NVIDIA's documentation v0.5 to v0.9, LLM-Inference-Bench (Argonne 2024)",
        TENSORRT,
        (
            Stage("prefill_gap link_gap prefill_layer_us", lambda p: single(p) and reading(p), "prefill"),
            Stage(HOST, decoding, "decode"),
        ),
    ),
)
UNKNOWN_ERROR = 0.3
SERVERS = ("vllm", "sglang", "tensorrt-llm")
SERVER = Fit(
    "servers",
    "aiconfigurator's silicon sample (closed loops of 2025 and 2026), pooled over three engines",
    replace(
        NOTHING,
        gap=0.35,
        prefill_gap=0.65,
        link_gap=0.6,
        layer_us=45,
        sequence_us=5,
        mixing=0.85,
        prefill_layer_us=80,
    ),
    (
        Stage(
            "gap mixing layer_us link_gap sequence_us",
            lambda p: p.row.defined,
            "decode",
            loose=1.0,
            priors={"sequence_us": 0.05, "link_gap": 0.05},
        ),
    ),
)
HIGHEST = {"share": 1.0, "link_gap": 100.0, "gap": 3.0, "mixing": 3.0}


def main() -> None:
    parts = load()
    tables: list[Line] = []
    for fit in (*FITS, SERVER):
        own = [p for p in parts if p.row.profile in (SERVERS if fit is SERVER else (fit.name,))]
        times = fitted(fit, own)
        whole, lomo, logo = (
            errors(own, lambda _, t=times: t),
            left_out(fit, own, shape),
            left_out(fit, own, gpu),
        )
        for name in SERVERS if fit is SERVER else (fit.name,):
            mine = [i for i, p in enumerate(own) if p.row.profile == name]
            used = [i for i in mine if any(stage.on(own[i]) for stage in fit.stages)]
            machines = tuple(
                machine._replace(gpu=machine.gpu.partition("|")[2])
                for machine in times.machines
                if machine.gpu.startswith(f"{name}|")
            )
            stated = replace(
                times,
                source=SOURCE + fit.sources,
                machines=machines,
                error=stated_error(lomo[[i for i in used if decoding(own[i])]]),
                prefill_error=stated_error(lomo[[i for i in used if reading(own[i])]]),
                gpu_error=stated_error(logo[used]),
            )
            write_profile(name, stated)
            tables += [Line(own[i], name, whole[i], lomo[i], logo[i]) for i in mine]
        print(
            fit.name, len(own), f"{mean_abs(whole):.3f} {mean_abs(lomo):.3f} {mean_abs(logo):.3f}", flush=True
        )
    write_tables(tables)


def load() -> list[Parts]:
    """Every clean row that can be and has a prediction."""
    excluded: Counter[str] = Counter()
    evaluator, out = Evaluator(shipped_clock), []
    for row in rows(str(MEASURED), excluded):
        try:
            one = evaluator.parts(row)
        except InfercostError:
            continue
        if row.clean and not impossible(one):
            out.append(one)
    return out


def shape(parts: Parts) -> Any:
    """What makes a model: DeepSeek-V3 and R1 are one."""
    return parts.row.setting.model.layers


def gpu(parts: Parts) -> Any:
    return parts.row.gpu


def fitted(fit: Fit, rows_: list[Parts]) -> EngineTimes:
    """Constants by least squares of log(predicted / measured), outliers softened, stage after stage."""
    times = fit.start
    for stage in fit.stages:
        used = [p for p in rows_ if stage.on(p)]
        if len(used) >= 4:
            times = solve(stage, times, used)
    return times


def solve(stage: Stage, start: EngineTimes, used: list[Parts]) -> EngineTimes:
    names = stage.names.split()
    seen = sorted({key(p) for p in used}) if stage.machine else []
    first = np.array([getattr(start, name) for name in names] + [1.0] * len(seen))
    known = {machine.gpu: machine for machine in start.machines}
    measured, root = np.array([p.row.measured_s for p in used]), len(used) ** 0.5

    def times(point: Any) -> EngineTimes:
        factors = dict(zip(seen, map(float, point[len(names) :]), strict=True))
        machines = {**known}
        for name, factor in factors.items():
            machines[name] = known.get(name, Machine(name))._replace(**{stage.machine: factor})
        constants = dict(zip(names, map(float, point), strict=False))
        return replace(start, machines=tuple(machines.values()), **constants)

    def residuals(point: Any) -> Any:
        held = times(point)
        fits = np.log(np.array([p.seconds(of_row(held, p)) for p in used]) / measured)
        ratios = point / first
        weights = [stage.priors.get(name, 0.0) for name in names] + [stage.loose] * len(seen)
        return np.concatenate([fits, root * np.array(weights) * np.log(ratios)])

    high = [next((most for word, most in HIGHEST.items() if word in name), 9e3) for name in names]
    low = [0.05 if "share" in name else 1e-3 for name in names]
    bounds = (low + [0.2] * len(seen), high + [5.0] * len(seen))
    found = least_squares(
        residuals, first, bounds=bounds, x_scale=first, loss="soft_l1", f_scale=0.05, diff_step=1e-4
    )
    return times(np.array([float(f"{value:.4g}") for value in found.x]))


def key(parts: Parts) -> str:
    return f"{parts.row.profile}|{parts.row.gpu}"


def of_row(times: EngineTimes, parts: Parts) -> EngineTimes:
    """The constants with the machines under the names that rows know: one engine's alone."""
    machine = times.machine(key(parts))
    return replace(times, machines=() if machine is None else (machine._replace(gpu=parts.row.gpu),))


def errors(rows_: list[Parts], times: Callable[[Parts], EngineTimes]) -> Any:
    return np.array([p.seconds(of_row(times(p), p)) / p.row.measured_s - 1 for p in rows_])


def left_out(fit: Fit, rows_: list[Parts], by: Callable[[Parts], Any]) -> Any:
    """Error of every row with the constants of all rows unlike it; nan where those are too few."""
    out = np.full(len(rows_), np.nan)
    groups = {by(p) for p in rows_}
    for group in groups:
        rest = [p for p in rows_ if by(p) != group]
        if sum(any(stage.on(p) for stage in fit.stages) for p in rest) < 4:
            continue
        times = fitted(fit, rest)
        for i, p in enumerate(rows_):
            if by(p) == group:
                out[i] = p.seconds(of_row(times, p)) / p.row.measured_s - 1
    return out


def stated_error(values: Any) -> float:
    """The median of |error|, or a guess where nothing was left out of a fit."""
    known = values[~np.isnan(values)] if len(values) else values
    return round(median_abs(known), 3) if len(known) else UNKNOWN_ERROR


def mean_abs(values: Any) -> float:
    return float(np.nanmean(np.abs(values))) if len(values) and not np.isnan(values).all() else 0.5


def median_abs(values: Any) -> float:
    return float(np.nanmedian(np.abs(values)))


def write_profile(name: str, times: EngineTimes) -> None:
    """The `times:` of a profile, the rest of the file kept."""
    path = FOLDER / f"{name}.yaml"
    lines = [
        "times:",
        f'  source: "{times.source}"',
        f"  error: {times.error}",
        f"  gpu_error: {times.gpu_error}",
        f"  prefill_error: {times.prefill_error}",
    ]
    for field, default in vars(NOTHING).items():
        value = getattr(times, field)
        if field not in ("source", "error", "gpu_error", "prefill_error", "machines") and value != default:
            shown = f"{value:.4g}" if isinstance(value, float) else str(value).lower()
            lines.append(f"  {field}: {shown}")
    if times.machines:
        lines.append("  machines:")
        for machine in sorted(times.machines):
            factors = [f"{k}: {v:.4g}" for k, v in machine._asdict().items() if k != "gpu" and v != 1.0]
            if factors:
                lines.append(f"    {machine.gpu}: {{{', '.join(factors)}}}")
    text = path.read_text(encoding="utf-8") if path.exists() else f"name: {name}\ntitle: {name}\n"
    text = re.sub(r"^times:\n(?:  .*\n)*", "", text, flags=re.MULTILINE)
    path.write_text(text.rstrip("\n") + "\n" + "\n".join(lines) + "\n", encoding="utf-8")


class Line(NamedTuple):
    """A row's errors: constants of all rows, without its model, without its GPU."""

    parts: Parts
    profile: str
    whole: float
    lomo: float
    logo: float


TASKS: tuple[tuple[str, Test], ...] = (
    ("single-stream decode", lambda p: single(p) and p.row.metric in ("decode_tok_s", "tpot_ms")),
    ("single-stream end to end", lambda p: single(p) and p.row.metric == "e2e_latency_ms"),
    ("TTFT or prefill, batch 1", lambda p: single(p) and reading(p)),
    ("static batch", lambda p: p.row.scope == "static_batch" and decoding(p)),
    ("static batch, TTFT or prefill", lambda p: p.row.scope == "static_batch" and reading(p)),
    ("closed loop, TPOT", lambda p: p.row.scope == "closed_loop"),
)


def write_tables(lines: list[Line]) -> None:
    def figures(some: list[Line]) -> str:
        columns = []
        for name in ("whole", "lomo", "logo"):
            values = np.array([getattr(line, name) for line in some])
            if np.isnan(values).all():
                columns.append("-")
            else:
                columns.append(f"{100 * mean_abs(values):.1f} / {100 * median_abs(values):.1f}")
        floors = np.array([line.parts.floor_s / line.parts.row.measured_s - 1 for line in some])
        return " | ".join([str(len(some)), f"{100 * mean_abs(floors):.0f}", *columns])

    head = [
        "| rows | floor off by | in the fit | model left out | GPU left out |",
        "|---:|---:|---:|---:|---:|",
    ]
    out = ["| requests " + head[0], "|---" + head[1]]
    for title, test in TASKS:
        some = [line for line in lines if test(line.parts)]
        out.append(f"| {title} | {figures(some)} |")
        if title == "single-stream decode":
            out.append(f"| {title}, NVIDIA | {figures([line for line in some if nvidia(line.parts)])} |")
        if title.startswith("TTFT"):
            first = [line for line in some if line.profile == "tensorrt-llm-0"]
            out.append(f"| TTFT, batch 1, TensorRT-LLM | {figures(first)} |")
        if title == "closed loop, TPOT":
            known = [line for line in some if line.parts.row.defined]
            out.append(f"| {title}, of models the source itself describes | {figures(known)} |")
    each = ["| profile | requests " + head[0], "|---|---" + head[1]]
    for profile in sorted({line.profile for line in lines}):
        for title, test in TASKS:
            some = [line for line in lines if line.profile == profile and test(line.parts)]
            if some:
                each.append(f"| {profile} | {title} | {figures(some)} |")
    for page, name, rows_ in (("README.md", "end-to-end", out), ("docs/times.md", "engines", each)):
        path = ROOT / page
        text = path.read_text(encoding="utf-8")
        table = "\n".join(rows_)
        marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        path.write_text(marked.sub(lambda m, made=table: f"{m[1]}{made}\n{m[2]}", text), encoding="utf-8")
    print("\n".join([*out, "", *each]))


if __name__ == "__main__":
    main()
