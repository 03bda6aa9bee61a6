"""quantization_config and hf_quant_config.json into recipes, with the modules they leave alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infercost.costmodel.weights import weight_bill
from infercost.models.catalogue import load_model
from infercost.models.huggingface import model_from_config
from infercost.models.recipes import find_recipe

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
