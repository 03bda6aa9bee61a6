"""Writes the calibrations that ship and the accuracy tables, from the measured files of ../shared/.

    python tests/tools/calibrations.py

Deterministic: the same files give the same YAML and the same tables. Some minutes on two cores.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

from infercost.costmodel.roofline import floor_s
from infercost.hardware.calibration_sheet import FOLDER, calibration_text
from infercost.probes.calibrate import Cross, calibrations, cross_fit_all, leave_gpu_out
from infercost.probes.errors import Errors
from infercost.probes.validate import TIMES, gathered, predict

ROOT = Path(__file__).parents[2]
MEASURED = ROOT.parent / "shared" / "measured"
SHIPPED = (
    "a100-80g-sxm",
    "h100-sxm",
    "h200-sxm",
    "l40s",
    "b200",
    "gb200",
    "rtx-pro-6000-bw",
    "h20",
    "arc-pro-b60",
)
SOURCE = (
    "fitted to kernel times that aiconfigurator (095f58a), Vidur (7d47513), InferSim (f2293da) and "
    "LLMCompass (2e015fd) measured; method and licences in docs/sources.md"
)
DATE = "2026-11-30"
SOFTWARE = "the stack and version that each group names"
CONDITIONS = "CUDA-graph replays of 3 + 6 launches unless the group says eager; clocks not verifiable per row"
TITLES = {
    "gemm": "GEMM",
    "prefill": "prefill attention",
    "decode": "decode attention",
    "mla": "MLA, prefill and decode",
    "moe": "MoE layer",
    "collective": "NCCL, oneCCL",
    "custom_all_reduce": "engines' own all-reduce",
    "pointwise": "pointwise, MLA projections",
}
SAME_GENERATION = (
    {"h100-sxm", "h200-sxm", "h20"},
    {"b200", "gb200"},
)


def main() -> None:
    excluded: Counter[str] = Counter()
    batches = list(gathered([str(path) for path in sorted(MEASURED.glob("*.csv"))], excluded))
    crosses = cross_fit_all(batches)
    made = calibrations(crosses, SOURCE, DATE, SOFTWARE, CONDITIONS)
    for name in SHIPPED:
        (FOLDER / f"{name}.yaml").write_text(calibration_text(made[name].calibration), encoding="utf-8")
    single = sum(len(c.batch.time_s) for c in crosses if not c.held_out)
    few = sum(len(b.time_s) for b in batches) - sum(len(c.batch.time_s) for c in crosses)
    excluded["of groups with one shape family: none to hold out"] += single
    excluded["of groups with too few rows to fit"] += few
    lent = list(leave_gpu_out(crosses, made))
    write("held-out", [*families(crosses), "", *left_out(excluded)])
    write("by-gpu", by_gpu(crosses))
    write("transfer", transfer(lent))


def errors(pairs: list[tuple[object, object]]) -> str:
    total = Errors()
    for predicted, measured in pairs:
        total.add(predicted, measured)
    return f"{100 * total.mape:.1f} / {100 * total.quantile(0.5):.1f} / {100 * total.quantile(0.9):.0f}"


def families(crosses: list[Cross]) -> list[str]:
    """One line a table: rows, groups, the plain roofline and the model on shapes kept out."""
    lines = ["| kernels | rows | groups | datasheet floor | expected |", "|---|--:|--:|--:|--:|"]
    for table, title in TITLES.items():
        own = [c for c in crosses if TIMES[c.batch.family].table == table and c.held_out]
        rows = sum(len(c.batch.time_s) for c in own)
        floors = [(floor_of(c), c.batch.time_s) for c in own]
        times = [(c.predicted_s, c.batch.time_s) for c in own]
        lines.append(f"| {title} | {rows:,} | {len(own)} | {errors(floors)} | **{errors(times)}** |")
    return lines


def floor_of(cross: Cross) -> object:
    return cross.batch.time_s * 0 + floor_s(cross.batch.work, cross.batch.gpu)


def by_gpu(crosses: list[Cross]) -> list[str]:
    """Mean and median by GPU, on shapes kept out."""
    tables = [name for name in TITLES if name != "custom_all_reduce"]
    lines = [
        "| | GEMM bf16 | " + " | ".join(TITLES[name] for name in tables) + " |",
        "|---|" + "--:|" * (len(tables) + 1),
    ]
    for gpu in SHIPPED:
        own = [c for c in crosses if c.batch.gpu.name == gpu and c.held_out]
        cells = []
        for table in ("bf16", *tables):
            some = [
                (c.predicted_s, c.batch.time_s)
                for c in own
                if (c.batch.family == "gemm" and c.batch.key.dtype == "bf16")
                if table == "bf16"
            ] or [(c.predicted_s, c.batch.time_s) for c in own if TIMES[c.batch.family].table == table]
            cells.append(errors(some).rsplit(" / ", 1)[0] if some else "")
        lines.append(f"| {gpu} | " + " | ".join(cells) + " |")
    return lines


def transfer(lent: list[tuple[Cross, object]]) -> list[str]:
    """Every GPU with the constants its siblings would lend it."""
    tables = [name for name in TITLES if name != "custom_all_reduce"]
    lines = ["| | " + " | ".join(TITLES[name] for name in tables) + " |", "|---|" + "--:|" * len(tables)]
    picks = [(gpu, {gpu}) for gpu in SHIPPED]
    picks.append(("**within a generation**", set().union(*SAME_GENERATION)))
    for title, gpus in picks:
        cells = []
        for table in tables:
            some = [
                (predict(c.batch, choice.params), c.batch.time_s)
                for c, choice in lent
                if c.batch.gpu.name in gpus and TIMES[c.batch.family].table == table
            ]
            cells.append(errors(some).rsplit(" / ", 1)[0] if some else "")
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return lines


def left_out(excluded: Counter[str]) -> list[str]:
    return ["Left out and counted:", ""] + [
        f"- {rows:,} rows {'' if reason.startswith('of ') else '('}{reason}"
        f"{'' if reason.startswith('of ') else ')'}"
        for reason, rows in sorted(excluded.items())
        if rows
    ]


def write(name: str, lines: list[str]) -> None:
    """Between `<!-- name -->` and `<!-- /name -->`, wherever a page has them."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        old = page.read_text(encoding="utf-8")
        block = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        new = block.sub(lambda m: m[1] + "\n".join(lines) + "\n" + m[2], old)
        if new != old:
            page.write_text(new, encoding="utf-8")
            print(f"{name}: {page.name}", file=sys.stderr)


if __name__ == "__main__":
    main()
