"""A canvas of braille dots: 2 x 4 to a character, with letters and colours on it."""

from __future__ import annotations

import math

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


class Canvas:
    """`columns` x `rows` characters; dots are addressed from the top left.

    A `tone` is an ANSI colour code (0: none); the last one drawn in a cell is its colour.
    """

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.width, self.height = columns * 2, rows * 4
        self._cells = [[0] * columns for _ in range(rows)]
        self._marks: dict[tuple[int, int], str] = {}
        self._tones: dict[tuple[int, int], int] = {}

    def dot(self, x: float, y: float, tone: int = 0) -> None:
        column, row = round(x), round(y)
        if 0 <= column < self.width and 0 <= row < self.height:
            self._cells[row // 4][column // 2] |= DOTS[row % 4][column % 2]
            self._tones[(row // 4, column // 2)] = tone

    def line(self, x0: float, y0: float, x1: float, y1: float, dash: int = 1, tone: int = 0) -> None:
        """A straight line, every `dash`-th dot of it."""
        steps = max(1, math.ceil(max(abs(x1 - x0), abs(y1 - y0))))
        for i in range(0, steps + 1, dash):
            self.dot(x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps, tone)

    def mark(self, x: float, y: float, letter: str, tone: int = 0) -> None:
        """A character in place of the cell that holds the dot."""
        column = min(max(round(x) // 2, 0), self.columns - 1)
        row = min(max(round(y) // 4, 0), self.rows - 1)
        self._marks[(row, column)] = letter
        self._tones[(row, column)] = tone

    def lines(self, colour: bool = False) -> list[str]:
        """The rows; with `colour` the cells that have one between ANSI escapes."""
        return ["".join(self._cell(r, c, colour) for c in range(self.columns)) for r in range(self.rows)]

    def _cell(self, row: int, column: int, colour: bool) -> str:
        cell, tone = self._cells[row][column], self._tones.get((row, column), 0)
        text = self._marks.get((row, column)) or (chr(0x2800 + cell) if cell else " ")
        return f"\x1b[{tone}m{text}\x1b[0m" if colour and tone else text
