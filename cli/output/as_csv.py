"""CSV of the main table: raw numbers, a header of JSON keys."""

from __future__ import annotations

import csv
import io

from ... import InputError
from ..text import clean
from .report import Report


def render(report: Report) -> str:
    if not report.records:
        raise InputError("this result has no table to write as CSV; use --json")
    keys: dict[str, None] = {}
    for record in report.records:
        keys.update(dict.fromkeys(record))
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(keys), lineterminator="\n")
    writer.writeheader()
    for record in report.records:
        writer.writerow({k: clean(v) if isinstance(v, str) else v for k, v in record.items()})
    return out.getvalue()
