"""quantization_config and hf_quant_config.json into recipes, with the modules they leave alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infercost.costmodel.weights import weight_bill
from infercost.models.catalogue import load_model
from infercost.models.huggingface import model_from_config
from infercost.models.recipes import find_recipe
from infercost.models.sheet import model_from_text
from infercost.models.sheet_text import sheet_text

QUANTISED = [
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8-block"),
    ({"quant_method": "fbgemm_fp8"}, "fp8-row"),
    ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, "int4-g128"),
    ({"quant_method": "gptq", "bits": 8, "group_size": 32, "sym": False}, "int8-g32-asym"),
    ({"quant_method": "gptq", "bits": 4, "group_size": -1}, "int4-row"),
    ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, "int4-g128-asym"),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "bnb-nf4"),
    (
        {
            "quant_method": "bitsandbytes",
            "load_in_4bit": True,
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": True,
        },
        "bnb-nf4-dq",
    ),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bnb-int8"),
    (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {
                "group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}
            },
            "ignore": ["lm_head"],
        },
        "fp8-row",
    ),
    (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {
                "group_0": {
                    "weights": {
                        "num_bits": 4,
                        "type": "int",
                        "strategy": "group",
                        "group_size": 128,
                        "symmetric": True,
                    }
                }
            },
        },
        "int4-g128",
    ),
    ({"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4"}}, "nvfp4"),
    (
        {
            "quant_method": "fp8",
            "weight_block_size": [128, 128],
            "modules_to_not_convert": ["lm_head", "self_attn"],
        },
        "fp8-block except attention",
    ),
]


@pytest.mark.parametrize(("block", "recipe"), QUANTISED)
def test_quantisation_blocks(block: dict[str, Any], recipe: str, small_llama: dict[str, Any]) -> None:
    data = {**small_llama, "quantization_config": block}
    model = model_from_config(data, "c.json")
    assert model.weights == recipe
    find_recipe(model.weights)


def test_a_recipe_leaves_alone_what_the_file_says() -> None:
    model = load_model("llama-2-7b")
    bill = weight_bill(model, find_recipe("fp8-block except attention"))
    assert {c.name: c.format for c in bill.components}["attention"] == "fp16"
    assert {c.name: c.format for c in bill.components}["mlp"] == "fp8-block"


def test_modelopt_file_beside_the_configuration(tmp_path: Path, small_llama: dict[str, Any]) -> None:
    """hf_quant_config.json, as NVIDIA's own quantiser writes it."""
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(small_llama), encoding="utf-8")
    said = {
        "producer": {"name": "modelopt"},
        "quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]},
    }
    (folder / "hf_quant_config.json").write_text(json.dumps(said), encoding="utf-8")
    assert load_model(str(folder)).weights == "nvfp4"


def test_components_left_alone(small_llama: dict[str, Any]) -> None:
    for skipped, weights in (("self_attn", "bnb-nf4 except attention"), ("lm_head", "bnb-nf4")):
        block = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
        block["llm_int8_skip_modules"] = [skipped]
        assert model_from_config({**small_llama, "quantization_config": block}, "x.json").weights == weights


def meta_list(layers: int) -> list[str]:
    """modules_to_not_convert as Meta writes it for Llama 3.1 405B in FP8: full names, attention of every
    layer, the MLP of the first and the last."""
    attention = [f"model.layers.{i}.self_attn.{p}_proj" for i in range(layers) for p in "qkvo"]
    ends = [f"model.layers.{i}.mlp.{p}_proj" for i in (0, layers - 1) for p in ("gate", "up", "down")]
    return [*attention, *ends]


def test_modules_named_one_by_one(small_llama: dict[str, Any]) -> None:
    block = {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}
    data = {**small_llama, "num_hidden_layers": 4}
    block["modules_to_not_convert"] = meta_list(4)
    model = model_from_config({**data, "quantization_config": block}, "c.json")
    assert model.weights == "fp8-row except attention,first_layer,last_layer"
    assert not any("one by one" in note for note in model.inferred)
    block["modules_to_not_convert"] = meta_list(3)
    short = model_from_config({**data, "quantization_config": block}, "c.json")
    assert short.weights == "fp8-row", "attention of the last layer is not in the list"
    assert any("one by one" in note for note in short.inferred)


def test_the_405b_sheet_is_what_its_configuration_says(small_llama: dict[str, Any]) -> None:
    shape = {"hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126}
    heads = {"num_attention_heads": 128, "num_key_value_heads": 8, "vocab_size": 128256}
    block = {"quant_method": "fbgemm_fp8", "modules_to_not_convert": meta_list(126)}
    read = model_from_config({**small_llama, **shape, **heads, "quantization_config": block}, "c.json")
    sheet = load_model("llama-3.1-405b-fp8")
    assert (read.weights, read.layers) == (sheet.weights, sheet.layers)


@pytest.mark.parametrize(
    ("block", "kv"),
    [
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "FP8"}}, ""),
        ({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": None}}, ""),
        ({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}, "fp8"),
        ({"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "NVFP4"}}, "nvfp4"),
        ({"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "quant_method": "modelopt"}, "fp8"),
        ({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP6"}}, ""),
    ],
)
def test_the_cache_a_checkpoint_asks_for(block: dict[str, Any], kv: str, small_llama: dict[str, Any]) -> None:
    model = model_from_config({**small_llama, "quantization_config": block}, "c.json")
    assert model.kv == kv
    assert any("FP6" in note for note in model.inferred) == ("FP6" in str(block))


def test_the_cache_of_compressed_tensors(
    tmp_path: Path, small_llama: dict[str, Any], ask: Callable[..., Any]
) -> None:
    """llm-compressor's kv_cache_scheme; --kv goes before it."""
    weights = {"num_bits": 8, "type": "float", "strategy": "channel"}
    block = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}
    block["kv_cache_scheme"] = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**small_llama, "quantization_config": block}), encoding="utf-8")
    narrow, wide = (ask("kv", "--model", str(path), "--seq", "64", *more) for more in ((), ("--kv", "bf16")))
    assert narrow["inputs"]["kv"] == "fp8"
    assert 2 * narrow["bytes_per_token"] == wide["bytes_per_token"]


def test_a_sheet_says_the_format_of_its_cache(tmp_path: Path, run: Callable[..., Any]) -> None:
    model = load_model("llama-3.1-70b-fp8")
    assert model_from_text(sheet_text(model), "x.yaml").kv == "fp8"
    bad = sheet_text(model).replace("kv: fp8", "kv: fp88")
    (tmp_path / "m.yaml").write_text(bad, encoding="utf-8")
    got = run("kv", "--model", str(tmp_path / "m.yaml"), "--seq", "1k")
    assert got.code == 2
    assert "fp88" in got.err
