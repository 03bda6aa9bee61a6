"""How zeros are stored: the ledger's bits per weight, exact bytes of small matrices, laws."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infercost import InputError
from infercost.models.formats import find_format
from infercost.models.recipes import find_recipe
from infercost.models.sparsity import STORAGES, pattern, storage

SHARES = st.integers(1, 999).map(lambda part: part / 1000)
SIZES = st.integers(1, 2000)


def test_the_ledger() -> None:
    """prune.unstructured at s = 0.6, and prune.24."""
    assert storage("csr16", 0.6).bits(16) == pytest.approx(12.8)
    assert storage("bitmap", 0.6).bits(16) == pytest.approx(7.4)
    assert storage("2:4", 0.5).bits(16) == 9
    assert storage("bitmap", 0.6).dense_from(16) == 0.0625
    assert storage("csr16", 0.6).dense_from(16) == 0.5


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        # 4 x 8 values, half of them zero: 16 left.
        ("bf16-2:4", 16 * 2 + 16 * 2 // 8),
        ("bf16-bitmap-0.5", 16 * 2 + 32 // 8),
        ("bf16-csr16-0.5", 16 * 4 + 5 * 4),
        ("bf16-csr32-0.5", 16 * 6 + 5 * 4),
        ("int8-2:4", 16 + 4),
        ("fp8-row-bitmap-0.5", 16 + 4 + 4 * 4),
    ],
)
def test_bytes_of_a_small_matrix(name: str, wanted: int) -> None:
    assert find_format(name).matrix_bytes(4, 8) == wanted


def test_rows_pad_to_whole_groups() -> None:
    assert find_format("bf16-2:4").matrix_bytes(1, 5) == find_format("bf16-2:4").matrix_bytes(1, 8) == 9


@given(SHARES, SIZES, SIZES, st.sampled_from(["bitmap", "csr16", "csr32"]))
def test_more_zeros_take_less(share: float, rows: int, cols: int, kind: str) -> None:
    few, many = (find_format(f"bf16-{kind}-{s:g}").matrix_bytes(rows, cols) for s in (share / 2, share))
    assert many <= few
    assert many >= 2 * round(rows * cols * (1 - share))


@given(SHARES, st.sampled_from(["bitmap", "csr16", "csr32"]), st.sampled_from([4, 8, 16]))
def test_it_pays_from_where_it_says(share: float, kind: str, bits: int) -> None:
    one = storage(kind, share)
    pays = one.dense_from(bits)
    assert pays is not None
    if abs(share - pays) > 1e-9:
        assert (one.bits(bits) < bits) == (share > pays)


def test_what_is_pruned_of_a_model() -> None:
    """The layers' matrices; head, tables, router and norms stay whole."""
    from infercost.costmodel.weights import weight_bill
    from infercost.models.catalogue import load_model

    bill = weight_bill(load_model("mixtral-8x7b"), find_recipe("bf16-2:4"))
    formats = {component.name: component.format for component in bill.components}
    assert {name for name, fmt in formats.items() if fmt == "bf16-2:4"} == {"attention", "experts"}


@pytest.mark.parametrize(
    "name", ["q4_0-2:4", "bf16-2:4-2:4", "fp32-2:4", "nvfp4-2:4", "nope-2:4", "bf16-bitmap-1", "bf16-3:4"]
)
def test_what_is_no_format(name: str) -> None:
    with pytest.raises(InputError):
        find_format(name)


def test_limits() -> None:
    with pytest.raises(InputError, match="65,536"):
        storage("csr16", 0.5).matrix_bytes(1, 65_537, 16)
    with pytest.raises(InputError, match="matrices, not of KV"):
        find_format("bf16-2:4").row_bytes(128)
    for share in (-0.1, 1.0, float("nan")):
        with pytest.raises(InputError, match="sparsity"):
            storage("bitmap", share)
    with pytest.raises(InputError, match="one of"):
        storage("coo", 0.5)


def test_patterns() -> None:
    assert pattern("bf16-2:4") == "2:4"
    assert pattern("bf16-bitmap-0.6") == "bitmap"
    assert [pattern(name) for name in ("bf16", "int4-g128", "fp8-block", "")] == [""] * 4
    assert all(storage(kind, 0.5).kind == kind for kind in STORAGES)
