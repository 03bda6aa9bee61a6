"""What a model's own files hold, beside what its configuration implies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..models.catalogue import gguf_in
from ..models.spec import Model
from .output.report import Table
from .text import count, size, size_both


def checkpoint(given: str, model: Model) -> tuple[dict[str, Any], list[Table], list[str]]:
    """(JSON, tables, notes) of the GGUF or safetensors files at `given`; empty where there are none."""
    path = Path(given)
    if given.lower().endswith(".gguf"):
        return _gguf(path)
    held = gguf_in(path) if os.path.isdir(path) else None
    if held is not None:
        return _gguf(held)
    if os.path.isdir(path) and any(path.glob("*.safetensors")):
        return _safetensors(path, model)
    return {}, [], []


def _gguf(path: Path) -> tuple[dict[str, Any], list[Table], list[str]]:
    from ..models.gguf import read_header

    header = read_header(path)
    kinds: dict[str, list[int]] = {}
    for tensor in header.tensors:
        line = kinds.setdefault(tensor.type, [0, 0, 0])
        line[0] += 1
        line[1] += tensor.elements
        line[2] += tensor.bytes
    table = Table(("type", "tensors", "values", "bytes"), "<>>>")
    table.rows = [(kind, count(n), count(values), size(total)) for kind, (n, values, total) in kinds.items()]
    document = {
        "format": "gguf",
        "file_bytes": header.size,
        "predicted_file_bytes": header.predicted_size,
        "tensor_bytes": header.tensor_bytes,
        "types": [
            {"type": kind, "tensors": n, "elements": values, "bytes": total}
            for kind, (n, values, total) in kinds.items()
        ],
    }
    agree = "as its header implies"
    if header.predicted_size != header.size:
        agree = f"its header implies {count(header.predicted_size)}: it is truncated, or has data behind it"
    return document, [table], [f"file: {count(header.size)} bytes, {agree}"]


def _safetensors(path: Path, model: Model) -> tuple[dict[str, Any], list[Table], list[str]]:
    from ..models.safetensors import compare, read_headers

    held = compare(read_headers(path), model)
    table = Table(("part", "dtype", "tensors", "values", "bytes"), "<<>>>")
    table.rows = [(g.name, g.dtype, count(g.tensors), count(g.elements), size(g.bytes)) for g in held.groups]
    document = {
        "format": "safetensors",
        "file_bytes": held.file_bytes,
        "file_parameters": held.file_parameters,
        "groups": [group._asdict() for group in held.groups],
        "reasons": [{"why": why, "parameters": amount} for why, amount in held.reasons],
        "unexplained": held.unexplained,
    }
    notes = [f"checkpoint: {size_both(held.file_bytes)}, {count(held.file_parameters)} values"]
    notes += [f"of these {count(amount)}: {why}" for why, amount in held.reasons]
    if held.unexplained:
        notes.append(f"{count(held.unexplained)} values are not explained by the configuration")
    else:
        notes.append("the rest are the configuration's parameters, to the value")
    return document, [table], notes
