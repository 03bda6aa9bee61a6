"""Built-in models: exact parameter counts, aliases, nearest names."""

from __future__ import annotations

import pytest

from infercost import InputError
from infercost.models.catalogue import load_model, model_aliases, model_names

ASKED_FOR = [
    "llama-7b",
    "llama-13b",
    "llama-65b",
    "llama-2-7b",
    "llama-2-13b",
    "llama-2-70b",
    "llama-3-8b",
    "llama-3-70b",
    "llama-3.1-405b",
    "mistral-7b-v0.1",
    "mistral-7b-v0.3",
    "mixtral-8x7b",
    "qwen2.5-7b",
    "qwen2.5-72b",
    "qwen3-32b",
    "qwen3-30b-a3b",
    "gemma-2-27b",
    "gemma-3-27b",
    "deepseek-v3",
    "gpt-oss-20b",
    "gpt-oss-120b",
    "falcon-7b",
    "gpt2",
    "jamba-v0.1",
    "mamba2-2.7b",
    "flan-t5-xl",
    "whisper-large-v3",
]


def test_the_models_asked_for_are_there() -> None:
    assert set(ASKED_FOR) <= set(model_names())


@pytest.mark.parametrize("name", model_names())
def test_sheets_have_a_source_and_their_own_name(name: str) -> None:
    model = load_model(name)
    assert model.name == name
    assert len(model.source) > 10


def test_aliases_name_one_model() -> None:
    aliases = model_aliases()
    assert not set(aliases) & set(model_names())
    assert load_model("Llama2-7B").name == "llama-2-7b"
    assert load_model("mixtral").name == "mixtral-8x7b"


def test_nearest_names() -> None:
    with pytest.raises(InputError, match=r"unknown model 'lama-7b'; did you mean llama-7b"):
        load_model("lama-7b")
    with pytest.raises(InputError, match="`infercost models` lists them"):
        load_model("zzzzzz")
