"""`validate` and `calibrate` as a user meets them, and what the measured files say of the model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infercost.costmodel.op import Gemm
from infercost.costmodel.times.device import device
from infercost.costmodel.times.gemm import GEMM, gemm_s
from infercost.costmodel.times.transfer import Calibrated, choose
from infercost.hardware.calibration import Key
from infercost.hardware.calibration_sheet import all_shipped
from infercost.hardware.catalogue import load_gpu

Run = Callable[..., Any]
ROOT = Path(__file__).parent.parent.parent
MEASURED = ROOT.parent / "shared" / "measured"
HEADER = "source,gpu,framework,dtype,m,n,k,time_us\n"
# A million measured rows are no file of this repository, which is tested without ../shared, too.
needs_measured = pytest.mark.skipif(not MEASURED.is_dir(), reason="../shared/measured/ is not here")


CALIBRATION = """schema: infercost.calibration/1
device: h100-sxm
source: me
date: '2026-01-01'
families:
  gemm:
    mine:
      dtype: bf16
      form: wave
      rows: 10
      default: true
      params: {mma_share: 0.5}
      error: {mape: 0.1, median: 0.1, p90: 0.2}
"""


@pytest.fixture
def csv_file(tmp_path: Path) -> Path:
    """A few rows of two GPUs, one of them without a calibration, one row that must be left out."""
    path = tmp_path / "mine.csv"
    lines = [
        f"x,{gpu},vllm-0.24.0,bf16,{m},{n},4096,{time}\n"
        for gpu, scale in (("h100_sxm", 1.0), ("l4", 9.0))
        for m, time0 in ((1, 14.0), (64, 15.0), (512, 30.0), (4096, 190.0))
        for n in (4096, 8192, 14336)
        for time in (round(scale * time0 * n / 4096, 3),)
    ]
    path.write_text(
        HEADER + "".join(lines) + "x,h100_sxm,vllm-0.24.0-eager,bf16,1,64,64,80\n", encoding="utf-8"
    )
    return path


def test_the_document(csv_file: Path, run: Run) -> None:
    document = run("validate", "--kernels", str(csv_file), "--json").json
    assert document["schema"] == "infercost.validate/1"
    assert {"inputs", "conventions", "sources", "groups", "totals", "flagged", "excluded"} <= set(document)
    keys = {"family", "gpu", "group", "rows", "floor_mape", "mape", "median_ape", "p90_ape", "confidence"}
    assert all(keys <= set(group) for group in document["groups"])
    by_gpu = {group["gpu"]: group for group in document["groups"]}
    assert by_gpu["h100-sxm"]["confidence_kind"] == "calibrated"
    assert by_gpu["l4"]["confidence_kind"] == "transferred"
    assert by_gpu["l4"]["constants"].startswith("l40s")
    assert document["totals"]["gemm"]["rows"] == 24
    assert sum(document["excluded"].values()) == 1
    json.dumps(document, allow_nan=False)


def test_the_screen(csv_file: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    out = run("validate", "--kernels", str(csv_file)).out
    assert out.startswith("gemm, 24 rows: expected off by")
    assert "left out: 1 row, GEMM rows taken without a CUDA graph" in out
    assert "transferred" in out
    assert "by group" not in run("validate", "--kernels", str(csv_file), "--no-groups").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    drawn = run("validate", "--kernels", str(csv_file)).out
    assert "predicted" in drawn
    assert "measured" in drawn
    assert any("⠀" < ch <= "⣿" for ch in drawn)


def test_conditions_and_formats(csv_file: Path, run: Run) -> None:
    where = ("validate", "--kernels", str(csv_file))
    assert run(*where, "--assert", "totals.gemm.rows == 24").code == 0
    assert run(*where, "--assert", "totals.gemm.mape < 0.000001").code == 1
    assert run(*where, "--csv").out.startswith("family,gpu,group,rows")
    assert run(*where, "--calibration", "none", "--json").json["groups"][0]["confidence_kind"] == "assumed"
    assert {g["gpu"] for g in run(*where, "--gpu", "t4", "--json").json["groups"]} == {"t4"}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("validate",), "--kernels FILE.csv"),
        (("validate", "--kernels", "absent.csv"), "cannot read absent.csv"),
        (("validate", "--kernels", "{csv}", "--calibration", "absent.yaml"), "cannot read absent.yaml"),
        (("validate", "--kernels", "{csv}", "--cross-validate", "--leave-gpu-out"), "choose one"),
        (("validate", "--kernels", "{csv}", "--gpu", "h1000"), "unknown GPU 'h1000'"),
        (("calibrate",), "--from FILE.csv"),
        (("calibrate", "--from", "{csv}"), "--gpu NAME"),
        (("calibrate", "--from", "{csv}", "--gpu", "h100", "--family", "gem"), "did you mean gemm"),
        (("calibrate", "--from", "{csv}", "--gpu", "h100", "--family", "moe"), "nothing to fit"),
        (("ops", "--model", "llama-7b", "--seq", "1", "--calibration", "x.yaml"), "cannot read x.yaml"),
        (("validate", "--kernels", "{csv}", "--calibration", "{odd}"), "no constant is called 'mma_shar'"),
        (("validate", "--kernels", "{csv}", "--calibration", "{far}"), "far from what a fit gives it"),
        (("validate", "--kernels", "{csv}", "--calibration", "{zero}"), "far from what a fit gives it"),
        (("validate", "--kernels", "{csv}", "--calibration", "{passwd}"), "is no known GPU"),
    ],
)
def test_one_line_and_exit_2(
    args: tuple[str, ...], said: str, csv_file: Path, tmp_path: Path, run: Run
) -> None:
    files = {}
    for name, old, new in (
        ("odd", "mma_share", "mma_shar"),
        ("far", "mma_share: 0.5", "mma_share: 5000"),
        ("zero", "mma_share: 0.5", "mma_share: 0"),
        ("passwd", "device: h100-sxm", "device: ../../etc/passwd"),
    ):
        files[name] = tmp_path / f"{name}.yaml"
        files[name].write_text(CALIBRATION.replace(old, new), encoding="utf-8")
    result = run(*(arg.format(csv=csv_file, **files) for arg in args))
    assert result.code == 2
    assert said in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_calibrate_writes_what_ops_and_validate_read(csv_file: Path, tmp_path: Path, run: Run) -> None:
    target = tmp_path / "mine.yaml"
    where = ("calibrate", "--from", str(csv_file), "--gpu", "l4", "--write", str(target))
    document = run(*where, "--software", "torch 9", "--json").json
    assert document["schema"] == "infercost.calibrate/1"
    assert document["accepted"] == 1
    assert document["written"] == str(target)
    assert "torch 9" in target.read_text(encoding="utf-8")
    checked = run(
        "validate", "--kernels", str(csv_file), "--gpu", "l4", "--calibration", str(target), "--json"
    ).json
    assert checked["groups"][0]["confidence_kind"] == "calibrated"
    step = ("ops", "--model", "llama-7b", "--gpu", "l4", "--seq", "64", "--phase", "decode", "--json")
    own, shipped = run(*step, "--calibration", str(target)).json, run(*step).json
    kinds = {op["name"]: op["confidence"]["kind"] for op in own["ops"]}
    assert kinds["qkv"] == "calibrated"
    assert kinds["attention"] == "transferred", "families that the file does not cover are lent as before"
    assert {op["confidence"]["kind"] for op in shipped["ops"]} == {"transferred"}


def test_a_calibration_of_some_families_leaves_the_others_as_they_were(tmp_path: Path, run: Run) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(CALIBRATION, encoding="utf-8")
    step = ("ops", "--model", "llama-7b", "--gpu", "h100", "--seq", "64", "--phase", "decode", "--json")
    before, after = run(*step).json["ops"], run(*step, "--calibration", str(mine)).json["ops"]
    own = {op["name"]: op["confidence"]["group"] for op in after}
    assert own["qkv"] == "bf16"
    for old, new in zip(before, after, strict=True):
        if old["work"] != "gemm":
            assert old["expected_s"] == new["expected_s"], old["name"]


def test_calibrate_keeps_nothing_that_does_not_help(tmp_path: Path, run: Run) -> None:
    """Four rows that the constants at hand predict within 3 %."""
    gpu = load_gpu("h100")
    every = [Calibrated(load_gpu(name), one) for name, one in all_shipped().items()]
    params = choose(GEMM, Key(stack="mine", dtype="bf16"), gpu, every).params
    rows = []
    for i, (m, n, k) in enumerate(((1, 4096, 4096), (64, 8192, 4096), (512, 4096, 8192), (4096, 4096, 4096))):
        time = gemm_s(Gemm(m, k, n, 2 * n * k, "bf16"), device(gpu), params) * (1.03, 0.97)[i % 2]
        rows.append(f"x,h100_sxm,mine,bf16,{m},{n},{k},{1e6 * time:.6g}")
    few = tmp_path / "few.csv"
    few.write_text(HEADER + "\n".join(rows) + "\n", encoding="utf-8")
    target = tmp_path / "few.yaml"
    result = run("calibrate", "--from", str(few), "--gpu", "h100", "--write", str(target))
    assert result.code == 0
    assert "0 of 1 group predicted better" in result.out
    assert "no file was written" in result.out
    assert not target.exists()


# --- what the files of ../shared/measured/ say ---

LIMITS = {
    "gemm": ("gemm", 0.10, 0.075),
    "attention_prefill": ("prefill", 0.13, 0.08),
    "attention_decode": ("decode", 0.13, 0.09),
    "mla": ("mla", 0.15, 0.15),
    "moe": ("moe", 0.25, 0.25),
    "collective": ("collective", 0.13, 0.13),
    "other": ("pointwise", 0.20, 0.20),
}


@needs_measured
@pytest.mark.parametrize("name", LIMITS)
def test_what_ships_predicts_what_was_measured(name: str, run: Run) -> None:
    """With the constants that ship (fitted to these rows); the held-out figures are in the README."""
    family, mape, median = LIMITS[name]
    document = run("validate", "--kernels", str(MEASURED / f"{name}.csv"), "--json").json
    total = document["totals"][family]
    assert total["mape"] <= mape
    assert total["median_ape"] <= median
    assert total["floor_mape"] > 0.4, "the plain roofline is far off"
    if name != "gemm":
        assert {group["confidence_kind"] for group in document["groups"] if group["rows"] > 7} == {
            "calibrated"
        }


@needs_measured
@pytest.mark.parametrize(("name", "family"), [("attention_decode", "decode"), ("mla", "mla")])
def test_shapes_kept_out_of_the_fit_are_predicted_too(name: str, family: str, run: Run) -> None:
    path = str(MEASURED / f"{name}.csv")
    total = run("validate", "--kernels", path, "--cross-validate", "--no-groups", "--json").json["totals"][
        family
    ]
    assert total["mape"] <= LIMITS[name][1]
    assert total["median_ape"] <= LIMITS[name][2]


def test_measured_requests(run: Run, ask: Run) -> None:
    path = str(ROOT / "docs" / "example" / "requests-invented.csv")
    got = ask("validate", "--end-to-end", path)
    assert [entry["engine"] for entry in got["by_engine"]] == ["llama.cpp", "vllm"]
    assert got["totals"]["closed loop"]["rows"] == 2
    (flagged,) = got["flagged"]
    assert flagged["why"] == "faster than the bound"
    for entry in got["groups"]:
        assert entry["mape"] < entry["floor_mape"]
    both = run("validate", "--end-to-end", path, "--kernels", path)
    assert both.code == 2
    assert run("validate", "--end-to-end", path, "--calibration", "none").code == 2


REQUESTS = ROOT.parent / "shared" / "end_to_end" / "latency.csv"


@pytest.mark.skipif(not REQUESTS.is_file(), reason="../shared/end_to_end/ is not here")
def test_published_requests(ask: Run) -> None:
    """The profiles against the rows they were fitted to; docs/times.md has the errors of what is left out."""
    got = ask("validate", "--end-to-end", str(REQUESTS))
    totals = got["totals"]
    assert totals["closed loop"]["mape"] < 0.17
    assert totals["single stream"]["median_ape"] < 0.08
    assert totals["static batch"]["mape"] < 0.13
    assert got["flagged_rows"] > 20
