"""Whole steps: the design's golden totals, the oracle's FLOPs, and sums that must agree."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infercost.costmodel.forward import ops
from infercost.costmodel.roofline import bound_s, step_floor_s, totals
from infercost.costmodel.step import Plan, Run, Step, decode, prefill
from infercost.costmodel.weights import weight_bill
from infercost.hardware.catalogue import load_gpu
from infercost.models.catalogue import load_model, model_names
from infercost.models.recipes import default_recipe, find_recipe

LOOKED_UP = ("embedding", "positions", "side_table")


def test_golden_prefill_and_decode() -> None:
    """LLaMA-7B, B=8, T=1024 on an A100: the design's section 2, to the unit; times to the digits shown."""
    model, gpu = load_model("llama-7b"), load_gpu("a100")
    before, step = Plan(model, prefill(8, 1024)), Plan(model, decode(8, 1024))
    first, second = ops(before), ops(step)
    assert totals(first).matmul_flops == 108306139971584
    assert totals(first).vector_flops == 48804921344
    assert totals(second).matmul_flops == 110008205312
    assert round(bound_s(before, first, gpu) * 1e3, 1) == 347.1
    assert round(step_floor_s(first, gpu) * 1e3, 1) == 372.7
    assert round(bound_s(step, second, gpu) * 1e3, 3) == 8.587
    assert round(step_floor_s(second, gpu) * 1e3, 3) == 8.631


def test_golden_variants() -> None:
    """Full square, all logits, the true first step after the prompt, eager attention's floor."""
    model, gpu = load_model("llama-7b"), load_gpu("a100")
    full = Run(full_attention=True)
    assert totals(ops(Plan(model, prefill(8, 1024), full))).matmul_flops == 110503015743488
    everything = totals(ops(Plan(model, prefill(8, 1024, all_logits=True), full))).matmul_flops
    assert everything == pytest.approx(1.12648e14, rel=1e-5)
    assert totals(ops(Plan(model, decode(8, 1025)))).matmul_flops == 110012399616
    eager = ops(Plan(model, prefill(8, 1024), Run(attention="eager")))
    assert round(step_floor_s(eager, gpu) * 1e3, 1) == 403.5


def test_ops_of_the_ledger_tables() -> None:
    """Per-op FLOPs and bytes of one layer, LLaMA-7B, B=8, T=1024: the seed ledger's three tables."""
    model = load_model("llama-7b")

    def found(step: Step, run: Run) -> dict[str, tuple[str, str]]:
        return {
            op.name: (f"{op.work.matmul_flops + op.work.vector_flops:.4e}", f"{op.work.bytes.total:.4e}")
            for op in ops(Plan(model, step, run))
        }

    flash = found(prefill(8, 1024), Run())
    eager = found(prefill(8, 1024), Run(attention="eager"))
    step = found(decode(8, 1024), Run())
    assert flash["qkv"] == ("8.2463e+11", "3.6910e+08")
    assert flash["rope"] == ("2.0133e+08", "2.6844e+08")
    assert flash["kv_append"] == ("0.0000e+00", "2.6844e+08")
    assert flash["attention"] == ("6.9324e+10", "2.6844e+08")
    assert flash["o_proj"] == ("2.7488e+11", "1.6777e+08")
    assert flash["add_norm"] == ("1.6777e+08", "2.6844e+08")
    assert flash["gate_up"] == ("1.4775e+12", "6.0817e+08")
    assert flash["silu_mul"] == ("4.5089e+08", "5.4107e+08")
    assert flash["down"] == ("7.3873e+11", "3.3764e+08")
    assert eager["attention.qk"] == ("6.8719e+10", "6.7109e+08")
    assert eager["attention.softmax"] == ("1.0737e+09", "1.0737e+09")
    assert eager["attention.pv"] == ("6.8719e+10", "6.7109e+08")
    assert step["qkv"] == ("8.0531e+08", "1.0093e+08")
    assert step["rope"] == ("1.9661e+05", "2.6214e+05")
    assert step["kv_append"] == ("0.0000e+00", "2.6214e+05")
    assert step["attention"] == ("1.3527e+08", "1.3435e+08")
    assert step["o_proj"] == ("2.6844e+08", "3.3686e+07")
    assert step["add_norm"] == ("1.6384e+05", "2.7034e+05")
    assert step["gate_up"] == ("1.4428e+09", "1.8077e+08")
    assert step["silu_mul"] == ("4.4032e+05", "5.2838e+05")
    assert step["down"] == ("7.2142e+08", "9.0419e+07")


@pytest.mark.parametrize("name", model_names())
def test_a_decode_step_reads_what_the_weight_bill_says(name: str) -> None:
    """Every tensor stands in exactly one op: weight bytes of the ops, looked-up rows aside, are the
    bill's read_bytes_per_step."""
    model = load_model(name)
    recipes = [default_recipe(model), find_recipe("bf16"), find_recipe("bnb-int8"), find_recipe("q8_0")]
    if model.norm.kind == "rms" and model.encoder is None and not model.layers[0].parallel:
        recipes.append(find_recipe("q4_k_m"))
    for recipe in recipes:
        for batch in (1, 7):
            plan = Plan(model, decode(batch, 50, 9 if model.encoder else 0), Run(recipe=recipe))
            read = totals(op for op in ops(plan) if op.name not in LOOKED_UP).weights
            assert read == pytest.approx(weight_bill(model, recipe, batch).read_bytes_per_step, rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(model_names()),
    batch=st.integers(1, 40),
    tokens=st.integers(1, 3000),
    phase=st.sampled_from(["prefill", "decode"]),
    attention=st.sampled_from(["flash", "eager"]),
    gpu=st.sampled_from(["a100", "h100", "mi300x", "tpu-v5e", "apple-m1", "rtx4090"]),
)
def test_totals_are_sums_and_bounds_are_in_order(
    name: str, batch: int, tokens: int, phase: str, attention: str, gpu: str
) -> None:
    """Sum of ops = totals; bound <= floor(ideal) <= floor(engine) <= floor(none)."""
    model, device = load_model(name), load_gpu(gpu)
    positions = 20 if model.encoder else 0
    step = (
        prefill(batch, tokens, encoder=positions) if phase == "prefill" else decode(batch, tokens, positions)
    )
    floors = []
    for fusion in ("ideal", "engine", "none"):
        plan = Plan(model, step, Run(attention=attention, fusion=fusion))
        got = ops(plan)
        total = totals(got)
        assert total.matmul_flops == sum(op.count * op.work.matmul_flops for op in got)
        assert total.bytes == pytest.approx(sum(op.count * op.work.bytes.total for op in got))
        floors.append(step_floor_s(got, device))
        assert bound_s(plan, got, device) <= floors[-1] * (1 + 1e-12)
    assert floors == sorted(floors)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(model_names()), st.integers(1, 64), st.integers(1, 4000))
def test_monotone_in_batch_and_length(name: str, batch: int, tokens: int) -> None:
    model, device = load_model(name), load_gpu("a100")

    def floor(b: int, t: int) -> tuple[float, float]:
        plan = Plan(model, decode(b, t, 5 if model.encoder else 0))
        got = ops(plan)
        return totals(got).bytes, step_floor_s(got, device)

    here = floor(batch, tokens)
    assert here <= floor(batch + 1, tokens)
    assert here <= floor(batch, tokens + 1)


def test_the_encoder_reads_all_its_tensors() -> None:
    """Weight bytes of the encoder's ops are all of its parameters, final norm and stem included."""
    for name in ("whisper-large-v3", "flan-t5-xl"):
        model = load_model(name)
        got = ops(Plan(model, prefill(1, 1, encoder=10)))
        own = [op for op in got if op.name.startswith("encoder.") and op.name != "encoder.embedding"]
        assert totals(own).weights == 2 * sum(t.elements for t in model.encoder_tensors())
