"""`--plot FILE`: charts into a file of pictures, SVG or PNG by its suffix."""

from __future__ import annotations

from pathlib import Path

from ... import InputError
from ..output.report import write_file
from .chart import Chart
from .png import needs_matplotlib
from .scene import laid_out, stacked

SUFFIXES = (".svg", ".png")


def check_plot(path: str | None) -> None:
    """Raises InputError, before anything is computed, for a file that could not be drawn."""
    if path is None:
        return
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(
            f"--plot {path[:80]}: the suffix says the kind of picture; use {' or '.join(SUFFIXES)}"
        )
    if suffix == ".png":
        needs_matplotlib()


def draw(path: str | None, charts: list[Chart]) -> None:
    """The charts, one below the other, into `path` (None: nowhere)."""
    if path is None:
        return
    scene = stacked([laid_out(chart) for chart in charts])
    if Path(path).suffix.lower() == ".png":
        from .png import png

        write_file(Path(path), png(scene))
        return
    from .svg import svg

    write_file(Path(path), svg(scene))
