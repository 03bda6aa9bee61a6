"""A scene as SVG: text stays text, light and dark by the reader's choice, nothing loaded from anywhere."""

from __future__ import annotations

from html import escape

from ..text import clean
from .palette import DARK, LIGHT
from .scene import Box, Dot, Fill, Scene, Shape, Specks, Stroke

FONT = "system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif"


def _rules(colours: dict[str, str]) -> str:
    return "".join(f".f-{tone}{{fill:{c}}}.k-{tone}{{stroke:{c}}}" for tone, c in colours.items())


STYLE = (
    f".ic text{{font-family:{FONT}}}.ic .b{{font-weight:600}}.ic .none{{fill:none}}"
    ".ic .round{stroke-linecap:round}.ic .pale{fill-opacity:.2}"
    + _rules(LIGHT)
    + f"@media screen and (prefers-color-scheme:dark){{{_rules(DARK)}}}"
)
"""The classes that the shapes name; in a page they stand once."""


def svg(scene: Scene, identity: str = "p", style: bool = True) -> str:
    """The scene as one `<svg>` element. `identity` tells its title from those of other pictures of a page;
    `style=False` leaves the colours to the page."""
    title, about = f"{identity}-title", f"{identity}-about"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="ic" viewBox="0 0 {_n(scene.width)} '
        f'{_n(scene.height)}" role="img" aria-labelledby="{title} {about}">'
        f'<title id="{title}">{_text(scene.title)}</title><desc id="{about}">{_text(scene.about)}</desc>'
    )
    if style:
        head = head.replace(" viewBox", f' width="{_n(scene.width)}" height="{_n(scene.height)}" viewBox', 1)
        head += f"<style>{STYLE}</style>"
    paper = f'<rect class="f-paper" width="{_n(scene.width)}" height="{_n(scene.height)}"/>'
    return f"{head}{paper}{''.join(_shape(shape) for shape in scene.shapes)}</svg>\n"


def _shape(shape: Shape) -> str:
    if isinstance(shape, Stroke):
        dashes = ' stroke-dasharray="4 4"' if shape.dashed else ""
        return (
            f'<polyline class="none k-{shape.tone}" stroke-width="{_n(shape.width)}"{dashes} '
            f'points="{_spots(shape.spots)}"/>'
        )
    if isinstance(shape, Fill):
        return f'<polygon class="pale f-{shape.tone}" points="{_spots(shape.spots)}"/>'
    if isinstance(shape, Specks):
        path = "".join(f"M{_n(x)} {_n(y)}h0" for x, y in shape.spots)
        return f'<path class="none round k-{shape.tone}" stroke-width="{_n(shape.width)}" d="{path}"/>'
    if isinstance(shape, Box):
        place = f'x="{_n(shape.x)}" y="{_n(shape.y)}" width="{_n(shape.width)}" height="{_n(shape.height)}"'
        return f'<rect class="f-{shape.tone} k-paper" {place}>{_hint(shape.hint)}</rect>'
    if isinstance(shape, Dot):
        paint = f"f-paper k-{shape.tone}" if shape.hollow else f"f-{shape.tone} k-paper"
        return (
            f'<circle class="{paint}" stroke-width="{2 if shape.hollow else 1}" cx="{_n(shape.x)}" '
            f'cy="{_n(shape.y)}" r="{_n(shape.radius)}">{_hint(shape.hint)}</circle>'
        )
    bold = " b" if shape.bold else ""
    anchor = "" if shape.anchor == "start" else f' text-anchor="{shape.anchor}"'
    return (
        f'<text class="f-{shape.tone}{bold}" x="{_n(shape.x)}" y="{_n(shape.y)}" '
        f'font-size="{_n(shape.size)}"{anchor}>{_text(shape.text)}</text>'
    )


def _hint(text: str) -> str:
    return f"<title>{_text(text)}</title>" if text else ""


def _spots(spots: tuple[tuple[float, float], ...]) -> str:
    return " ".join(f"{_n(x)},{_n(y)}" for x, y in spots)


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _text(text: str) -> str:
    return escape(clean(text))
