"""`--plot FILE`: charts into a file of pictures, SVG or PNG by its suffix.

What draws is imported only where something is drawn.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ... import InputError
from ..output.report import write_file

if TYPE_CHECKING:
    from .chart import Chart

SUFFIXES = (".svg", ".png")


def check_plot(path: str | None) -> None:
    """Raises InputError, before anything is computed, for a file that could not be drawn: another suffix, or
    a PNG without matplotlib (the error names the extra)."""
    if path is None:
        return
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(
            f"--plot {path[:80]}: the suffix says the kind of picture; use {' or '.join(SUFFIXES)}"
        )
    if suffix == ".png":
        from importlib.util import find_spec

        if find_spec("matplotlib") is None:
            raise InputError(
                "PNG needs matplotlib: pip install 'infercost[plot]', or write an .svg, which needs nothing"
            )


def draw(path: str, charts: list[Chart]) -> None:
    """The charts, one below the other, into `path`, which `check_plot` has let pass."""
    from .scene import laid_out, stacked

    scene = stacked([laid_out(chart) for chart in charts])
    if Path(path).suffix.lower() == ".png":
        from .png import png

        write_file(Path(path), png(scene))
        return
    from .svg import svg

    write_file(Path(path), svg(scene))
