"""A point of the JSON as one CSV row."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any


def flat(point: dict[str, Any], without: Collection[str] = ()) -> dict[str, Any]:
    """Inputs first, then a column for each part of a mapping (`ttft_s.floor`); a confidence as its words.

    The parts of `memory` say themselves what they are.
    """
    out = dict(point.get("inputs", {}))
    for key, value in point.items():
        if key == "inputs" or key in without:
            continue
        if not isinstance(value, dict):
            out[key] = value
        elif key == "confidence":
            out[key] = value["text"]
        else:
            out |= {name if key == "memory" else f"{key}.{name}": part for name, part in value.items()}
    return out
