"""A scene as PNG, by matplotlib: the same shapes at the same places, on light paper."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from ..text import clean
from .palette import LIGHT
from .scene import Box, Dot, Fill, Scene, Shape, Specks, Stroke

DOTS_PER_INCH = 200
PIXELS_PER_INCH = 100.0
POINT = 72 / PIXELS_PER_INCH
"""Points of one pixel of the scene."""


@contextmanager
def _unasked() -> Iterator[None]:
    """Import matplotlib without the environment's backend, which draws nothing here, and without its word on
    where it keeps its fonts."""
    logger = logging.getLogger("matplotlib")
    level, backend = logger.level, os.environ.pop("MPLBACKEND", None)
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
        if backend is not None:
            os.environ["MPLBACKEND"] = backend


def png(scene: Scene) -> bytes:
    """The picture's bytes. Needs matplotlib (the extra `plot`)."""
    with _unasked():
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

    figure = Figure(
        figsize=(scene.width / PIXELS_PER_INCH, scene.height / PIXELS_PER_INCH),
        dpi=DOTS_PER_INCH,
        facecolor=LIGHT["paper"],
    )
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, scene.width)
    axes.set_ylim(scene.height, 0)
    for order, shape in enumerate(scene.shapes):
        _draw(axes, shape, order)
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Title": scene.title, "Description": scene.about})
    return out.getvalue()


def _draw(axes: object, shape: Shape, order: int) -> None:
    from matplotlib.axes import Axes
    from matplotlib.patches import Circle, Polygon, Rectangle

    assert isinstance(axes, Axes)
    colour = LIGHT[shape.tone]
    if isinstance(shape, Stroke):
        xs, ys = zip(*shape.spots, strict=True)
        style = (0, (4, 3)) if shape.dashed else "-"
        axes.plot(xs, ys, color=colour, linewidth=shape.width * POINT, linestyle=style, zorder=order)
    elif isinstance(shape, Fill):
        axes.add_patch(Polygon(shape.spots, facecolor=colour, alpha=0.2, linewidth=0, zorder=order))
    elif isinstance(shape, Specks):
        xs, ys = zip(*shape.spots, strict=True)
        axes.plot(xs, ys, "o", color=colour, markersize=shape.width * POINT, markeredgewidth=0, zorder=order)
    elif isinstance(shape, Box):
        place, wide, high = (shape.x, shape.y), shape.width, shape.height
        axes.add_patch(
            Rectangle(
                place, wide, high, facecolor=colour, edgecolor=LIGHT["paper"], linewidth=POINT, zorder=order
            )
        )
    elif isinstance(shape, Dot):
        inside, edge = (LIGHT["paper"], colour) if shape.hollow else (colour, LIGHT["paper"])
        axes.add_patch(
            Circle(
                (shape.x, shape.y),
                shape.radius,
                facecolor=inside,
                edgecolor=edge,
                linewidth=(2 if shape.hollow else 1) * POINT,
                zorder=order,
            )
        )
    else:
        axes.text(
            shape.x,
            shape.y,
            # A dollar sign would begin a formula.
            clean(shape.text).replace("$", r"\$"),
            color=colour,
            fontsize=shape.size * POINT,
            ha={"start": "left", "middle": "center", "end": "right"}[shape.anchor],
            va="baseline",
            fontweight="bold" if shape.bold else "normal",
            zorder=order,
        )
