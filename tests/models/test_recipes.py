"""Recipes: which tensors a checkpoint quantises and which it leaves alone."""

from __future__ import annotations

import pytest

from infercost import InputError
from infercost.costmodel.weights import weight_bill
from infercost.models.catalogue import load_model
from infercost.models.recipes import default_recipe, find_recipe, recipe_names


def formats_by_component(model: str, recipe: str | None = None) -> dict[str, set[str]]:
    one = load_model(model)
    chosen = default_recipe(one) if recipe is None else find_recipe(recipe)
    out: dict[str, set[str]] = {}
    for component in weight_bill(one, chosen).components:
        out.setdefault(component.name, set()).add(component.format)
    return out


def test_bitsandbytes_leaves_embeddings_head_and_norms() -> None:
    found = formats_by_component("llama-7b", "bnb-nf4")
    assert found == {
        "embedding": {"fp16"},
        "norms": {"fp16"},
        "head": {"fp16"},
        "attention": {"nf4"},
        "mlp": {"nf4"},
    }


def test_gpt_oss_quantises_its_experts_only() -> None:
    found = formats_by_component("gpt-oss-20b")
    assert found["experts"] == {"mxfp4", "bf16"}, "weights in MXFP4, their biases in bf16"
    assert {*found["attention"], *found["router"], *found["embedding"], *found["head"]} == {"bf16"}


def test_deepseek_is_published_in_fp8_blocks() -> None:
    found = formats_by_component("deepseek-v3")
    assert found["experts"] == found["attention"] == found["mlp"] == {"fp8-block"}
    assert found["router"] == found["head"] == found["embedding"] == {"bf16"}


def test_q4_k_m_mixes() -> None:
    found = formats_by_component("llama-3-8b", "q4_k_m")
    assert found == {
        "embedding": {"q4_k"},
        "norms": {"fp32"},
        "head": {"q6_k"},
        "attention": {"q4_k", "q6_k"},
        "mlp": {"q4_k", "q6_k"},
    }


def test_fp32_files_count_as_bf16() -> None:
    assert default_recipe(load_model("gemma-2-27b")).name == "bf16"
    assert default_recipe(load_model("llama-7b")).name == "fp16"


@pytest.mark.parametrize("name", recipe_names())
def test_every_named_recipe_works(name: str) -> None:
    bill = weight_bill(load_model("mixtral-8x7b"), find_recipe(name))
    assert 0 < bill.weight_bytes <= 4 * bill.parameters + 4 * 10**6


@pytest.mark.parametrize(
    ("given", "meant"),
    [("Q4_K_M", "q4_k_m"), ("gguf:q4-k-m", "q4_k_m"), ("NF4-bnb", "bnb-nf4"), ("INT8_BNB", "bnb-int8")],
)
def test_spellings(given: str, meant: str) -> None:
    assert find_recipe(given).name == meant


def test_except_leaves_out_what_the_recipe_does() -> None:
    """Gemma 3 27B: q and o of 5376 x 4096, k and v of 5376 x 2048 in 62 layers, from 34/32 to 2 bytes;
    no towers."""
    model = load_model("gemma-3-27b")
    every, most = (
        weight_bill(model, find_recipe(name)).weight_bytes for name in ("q8_0", "q8_0 except attention")
    )
    matrices = 62 * 2 * 5376 * (4096 + 2048)
    assert most - every == matrices * 2 - matrices * 34 // 32


def test_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"did you mean .*bnb-nf4"):
        find_recipe("bnb-nf5")
