"""Real kernels through torch, on the CPU: what is counted, what is computed, what a run gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from infercost.cli import probe as command
from infercost.cli.calibrations import clock_of
from infercost.costmodel.op import Gather, Gemm
from infercost.costmodel.times.expected import Clock
from infercost.costmodel.times.transfer import Calibrated
from infercost.hardware.calibration_sheet import calibration_from_text, calibration_text
from infercost.models.catalogue import load_model, model_names
from infercost.probes.classes import expected_of
from infercost.probes.kernels import CannotRunError, build, check
from infercost.probes.memory import memory_results
from infercost.probes.rows import ROW_PROBES, rows_op
from infercost.probes.save import calibration_of
from infercost.probes.session import BUDGET_S, Session, StackOf
from infercost.probes.stack import Stack
from infercost.probes.suite import Probe, attend, cpu_suite, gemm
from infercost.probes.target import targets

torch = pytest.importorskip("torch", reason="probing needs torch (extra `probe`)")
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def cpu() -> Any:
    return targets("cpu", None)[0]


# --- counting ---


def counted(call: Callable[[], Any]) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        call()
    return int(counter.get_total_flops())


@pytest.mark.parametrize("shape", [(1, 4096, 11008), (512, 512, 512), (17, 100, 300)])
def test_products_are_counted_as_torch_counts_them(shape: tuple[int, int, int]) -> None:
    rows, inner, outer = shape
    a, w = torch.empty(rows, inner, device="meta"), torch.empty(outer, inner, device="meta")
    assert counted(lambda: torch.nn.functional.linear(a, w)) == gemm(rows, inner, outer, "fp32").matmul_flops


@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 8), (32, 8), (32, 1)])
@pytest.mark.parametrize(("new", "context"), [(64, 64), (1, 300), (16, 16)])
def test_attention_is_counted_as_torch_counts_it(heads: int, kv_heads: int, new: int, context: int) -> None:
    """On meta tensors, where it is decomposed into its products; every pair visited."""
    q = torch.empty(2, heads, new, 64, device="meta")
    k = torch.empty(2, kv_heads, context, 64, device="meta")
    work = attend(2, new, context, heads, kv_heads, 64, "fp32")
    grouped = heads != kv_heads

    def call() -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, k, enable_gqa=grouped)

    assert counted(call) == work.matmul_flops


# --- kernels ---


@pytest.mark.parametrize("probe", cpu_suite("full"), ids=lambda probe: probe.id)
def test_every_kernel_is_right_or_says_why_not(probe: Probe, cpu: Any) -> None:
    why = ""
    try:
        check(probe.work, probe.backend, cpu, torch)
    except CannotRunError as error:
        why = str(error)
    assert "off by" not in why
    assert not why or probe.cls.startswith(("gemm.fp8", "gemm.int8", "gemm.bf16", "attn")), why


@pytest.mark.parametrize(
    ("work", "why"),
    [
        (gemm(16, 64, 64, "tf32"), "tf32 is a GPU's"),
        (gemm(16, 60, 60, "fp8"), "multiples of 16"),
        (gemm(16, 64, 64, "bf16", "int4-g128"), "on CUDA only"),
        (attend(1, 8, 8, 4, 4, 576, "fp32"), "heads of up to 256, not 576"),
        (attend(1, 4, 12, 4, 4, 64, "fp32", causal=True), "a chunk with a past"),
        (Gemm(2, 8, 8, 256, "fp32", 4, batch=2), "batched products"),
        (rows_op("unheard_of", 4, 4, 4, 1, 1), "no kernel is written for"),
    ],
)
def test_what_cannot_run_says_why(work: Any, why: str, cpu: Any) -> None:
    with pytest.raises(CannotRunError, match=why):
        build(work, "flash", cpu, torch)


def test_a_decode_row_sees_every_key(cpu: Any) -> None:
    """is_causal with one query would leave it the first key alone."""
    check(attend(1, 1, 40, 4, 4, 64, "fp32"), "flash", cpu, torch)
    kernel = build(attend(1, 1, 40, 4, 2, 64, "fp32"), "flash", cpu, torch)
    assert torch.allclose(kernel.result().double(), kernel.exact(), atol=1e-4)


# --- a run ---


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """A machine that nothing else runs on and no time runs out on: a launch takes a microsecond, 100 GFLOP/s
    and 10 GB/s; kernels of a name given here take so many times as long. Only the clock is made up."""
    pace: dict[str, float] = {}

    def built(work: Any, *where: Any) -> Any:
        kernel = build(work, *where)
        seconds = 1e-6 + max(work.matmul_flops / 100e9, work.bytes.total / 10e9)
        return kernel._replace(launch=lambda: seconds * pace.get(getattr(work, "name", ""), 1.0))

    def sampler(launches: list[Callable[[], Any]]) -> Callable[[int], float]:
        took = launches[0]()
        seconds = took if isinstance(took, float) else 1e-6  # an add of one element is no kernel of a work
        return lambda number: number * seconds

    monkeypatch.setattr("infercost.probes.session.build", built)
    monkeypatch.setattr("infercost.probes.session.cpu_sampler", sampler)
    monkeypatch.setitem(BUDGET_S["cpu"], "quick", inf)
    return pace


SMALL = [
    Probe("bw.read", "bw.read", rows_op("read", 16384, 2048, 4, 1, 0), "ceiling"),
    Probe("bw.copy", "bw.copy", rows_op("copy", 16384, 2048, 4, 1, 1), "ceiling"),
    Probe("gemm.fp32.256", "gemm.fp32", gemm(256, 256, 256, "fp32"), "ceiling"),
    Probe("gemm.fp32.320", "gemm.fp32", gemm(320, 320, 320, "fp32"), "held"),
    Probe("bw.copy.48m", "bw.copy", rows_op("copy", 8192, 2048, 4, 1, 1), "held"),
    Probe("attn.decode", "attn.decode.flash", attend(1, 1, 2048, 8, 8, 64, "fp32"), "fit", "flash"),
    Probe("kv.gather", "kv.gather", Gather(64, 2048, 8192, True, 4), "fit"),
    Probe("odd", "ptw.odd", rows_op("odd", 4, 4, 4, 1, 1), "report"),
]


@pytest.fixture(scope="module")
def session(cpu: Any) -> Session:
    made = Session(cpu, SMALL, "quick", Clock(cpu.gpu, [], lambda _: []))
    list(made.each())
    return made


def test_a_run_judges_every_probe(session: Session) -> None:
    verdicts = {result.probe.id: result.verdict for result in session.results}
    assert set(verdicts) == {probe.id for probe in SMALL}
    assert verdicts["odd"] == "SKIPPED"
    assert session.ceilings is not None
    assert session.ceilings.flops["fp32"] > 1e8
    for result in session.results:
        if result.timing is not None:
            assert result.floor_s > 0
            assert result.timing.low_s <= result.timing.median_s <= result.timing.high_s
    assert not session.partial


def test_a_run_makes_a_calibration_that_predicts(session: Session, cpu: Any) -> None:
    assert session.clock is not None
    assert session.ceilings is not None
    made = calibration_of(session, session.clock)
    assert calibration_from_text(calibration_text(made), "own.yaml") == made
    assert {"gemm", "pointwise"} <= set(made.families)
    assert made.ceilings["flops.fp32"] == session.ceilings.flops["fp32"]
    clock = Clock(cpu.gpu, [Calibrated(cpu.gpu, made)], lambda _: [])
    expected = clock.expected(gemm(320, 320, 320, "fp32"))
    assert expected.confidence.kind == "calibrated"
    measured = next(r.timing for r in session.results if r.probe.id == "gemm.fp32.320")
    assert measured is not None
    assert 0.3 < expected.seconds / measured.median_s < 3, "of the order of what was measured"


def test_what_was_held_out_is_predicted(cpu: Any, quiet: dict[str, float]) -> None:
    """On a machine of two roofs and a launch time, to a hundredth: they are all that a share is of."""
    clock = Clock(cpu.gpu, [], lambda _: [])
    made = Session(cpu, SMALL, "quick", clock)
    results = {result.probe.id: result for result in made.each()}
    assert made.ceilings is not None
    assert made.ceilings.flops["fp32"] == pytest.approx(2 * 256**3 / (1e-6 + 2 * 256**3 / 100e9))
    own = Clock(cpu.gpu, [Calibrated(cpu.gpu, calibration_of(made, clock))], lambda _: [])
    for name in ("gemm.fp32.320", "bw.copy.48m"):
        one = results[name]
        assert one.timing is not None
        expected = expected_of(one.probe, one.work, own)
        assert expected.confidence.kind == "calibrated"
        assert expected.seconds == pytest.approx(one.timing.median_s, rel=0.01)


def test_an_interrupted_run_keeps_what_it_has(cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Session(cpu, SMALL, "quick", None)
    run = Session._run

    def stop(self: Session, probe: Probe) -> Any:
        if probe.id == "kv.gather":
            raise KeyboardInterrupt
        return run(self, probe)

    monkeypatch.setattr(Session, "_run", stop)
    results = list(made.each())
    assert made.partial
    assert [result.probe.id for result in results] == [
        *("bw.read", "bw.copy", "gemm.fp32.256"),
        *("gemm.fp32.320", "bw.copy.48m", "attn.decode"),
    ]


def test_ceilings_of_an_interrupted_run_are_results(cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Session(cpu, SMALL, "quick", None)
    ceiling = Session._ceiling

    def stop(self: Session, probe: Probe) -> Any:
        if probe.id == "gemm.fp32.256":
            raise KeyboardInterrupt
        return ceiling(self, probe)

    monkeypatch.setattr(Session, "_ceiling", stop)
    assert list(made.each()) == []
    assert made.partial
    assert [result.probe.id for result in made.results] == ["bw.read", "bw.copy"]
    assert made.ceilings is not None


def test_out_of_memory_halves_the_shape_twice_and_then_gives_up(cpu: Any) -> None:
    tiny = cpu._replace(memory_bytes=1 << 20)
    made = Session(tiny, SMALL, "quick", None)
    big = Probe("big", "bw.copy", rows_op("copy", 200, 1024, 4, 1, 1), "fit")
    result = made._time(big, None, 0.1)
    assert result.timing is not None
    # 200 and 100 rows of 1,024 values of 4 bytes, read and written: 1.6 and 0.8 MB, more than half a MiB.
    assert result.work.rows == 50, "halved until half the memory held it"
    huge = Probe("huge", "bw.copy", rows_op("copy", 4000, 1024, 4, 1, 1), "fit")
    assert made._time(huge, None, 0.1).why == "out of memory, even at a quarter of the shape"


@pytest.mark.parametrize("name", model_names())
def test_memory_is_what_was_predicted(name: str, cpu: Any) -> None:
    """Windows, states, latent rows, shared caches; weights of two layers where they are not too large."""
    for tokens in (64, 8192):
        for result in memory_results(load_model(name), cpu, tokens):
            assert result.verdict in ("PASS", "SKIPPED"), result


# --- stacked layers ---


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("qwen3-0.6b", "norms of q and k"),
        ("mamba-130m", "not a plain stack"),
        ("llama-3.1-405b", "more than half of what is free"),
        ("mistral-7b-v0.1", "windows"),
    ],
)
def test_what_is_not_stacked_says_why(name: str, why: str, cpu: Any) -> None:
    with pytest.raises(CannotRunError, match=why):
        Stack(load_model(name), 1, 64, cpu._replace(memory_bytes=16 << 30))


def test_stacked_layers_rotate_as_the_textbook_does(cpu: Any) -> None:
    """x·cos + rotate_half(x)·sin, RoFormer's equation 34 in the half-split layout."""
    model = load_model("llama-3.2-1b")
    stack = Stack(replace(model, layers=model.layers[:1]), 1, 8, cpu)
    cos, sin = stack._angles(8)
    x = torch.randn(1, 2, 8, stack.attention.head_dim)
    left, right = x.chunk(2, -1)
    half = stack.attention.head_dim // 2
    angles = torch.arange(8.0)[:, None] * 10000.0 ** (-torch.arange(half) / half)
    expected = torch.cat(
        (left * angles.cos() - right * angles.sin(), right * angles.cos() + left * angles.sin()), -1
    )
    assert torch.allclose(stack._rotated(x, cos, sin), expected, atol=1e-5)


def test_a_run_with_stacked_layers(cpu: Any) -> None:
    model = load_model("llama-3.2-1b")
    small = replace(model, layers=model.layers[:1])
    made = Session(cpu, SMALL[:3], "quick", None, StackOf(small, 1, 16))
    ids = [result.probe.id for result in made.each() if result.verdict != "SKIPPED"]
    assert ids[-2:] == ["e2e.decode.llama-3.2-1b.1-layers", "e2e.prefill.llama-3.2-1b.1-layers"]


# --- the command ---


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where `--save` keeps constants; clocks that were read from there are forgotten."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    clock_of.cache_clear()
    yield
    clock_of.cache_clear()


@pytest.mark.usefixtures("own_folder")
def test_the_command(run: Run, schema: Callable[[str], Any], tmp_path: Path, quiet: dict[str, float]) -> None:
    """Save, then a second run whose expected times are the first one's, also where it is slower itself."""
    lines = tmp_path / "results.jsonl"
    given = ("probe", "--quick", "--device", "cpu", "--only", "kv.read", "--json")
    first = run(*given, "--save", "--results", str(lines))
    document = json.loads(first.out)
    keys = {
        "device",
        "conditions",
        "ceilings",
        "results",
        "partial",
        "schema",
        "inputs",
        "conventions",
        "sources",
    }
    assert keys <= set(document)
    schema("probe").validate(document)
    row = {"id", "op", "ceiling_floor_s", "expected_s", "measured_s", "ci95_s", "verdict", "why"}
    assert all(row <= set(result) for result in document["results"])
    assert len(lines.read_text(encoding="utf-8").splitlines()) == len(document["results"])
    assert Path(document["saved"]).is_file()
    last = tmp_path / "last.json"
    last.write_text(first.out, encoding="utf-8")

    def again(baseline: Path) -> tuple[Any, Any]:
        clock_of.cache_clear()
        second = run(*given, "--check", str(baseline))
        document = json.loads(second.out)
        assert not document["partial"], second.err
        return second, next(result for result in document["results"] if result["id"] == "kv.read")

    before = next(result for result in document["results"] if result["id"] == "kv.read")
    assert not before["confidence"].startswith("calibrated")
    second, same = again(last)
    assert second.code == 0, second.err
    assert same["confidence"].startswith("calibrated")
    # A saved share has five digits.
    assert same["expected_s"] == pytest.approx(before["measured_s"], rel=1e-4)
    assert same["verdict"] == "PASS"
    quiet["kv_read"] = 4.0
    second, slower = again(last)
    assert slower["measured_s"] == pytest.approx(4 * before["measured_s"])
    assert slower["expected_s"] == same["expected_s"]
    assert slower["verdict"] == "SLOW"
    assert second.code == 1
    assert "before" in second.err


def test_a_doubtful_probe_fails_where_it_is_required(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 1, as of `fit --require`: 2 is wrong use."""
    real = command._run

    def doubted(session: Any, results: str | None) -> None:
        real(session, results)
        session.results[:] = [each._replace(verdict="INCONCLUSIVE") for each in session.results]

    monkeypatch.setattr(command, "_run", doubted)
    given = ("probe", "--quick", "--device", "cpu", "--only", "kv.read")
    assert run(*given).code == 0
    result = run(*given, "--require")
    assert result.code == 1
    assert "inconclusive: " in result.err


def test_the_list(run: Run, schema: Callable[[str], Any]) -> None:
    listed = run("probe", "--list", "--device", "cpu", "--json").json
    schema("probe").validate(listed)
    assert {"id", "class", "part", "work", "matmul_flops", "bytes"} <= set(listed["probes"][0])


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("--device", "cuda:7"), 3, "cuda:7 is not here"),
        (("--device", "tpu"), 2, "--device is cpu, cuda, cuda:N or all"),
        (("--device", "cpu", "--only", "gem9"), 2, "no probe starts so"),
        (("--device", "cpu", "--model", "llama7b"), 2, "did you mean"),
        (("--device", "cpu", "--quick", "-q"), 2, "no one number"),
        (("--device", "cpu", "--quick", "--save-to", "/no/such/place/own.yaml"), 2, "cannot write"),
        (("--device", "cpu", "--quick", "-o", "/no/such/place/own.json"), 2, "cannot write"),
        (
            ("--device", "cpu", "--quick", "--results", "/no/such/place", "--only", "kv.read"),
            2,
            "cannot write",
        ),
    ],
)
def test_errors(args: tuple[str, ...], code: int, said: str, run: Run) -> None:
    result = run("probe", *args)
    assert result.code == code
    assert said in result.err


@pytest.mark.parametrize("ranks", [2, 3])
def test_processes_reduce_and_gather(ranks: int) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)),
            *("-m", "infercost.probes.distributed"),
        ],
        capture_output=True,
        text=True,
        timeout=240,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert {line["op"] for line in lines} == {"all_reduce", "all_gather"}
    for line in lines:
        share = (2 if line["op"] == "all_reduce" else 1) * (ranks - 1) / ranks
        assert line["bus_bytes_per_s"] == pytest.approx(share * line["bytes"] / line["measured_s"])
        assert line["right"]
        assert line["world"] == ranks


def test_without_torchrun_it_says_how() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "RANK"}
    done = subprocess.run(
        [sys.executable, "-m", "infercost.probes.distributed"],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        check=False,
    )
    assert done.returncode == 2
    assert "torchrun --standalone" in done.stderr


def test_row_kernels_move_what_was_counted(cpu: Any) -> None:
    for row in ROW_PROBES.values():
        work = row.work(64, 256, 4)
        assert build(work, "", cpu, torch).moved == work.bytes.total, row.name
        check(work, "", cpu, torch)
