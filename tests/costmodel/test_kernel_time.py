"""The kernel-time model: laws that hold on every GPU, scalars against arrays, transfer and confidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infercost import InputError
from infercost.cli.calibrations import clock_of
from infercost.costmodel.forward import ops
from infercost.costmodel.op import Attend, Collective, Gather, Gemm, GroupedGemm, Pointwise, Scan, Work
from infercost.costmodel.roofline import floor_s, step_floor_s, work_peak
from infercost.costmodel.step import Plan, Run, decode, prefill
from infercost.costmodel.times.collectives import over_pcie, pcie_s, ring_s
from infercost.costmodel.times.decode import MLA_DECODE, mla_decode_s
from infercost.costmodel.times.device import device
from infercost.costmodel.times.expected import Clock, pooled
from infercost.costmodel.times.experts import ExpertLayer, layer_s, tiles_of
from infercost.costmodel.times.families import TIMES
from infercost.costmodel.times.family import MOST_FITTED
from infercost.costmodel.times.gemm import GEMM, gemm_s
from infercost.costmodel.times.prefill import PREFILL, prefill_s
from infercost.costmodel.times.transfer import Calibrated, Confidence, choose
from infercost.hardware.calibration import Calibration, Group, Key, Spread
from infercost.hardware.calibration_sheet import all_shipped
from infercost.hardware.catalogue import gpu_names, load_gpu
from infercost.models.catalogue import load_model
from infercost.models.recipes import find_recipe

GPUS = ("a100", "h100", "b200", "rtx-pro-6000", "h20", "mi300x", "t4", "cpu")
counts = st.integers(1, 20_000)
widths = st.sampled_from((1, 32, 64, 100, 4096, 11008, 65536))
gpus = st.sampled_from(GPUS)
WEIGHTS = ((2, "bf16"), (1, "fp8"), (0.5625, "fp4"), (1, "bf16"), (0.5, "fp16"))
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")


def clock(name: str) -> Clock:
    made = clock_of("auto", load_gpu(name))
    assert made is not None
    return made


def attend(
    sequences: int, new: int, past: int, kv_heads: int, group: int, width: int, window: int = 0
) -> Attend:
    context = past + new
    seen = min(context, window) if window else context
    pairs = new * past + new * (new + 1) // 2
    heads = kv_heads * group
    row = 2 * kv_heads * width * 2
    return Attend(
        sequences,
        new,
        seen,
        min(pairs, new * seen),
        heads,
        kv_heads,
        width,
        width,
        row,
        "bf16",
        cached=past > 0,
        window=window,
    )


@st.composite
def works(draw: st.DrawFn) -> Work:
    kind = draw(st.integers(0, 6))
    rows = draw(counts)
    if kind == 0:
        inner, outer = draw(widths), draw(widths)
        each, math = draw(
            st.sampled_from(((2, "bf16"), (1, "fp8"), (0.5625, "fp4"), (1, "bf16"), (0.5, "fp16")))
        )
        return Gemm(rows, inner, outer, inner * outer * each, math, batch=draw(st.sampled_from((1, 1, 16))))
    if kind == 1:
        experts, top_k = draw(st.sampled_from(((8, 2), (256, 8), (128, 1))))
        distinct = experts * (1 - (1 - top_k / experts) ** rows)
        inner = draw(st.sampled_from((64, 2048, 7168)))
        return GroupedGemm(rows * top_k, rows, inner, 2048, distinct, inner * 2048 * 2, "bf16")
    if kind == 2:
        return attend(
            draw(st.integers(1, 512)),
            1,
            rows,
            draw(st.sampled_from((1, 8, 32))),
            draw(st.sampled_from((1, 4, 8))),
            draw(st.sampled_from((64, 128, 256))),
            draw(st.sampled_from((0, 0, 128))),
        )
    if kind == 3:
        return attend(
            draw(st.integers(1, 16)),
            rows,
            draw(st.sampled_from((0, 0, 512))),
            draw(st.sampled_from((1, 8))),
            draw(st.sampled_from((1, 4))),
            draw(st.sampled_from((64, 80, 128, 192, 256))),
        )
    if kind == 4:
        name = draw(st.sampled_from(("add_norm", "rope", "silu_mul", "kv_append", "route", "combine", "odd")))
        return Pointwise(name, rows * 4096, 2, 1, 5, rows=rows)
    if kind == 5:
        return Gather(rows, 4096, 8192)
    return Scan("scan", 4, rows, 4096, 4096, 100_000, 1 << 20)


@settings(max_examples=400, deadline=None)
@given(works(), gpus)
def test_never_below_the_floor_from_cold_memory(work: Work, gpu: str) -> None:
    expected = clock(gpu).expected(work)
    floor = floor_s(work, load_gpu(gpu))
    assert np.isfinite(expected.seconds)
    assert expected.seconds >= floor
    assert expected.confidence.error > 0
    if floor > 1e-3 and gpu not in ("t4", "cpu", "mi300x"):
        assert expected.seconds < 40 * floor, "nothing large is that far from its roof"


@settings(max_examples=200, deadline=None)
@given(counts, widths, widths, gpus, st.sampled_from(("rows", "inner", "outer")))
def test_a_larger_gemm_takes_no_less(rows: int, inner: int, outer: int, gpu: str, grown: str) -> None:
    small = Gemm(rows, inner, outer, 2 * inner * outer, "bf16")
    large = replace(small, **{grown: getattr(small, grown) + 97})
    large = replace(large, weight_bytes=2 * large.inner * large.outer)
    assert clock(gpu).expected(large).seconds >= clock(gpu).expected(small).seconds * (1 - 1e-12)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 30_000), st.integers(1, 64), st.sampled_from((1, 4, 8)), gpus)
def test_longer_prompts_take_no_less(tokens: int, sequences: int, group: int, gpu: str) -> None:
    times = clock(gpu)
    short = times.expected(attend(sequences, tokens, 0, 8, group, 128)).seconds
    assert times.expected(attend(sequences, tokens + 512, 0, 8, group, 128)).seconds >= short
    assert times.expected(attend(sequences + 1, tokens, 0, 8, group, 128)).seconds >= short * (1 - 1e-12)


@settings(max_examples=150, deadline=None)
@given(st.integers(2, 100_000), st.integers(1, 512), st.sampled_from((1, 4, 8)), gpus)
def test_longer_contexts_take_no_less_up_to_a_tile(
    context: int, sequences: int, group: int, gpu: str
) -> None:
    """Splits of the cache are whole tiles: a step up may be followed by a smaller one down."""
    times = clock(gpu)
    short = times.expected(attend(sequences, 1, context, 8, group, 128)).seconds
    longer = times.expected(attend(sequences, 1, 2 * context, 8, group, 128)).seconds
    assert longer >= 0.95 * short


@pytest.mark.parametrize("gpu", gpu_names())
def test_size_one_of_everything(gpu: str) -> None:
    times = clock(gpu)
    one: list[Work] = [
        Gemm(1, 1, 1, 2, "bf16"),
        Gemm(1, 1, 1, 1, "fp8"),
        Gemm(1, 1, 1, 2, "bf16", batch=2),
        GroupedGemm(1, 1, 1, 1, 1, 2, "bf16"),
        attend(1, 1, 0, 1, 1, 1),
        attend(1, 1, 1, 1, 1, 1),
        Attend(1, 1, 2, 2, 16, 1, 576, 512, 1152, "bf16", v_in_k=True),
        *(replace(attend(1, 1, 1, 1, 1, 1), stage=stage) for stage in ("qk", "softmax", "pv")),
        Pointwise("add", 1, 1, 1, 1),
        Gather(1, 1, 2),
        Gather(1, 0, 2),
        Scan("scan", 1, 1, 1, 1, 1, 4),
        *(
            Collective(name, 1, 2)
            for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
        ),
    ]
    for work in one:
        seconds, confidence = times.expected(work)
        assert 0 < seconds < 0.01, work
        assert confidence.kind in ("calibrated", "transferred", "assumed")


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 1 << 30), st.sampled_from((2, 4, 8)), st.sampled_from(("h100", "l40s", "a100")))
def test_larger_messages_take_no_less(size: int, world: int, gpu: str) -> None:
    times = clock(gpu)
    for name in ("all_reduce", "all_gather", "all_to_all"):
        small = times.expected(Collective(name, size, world)).seconds
        assert times.expected(Collective(name, 2 * size, world)).seconds >= small * (1 - 1e-9)


STEPS: tuple[Callable[[Any, Any], Any], ...] = (prefill, decode)


@pytest.mark.parametrize("model", ["llama-7b", "gemma-3-27b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-20b"])
@pytest.mark.parametrize("gpu", ["a100", "h100", "b200", "rtx4090"])
def test_scalars_and_arrays_agree(model: str, gpu: str) -> None:
    """Counts exactly, seconds to 1e-12: the formulas are written once."""
    rng = np.random.default_rng(1)
    batch, length = rng.integers(1, 65, 24), rng.integers(600, 20_000, 24)
    loaded, sheet = load_model(model), load_gpu(gpu)
    times = clock(gpu)
    for step in STEPS:
        many = ops(Plan(loaded, step(batch, length), Run(), sheet))
        total = times.total(many).seconds
        for i in range(len(batch)):
            one = ops(Plan(loaded, step(int(batch[i]), int(length[i])), Run(), sheet))
            assert [op.name for op in one] == [op.name for op in many]
            for single, whole in zip(one, many, strict=True):
                assert single.matmul_flops == np.broadcast_to(whole.matmul_flops, batch.shape)[i]
                assert single.bytes.total == pytest.approx(
                    np.broadcast_to(whole.bytes.total, batch.shape)[i], rel=1e-12
                )
                assert single.count == whole.count
            assert times.total(one).seconds == pytest.approx(total[i], rel=1e-12)
            floor = np.broadcast_to(step_floor_s(many, sheet), batch.shape)[i]
            assert step_floor_s(one, sheet) == pytest.approx(floor, rel=1e-12)


def test_an_array_of_counts_that_would_overflow_is_refused() -> None:
    with pytest.raises(InputError, match="does not fit 64-bit counts"):
        prefill(np.array([1, 64]), np.array([10, 1 << 20]))
    with pytest.raises(InputError, match="tokens must be between"):
        prefill(np.array([1, 1]), np.array([10, 0]))


def test_no_form_has_more_than_eight_fitted_parameters() -> None:
    for times in TIMES.values():
        for names in times.family.forms.values():
            assert len(names) <= MOST_FITTED == 8
            assert set(names) <= set(times.family.parameters)


def test_an_l2_resident_replay_may_beat_cold_memory_and_a_model_may_not() -> None:
    gpu = load_gpu("l40s")
    work = Gemm(1, 4096, 1024, 2 * 4096 * 1024, "bf16")
    params = GEMM.complete({"l2_gain": 5.0, "launch_us": 0.1})
    cold, warm = gemm_s(work, device(gpu), params), gemm_s(work, device(gpu), params, working_set=1e6)
    assert warm < cold
    assert clock("l40s").expected(work).seconds >= floor_s(work, gpu)


def test_collectives_by_hand() -> None:
    """NCCL's bus bandwidth: a large all-reduce takes 2(n-1)/n of its bytes over the link's share."""
    h100 = device(load_gpu("h100"))
    zero = dict.fromkeys(("launch_us", "step_us", "low_latency_us", "simple_us"), 0.0)
    p = {**zero, "low_latency_kb": 16.0, "simple_mb": 2.0, "local_share": 1 / 1.3, "link_share": 1.0}
    size = 1 << 30
    assert ring_s(Collective("all_reduce", size, 8), h100, p) == pytest.approx(2 * 7 / 8 * size / 450e9)
    assert ring_s(Collective("send", size, 2), h100, p) == pytest.approx(size / 450e9)
    l40s = device(load_gpu("l40s"))
    q = {
        **dict.fromkeys(("launch_us", "step_us", "ramp", "simple_us"), 0.0),
        "beyond_2": 2.0,
        "beyond_4": 3.0,
        "simple_mb": 1.0,
        "link_share": 1.0,
    }
    assert pcie_s(Collective("all_gather", size, 2), l40s, q) == pytest.approx(size / 2 / 32e9)
    assert pcie_s(Collective("all_gather", size, 8), l40s, q) == pytest.approx(7 / 8 * size * 6 / 32e9)


def test_an_expert_layer_reads_the_experts_it_touches() -> None:
    h200 = device(load_gpu("h200"))
    p = TIMES["moe"].family.complete({"launch_us": 0.5, "route_us": 0.001, "memory_share": 1.0})

    def layer(rows: int, distinct: int) -> ExpertLayer:
        return ExpertLayer(
            rows / 8, 8, 7168, 2048, rows, distinct, tiles_of(rows, distinct), 3, 1.0, 1.0, "fp8"
        )

    one, all_of_them = layer_s(layer(8, 8), h200, p), layer_s(layer(2048, 256), h200, p)
    assert one > 8 * 3 * 7168 * 2048 / 4.8e12
    assert all_of_them > 256 * 3 * 7168 * 2048 / 4.8e12
    assert all_of_them > 10 * one


# --- calibrated, transferred, assumed ---


def library() -> dict[str, Calibrated]:
    return {name: Calibrated(load_gpu(name), one) for name, one in all_shipped().items()}


def test_deleting_a_calibration_turns_calibrated_into_transferred() -> None:
    every = library()
    wanted = Key(dtype="bf16")
    h200 = load_gpu("h200")
    with_own = choose(GEMM, wanted, h200, every.values()).confidence
    without = choose(
        GEMM, wanted, h200, [one for name, one in every.items() if name != "h200-sxm"]
    ).confidence
    nothing = choose(GEMM, wanted, h200, []).confidence
    assert (with_own.kind, with_own.gpu) == ("calibrated", "h200-sxm")
    assert (without.kind, without.gpu) == ("transferred", "h100-sxm")
    assert nothing.kind == "assumed"
    assert with_own.error < without.error < nothing.error


@pytest.mark.parametrize(
    ("gpu", "lender"),
    [
        ("b300", "b200"),
        ("gb300", "gb200"),
        ("h800", "h100-sxm"),
        ("gh200", "h100-sxm"),
        ("a800", "a100-80g-sxm"),
        ("a100-40g", "a100-80g-sxm"),
        ("rtx5090", "rtx-pro-6000-bw"),
        ("rtx4090", "l40s"),
        ("l4", "l40s"),
        ("mi300x", "h200-sxm"),
    ],
)
def test_the_nearest_sibling_lends(gpu: str, lender: str) -> None:
    choice = choose(GEMM, Key(dtype="bf16"), load_gpu(gpu), library().values())
    assert (choice.confidence.kind, choice.confidence.gpu) == ("transferred", lender)


def test_a_group_of_the_same_stack_is_nearer_than_another() -> None:
    every = library().values()
    exact = choose(GEMM, Key(stack="sglang-0.5.14", dtype="bf16"), load_gpu("h100"), every)
    assert exact.confidence.group == "sglang-0.5.14 bf16"
    newer = choose(GEMM, Key(stack="sglang-0.6.0", dtype="bf16"), load_gpu("h100"), every)
    assert newer.confidence.kind == "transferred", "another version is not what was measured"
    assert newer.confidence.group == "sglang-0.5.14 bf16"
    assert newer.confidence.gpu == "h100-sxm"


@pytest.mark.parametrize("dtype", ["bf16", "fp8", "fp8_block"])
@pytest.mark.parametrize("gpu", ["a100", "h100", "h200", "b200"])
def test_the_default_group_is_taken_when_no_stack_is_named(gpu: str, dtype: str) -> None:
    every = library()
    own = next(one for one in every.values() if one.gpu.name == load_gpu(gpu).name)
    stated = [g for g in own.calibration.groups("gemm") if g.default and g.key.dtype == dtype]
    choice = choose(GEMM, Key(dtype=dtype), load_gpu(gpu), [own])
    assert not stated or choice.confidence.group == str(stated[0].key)


def test_what_belongs_to_the_box_is_not_lent() -> None:
    key = Key("nccl-1", op="all_reduce")
    params = (("beyond_2", 4.0), ("link_share", 0.5))
    group = Group(key, "pcie", params, 99, Spread(0.1, 0.1, 0.1), default=True)
    lender = Calibration("l40s", "test", "2026-01-01", families={"collective_pcie": (group,)})
    family = TIMES["collective_pcie"].family
    choice = choose(family, Key(op="all_reduce"), load_gpu("l40"), [Calibrated(load_gpu("l40s"), lender)])
    assert choice.params["link_share"] == 0.5
    assert choice.params["beyond_2"] == family.parameters["beyond_2"].fixed


def test_few_sms_cannot_fill_a_wide_memory() -> None:
    """Transferred to the H20 (78 SMs, 4 TB/s), an H100's share of bandwidth shrinks."""
    own = library()["h100-sxm"]
    full = choose(GEMM, Key(dtype="bf16"), load_gpu("h100"), [own]).params["memory_share"]
    thin = choose(GEMM, Key(dtype="bf16"), load_gpu("h20"), [own]).params["memory_share"]
    assert thin < 0.7 * full


def test_a_total_is_as_sure_as_its_least_sure_part_that_matters() -> None:
    sure, lent = Confidence("calibrated", 0.04, gpu="x"), Confidence("transferred", 0.2, gpu="y")
    assert pooled([(0.99, sure), (0.01, lent)]).kind == "calibrated"
    mixed = pooled([(0.75, sure), (0.25, lent)])
    assert (mixed.kind, mixed.gpu) == ("transferred", "y")
    assert mixed.error == pytest.approx(0.75 * 0.04 + 0.25 * 0.2)
    assert pooled([]).kind == "assumed"
    assert str(lent) == "transferred (~20%, from y)"
    assert str(sure) == "calibrated (median 4%)"


def test_eager_attention_of_many_sequences_reads_its_cache_once() -> None:
    """Batched products: the weights' bytes are those of the whole batch."""
    times, model, gpu = clock("h100"), load_model("llama-3-8b"), load_gpu("h100")
    run = Run(attention="eager")
    for batch in (1, 8, 64, 512):
        step = ops(Plan(model, decode(batch, 4096), run, gpu))
        for op, expected in zip(step, times.each(step), strict=True):
            if op.name.startswith("attention") and batch > 1:
                floor = floor_s(op.work, gpu)
                assert expected.seconds < op.count * (6 * floor + 30e-6), (batch, op.name)


def test_narrow_experts_are_no_slower_than_wide_ones() -> None:
    for name in ("h100", "h200", "b200"):
        times, model, gpu = clock(name), load_model("deepseek-v3"), load_gpu(name)
        total = {}
        for recipe in ("bf16", "fp8", "fp8-block"):
            run = Run(recipe=find_recipe(recipe))
            total[recipe] = times.total(ops(Plan(model, decode(32, 1024), run, gpu))).seconds
        assert total["fp8"] < total["bf16"], name
        assert total["fp8-block"] < total["bf16"], name


def test_keys_that_an_indexer_leaves_out_cost_nothing() -> None:
    """GLM-5 looks at 2,048 keys a query: a prompt of 128k is nowhere near the triangle."""
    times, model, gpu = clock("h100"), load_model("glm-5"), load_gpu("h100")
    step = ops(Plan(model, prefill(1, 131_072), Run(), gpu))
    for op, expected in zip(step, times.each(step), strict=True):
        if op.name.startswith("attention"):
            assert expected.seconds < 10 * op.count * floor_s(op.work, gpu)
            assert expected.confidence.kind != "calibrated"


def test_what_moves_nothing_takes_nothing() -> None:
    """Ideal fusion: the activations never leave the chip, and no kernel is launched for them."""
    work = Pointwise("rope", 4096, 0, 0, 3, rows=1)
    assert clock("h100").expected(work).seconds == floor_s(work, load_gpu("h100"))


def test_the_engine_own_all_reduce_is_the_one_replayed_from_a_graph() -> None:
    for name in ("a100", "b200"):
        choice = clock(name).choice("custom_all_reduce", Key(kernel="vllm_graph", op="all_reduce"))
        assert "eager" not in choice.confidence.group
        assert choice.params["launch_us"] < 12


def test_a_part_with_cores_of_another_kind_is_not_absurd() -> None:
    for name in ("gaudi2", "gaudi3", "groq-lpu-v1", "tpu-v5e", "b100"):
        gpu = load_gpu(name)
        step = ops(Plan(load_model("llama-3-8b"), decode(1, 2048), Run(), gpu))
        total = clock(name).total(step)
        launches = sum(op.count for op in step)
        assert total.seconds < 4 * step_floor_s(step, gpu) + 20e-6 * launches, name
        if name != "b100":
            assert total.confidence.kind == "assumed", name


def test_vision_encoders_lend_to_no_decoder() -> None:
    choice = choose(
        TIMES["prefill"].family,
        Key("vllm-0.24.0", "a_kernel_of_tomorrow", dtype="bf16", kv="bf16"),
        load_gpu("b200"),
        library().values(),
    )
    assert "encoder:" not in choice.confidence.group
    assert choice.confidence.kind == "transferred"


def test_a_sheet_that_takes_a_name_is_not_calibrated_by_it() -> None:
    h100 = load_gpu("h100")
    slower = replace(h100, memory=replace(h100.memory, bandwidth_gb_per_s=1000.0))
    assert choose(GEMM, Key(dtype="bf16"), slower, library().values()).confidence.kind == "transferred"


def test_formats_that_were_not_measured_are_not_calibrated() -> None:
    times = clock("a100")
    for stored, kind in (("int4-g128", "calibrated"), ("q4_k", "transferred"), ("nf4", "transferred")):
        work = Gemm(1, 4096, 4096, 4096 * 4096 * 0.55, "bf16", stored=stored)
        assert times.expected(work).confidence.kind == kind, stored


def test_equal_works_are_timed_once() -> None:
    times = clock("h100")
    work = Gemm(7, 4096, 4096, 2 * 4096 * 4096, "bf16")
    assert times.expected(work) is times.expected(replace(work))


@pytest.mark.parametrize("model", ["gemma-3n-e2b", "deepseek-v3", "recurrentgemma-2b", "llama-3-8b"])
def test_every_product_says_how_its_weights_are_stored(model: str) -> None:
    """So that 2:4 weights are timed at 2:4 rates: side projections, absorbed MLA, gates, the head."""
    plan = Plan(load_model(model), decode(4, 100), Run(find_recipe("bf16-2:4"), mla="absorbed"))
    for op in ops(plan):
        if isinstance(op.work, Gemm) and op.work.weight_bytes:
            assert op.work.stored == ("bf16" if op.name in ("lm_head", "router") else "bf16-2:4")


def test_a_side_projection_of_sparse_weights_has_twice_the_peak() -> None:
    plan = Plan(load_model("gemma-3n-e2b"), decode(4, 100), Run(find_recipe("bf16-2:4")))
    one = next(op.work for op in ops(plan) if op.name == "projection" and op.work.bytes.weights)
    assert work_peak(one, load_gpu("h100")) == pytest.approx(2 * 989.4e12, rel=1e-3)


def test_a_bridge_joins_two() -> None:
    """RTX 3090: NVLink of 112.5 GB/s both ways between two; four meet on PCIe 4.0 x16, 32 GB/s one way."""
    gpu, size = load_gpu("rtx3090"), 8 << 20
    two, four = Collective("all_reduce", size, 2), Collective("all_reduce", size, 4)
    assert floor_s(two, gpu) == pytest.approx(size / 56.25e9)
    assert floor_s(four, gpu) == pytest.approx(2 * 3 / 4 * size / 32e9)
    assert [over_pcie(device(gpu), ranks) for ranks in (2, 4)] == [False, True]
    assert over_pcie(device(load_gpu("l40s")), 2)
    assert not over_pcie(device(load_gpu("h100")), 8)


def test_a_stack_without_its_version_is_the_stack() -> None:
    wanted = Key(dtype="bf16", stack="vllm")
    found = choose(GEMM, wanted, load_gpu("h100"), library().values()).confidence
    assert (found.kind, found.gpu) == ("calibrated", "h100-sxm")
    assert choose(
        GEMM, Key(dtype="bf16", stack="nobody"), load_gpu("h100"), library().values()
    ).confidence.kind == ("transferred")


@pytest.mark.parametrize("width", [2, 4])
def test_attention_moves_activations_of_their_own_width(width: int) -> None:
    """With a memory share of 1e-9 nothing but the op's own bytes is seen: MLA's decode, and a prefill."""
    gpu = load_gpu("l40s")
    p = {"memory_share": 1e-9}
    mla = Attend(8, 1, 500, 500, 16, 1, 576, 512, 576 * 2, "bf16", activation_bytes=width, v_in_k=True)
    moved = 8 * (500 * 576 * 2 + 16 * (576 + 512) * width)
    seconds = mla_decode_s(mla, device(gpu), MLA_DECODE.complete(p))
    assert seconds == pytest.approx(moved / (1e-9 * gpu.bandwidth), rel=1e-4)
    rows = 4 * 2 * 128 * width
    whole = Attend(2, 300, 300, 45150, 8, 4, 128, 128, rows, "bf16", cached=False, activation_bytes=width)
    moved = 2 * 300 * (rows + 8 * 256 * width)
    assert prefill_s(whole, device(gpu), PREFILL.complete(p)) == pytest.approx(
        moved / (1e-9 * gpu.bandwidth), rel=1e-4
    )
