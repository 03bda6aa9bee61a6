"""Make model sheets from config.json files: `python tests/tools/catalogue.py CONFIGS [SOURCES.csv]`.

NAME.json becomes models/sheets/NAME.yaml unless a hand-written sheet of that name is there (one that
does not begin with the line this script writes). SOURCES.csv (name, ..., status, source columns) fills
in where the facts were read. Encoder-only models are passed over: nothing is generated with them.
NAME.hf_quant_config.json beside it says how ModelOpt quantised the checkpoint, which its config.json may not.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import replace
from pathlib import Path

from infercost.models.attention import Attention
from infercost.models.huggingface import (
    QUANTISATION_FILE,
    model_from_config,
    read_config,
    with_quantisation,
)
from infercost.models.sheet_text import sheet_text

SHEETS = Path(__file__).parent.parent.parent / "models" / "sheets"
MARK = "# Made by tests/tools/catalogue.py from the facts of a config.json.\n"


def sources(path: Path | None) -> dict[str, str]:
    """What each configuration rests on, in a few words."""
    if path is None:
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        rows = [list(row.values()) for row in csv.DictReader(file)]
    return {row[0]: f"config.json facts ({row[3]}): {row[4]}" for row in rows}


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    known = sources(Path(sys.argv[2]) if len(sys.argv) > 2 else None)
    made = 0
    for config in sorted(Path(sys.argv[1]).glob("*.json")):
        if config.name.endswith(QUANTISATION_FILE):
            continue
        sheet = SHEETS / f"{config.stem}.yaml"
        if sheet.exists() and not sheet.read_text(encoding="utf-8").startswith(MARK):
            continue
        data = read_config(config.read_text(encoding="utf-8"), config.name)
        beside = config.with_name(f"{config.stem}.{QUANTISATION_FILE}")
        if beside.exists():
            data = with_quantisation(data, lambda file=beside: file.read_text(encoding="utf-8"), beside.name)
        source = known.get(config.stem, "config.json facts")
        model = model_from_config(data, config.name, config.stem, source)
        if any(isinstance(b, Attention) and not b.causal for layer in model.layers for b in layer.blocks):
            continue
        sheet.write_text(MARK + sheet_text(replace(model, title="")), encoding="utf-8")
        made += 1
    print(f"{made} sheets made")
    return 0


if __name__ == "__main__":
    sys.exit(main())
