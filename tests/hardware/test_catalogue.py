"""Accelerator sheets: all 78, their lint, aliases, and what a sheet may not say."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from infercost import InputError
from infercost.costmodel.times.transfer import GENERATIONS as PLACES
from infercost.hardware.calibration_sheet import calibrated_names
from infercost.hardware.catalogue import gpu_aliases, gpu_from_text, gpu_names, lint, load_gpu, torch_names
from infercost.hardware.spec import GENERATIONS
from infercost.sheets import SheetError


def test_all_accelerators_are_there() -> None:
    assert len(gpu_names()) >= 78


@pytest.mark.parametrize("name", gpu_names())
def test_lint(name: str) -> None:
    gpu = load_gpu(name)
    assert gpu.name == name
    result = lint(gpu)
    assert not result.problems
    assert bool(result.exceptions) == bool(gpu.derivation_exception), (
        "a reason in the sheet, where it is asked"
    )


def test_aliases() -> None:
    assert load_gpu("A100").name == "a100-80g-sxm"
    assert load_gpu("4090").name == "rtx4090"
    for alias, name in gpu_aliases().items():
        assert alias not in gpu_names()
        assert load_gpu(alias).name == name


def test_what_is_scanned_of_the_sheets_is_what_they_say() -> None:
    """Names are looked up in the sheets' text: nothing is parsed, and nothing said twice."""
    every = [load_gpu(name) for name in gpu_names()]
    aliases = [(alias, gpu.name) for gpu in every for alias in gpu.aliases]
    assert len(dict(aliases)) == len(aliases), "an alias of two sheets"
    assert gpu_aliases() == dict(aliases)
    patterns = [(gpu.torch_name, gpu.name) for gpu in every if gpu.torch_name]
    assert len(dict(patterns)) == len(patterns), "a card of two sheets"
    assert torch_names() == dict(patterns)


def test_generations_are_those_that_the_time_model_knows() -> None:
    assert set(GENERATIONS) == set(PLACES)
    for name in calibrated_names():
        assert load_gpu(name).generation or load_gpu(name).vendor != "NVIDIA"


def test_the_a100_derives_its_peak() -> None:
    """108 SMs x 2048 FLOP/clock x 1.41 GHz = 311.87e12 (a100.peak)."""
    assert load_gpu("a100").compute.flops_per_s == pytest.approx(311869440000000.0)


def test_known_traps() -> None:
    """Peaks that other tools get wrong (hardware notes): dense, fp32 accumulate, the right part."""
    assert load_gpu("h100").peak("fp16") == pytest.approx(989.4e12), "1979 is with sparsity"
    assert load_gpu("rtx4090").peak("fp16") == pytest.approx(165.2e12), "330 accumulates in fp16"
    assert dict(load_gpu("rtx4090").fp16_accumulate_peaks)["fp16"] == pytest.approx(330.3e12)
    assert load_gpu("h100").peak("int4") is None
    assert load_gpu("mi250x").peak("int8") == pytest.approx(383e12)
    assert load_gpu("mi250x").dies == 2
    assert load_gpu("b200").bandwidth == 7700e9
    assert load_gpu("a10g").peak("fp16") == pytest.approx(70e12)


GOOD = """\
name: x
title: X
vendor: V
source: somewhere
peak_tflops: {fp16: 100}
compute: {cores: 10, clock_ghz: 1, flops_per_clock_per_core: 10000}
memory: {bandwidth_gb_per_s: 1000}
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("fp16: 100", "fp61: 100", "'fp61' is not a dtype"),
        ("fp16: 100", "fp16: .inf", "finite"),
        ("fp16: 100", "fp16: .nan", "finite"),
        ("fp16: 100", "fp16: -1", "not between"),
        ("fp16: 100", "fp16: fast", "must be a number"),
        ("peak_tflops: {fp16: 100}\n", "", "names no dtype"),
        ("memory: {bandwidth_gb_per_s: 1000}\n", "", "'memory' is missing"),
        ("bandwidth_gb_per_s: 1000", "bandwidth_gb_per_s: 0", "bandwidth"),
        ("bandwidth_gb_per_s: 1000", "bandwith_gb_per_s: 1000", "bandwidth_gb_per_s"),
        ("vendor: V", "vendr: V", "vendor"),
        ("cores: 10", "cores: -10", "must be positive"),
        ("source: somewhere", "source: ' '", "'source' is empty"),
        ("vendor: V", "vendor: V\ngeneration: rubin", "generation is ampere, ada, hopper"),
        ("vendor: V", "vendor: V\naliases: y", "aliases: must be a list of words"),
        ("title: X", "title: X\nprice: {usd_per_hour: 1}", "'source' is missing"),
    ],
)
def test_bad_sheets(old: str, new: str, said: str) -> None:
    assert gpu_from_text(GOOD, "g.yaml").peak("fp16") == 100e12
    with pytest.raises(SheetError, match=said):
        gpu_from_text(GOOD.replace(old, new), "g.yaml")


def test_lint_finds_a_wrong_peak() -> None:
    wrong = gpu_from_text(GOOD.replace("fp16: 100", "fp16: 200"), "g.yaml")
    assert "derived 100.0" in lint(wrong).problems[0]
    explained = gpu_from_text(
        GOOD.replace("fp16: 100", "fp16: 200") + "derivation_exception: because\n", "g.yaml"
    )
    assert not lint(explained).problems
    assert "because" in lint(explained).exceptions[0]
    assert "memory.driver_mib" in lint(wrong).absent


def test_unknown_gpu() -> None:
    with pytest.raises(InputError, match="unknown GPU 'h1000'; did you mean h100"):
        load_gpu("h1000")


def test_sheets_are_the_shared_table(shared: Path) -> None:
    """Every figure of ../shared/hardware/gpus.csv stands in a sheet; what it leaves out is absent."""
    with (shared / "hardware" / "gpus.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["id"] for row in rows} <= set(gpu_names())
    for row in rows:
        gpu = load_gpu(row["id"])
        pairs = {
            "sm": gpu.compute.cores,
            "tensor_clk_ghz": gpu.compute.clock_ghz,
            "dense16_flop_per_clk_sm": gpu.compute.flops_per_clock_per_core,
            "mem_bytes_nominal": gpu.memory.nominal_bytes,
            "mem_reported_mib": gpu.memory.driver_mib,
            "bw_gbs": gpu.memory.bandwidth_gb_per_s,
            "l2_mib": gpu.memory.l2_mib,
            "interconnect_gbs_bidir": gpu.link_gb_per_s,
            "tdp_w": gpu.power_w,
            "usd_per_h": gpu.price and gpu.price.usd_per_hour,
        }
        for dtype in ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "int4", "fp4"):
            peak = gpu.peak(dtype)
            pairs[dtype] = None if peak is None else peak / 1e12
        for column, ours in pairs.items():
            stated = float(row[column]) if row[column] and float(row[column]) else None
            assert (ours is None) == (stated is None), (row["id"], column)
            if ours is not None and stated is not None:
                assert math.isclose(ours, stated, rel_tol=1e-9), (row["id"], column)


def test_an_architecture_that_is_a_generation_is_given_as_one() -> None:
    """Or every time would be assumed, and nothing would say why."""
    named = GOOD.replace("vendor: V", "vendor: V\narchitecture: Hopper GH100")
    assert "architecture says hopper" in lint(gpu_from_text(named, "x.yaml")).problems[0]
    assert not lint(gpu_from_text(f"{named}generation: hopper\n", "x.yaml")).problems
