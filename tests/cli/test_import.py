"""`models import` and `models diff`, and mutated configurations through the whole reader."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infercost import InputError
from infercost.costmodel.kv import cache_bill
from infercost.models.formats import find_format
from infercost.models.huggingface import model_from_config

Run = Callable[..., Any]
EXAMPLES = int(os.environ.get("INFERCOST_FUZZ", "1500"))
CONFIGS = yaml.safe_load(
    (Path(__file__).parent.parent / "golden" / "configs.yaml").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", ["deepseek-v3", "jamba-v0.1", "gemma-3-27b", "whisper-tiny", "zamba2-2.7b"])
def test_import_and_back(name: str, run: Run, tmp_path: Path) -> None:
    """A sheet written from a config.json is the same model as the config.json."""
    config, sheet = tmp_path / f"{name}.json", tmp_path / "sheet.yaml"
    config.write_text(json.dumps(CONFIGS[name]), encoding="utf-8")
    done = run("models", "import", str(config), "-o", str(sheet))
    assert (done.code, done.out) == (0, "")
    assert run("models", "lint", str(sheet)).code == 0
    assert run("models", "diff", str(config), str(sheet), "--json").json["same"] is True
    assert run("models", "import", str(config)).out == sheet.read_text(encoding="utf-8")


def test_inferred_values_are_said(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIGS["falcon-7b"]), encoding="utf-8")
    done = run("models", "import", str(config), "--name", "mine")
    assert done.out.startswith("name: mine\n")
    assert "\ninferred:\n" in done.out
    assert "infercost: inferred: tie_word_embeddings = true: the class default" in done.err
    asked = run("kv", "--model", str(config), "--seq", "1", "--json").json["inferred"]
    assert any("class default" in item for items in asked.values() for item in items)


def test_diff_names_what_differs(run: Run) -> None:
    document = run("models", "diff", "llama-2-7b", "llama-3-8b", "--json").json
    assert document["same"] is False
    facts = {row["fact"]: (row["first"], row["second"]) for row in document["differences"]}
    assert facts["parameters"] == (6738415616, 8030261248)
    assert facts["KV bytes per token"] == (524288, 131072)
    assert run("models", "diff", "llama-2-7b", "llama-2-7b").out.startswith(
        "llama-2-7b and llama-2-7b are the same"
    )
    assert run("models", "diff", "llama-2-7b", "llama-3-8b", "--assert", "same == true").code == 1


def test_import_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    assert run("models", "import", "llama-7b", "-o", str(tmp_path / "no" / "x.yaml")).code == 2
    assert run("models", "import", "/no/such/config.json").code == 2


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(CONFIGS)), st.data())
def test_mutated_configurations(name: str, data: st.DataObject) -> None:
    """Values of a good configuration replaced, dropped or added: a sound model or one clear error."""
    config = dict(CONFIGS[name])
    for _ in range(data.draw(st.integers(1, 3))):
        key = data.draw(st.sampled_from(sorted(config)) | st.text(max_size=12))
        config[key] = data.draw(values | st.integers(0, 300))
    inner = config.get("text_config")
    if isinstance(inner, dict) and inner:
        config["text_config"] = {**inner, data.draw(st.sampled_from(sorted(inner))): data.draw(values)}
    try:
        model = model_from_config(config, "fuzz.json")
    except InputError as error:
        said = str(error)
        assert said.startswith("fuzz.json")
    else:
        assert model.parameters > 0
        one, two = (cache_bill(model, 7, n, find_format("bf16"), 3).logical_bytes for n in (1, 2))
        assert two == 2 * one, "sequences share nothing"


@pytest.mark.parametrize(
    ("name", "key"),
    [("llama-2-7b", "num_hidden_layers"), ("bart-large", "encoder_layers"), ("dbrx", "n_layers")],
)
def test_layers_beyond_reason(name: str, key: str) -> None:
    """A count of layers becomes that many objects: refused before any is built (found by fuzzing)."""
    with pytest.raises(InputError, match=f"{key}: must be between 1 and 4,096"):
        model_from_config({**CONFIGS[name], key: 1 << 31}, "x.json")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -2])
def test_expansion_that_is_no_number(value: float) -> None:
    with pytest.raises(InputError):
        model_from_config({**CONFIGS["zamba2-2.7b"], "mamba_expand": value}, "x.json")


def test_import_never_writes_over_its_source(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIGS["qwen2.5-7b"]), encoding="utf-8")
    before = config.read_bytes()
    refused = run("models", "import", str(tmp_path), "-o", str(config))
    assert (refused.code, config.read_bytes()) == (2, before)
    assert "a sheet is YAML" in refused.err
    assert run("models", "import", str(config), "--name", "").code == 2


def test_files_as_they_come(run: Run, tmp_path: Path) -> None:
    """A byte order mark, capitals in the suffix, nothing on standard input, a folder that says too little."""
    text = json.dumps(CONFIGS["qwen2.5-7b"])
    marked = tmp_path / "C.JSON"
    marked.write_bytes(b"\xef\xbb\xbf" + text.encode())
    asked = ("--seq", "1", "--quiet")
    assert run("kv", "--model", str(marked), *asked).out == run("kv", "--model", "-", *asked, stdin=text).out
    assert "standard input is empty" in run("kv", "--model", "-", *asked, stdin="").err
    assert "'model_type' is missing" in run("kv", "--model", "-", *asked, stdin='{"hidden_size": 5}').err
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    assert "holds 2 GGUF files (a.gguf, b.gguf" in run("kv", "--model", str(tmp_path), *asked).err
    (tmp_path / "x.safetensors").write_bytes(b"")
    assert "give its folder" in run("kv", "--model", str(tmp_path / "x.safetensors"), *asked).err
    assert "is not hf:owner/name" in run("kv", "--model", "hf:../x", *asked).err
