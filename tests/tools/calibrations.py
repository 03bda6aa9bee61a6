"""Writes the calibrations that ship, from the measured files of ../shared/.

    python tests/tools/calibrations.py

Deterministic: the same files give the same YAML. Takes some minutes on two cores.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from infercost.hardware.calibration_sheet import FOLDER, calibration_text
from infercost.probes.calibrate import calibrations, cross_fit_all
from infercost.probes.validate import gathered

MEASURED = Path(__file__).parents[3] / "shared" / "measured"
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
    "LLMCompass (2e015fd) measured; method and licences in ../shared/measured/PROVENANCE.md"
)
DATE = "2026-11-30"
SOFTWARE = "the stack and version that each group names"
CONDITIONS = "CUDA-graph replays of 3 + 6 launches unless the group says eager; clocks not verifiable per row"


def main() -> None:
    excluded: Counter[str] = Counter()
    batches = list(gathered([str(path) for path in sorted(MEASURED.glob("*.csv"))], excluded))
    made = calibrations(cross_fit_all(batches), SOURCE, DATE, SOFTWARE, CONDITIONS)
    for name in SHIPPED:
        if name in made:
            (FOLDER / f"{name}.yaml").write_text(calibration_text(made[name].calibration), encoding="utf-8")
    for reason, rows in sorted(excluded.items()):
        print(f"{rows:8,} rows left out: {reason}", file=sys.stderr)


if __name__ == "__main__":
    main()
