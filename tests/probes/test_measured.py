"""Measured files into batches, errors in bounded memory, fits, and what a refit must prove."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infercost import InputError
from infercost.costmodel.op import Gemm
from infercost.costmodel.roofline import floor_s
from infercost.costmodel.times.device import device
from infercost.costmodel.times.gemm import GEMM, gemm_s
from infercost.costmodel.times.transfer import Calibrated
from infercost.hardware.calibration import Calibration, Group, Key, Spread
from infercost.hardware.catalogue import load_gpu
from infercost.probes.calibrate import Weight, cross_fit, cross_fit_all, default_keys, folds_of
from infercost.probes.errors import Errors, grade
from infercost.probes.fit import fit, fold_of
from infercost.probes.measured import batches, gpu_of
from infercost.probes.measured_rows import GEMM_TYPES, MOE_TYPES, QUANTISER_TOKEN_BYTES
from infercost.probes.moe_routing import balanced, power_law
from infercost.probes.protocols import cross_validated, gpu_left_out
from infercost.probes.refit import refit
from infercost.probes.validate import gathered, predict, validate

H100 = load_gpu("h100")
TRUE = GEMM.complete(
    {
        "launch_us": 3.0,
        "mma_share": 0.7,
        "feed_share": 0.02,
        "wave_us": 0.6,
        "memory_share": 0.78,
        "step_ns": 150.0,
        "split_us": 3.0,
        "overlap": 3.0,
    }
)
HEADER = "source,gpu,framework,dtype,m,n,k,time_us\n"
SHAPES = [(n, k) for n in (512, 2048, 4096, 8192, 14336) for k in (512, 4096, 8192)]
ROWS = (1, 2, 8, 16, 33, 64, 128, 257, 512, 1024, 4096, 8192)


def planted(
    path: Path, gpu: str = "h100_sxm", noise: float = 0.0, rows: Any = ROWS, stack: str = "cold"
) -> Path:
    """GEMM rows whose times are the formula's own, with constants that no calibration has."""
    rng = np.random.default_rng(0)
    sheet = gpu_of(gpu)
    assert sheet is not None
    lines = [HEADER]
    for n, k in SHAPES:
        for m in rows:
            time = gemm_s(Gemm(m, k, n, 2 * n * k, "bf16"), device(sheet), TRUE) * 1e6
            lines.append(f"test,{gpu},{stack},bf16,{m},{n},{k},{time * np.exp(rng.normal(0, noise)):.6g}\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_a_file_in_any_chunks_is_the_same(tmp_path: Path) -> None:
    path = str(planted(tmp_path / "gemm.csv"))
    whole = list(batches(path, Counter()))
    parts = list(batches(path, Counter(), chunk_rows=17))
    assert len(whole) == 1 < len(parts)
    assert sorted(whole[0].time_s) == sorted(np.concatenate([part.time_s for part in parts]))
    assert sorted(np.concatenate([part.line for part in parts])) == list(
        range(2, len(SHAPES) * len(ROWS) + 2)
    )
    one, many = validate([path], lambda _: []), Errors()
    for part in parts:
        many.add(predict(part, GEMM.complete({})), part.time_s)
    assert one.pooled("table")[("gemm",)][1].mape == pytest.approx(many.mape)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("x,h100_sxm,vllm-1-eager,bf16,1,64,64,9", "without a CUDA graph"),
        ("x,h100_sxm,vllm-1,bf99,1,64,64,9", "a type not modelled (bf99)"),
        ("x,h100_sxm,vllm-1,bf16,1,64,64,-9", "whole positive number"),
        ("x,h100_sxm,vllm-1,bf16,one,64,64,9", "whole positive number"),
        ("x,h100_sxm,vllm-1,bf16,1,64,64,inf", "whole positive number"),
        ("x,h100_sxm,vllm-1,bf16,0,64,64,9", "whole positive number"),
        ("x,h100_sxm,vllm-1,bf16,1.5,64,64,9", "whole positive number"),
        ("x,h100_sxm,vllm-1,bf16,1,1e300,64,9", "whole positive number"),
        ("x,x1000,vllm-1,bf16,1,64,64,9", "no sheet for the GPU 'x1000'"),
        ("x,../../etc/passwd,vllm-1,bf16,1,64,64,9", "no sheet for the GPU"),
        ("x,sheet.yaml,vllm-1,bf16,1,64,64,9", "no sheet for the GPU"),
    ],
)
def test_what_is_left_out_is_counted(line: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "gemm.csv"
    path.write_text(HEADER + "x,h100_sxm,vllm-1,bf16,1,64,64,9\n" + line + "\n", encoding="utf-8")
    excluded: Counter[str] = Counter()
    assert sum(len(batch.time_s) for batch in batches(str(path), excluded)) == 1
    assert list(excluded.values()) == [1]
    assert reason in next(iter(excluded))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a CSV file"),
        ("a,b\n1,2\n", "of no known kind"),
        ("\x00\xff\xfe", "not a CSV file|not UTF-8 text|no known kind"),
    ],
)
def test_a_file_of_something_else(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=said):
        list(batches(str(path), Counter()))
    with pytest.raises(InputError, match="cannot read"):
        list(batches(str(tmp_path / "absent.csv"), Counter()))


ATTENTION = (
    "gpu,framework,kernel,dtype,kv_dtype,batch,q_len,kv_len,q_heads,kv_heads,head_dim,causal,window,time_us\n"
)
MOE = "gpu,framework,kernel,dtype,num_tokens,hidden,inter,topk,experts,moe_tp,moe_ep,distribution,time_us\n"
OTHERS = {
    "attention": (ATTENTION, "h100,vllm-1,fa3,bf16,bf16,{},9", "1,64,64,8,2,128,1,0"),
    "mla": (
        "gpu,framework,phase,kernel,dtype,kv_dtype,batch,q_len,kv_len,heads,time_us\n",
        "h100,s,{},9",
        "decode,k,bf16,bf16,1,1,64,16",
    ),
    "moe": (MOE, "h100,vllm-1,k,bf16,{},9", "1,512,512,2,8,1,1,balanced"),
    "collective": ("gpu,framework,op,bytes,world,time_us\n", "h100,nccl-2/nccl,{},9", "all_reduce,1024,2"),
    "other": ("gpu,framework,op,dtype,rows,cols,note,time_us\n", "h100,s,{},9", "add,fp16,8,8,"),
}


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        *(
            ("attention", text)
            for text in ("1,65,64,8,2,128,1,0", "1,64,64,8,3,128,1,0", "0,64,64,8,2,128,1,0")
        ),
        *(("attention", text) for text in ("1,0,64,8,2,128,1,0", "1,64,64,8,0,128,1,0", "1,64,64,8,2,0,1,0")),
        *(("attention", text) for text in ("1,64,64,8,2,128,2,0", "1,64,64,8,2,128,1,-1")),
        *(("mla", text) for text in ("banana,k,bf16,bf16,1,1,64,16", "prefill,k,bf16,bf16,1,65,64,16")),
        *(("moe", text) for text in ("1,512,512,9,8,1,1,balanced", "1,512,512,2,8,1,16,balanced")),
        *(
            ("moe", f"64,512,512,2,8,1,1,{text}")
            for text in ("banana", "power_law_-3", "power_law_nan", "power_law_inf")
        ),
        *(("moe", text) for text in ("1,512,512,2,0,1,1,balanced", "1,512,512,2,8,0,1,balanced")),
        *(("collective", text) for text in ("all_reduce,1024,1", "all_reduce,0,2", "all_reduce,1024,2.5")),
        *(("other", text) for text in ("add,fp16,0,8,", "add,fp16,8,0,", "computescale,fp8,8,8,")),
    ],
)
def test_shapes_that_cannot_be_are_left_out(kind: str, shape: str, tmp_path: Path) -> None:
    header, line, good = OTHERS[kind]
    path = tmp_path / "x.csv"
    path.write_text(header + line.format(good) + "\n" + line.format(shape) + "\n", encoding="utf-8")
    found = validate([str(path)], lambda _: [])
    assert sum(line.expected.rows for line in found.lines()) == 1
    assert sum(found.excluded.values()) == 1


@pytest.mark.parametrize("alpha", ["1.0", "2", "2.0", "1.01", "0.5", "3.9"])
def test_every_skew_has_a_time(alpha: str, tmp_path: Path) -> None:
    header, line, _ = OTHERS["moe"]
    path = tmp_path / "x.csv"
    path.write_text(header + line.format(f"64,512,512,2,8,1,4,power_law_{alpha}") + "\n", encoding="utf-8")
    assert validate([str(path)], lambda _: []).lines()[0].expected.rows == 1


def test_lines_are_counted_past_blank_ones_and_extra_columns_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    rows = "gpu,framework,dtype,m,n,k,time_us,extra\n\n\nh100,v,bf16,8192,8192,8192,1,hello\n"
    path.write_text(rows, encoding="utf-8")
    found = validate([str(path)], lambda _: [])
    assert [each.line for each in found.flagged] == [4]


@pytest.mark.parametrize(
    ("name", "sheet"),
    [
        ("h100_sxm", "h100-sxm"),
        ("h100_dgx", "h100-sxm"),
        ("rtx_pro_6000_server", "rtx-pro-6000-bw"),
        ("b300_sxm", "b300"),
        ("a40_pairwise_nvlink", "a40"),
        ("B60", "arc-pro-b60"),
        ("mi300x", "mi300x"),
    ],
)
def test_names_of_boxes_and_form_factors(name: str, sheet: str) -> None:
    gpu = gpu_of(name)
    assert gpu is not None
    assert gpu.name == sheet


def test_the_gpu_can_be_said(tmp_path: Path) -> None:
    path = tmp_path / "gemm.csv"
    path.write_text(HEADER + "x,my-card,vllm-1,bf16,1,64,64,9\n", encoding="utf-8")
    assert [batch.gpu.name for batch in batches(str(path), Counter(), load_gpu("l4"))] == ["l4"]


# --- errors ---


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=200))
def test_errors_in_bounded_memory_are_those_of_numpy(ratios: list[float]) -> None:
    errors, values = Errors(), np.array(ratios)
    for half in (values[::2], values[1::2]):
        part = Errors()
        part.add(half, np.ones(len(half)))
        errors += part
    ape = np.abs(values - 1)
    assert errors.rows == len(values)
    assert errors.mape == pytest.approx(ape.mean())
    exact = float(np.quantile(ape, 0.5, method="inverted_cdf"))
    assert errors.quantile(0.5) == pytest.approx(exact, rel=0.002, abs=0.002)


def test_bias_has_a_sign_and_grades_have_letters() -> None:
    errors = Errors()
    errors.add(np.array([0.5, 0.5, 3.0]), np.ones(3))
    assert errors.bias == pytest.approx(-0.5, abs=0.001)
    assert [grade(each) for each in (0.01, 0.05, 0.1, 0.2, 0.4, 0.9)] == ["A", "A", "B", "C", "D", "E"]
    assert [grade(each) for each in (0.0501, 0.1001, 0.2001, 0.4001)] == ["B", "C", "D", "E"]


# --- fits ---


def test_a_fit_finds_the_planted_times(tmp_path: Path) -> None:
    """Constants may trade against each other; what they predict may not be off."""
    batch = next(iter(gathered([str(planted(tmp_path / "g.csv"))], Counter())))
    cross = cross_fit(batch)
    assert cross.held_out
    assert np.median(np.abs(predict(batch, GEMM.complete(cross.fitted.params)) / batch.time_s - 1)) < 0.01
    assert cross.error.median < 0.02
    again = cross_fit(batch)
    assert again.fitted == cross.fitted, "deterministic"


def test_a_fit_needs_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(InputError, match=r'pip install "infercost\[fit\]"'):
        fit(GEMM, lambda p: np.ones(3), np.ones(3), ("wave",))


def test_folds_are_whole_shape_families(tmp_path: Path) -> None:
    batch = next(iter(gathered([str(planted(tmp_path / "g.csv"))], Counter())))
    folds = folds_of(batch)
    for name in set(batch.shape):
        assert len(set(folds[batch.shape == name])) == 1
    # SHA-256 of "infercost:4096/4096", as a number, modulo 5: the same wherever it is computed.
    assert [fold_of(shape) for shape in ("4096/4096", "512/8192", "512/512")] == [0, 3, 2]


def test_the_default_is_the_engine_most_people_run_where_it_is_well_predicted() -> None:
    vllm, sglang, poor = (
        Key("vllm-9", dtype="bf16"),
        Key("sglang-9", dtype="bf16"),
        Key("trtllm-9", dtype="fp8"),
    )
    encoder = Key("vllm-9", "encoder:x", dtype="fp8")
    good = {
        vllm: Weight(100, 0.1),
        sglang: Weight(900, 0.05),
        poor: Weight(90, 0.5),
        encoder: Weight(90, 0.1),
    }
    assert default_keys(good) == {vllm}, "what is half wrong, or an encoder's, stands for nothing"
    assert default_keys({**good, vllm: Weight(100, 0.3)}) == {sglang}
    assert default_keys({**good, vllm: Weight(10, 0.1)}) == {sglang}
    assert default_keys({**good, vllm: Weight(100, 0.1, slow=4.0)}) == {sglang}
    assert default_keys({vllm: Weight(100, 0.1, slow=4.0)}) == {vllm}
    assert default_keys({vllm: Weight(100, 0.1, shapes=1)}) == set()


# --- refits ---


def shipped_only(gpu: Any) -> list[Calibrated]:
    params = tuple((name, value) for name, value in TRUE.items() if name in GEMM.forms["step"])
    group = Group(Key("cold", dtype="bf16"), "step", params, 99, Spread(0.05, 0.05, 0.1), default=True)
    return [Calibrated(H100, Calibration("h100-sxm", "t", "2026-01-01", families={"gemm": (group,)}))]


def test_a_refit_is_kept_where_it_helps(tmp_path: Path) -> None:
    found = list(gathered([str(planted(tmp_path / "g.csv", noise=0.02))], Counter()))
    tried, made = refit(found, lambda _: [], "mine", "2026-01-01")
    assert [each.accepted for each in tried] == [True]
    assert tried[0].after.mape < 0.05 < tried[0].before.mape
    assert made is not None
    assert made.device == "h100-sxm"
    again = validate([str(tmp_path / "g.csv")], lambda _: [Calibrated(H100, made)])
    assert again.lines()[0].confidence.kind == "calibrated"
    assert again.lines()[0].expected.mape < 0.03


def test_a_refit_from_few_points_is_refused_where_it_does_not_help(tmp_path: Path) -> None:
    """Ten rows of pure noise around what the constants at hand predict already."""
    path = planted(tmp_path / "g.csv", noise=0.03, rows=(64,))
    found = list(gathered([str(path)], Counter()))
    tried, made = refit(found, shipped_only, "mine", "2026-01-01")
    assert [each.accepted for each in tried] == [False]
    assert made is None
    assert tried[0].group.form == "few"


def test_a_refit_from_few_points_is_kept_where_it_does(tmp_path: Path) -> None:
    """The same card, a third slower in everything: three constants say so."""
    path = planted(tmp_path / "g.csv", rows=(16, 2048))
    text = path.read_text(encoding="utf-8").splitlines()
    slow = [text[0]] + [
        line.rsplit(",", 1)[0] + f",{1.35 * float(line.rsplit(',', 1)[1]):.6g}" for line in text[1:]
    ]
    path.write_text("\n".join(slow) + "\n", encoding="utf-8")
    tried, made = refit(list(gathered([str(path)], Counter())), shipped_only, "mine", "2026-01-01")
    assert [each.accepted for each in tried] == [True]
    assert made is not None
    assert tried[0].after.mape < 0.5 * tried[0].before.mape
    assert set(dict(made.groups("gemm")[0].params)) >= {"launch_us", "mma_share", "memory_share"}


def test_protocols_hold_out_shapes_and_gpus(tmp_path: Path) -> None:
    first = str(planted(tmp_path / "a.csv", noise=0.02))
    second = str(planted(tmp_path / "b.csv", gpu="h200_sxm", noise=0.02))
    crossed = cross_validated([first])
    assert crossed.lines()[0].expected.mape < 0.06
    lent = gpu_left_out([first, second])
    assert {(line.gpu, line.confidence.kind, line.confidence.gpu) for line in lent.lines()} == {
        ("h100-sxm", "transferred", "h200-sxm"),
        ("h200-sxm", "transferred", "h100-sxm"),
    }
    assert all(line.expected.mape < 0.1 for line in lent.lines())


def test_one_worker_or_two_give_the_same(tmp_path: Path) -> None:
    groups = list(gathered([str(planted(tmp_path / "a.csv"))], Counter()))
    groups += list(gathered([str(planted(tmp_path / "b.csv", stack="other"))], Counter()))
    one, two = cross_fit_all(groups, 1), cross_fit_all(groups, 2)
    assert [c.fitted for c in one] == [c.fitted for c in two]


def test_rows_that_beat_physics_are_named(tmp_path: Path) -> None:
    work = Gemm(8192, 8192, 8192, 2 * 8192 * 8192, "bf16")
    path = tmp_path / "g.csv"
    fast = 0.5e6 * floor_s(work, H100)
    path.write_text(
        HEADER + f"x,h100_sxm,cold,bf16,8192,8192,8192,{fast}\nx,h100_sxm,cold,bf16,1,64,64,0.001\n",
        encoding="utf-8",
    )
    found = validate([str(path)], lambda _: [])
    assert found.flagged_rows == 2
    assert [(each.line, each.fits_l2) for each in found.flagged] == [(2, False), (3, True)]


def test_two_per_cent_are_what_a_clock_may_be_off_by(tmp_path: Path) -> None:
    """8,192 cubed twice over 989.4 TFLOP/s, which is what an H100's bf16 peak is: 1.1113 ms."""
    floor_us = 2 * 8192**3 / 989.4e12 * 1e6
    path = tmp_path / "g.csv"
    shares = (0.95, 0.975, 0.985, 1.0)
    rows = "".join(f"x,h100_sxm,cold,bf16,8192,8192,8192,{share * floor_us}\n" for share in shares)
    path.write_text(HEADER + rows, encoding="utf-8")
    assert [each.line for each in validate([str(path)], lambda _: []).flagged] == [2, 3]


@pytest.mark.parametrize(
    ("stack", "kv", "appended", "prepared"),
    [
        ("vllm-1", "bf16", 4 * 32_768, 0),
        # An fp8 cache is written in one byte, and Q in 16 bit is quantised by a kernel of its own.
        ("vllm-1", "fp8", 3 * 32_768, 64 * (8 * 128 + QUANTISER_TOKEN_BYTES)),
        ("fa3", "bf16", 0, 0),
    ],
)
def test_a_prefill_row_by_hand(stack: str, kv: str, appended: int, prepared: int, tmp_path: Path) -> None:
    """64 tokens, 8 heads on 2 of 128: K and V have 2 x 64 x 2 x 128 = 32,768 values, read in 16 bit and
    written to the cache; Q and the output have 65,536 each. A bare kernel writes no cache."""
    path = tmp_path / "a.csv"
    path.write_text(ATTENTION + f"h100,{stack},fa3,bf16,{kv},1,64,64,8,2,128,1,0,9\n", encoding="utf-8")
    (batch,) = batches(str(path), Counter())
    assert batch.family == "prefill"
    kept = 2 if kv == "bf16" else 1
    moved = 2 * 2 * 65_536 + kept * 32_768
    work = batch.work
    assert (work.attend.pairs, work.matmul_flops) == (64 * 65 / 2, 4 * 8 * 128 * 64 * 65 / 2)
    assert work.bytes.total == moved
    assert (work.appended, work.prepared) == (appended, prepared)
    assert batch.working_set == moved + (2 * 32_768 if appended else 0)


# --- routing of the MoE benchmark ---


def dealt(*values: float) -> list[Any]:
    return [np.array([float(value)]) for value in values]


def test_balanced_routing_by_hand() -> None:
    """8 of 256 experts: expert (t + 32 i) mod 256 takes part i of token t, spread evenly while t < 32."""
    tokens, experts = balanced(*dealt(64, 8, 256, 1))
    assert float((tokens * experts).sum()) == 64 * 8
    one, touched = balanced(*dealt(1, 8, 256, 1))
    assert (float(one[0, 0]), float(touched[0, 0])) == (1.0, 8.0)
    quarter = balanced(*dealt(64, 8, 256, 4))
    assert float((quarter.tokens * quarter.experts).sum()) == 64 * 8 / 4


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 16384), st.sampled_from(((8, 256), (2, 8), (6, 160))), st.sampled_from((1, 4, 8)))
def test_skewed_routing_keeps_its_bounds(tokens: int, pair: tuple[int, int], ranks: int) -> None:
    top_k, experts = pair
    each, number = power_law(*dealt(tokens, top_k, experts, ranks), 1.2)
    rows = float((each * number).sum())
    assert rows <= min(tokens * top_k, experts / ranks * tokens) * 1.001
    assert rows >= 0.99 * min(1, tokens * top_k / experts)
    assert float(number.sum()) <= experts / ranks * 1.001
    if ranks > 1 and tokens * top_k > 4 * experts:
        assert rows >= tokens * top_k / ranks * 0.999, "the largest rank has at least an even share"


def test_bytes_of_stored_weights_by_hand() -> None:
    """4 bits with an fp16 scale per 128 (not 0.5156), tiles of 128 x 128 with an fp32 one (not 1.004)."""
    for types in (GEMM_TYPES, MOE_TYPES):
        assert types["int4_wo"][-1] == 0.5 + 2 / 128
        assert types["fp8_block"][-1] == 1 + 4 / 128**2
        assert types["nvfp4"][-1] == pytest.approx(0.5 + 1 / 16, rel=1e-8)
    assert MOE_TYPES["w4a16_mxfp4"][-1] == MOE_TYPES["w4a8_mxfp4_mxfp8"][-1] == 0.5 + 1 / 32
