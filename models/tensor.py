"""One kind of weight tensor: what parameter counts, file sizes and weight traffic are sums of."""

from __future__ import annotations

from typing import NamedTuple


class Tensor(NamedTuple):
    """`copies` tensors of shape [rows, cols] = [out_features, in_features]; a vector has one row.

    `component` is the line of the bill it stands on, `name` what a recipe knows it by, and
    `kind` is `linear` (a matrix a GEMM multiplies by), `table` (rows are looked up) or
    `vector` (norms, biases, convolution taps: never quantised by the recipes here).
    """

    component: str
    name: str
    rows: int
    cols: int
    kind: str = "linear"
    copies: int = 1

    @property
    def elements(self) -> int:
        return self.rows * self.cols * self.copies


def vector(component: str, name: str, length: int, copies: int = 1) -> Tensor:
    return Tensor(component, name, 1, length, "vector", copies)


def parameters(tensors: tuple[Tensor, ...]) -> int:
    """Parameters in `tensors`."""
    return sum(tensor.elements for tensor in tensors)
