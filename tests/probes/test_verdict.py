"""Verdicts on injected timings, the interval of a median, conditions by getters alone, the suite's counts."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infercost import DeviceError, InputError
from infercost.costmodel.op import Attend, Gather, Gemm, Pointwise
from infercost.costmodel.roofline import floor_s
from infercost.hardware.calibration_sheet import calibration_from_text
from infercost.hardware.catalogue import load_gpu
from infercost.probes.ceilings import Ceilings
from infercost.probes.classes import group_of
from infercost.probes.conditions import CpuWatch, GpuWatch
from infercost.probes.distributed import bus_bandwidth
from infercost.probes.rows import rows_op
from infercost.probes.shapes import halved
from infercost.probes.suite import Probe, attend, chosen, cpu_suite, cuda_suite, gemm
from infercost.probes.target import sheet_of, targets
from infercost.probes.timing import Budget, interval, measure, outliers
from infercost.probes.verdict import FAIL, FAST, INCONCLUSIVE, PASS, RULES, SLOW, Reading, judge

Run = Callable[..., Any]
GPU, CPU = RULES["cuda"], RULES["cpu"]


def reading(seconds: float, half: float = 0.01, drift: float = 0.0) -> Reading:
    return Reading(seconds, seconds * (1 - half), seconds * (1 + half), drift)


@pytest.mark.parametrize(
    ("measured", "expected", "verdict"),
    [(1.2, 1.2, PASS), (1.29, 1.2, PASS), (1.4, 1.2, SLOW), (1.05, 1.2, FAST), (1.2, None, PASS)],
)
def test_the_soft_band(measured: float, expected: float | None, verdict: str) -> None:
    assert judge(reading(measured), 1.0, expected, 0.10, 0.0, GPU).verdict == verdict


def test_three_standard_deviations_widen_the_band() -> None:
    assert judge(reading(1.4), 1.0, 1.2, 0.10, 0.0, GPU).verdict == SLOW
    assert judge(reading(1.4), 1.0, 1.2, 0.10, 0.06, GPU).verdict == PASS


@pytest.mark.parametrize("rules", [GPU, CPU])
def test_nobody_beats_the_floor(rules: Any) -> None:
    broken = judge(reading(0.8), 1.0, 0.8, 0.25, 0.0, rules)
    assert broken.verdict == FAIL
    assert broken.why.startswith("floor_broken")
    assert judge(reading(0.97), 1.0, None, 0.25, 0.0, rules).verdict == PASS


def test_the_floor_goes_first_under_clean_conditions_only() -> None:
    wide = Reading(0.6, 0.5, 0.7)
    assert judge(wide, 1.0, None, 0.1, 0.0, GPU).verdict == FAIL
    assert judge(wide, 1.0, None, 0.1, 0.0, GPU, "throttled: power brake").verdict == INCONCLUSIVE
    assert judge(reading(1.0), 1.0, 1.0, 0.1, 0.0, GPU, "busy").verdict == INCONCLUSIVE
    assert judge(reading(0.6, drift=0.5), 1.0, None, 0.1, 0.0, GPU).verdict == INCONCLUSIVE


def test_wide_and_drifting_readings_say_nothing() -> None:
    assert judge(reading(1.2, half=0.06), 1.0, 1.2, 0.1, 0.0, GPU).verdict == INCONCLUSIVE
    assert judge(reading(1.2, half=0.06), 1.0, 1.2, 0.1, 0.0, CPU).verdict == PASS
    assert judge(reading(1.2, drift=0.2), 1.0, 1.2, 0.1, 0.0, CPU).verdict == INCONCLUSIVE


def test_what_the_floor_is_there_to_catch() -> None:
    """A count twice too high, a buffer that sits in a cache, a ceiling of another type."""
    ceilings = Ceilings({"fp32": 100e9, "bf16": 2e9}, {"read": 20e9}, 3e-6)
    sheet = ceilings.sheet(load_gpu("cpu"))
    right = gemm(1024, 1024, 1024, "fp32")
    measured = right.matmul_flops / 95e9
    assert judge(reading(measured), floor_s(right, sheet), None, 0.25, 0.0, CPU).verdict == PASS
    twice = gemm(2048, 1024, 1024, "fp32")
    assert judge(reading(measured), floor_s(twice, sheet), None, 0.25, 0.0, CPU).verdict == FAIL
    stream = rows_op("read", 4096, 4096, 4, 1, 0)
    cached = stream.bytes.total / 40e9
    assert judge(reading(cached), floor_s(stream, sheet), None, 0.25, 0.0, CPU).verdict == FAIL
    mixed = gemm(1024, 1024, 1024, "bf16")
    assert judge(reading(measured), floor_s(mixed, sheet), None, 0.25, 0.0, CPU).verdict == FAIL


# --- timing ---


def test_the_interval_holds_the_median_nineteen_times_in_twenty() -> None:
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(400):
        low, high = interval(rng.lognormal(0, 0.5, 15))
        inside += low <= 1.0 <= high
    assert inside >= 0.93 * 400
    assert interval(np.array([3.0, 1.0, 2.0])) == (1.0, 3.0)


def test_outliers_are_counted_and_stay() -> None:
    samples = np.array([1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 9.0])
    assert outliers(samples) == 1
    assert outliers(np.ones(9)) == 0


class Clock:
    """A device whose launches take a known time."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.launches = seconds, 0

    def __call__(self, launches: int) -> float:
        self.launches += launches
        return launches * self.seconds


def test_a_sample_is_long_enough_and_sampling_stops_when_it_is_sure() -> None:
    device = Clock(1e-4)
    timing = measure(device, Budget(10))
    assert timing.median_s == pytest.approx(1e-4)
    assert timing.launches == 200
    assert timing.n == 7
    assert timing.high_s == timing.low_s


def test_a_spent_budget_stops_after_three_samples() -> None:
    assert measure(Clock(1e-3), Budget(-1)).n == 3


# --- conditions ---


class FakeNvml:
    """NVML whose getters answer and whose every setter raises."""

    NVML_CLOCK_SM = 1

    def __init__(self, reasons: int = 0, others: int = 0) -> None:
        self.reasons, self.others = reasons, others

    def nvmlInit(self) -> None:  # noqa: N802 (the name is NVML's own, and the probe calls it)
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("nvmlDeviceSet") or "Reset" in name:
            raise AssertionError(f"{name} was asked for: a probe never writes")
        answers: dict[str, Any] = {
            "nvmlDeviceGetHandleByIndex": lambda i: i,
            "nvmlDeviceGetClockInfo": lambda h, kind: 1980,
            "nvmlDeviceGetTemperature": lambda h, kind: 61,
            "nvmlDeviceGetPowerUsage": lambda h: 612_000,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda h: self.reasons,
            "nvmlDeviceGetComputeRunningProcesses": lambda h: [type("P", (), {"pid": 7})] * (1 + self.others),
            "nvmlDeviceGetMigMode": lambda h: (0, 0),
            "nvmlDeviceGetEccMode": lambda h: (1, 1),
        }
        if name not in answers:
            raise AttributeError(name)
        return answers[name]


@pytest.mark.parametrize(
    ("reasons", "others", "verdict", "trouble"),
    [
        (0, 0, "clean", ""),
        (0x1, 0, "clean", ""),
        (0x4, 0, "power_capped", ""),
        (0x40, 0, "throttled", "thermal slowdown (hardware)"),
        (0x8 | 0x4, 0, "throttled", "hardware slowdown"),
        (0, 2, "busy", "2 other processes"),
    ],
)
def test_conditions_by_getters_alone(reasons: int, others: int, verdict: str, trouble: str) -> None:
    with GpuWatch(0, FakeNvml(reasons, others)) as watch:
        seen = watch.conditions()
    assert seen.verdict == verdict
    assert trouble in seen.trouble
    assert (seen.sm_mhz[1], seen.temperature_c, seen.power_w, seen.ecc) == (1980, 61, 612, True)


def test_without_nvml_nothing_is_claimed() -> None:
    with GpuWatch(0, None) as watch:
        assert watch.conditions().verdict == "unknown"
    with CpuWatch() as cpu:
        assert cpu.conditions().verdict == "clean"


def test_the_module_names_no_setter() -> None:
    text = (Path(__file__).parents[2] / "probes" / "conditions.py").read_text(encoding="utf-8")
    assert "nvmlDeviceSet" not in text
    assert "Reset" not in text


# --- the suite ---


def test_counts_by_hand() -> None:
    """Three of each kind: FLOPs and bytes as the texts have them."""
    assert (gemm(16, 4096, 14336, "bf16").matmul_flops, gemm(1, 8, 4, "fp32").bytes.total) == (
        2 * 16 * 4096 * 14336,
        4 * (8 + 32 + 4),
    )
    assert gemm(16, 4096, 4096, "fp8").bytes.total == 4096 * 4096 + 2 * 16 * 8192
    full = attend(2, 128, 128, 32, 8, 64, "bf16")
    assert full.matmul_flops == 4 * 2 * 32 * 128 * 128 * 64
    assert full.bytes.total == 2 * 2 * 128 * (32 * 64 * 2 + 8 * 64 * 2)
    past = attend(1, 4, 12, 8, 8, 64, "fp32", causal=True)
    assert past.matmul_flops == 4 * 8 * (9 + 10 + 11 + 12) * 64, "each query sees the past, too"
    causal = attend(1, 512, 512, 8, 8, 64, "fp32", causal=True)
    assert causal.matmul_flops == 4 * 8 * (512 * 513 // 2) * 64
    step = attend(4, 1, 1000, 32, 8, 128, "bf16")
    assert step.bytes.total == 4 * 1000 * 2 * 8 * 128 * 2 + 2 * 4 * 32 * 128 * 2
    assert rows_op("copy", 10, 20, 4, 1, 1).bytes.total == 10 * 20 * 8
    assert rows_op("triad", 10, 20, 2, 2, 1).bytes.total == 10 * 20 * 6
    assert rows_op("read", 10, 20, 4, 1, 0).bytes.total == 800
    assert Gather(5, 16, 64, True, 4).bytes.total == 5 * (64 + 64)


@pytest.mark.parametrize("mode", ["quick", "default", "full"])
@pytest.mark.parametrize("make", [cpu_suite, cuda_suite])
def test_every_probe_has_a_name_a_class_and_a_place(make: Any, mode: str) -> None:
    probes = make(mode)
    assert len({probe.id for probe in probes}) == len(probes)
    assert any(probe.part == "ceiling" and probe.cls.startswith("gemm") for probe in probes)
    for probe in probes:
        assert probe.work.bytes.total > 0
        assert 0 < probe.band("cpu") <= 0.3
        assert probe.op.bytes.total == probe.work.bytes.total
        if not isinstance(probe.work, Attend) or not probe.work.v_in_k:
            assert group_of(probe, probe.work, load_gpu("h100"))[0] in (
                "gemm",
                "prefill",
                "decode",
                "pointwise",
            )


def test_only_keeps_ceilings_and_refuses_what_is_not_there() -> None:
    kept = chosen(cpu_suite("quick"), ("attn.decode",))
    assert {probe.cls.split(".")[0] for probe in kept if probe.part != "ceiling"} == {"attn"}
    assert any(probe.part == "ceiling" for probe in kept)
    with pytest.raises(InputError, match="no probe starts so; there are attn, bw, gemm, kv, lin, ptw"):
        chosen(cpu_suite("quick"), ("gem9",))


def test_halving_halves() -> None:
    for probe in [*cpu_suite("full"), *cuda_suite("full")]:
        smaller = halved(probe.work)
        assert smaller.bytes.total < probe.work.bytes.total, probe.id
        assert type(smaller) is type(probe.work)
    one = Pointwise("copy", 8, 1, 1, 0, rows=1)
    assert halved(one) == one


@pytest.mark.parametrize(
    ("name", "sheet"),
    [
        ("NVIDIA H200", "h200-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA A100-SXM4-80GB", "a100-80g-sxm"),
        ("NVIDIA A100 80GB PCIe", "a100-80g-pcie"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-bw"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 3080 Ti", "rtx3080ti"),
        ("NVIDIA A100-SXM4-40GB", "a100-40g-sxm"),
        ("NVIDIA GH200 480GB", "gh200-96g"),
        ("NVIDIA GH200 144G HBM3e", "gh200-144g"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA H200 NVL", "h200-nvl"),
        ("NVIDIA H20", "h20"),
        ("AMD Instinct MI300X", "mi300x"),
    ],
)
def test_the_sheet_of_a_card(name: str, sheet: str) -> None:
    assert sheet_of(name).name == sheet


def test_a_card_of_no_sheet_is_named() -> None:
    with pytest.raises(InputError, match="no sheet is of 'Quadro K420'; say which is nearest with --gpu"):
        sheet_of("Quadro K420")


def test_ceilings_take_the_place_of_the_datasheet() -> None:
    sheet = Ceilings({"fp32": 50e9}, {"read": 9e9, "triad": 10e9}, 1e-6).sheet(load_gpu("cpu"))
    assert sheet.peak("fp32") == 50e9
    assert sheet.bandwidth == 10e9


def test_bus_bandwidth_by_hand() -> None:
    """nccl-tests: 2(n-1)/n of the buffer for all-reduce, (n-1)/n for all-gather."""
    from infercost.costmodel.op import Collective

    assert bus_bandwidth(Collective("all_reduce", 800, 4), 2.0) == 800 * 1.5 / 2
    assert bus_bandwidth(Collective("all_gather", 800, 4), 2.0) == 800 * 0.75 / 2


def test_without_torch_exit_3_with_the_line_that_installs_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DeviceError, match=r'pip install "infercost\[probe\]"'):
        targets("cpu", None)
    result = run("probe", "--quick")
    assert result.code == 3
    assert "pip install" in result.err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--quick", "--full"), "choose one"),
        (("--check", "absent.json"), "cannot read absent.json"),
        (("--check", str(Path(__file__))), "is not a document of `infercost probe --json`"),
    ],
)
def test_wrong_use_is_one_line(args: tuple[str, ...], said: str, run: Run) -> None:
    result = run("probe", *args)
    assert result.code == 2
    assert said in result.err
    assert len(result.err.strip().splitlines()) == 1


WRITER = """
import sys
from pathlib import Path
from infercost.cli.output.report import write_file
from infercost.hardware.calibration_sheet import calibration_text, shipped
texts = [calibration_text(shipped(name)) for name in ("h20", "h100-sxm")]
print("ready", flush=True)
while True:
    for text in texts:
        write_file(Path(sys.argv[1]), text)
"""


def test_killed_at_any_moment_the_old_file_or_the_new_one_is_there(tmp_path: Path) -> None:
    target = tmp_path / "own.yaml"
    for delay in (0.0, 0.004, 0.011, 0.023, 0.047):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(target)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            time.sleep(0.02 + delay)
            writer.send_signal(signal.SIGKILL)
        found = calibration_from_text(target.read_text(encoding="utf-8"), "own.yaml")
        assert found.device in ("h20", "h100-sxm")


def test_gemm_and_probe_say_what_they_are() -> None:
    probe = Probe("x", "gemm.fp32", gemm(2, 4, 8, "fp32"))
    assert isinstance(probe.work, Gemm)
    assert group_of(probe, probe.work, load_gpu("cpu"))[1].dtype == "fp32"
