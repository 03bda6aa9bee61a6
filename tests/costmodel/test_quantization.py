"""The uniform quantiser, products with outliers, schemes as costs, the same-memory rule: laws of each."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infercost import InputError
from infercost.costmodel.op import Gemm, Op, Pointwise
from infercost.costmodel.outliers import products, smoothing
from infercost.costmodel.quality import published
from infercost.costmodel.quantization import Scheme, outcome, quantise, storage
from infercost.costmodel.same_memory import rival
from infercost.costmodel.schemes import METHODS, decomposed, find_method, mixed_bits, use
from infercost.costmodel.setting import Setting, step_cost
from infercost.costmodel.step import Run, decode, prefill
from infercost.hardware.catalogue import load_gpu
from infercost.models.catalogue import load_model, model_names
from infercost.models.recipes import find_recipe

numbers = st.floats(-1e6, 1e6, allow_nan=False, width=32)
values = st.lists(numbers, min_size=1, max_size=40)
bits = st.integers(2, 12)
schemes = st.builds(
    Scheme,
    bits,
    st.booleans(),
    st.sampled_from(["round", "truncate"]),
    st.sampled_from(["full", "restricted"]),
)
SLACK = 1 + 1e-9


@given(values, schemes)
def test_no_value_is_further_off_than_its_rounding(tile: list[float], scheme: Scheme) -> None:
    """Half a step; a whole one where Z is truncated, for then one end of the range is cut off."""
    got = quantise(tile, scheme)
    step = got.fitted.scale * (1 if scheme.zero_point == "truncate" and not scheme.symmetric else 0.5)
    # Z itself is a float of the size of max|x| / S.
    grain = 4 * max(map(abs, tile)) * 2.0**-52
    assert got.loss.largest <= step * SLACK + grain
    assert all(scheme.lowest <= q <= scheme.highest for q in got.codes)
    assert got.loss.squared == pytest.approx(sum((y - x) ** 2 for x, y in zip(tile, got.read, strict=True)))


@given(values, bits)
def test_zero_is_exact_where_the_range_holds_it(tile: list[float], width: int) -> None:
    """That is what the rounded zero point is for."""
    got = quantise([*tile, 0.0], Scheme(width))
    assert got.read[-1] == 0


@given(numbers, st.integers(1, 9), schemes)
def test_one_value_repeated_is_kept(value: float, times: int, scheme: Scheme) -> None:
    """But by all codes of a symmetric range, which have no code for its ends, and by a truncated Z."""
    if scheme.codes == "restricted" if scheme.symmetric else scheme.zero_point == "round":
        assert quantise([value] * times, scheme).loss.largest <= abs(value) * 1e-12


@given(st.lists(st.lists(numbers, min_size=6, max_size=6), min_size=1, max_size=6), schemes)
def test_smaller_tiles_have_smaller_steps(rows: list[list[float]], scheme: Scheme) -> None:
    scheme = scheme._replace(symmetric=True)
    by_tensor, by_row, by_two = (outcome(rows, scheme, per, 2) for per in ("tensor", "channel", "group"))
    assert by_two.loss.expected_mse <= by_row.loss.expected_mse * SLACK
    assert by_row.loss.expected_mse <= by_tensor.loss.expected_mse * SLACK
    assert by_row.scales[1] <= by_tensor.scales[1] * SLACK
    assert (by_tensor.tiles, by_row.tiles, by_two.tiles) == (1, len(rows), 3 * len(rows))


@settings(deadline=None)
@given(
    st.lists(st.lists(numbers, min_size=7, max_size=7), min_size=1, max_size=5),
    schemes,
    st.sampled_from(["tensor", "channel", "group"]),
)
def test_arrays_and_lists_agree(rows: list[list[float]], scheme: Scheme, per: str) -> None:
    """A group of 3 leaves one value over in each row of 7."""
    np = pytest.importorskip("numpy")
    plain, array = outcome(rows, scheme, per, 3), outcome(np.array(rows), scheme, per, 3)
    assert (plain.tiles, plain.stored_bits) == (array.tiles, array.stored_bits)
    assert plain.scales == pytest.approx(array.scales, rel=1e-12)
    assert plain.zeros == array.zeros
    for mine, other in zip(plain.loss, array.loss, strict=True):
        assert mine == pytest.approx(other, rel=1e-9, abs=1e-12)


@given(bits, st.integers(8, 16))
def test_the_step_is_the_range_over_the_codes(width: int, wider: int) -> None:
    tile = [1.2, 2.4, 13.6]
    for scheme, steps, span in (
        (Scheme(width), 2**width - 1, 12.4),
        (Scheme(width, symmetric=True), 2**width - 1, 27.2),
        (Scheme(width, symmetric=True, codes="restricted"), 2 ** (width - 1) - 1, 13.6),
    ):
        assert quantise(tile, scheme).fitted.scale == pytest.approx(span / steps, rel=1e-12)


def test_signal_to_noise_follows_the_rule() -> None:
    """6.02·n + 10.79 - 20·log10(range / rms), on values spread evenly and on a bell."""
    np = pytest.importorskip("numpy")
    random = np.random.default_rng(7)
    for tile in (random.uniform(-3, 5, (1, 50_000)), random.normal(0, 2, (1, 50_000))):
        for width in (6, 8, 10):
            loss = quantise(tile, Scheme(width)).loss
            span, rms = tile.max() - tile.min(), math.sqrt((tile**2).mean())
            rule = 6.02 * width + 10.79 - 20 * math.log10(span / rms)
            assert loss.expected_sqnr_db == pytest.approx(rule, abs=0.2)
            assert loss.sqnr_db == pytest.approx(rule, abs=0.3)


@pytest.mark.parametrize(
    ("scheme", "group", "wanted"),
    [
        # n + (16 + zero) / g of the seed ledger, cost equations
        (Scheme(4, symmetric=True), 128, 4 + 16 / 128),
        (Scheme(4), 128, 4 + 20 / 128),
        (Scheme(4), 64, 4 + 20 / 64),
        (Scheme(3, symmetric=True), 128, 3 + 16 / 128),
        (Scheme(8, symmetric=True), 64, 8 + 16 / 64),
    ],
)
def test_bits_with_scales(scheme: Scheme, group: int, wanted: float) -> None:
    assert storage(scheme, "group", group).bits_per_weight() == wanted


@pytest.mark.parametrize("width", [-1, 0, 1, 17])
def test_bits_out_of_bounds(width: int) -> None:
    with pytest.raises(InputError, match="2 to 16"):
        Scheme(width).checked()


def matrices() -> tuple[Any, Any]:
    """Activations with three columns of outliers, weights without."""
    np = pytest.importorskip("numpy")
    random = np.random.default_rng(1)
    x, w = random.normal(0, 1, (40, 96)), random.normal(0, 0.02, (30, 96))
    x[:, [3, 50, 90]] *= 60
    return x, w


@settings(deadline=None, max_examples=30)
@given(st.floats(0, 1))
def test_smoothing_leaves_the_product_alone(alpha: float) -> None:
    """Y = (X diag(s)^-1)(diag(s) W): the seed ledger, smooth."""
    np = pytest.importorskip("numpy")
    x, w = matrices()
    s = smoothing(abs(x).max(axis=0), abs(w).max(axis=0), alpha)
    assert np.allclose((x / s) @ (w * s).T, x @ w.T, rtol=1e-12, atol=1e-12)
    by_hand = [
        max(map(abs, x[:, j])) ** alpha / max(map(abs, w[:, j])) ** (1 - alpha) for j in range(x.shape[1])
    ]
    assert s == pytest.approx(by_hand, rel=1e-12)


def test_smoothing_meets_in_the_middle() -> None:
    """With alpha 0.5 both have the same largest value in each column: sqrt(max|X|·max|W|)."""
    x, w = matrices()
    s = smoothing(abs(x).max(axis=0), abs(w).max(axis=0), 0.5)
    assert abs(x / s).max(axis=0) == pytest.approx(abs(w * s).max(axis=0), rel=1e-12)
    w[:, 5] = 0
    assert smoothing(abs(x).max(axis=0), abs(w).max(axis=0), 0.5)[5] == 1


def test_outliers_cost_plain_integers_most() -> None:
    x, w = matrices()
    found = products(x, w, 8)
    alone, both, apart, smooth = (way.relative_error for way in found.ways)
    assert (found.outlier_columns, found.inner) == (3, 96)
    assert apart < smooth < both
    assert alone < both
    assert found.smoothing_error < 1e-14
    # No outliers: nothing to keep apart, so LLM.int8() is plain int8.
    calm = products(x / 60, w, 8)
    assert calm.ways[2].relative_error == calm.ways[1].relative_error
    with pytest.raises(InputError, match="do not go together"):
        products(x, w[:, 1:], 8)


def test_shares_in_sixteen_bit() -> None:
    """llmint8: (1-p)·1 + 2p bytes; awq: 4(1-p) + 16p bits."""
    assert mixed_bits(8, 0.001) / 8 == pytest.approx(1.001, rel=1e-12)
    assert mixed_bits(4, 0.01) == pytest.approx(4.12, rel=1e-12)


@given(st.integers(1, 4096), st.integers(1, 3000), st.integers(1, 3000), st.floats(0, 1))
def test_llm_int8_splits_a_product(rows: int, inner: int, outer: int, share: float) -> None:
    """Its FLOPs and its weights are those of the whole; it quantises M·K values at 3 bytes each."""
    wide = round(inner * share)
    size = outer * (inner - wide + 2 * wide) + 4 * outer
    whole = Op("decode", "o_proj", Gemm(rows, inner, outer, size, "int8", stored="llm-int8-x"), 7)
    parts = list(decomposed(whole, share, "fp16"))
    passes, products_ = parts[0], parts[1:]
    assert isinstance(passes.work, Pointwise)
    assert passes.work.bytes.total == 3 * rows * inner
    assert {op.count for op in parts} == {7}
    assert sum(op.matmul_flops for op in products_) == whole.matmul_flops
    assert sum(op.bytes.weights for op in products_) == whole.bytes.weights
    maths = {op.work.math: op.work.inner for op in products_ if isinstance(op.work, Gemm)}
    assert maths.get("fp16", 0) == wide
    assert maths.get("int8", 0) == inner - wide


@pytest.mark.parametrize("model", ["llama-7b", "mixtral-8x7b", "deepseek-v3", "flan-t5-xl", "jamba-v0.1"])
def test_schemes_on_models(model: str) -> None:
    one, gpu = load_model(model), load_gpu("h100")
    encoder = 32 if one.encoder else 0
    for method in METHODS:
        scheme = use(method, 0.01 if method.name == "llm-int8" else None)
        setting = Setting(one, Run(recipe=scheme.recipe), gpu)
        for step in (decode(2, 64, encoder), prefill(2, 32, encoder=encoder)):
            plain, with_it = step_cost(setting, step), step_cost(setting, step, scheme.rewrite)
            if method.name == "llm-int8":
                assert with_it.matmul_flops == pytest.approx(plain.matmul_flops, rel=1e-12)
                assert with_it.weight_bytes == pytest.approx(plain.weight_bytes, rel=1e-12)
                assert with_it.moved_bytes > plain.moved_bytes
            elif method.name == "lora-2bit":
                assert with_it.weight_bytes - plain.weight_bytes == scheme.adapter_bytes(one) > 0
            else:
                assert with_it == plain
                assert scheme.adapter_bytes(one) == 0


def test_numbers_of_a_scheme_have_bounds() -> None:
    for share, rank in ((-0.1, None), (1.1, None), (math.nan, None), (None, 0), (None, 5000)):
        with pytest.raises(InputError):
            use(find_method("llm-int8"), share, rank)
    with pytest.raises(InputError, match="there are llm-int8"):
        find_method("rtn")


def test_adapters_of_llama_7b() -> None:
    """r·(in + out) of q, k, v, o, gate, up and down of 32 layers; 2 FLOPs a value and token, 2 bytes each."""
    each = 4 * (4096 + 4096) + 3 * (4096 + 11008)
    scheme = use(find_method("lora"), rank=16)
    one = load_model("llama-7b")
    assert scheme.adapter_bytes(one) == 2 * 16 * each * 32
    setting = Setting(one, Run(recipe=scheme.recipe), load_gpu("a100"))
    step = decode(5, 100)
    added = step_cost(setting, step, scheme.rewrite).matmul_flops - step_cost(setting, step).matmul_flops
    assert added == 2 * 5 * 16 * each * 32


def test_the_same_memory_rule() -> None:
    """rule.60v30: 60B at 4 bit and 30B at 8 bit fill 30 GB; on an A100 they turn at 38 and 76 tokens."""
    a100 = load_gpu("a100-80g")
    four, eight = rival(30_000_000_000, 4), rival(30_000_000_000, 8)
    assert (four.parameters, eight.parameters) == (60e9, 30e9)
    assert four.parameters * four.stored_bits / 8 == pytest.approx(31.2e9, rel=1e-3)
    assert int(four.turning_tokens(a100)) == 38
    assert int(eight.turning_tokens(a100)) == 76
    for tokens in (1, 38):
        assert four.step_floor_s(tokens, a100) == eight.step_floor_s(tokens, a100) == 30e9 / 2039e9
    assert four.step_floor_s(39, a100) > eight.step_floor_s(39, a100)
    for tokens in (77, 10_000):
        assert four.step_floor_s(tokens, a100) == pytest.approx(2 * eight.step_floor_s(tokens, a100))
    with pytest.raises(InputError, match="2, 3, 4, 8, 16"):
        rival(10**9, 5)


def test_published_figures_are_of_models_and_formats_there_are() -> None:
    names = [method.name for method in METHODS]
    for model in model_names():
        every = [*names, "bnb-int8", "bnb-nf4", "q8_0", "q4_k_m", "q2_k"]
        for figure in published(model, every):
            assert figure.format in names or find_recipe(figure.format)
            assert figure.source
            if figure.value is not None and figure.wide is not None:
                assert figure.change == figure.value - figure.wide
    assert not published("mamba-130m", names)
