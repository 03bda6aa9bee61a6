"""Thousands of inputs through the parsers: an answer or one clear error, never anything else."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infercost import InputError
from infercost.cli.sizes import quantity, token_list, tokens
from infercost.hardware.catalogue import gpu_from_text
from infercost.hardware.catalogue import load_builtin as load_gpu
from infercost.models.catalogue import load_builtin
from infercost.models.formats import find_format
from infercost.models.recipes import find_recipe
from infercost.models.sheet import model_from_text
from infercost.models.spec import Model

EXAMPLES = int(os.environ.get("INFERCOST_FUZZ", "1500"))
many = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


def refuses(parse: Callable[..., Any], *args: Any) -> Any:
    """What `parse` makes of it; an InputError of one line is as good, anything else is a bug."""
    try:
        return parse(*args)
    except InputError as error:
        said = str(error)
    assert said.strip()
    return None


@many
@given(st.text(max_size=30) | st.from_regex(r"-?[0-9]{0,25}\.?[0-9]{0,9}[kKmMiIbB]{0,3}", fullmatch=True))
def test_sizes(text: str) -> None:
    value = refuses(tokens, text, "--seq")
    assert value is None or 1 <= value <= 1 << 40
    refuses(token_list, text, "--seq")
    refuses(quantity, text, "--params", 1e15)


@many
@given(
    st.text(max_size=20) | st.from_regex(r"(int|fp|q|nf|llm-int8-|iq|gguf:)[0-9_a-z.-]{0,12}", fullmatch=True)
)
def test_formats(name: str) -> None:
    fmt = refuses(find_format, name)
    assert fmt is None or fmt.matrix_bytes(3, 100) > 0
    refuses(find_recipe, name)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["sliding*5 full", "a*99999 b", "-", "~", "q"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def paths(data: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a nested sheet that may be changed."""
    out = [here] if here else []
    if isinstance(data, dict):
        for key, value in data.items():
            out += paths(value, (*here, key))
    return out


def changed(data: Any, path: tuple[Any, ...], value: Any, drop: bool) -> Any:
    copy = dict(data)
    if len(path) > 1:
        copy[path[0]] = changed(data[path[0]], path[1:], value, drop)
    elif drop:
        del copy[path[0]]
    else:
        copy[path[0]] = value
    return copy


def sheet_text(kind: str, name: str) -> str:
    from infercost.hardware import catalogue as hardware
    from infercost.models import catalogue as models

    folder = (hardware if kind == "gpu" else models).SHEETS
    return (folder / f"{name}.yaml").read_text(encoding="utf-8")


MODELS = {
    name: yaml.safe_load(sheet_text("model", name))
    for name in ("gemma-3-27b", "deepseek-v3", "jamba-v0.1", "whisper-large-v3", "qwen3-next-80b-a3b")
}
GPU = yaml.safe_load(sheet_text("gpu", "a100-80g-sxm"))


@many
@given(st.sampled_from(sorted(MODELS)), st.data(), values, st.booleans())
def test_mutated_model_sheets(name: str, data: st.DataObject, value: Any, drop: bool) -> None:
    """One value of a good sheet replaced or dropped: a sound model or one clear error."""
    path = data.draw(st.sampled_from(paths(MODELS[name])))
    text = yaml.safe_dump(changed(MODELS[name], path, value, drop), allow_unicode=True)
    model = refuses(model_from_text, text, "fuzz.yaml")
    if isinstance(model, Model):
        assert model.parameters > 0
        assert model.active_parameters <= model.parameters


@many
@given(st.data(), values, st.booleans())
def test_mutated_gpu_sheets(data: st.DataObject, value: Any, drop: bool) -> None:
    path = data.draw(st.sampled_from(paths(GPU)))
    text = yaml.safe_dump(changed(GPU, path, value, drop), allow_unicode=True)
    gpu = refuses(gpu_from_text, text, "fuzz.yaml")
    if gpu is not None:
        assert gpu.bandwidth > 0


@many
@given(
    st.text(alphabet=st.sampled_from("{}[]:,-&*!|>'\"#%@ \n\tabc019.~?"), max_size=120)
    | st.text(max_size=200)
)
def test_text_that_is_no_sheet(text: str) -> None:
    refuses(model_from_text, text, "fuzz.yaml")
    refuses(gpu_from_text, text, "fuzz.yaml")


@many
@given(st.binary(max_size=200), st.integers(0, 400))
def test_damaged_bytes(noise: bytes, at: int) -> None:
    """A good sheet with bytes written over it."""
    from infercost.sheets import decode

    raw = sheet_text("model", "gemma-3-27b").encode()
    text = refuses(decode, raw[:at] + noise + raw[at + len(noise) :], "fuzz.yaml")
    if text is not None:
        refuses(model_from_text, text, "fuzz.yaml")


RUN: Callable[..., Any]


@pytest.fixture(autouse=True, scope="module")
def command_line(run: Callable[..., Any]) -> None:
    """hypothesis and function fixtures do not mix; the runner has no state."""
    global RUN
    RUN = run


OPTIONS = [
    "--model",
    "--seq",
    "--batch",
    "--kv",
    "--layers",
    "--kv-heads",
    "--heads",
    "--head-dim",
    "--window",
    "--alloc",
    "--block",
    "--gpu",
    "--phase",
    "--weights",
    "--attention",
    "--dtype",
    "--params",
    "--bits",
    "--format",
    "--assert",
    "--json",
    "--csv",
    "-q",
    "--ridge",
    "--skew",
    "--gen",
    "--prompt",
    "--values",
    "--scheme",
    "--same-memory",
    "--per",
    "--sym",
    "--sparsity",
    "--storage",
    "--keep-layers",
    "--to",
    "--distil",
    "--teacher",
    "--student",
    "--tokens",
    "--draft",
    "--alpha",
    "--gamma",
    "--walk",
    "--medusa",
    "--tree",
    "--every",
    "--exit-prob",
    "--cascade",
    "--accept",
    "--only",
    "--with",
    "--vs",
    "--for",
    "--policy",
    "--max-len",
    "--scale",
    "--rope-base",
    "--pareto",
    "--by",
    "--top",
    "--where",
    "--shard",
    "--cached",
    "--jobs",
]
WORDS = st.sampled_from(
    [
        "llama-7b",
        "gemma-3-27b",
        "mamba2-2.7b",
        "a100",
        "tpu-v5e",
        "fp8",
        "int4-g32",
        "1",
        "8",
        "4k",
        "32k",
        "0",
        "-1",
        "1e9",
        "0.5",
        "bitmap",
        "prefill",
        "both",
        "flash",
        "paged",
        "md",
        "json",
        "0.5",
        "2,0,1,3",
        "decode",
        "yarn",
        "pagedattention",
        "mtp",
        "int4,kv-fp8",
        "spec=0.7/4",
        "tpot",
        "1..64*2",
        "tpot,usd",
        "1/2",
    ]
) | st.text(max_size=8)


COMMANDS = (
    "kv",
    "weights",
    "ops",
    "roofline",
    "quant",
    "compress",
    "speculate",
    "serve",
    "check",
    "diagnose",
    "explain",
    "sweep",
)


@settings(max_examples=max(EXAMPLES // 3, 200), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from([*COMMANDS, "models", "gpus"]),
    st.lists(st.sampled_from(OPTIONS) | WORDS, max_size=9),
)
def test_command_lines(command: str, words: list[str]) -> None:
    """Any command line ends with 0, 1 or 2 and without a traceback."""
    result = RUN(command, *[w for w in words if w not in ("-", "-o", "--output")])
    assert result.code in (0, 1, 2), (words, result.err)
    assert "unexpected error" not in result.err, (words, result.err)
    assert "Traceback" not in result.err
    if result.code:
        assert result.err.startswith(("infercost: ", "Usage: "))


def test_the_sheets_mutated_are_good() -> None:
    assert load_builtin("gemma-3-27b").parameters == 27432406640
    assert load_gpu("a100-80g-sxm").bandwidth == 2039e9
