"""Row kernels from a probe to `ops`: the group that a run saves is the group that the cost model asks for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infercost.cli.calibrations import clock_of
from infercost.costmodel.op import Gather, Pointwise
from infercost.costmodel.times.expected import ROW_OPS, Clock
from infercost.hardware.calibration import Calibration
from infercost.hardware.calibration_sheet import calibration_text
from infercost.hardware.catalogue import load_gpu
from infercost.hardware.spec import Gpu
from infercost.probes import save
from infercost.probes.ceilings import Ceilings
from infercost.probes.result import Result
from infercost.probes.rows import ROW_PROBES, name_of, row_probe
from infercost.probes.suite import BANDS, Probe, cpu_suite, cuda_suite, suite
from infercost.probes.target import Target
from infercost.probes.timing import Timing
from infercost.probes.verdict import PASS


def probed(kind: str, gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> Calibration:
    """What a run saves whose every probe reached half the sheet's bandwidth: no kernel runs."""
    monkeypatch.setattr(save, "software", lambda _: {"torch": "2.0"})
    target = Target(kind, kind, 0, kind, gpu, 1e6, 1 << 34)
    ceilings = Ceilings({}, {"copy": gpu.bandwidth}, 1e-6)
    every = [
        timed(probe, 1e-6 + 2 * probe.work.bytes.total / gpu.bandwidth) for probe in suite(target, "quick")
    ]
    run: Any = SimpleNamespace(target=target, ceilings=ceilings, results=every, mode="quick", partial=False)
    run.conditions, run.roof = None, lambda _: "memory"
    return save.calibration_of(run, Clock(gpu, [], lambda _: []))


def timed(probe: Probe, seconds: float) -> Result:
    timing = Timing(seconds, seconds, seconds, 9, 0, 1)
    return Result(probe, probe.work, 0.0, None, timing, 0.0, PASS, "")


@pytest.mark.parametrize("recipe", ["bf16", "fp32"])
def test_ops_takes_the_row_kernels_of_a_probe_of_this_cpu(
    recipe: str, ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were saved as fp32 and asked for as fp16: `~34 %, transferred` from the CPU itself."""
    own = tmp_path / "own.yaml"
    own.write_text(calibration_text(probed("cpu", load_gpu("cpu"), monkeypatch)), encoding="utf-8")
    clock_of.cache_clear()
    given = ("--model", "llama-3.2-1b", "--gpu", "cpu", "--weights", recipe, "--seq", "512")
    got = ask("ops", *given, "--calibration", str(own))
    sure = {op["name"]: op["confidence"]["kind"] for op in got["ops"] if op["confidence"]}
    assert {sure[name] for name in ("embedding", "rope", "silu_mul")} == {"calibrated"}


ASKED = {op for _, op in ROW_OPS} | {"add", "emb", "softmax"}
"""Groups of row kernels that the cost model asks for: by an op's name, and those of its own."""
NOT_MEASURED = {
    "cpu": {
        "append": "its launch is in the attention's time, and so are its constants",
        "input_layernorm": "torch's rms_norm on a CPU is several kernels: shown, not fitted",
        "post_attention_layernorm": "torch has no one kernel of the residual add and the norm",
        "softmax": "a row of logits; scores of eager attention are shorter",
    },
    "cuda": {
        "append": "its launch is in the attention's time, and so are its constants",
        "post_attention_layernorm": "torch has no one kernel of the residual add and the norm",
        "softmax": "a row of logits; scores of eager attention are shorter",
    },
}


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_every_row_op_of_the_cost_model_is_measured_or_listed(kind: str) -> None:
    """By the parts that a calibration is made of: ceilings, and those to be fitted."""
    probes = cpu_suite("quick") if kind == "cpu" else cuda_suite("quick")
    fitted = {
        name_of(probe.work)
        for probe in probes
        if probe.part in ("ceiling", "fit") and isinstance(probe.work, (Pointwise, Gather))
    }
    measured = {group for name in fitted for group in ROW_PROBES[name].groups}
    assert ASKED - measured == set(NOT_MEASURED[kind])


def test_groups_of_row_kernels_keep_their_names() -> None:
    """Calibrations that were saved, and those that ship, are found by them."""
    kept = {
        "copy": ("add", "attn_rope"),
        "norm": ("input_layernorm",),
        "mul": ("mlp_act",),
        "gather": ("emb",),
        "kv_append": ("append",),
    }
    for name in ("kv_read", "read", "gather", "kv_append", "write", "copy", "triad", "norm", "silu", "mul"):
        assert ROW_PROBES[name].groups == (name, *kept.get(name, ()))


def test_a_row_probe_has_a_name_of_its_own_and_a_band() -> None:
    with pytest.raises(ValueError, match="two row probes are called norm"):
        row_probe("ptw.norm", reads=1, writes=1)(lambda x, torch: (len, len, ()))
    for probe in [*cpu_suite("full"), *cuda_suite("full")]:
        assert probe.cls.startswith(tuple(BANDS)), "a class of no family would take the pointwise band"
