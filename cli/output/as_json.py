"""JSON: raw numbers in base units, the document as the command built it."""

from __future__ import annotations

import json

from .report import Report


def render(report: Report) -> str:
    return json.dumps(report.document, indent=2, allow_nan=False) + "\n"
