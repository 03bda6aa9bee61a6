"""Calibrations as YAML: those that ship, reading back what was written, and what a file may not say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infercost.costmodel.times.families import TIMES
from infercost.hardware.calibration import FAMILIES, Calibration, Group, Key, Spread
from infercost.hardware.calibration_sheet import (
    all_shipped,
    calibrated_names,
    calibration_from_text,
    calibration_text,
    shipped,
)
from infercost.hardware.catalogue import gpu_names
from infercost.sheets import SheetError

NAMED = ("a100-80g-sxm", "h100-sxm", "h200-sxm", "l40s", "b200", "gb200", "rtx-pro-6000-bw", "h20")


def test_the_eight_ship() -> None:
    assert set(NAMED) <= set(calibrated_names()) <= set(gpu_names())
    assert shipped("t4") is None


@pytest.mark.parametrize("name", calibrated_names())
def test_what_ships_is_fitted_and_says_where_from(name: str) -> None:
    one = shipped(name)
    assert one is not None
    assert one.device == name
    assert "docs/sources.md" in one.source
    page = (Path(__file__).parents[2] / "docs" / "sources.md").read_text(encoding="utf-8")
    commits = re.findall(r"\(([0-9a-f]{7})\)", one.source)
    assert len(commits) == 4
    assert [commit for commit in commits if commit not in page] == []
    assert one.date
    for family, groups in one.families.items():
        known = TIMES[family].family
        for group in groups:
            fitted = [each for each, _ in group.params]
            assert fitted == list(known.forms[group.form])
            assert len(fitted) <= 8
            for each, value in group.params:
                limits = known.parameters[each]
                assert limits.low * 0.999 <= value <= limits.high * 1.001, (str(group.key), each)
            assert group.rows >= 8
            assert 0 < group.error.median <= group.error.mape * 2.5
        kinds = {(g.key.op, g.key.dtype, g.key.kv, g.key.world) for g in groups}
        stated = [(g.key.op, g.key.dtype, g.key.kv, g.key.world) for g in groups if g.default]
        assert len(stated) == len(set(stated)), "at most one default for each type"
        assert set(stated) <= kinds
        for group in groups:
            if group.default:
                assert group.error.mape <= 0.3, "what is predicted badly stands for nothing"


def test_every_family_has_a_model_and_a_place() -> None:
    assert set(TIMES) == set(FAMILIES)
    assert all(name == times.family.name for name, times in TIMES.items())


def test_reading_back() -> None:
    for one in all_shipped().values():
        assert calibration_from_text(calibration_text(one), "again.yaml") == one
    group = Group(
        Key("x-1", "k", "all_reduce", "bf16", "fp8", 4),
        "few",
        (("launch_us", 1.5),),
        9,
        Spread(0.1, 0.2, 0.3),
        Spread(0.2, 0.3, 0.4),
        True,
    )
    own = Calibration(
        "h100-sxm", "me", "2026-01-01", "s", "c", True, {"read_bytes_per_s": 3e12}, {"gemm": (group,)}
    )
    assert calibration_from_text(calibration_text(own), "own.yaml") == own


GOOD = """schema: infercost.calibration/1
device: h100-sxm
source: me
date: '2026-01-01'
families:
  gemm:
    mine:
      dtype: bf16
      form: wave
      rows: 10
      params: {launch_us: 1}
      error: {mape: 0.1, median: 0.1, p90: 0.2}
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("calibration/1", "calibration/9", "this version reads infercost.calibration/1"),
        ("  gemm:", "  gem:", "'gem' is not a family of kernels"),
        ("      rows: 10\n", "", "'rows' is missing"),
        ("      params: {launch_us: 1}\n", "", "'params' is missing"),
        ("{launch_us: 1}", "{launch_us: fast}", "must be a number"),
        ("{launch_us: 1}", "{launch_us: -1}", "is not between 0 and 1e9"),
        ("{launch_us: 1}", "{launch_us: .nan}", "finite number"),
        ("rows: 10", "rows: -10", "must be at least 1"),
        ("mape: 0.1", "mape: -1", "shares of zero or more"),
        ("      error: {mape: 0.1, median: 0.1, p90: 0.2}\n", "", "'error' is missing"),
        ("      dtype: bf16", "      dtyp: bf16", "unknown key 'dtyp'; did you mean dtype?"),
        ("      dtype: bf16", "      dtype: [1]", "must be text"),
        ("device: h100-sxm\n", "", "'device' is missing"),
        ("source: me", "source: &a me", "anchors and aliases"),
    ],
)
def test_a_bad_file_says_where_and_what(old: str, new: str, said: str) -> None:
    assert calibration_from_text(GOOD, "mine.yaml").groups("gemm")[0].rows == 10
    with pytest.raises(SheetError, match=r"mine\.yaml") as caught:
        calibration_from_text(GOOD.replace(old, new), "mine.yaml")
    assert said in str(caught.value)
