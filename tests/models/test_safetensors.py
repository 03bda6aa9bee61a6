"""Safetensors headers: real bytes by part, the difference to the configuration explained, damage refused."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infercost import InputError
from infercost.models.huggingface import model_from_config
from infercost.models.safetensors import compare, read_headers

BYTES = {"BF16": 2, "I32": 4, "F32": 4, "U8": 1, "F8_E4M3": 1, "F16": 2}
CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "vocab_size": 100,
    "torch_dtype": "bfloat16",
}


def header(tensors: dict[str, tuple[str, tuple[int, ...]]]) -> tuple[bytes, int]:
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (dtype, shape) in tensors.items():
        size = BYTES[dtype]
        for side in shape:
            size *= side
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    raw = json.dumps(entries).encode()
    return struct.pack("<Q", len(raw)) + raw, offset


def write(path: Path, tensors: dict[str, tuple[str, tuple[int, ...]]]) -> None:
    head, size = header(tensors)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + size)


def llama(layers: int = 2, extra: int = 0) -> dict[str, tuple[str, tuple[int, ...]]]:
    out: dict[str, tuple[str, tuple[int, ...]]] = {"model.embed_tokens.weight": ("BF16", (100, 64))}
    for i in range(layers + extra):
        p = f"model.layers.{i}"
        out |= {
            f"{p}.self_attn.q_proj.weight": ("BF16", (64, 64)),
            f"{p}.self_attn.k_proj.weight": ("BF16", (32, 64)),
            f"{p}.self_attn.v_proj.weight": ("BF16", (32, 64)),
            f"{p}.self_attn.o_proj.weight": ("BF16", (64, 64)),
            f"{p}.mlp.gate_proj.weight": ("BF16", (128, 64)),
            f"{p}.mlp.up_proj.weight": ("BF16", (128, 64)),
            f"{p}.mlp.down_proj.weight": ("BF16", (64, 128)),
            f"{p}.input_layernorm.weight": ("BF16", (64,)),
            f"{p}.post_attention_layernorm.weight": ("BF16", (64,)),
        }
    return out | {"model.norm.weight": ("BF16", (64,)), "lm_head.weight": ("BF16", (100, 64))}


def test_a_plain_checkpoint_is_its_configuration(tmp_path: Path) -> None:
    names = list(llama().items())
    write(tmp_path / "model-00001-of-00002.safetensors", dict(names[:7]))
    write(tmp_path / "model-00002-of-00002.safetensors", dict(names[7:]))
    model = model_from_config(CONFIG, "c")
    held = compare(read_headers(tmp_path), model)
    assert held.file_parameters == held.model_parameters == model.parameters
    assert (held.reasons, held.unexplained) == ((), 0)
    assert held.file_bytes == 2 * model.parameters
    assert {group.name for group in held.groups} == {"embedding", "attention", "mlp", "norms", "head"}


def test_the_difference_is_explained(tmp_path: Path) -> None:
    """A prediction layer, a tied head stored again, a table of rotations, scales of FP8."""
    tensors = llama(extra=1) | {
        "model.layers.0.self_attn.rotary_emb.inv_freq": ("F32", (8,)),
        "model.layers.0.mlp.up_proj.weight_scale_inv": ("F32", (1, 1)),
    }
    write(tmp_path / "model.safetensors", tensors)
    model = model_from_config({**CONFIG, "tie_word_embeddings": True}, "c")
    held = compare(read_headers(tmp_path), model)
    layer = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64 + 2 * 64
    assert dict(held.reasons) == {
        "layers beyond num_hidden_layers (multi-token prediction)": layer,
        "the tied head, stored a second time": 6400,
        "tables of rotations (buffers)": 8,
        "scales and zero points of quantised weights": 1,
    }
    assert held.unexplained == 0


def test_what_is_not_explained_is_said(tmp_path: Path, run: Callable[..., Any]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    write(tmp_path / "model.safetensors", llama() | {"model.extra.weight": ("F16", (3, 5))})
    shown = run("models", "show", str(tmp_path), "--json").json
    assert shown["checkpoint"]["unexplained"] == 15
    assert "15 values are not explained" in run("models", "show", str(tmp_path)).out


def test_no_tensor_data_is_read(tmp_path: Path) -> None:
    """A checkpoint of a claimed terabyte (a hole in the file) costs its header."""
    path = tmp_path / "model.safetensors"
    head, size = header({"model.embed_tokens.weight": ("BF16", (1 << 20, 1 << 19))})
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + size)
    (tensor,) = read_headers(path)
    assert tensor.bytes == 1 << 40


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}, "unknown dtype"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}, "do not take"),
        ({"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}, "not a list of sizes"),
        ({"dtype": "F32", "shape": "1", "data_offsets": [0, 4]}, "not a list of sizes"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}, "is not in the file"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [0, 1 << 60]}, "two offsets|not in the file"),
        ({"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 4]}, "do not take"),
        ("x", "not an object"),
    ],
)
def test_unsound_entries(entry: Any, said: str, tmp_path: Path) -> None:
    raw = json.dumps({"\x1bname": entry}).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + b"\0" * 4)
    with pytest.raises(InputError, match=said) as caught:
        read_headers(path)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    "raw",
    [b"", b"\0" * 4, b"\xff" * 16, struct.pack("<Q", 2) + b"{}" + b"more", struct.pack("<Q", 9) + b"[" * 9],
)
def test_unsound_files(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(raw)
    with pytest.raises(InputError):
        read_headers(path)
    with pytest.raises(InputError, match="holds no"):
        read_headers(tmp_path / "..")


@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 400), st.binary(min_size=1, max_size=12))
def test_mutated_headers(tmp_path_factory: pytest.TempPathFactory, at: int, noise: bytes) -> None:
    head, size = header({"a.weight": ("BF16", (4, 4)), "b.bias": ("F32", (4,))})
    raw = head + b"\0" * size
    path = tmp_path_factory.getbasetemp() / "mutated.safetensors"
    path.write_bytes(raw[:at] + noise + raw[at + len(noise) :])
    try:
        found = len(read_headers(path))
    except InputError as error:
        found = len(str(error))
    assert found


def test_packed_integers_are_what_they_unpack_to(tmp_path: Path) -> None:
    """AWQ: eight 4-bit weights in an I32, zero points likewise, a 16-bit scale a group."""
    tensors = llama()
    for name in [n for n in tensors if n.endswith("proj.weight")]:
        _, (rows, cols) = tensors.pop(name)
        stem = name.removesuffix("weight")
        tensors |= {
            f"{stem}qweight": ("I32", (cols, rows // 8)),
            f"{stem}qzeros": ("I32", (cols // 32, rows // 8)),
            f"{stem}scales": ("F16", (cols // 32, rows)),
        }
    write(tmp_path / "model.safetensors", tensors)
    block = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True}
    model = model_from_config({**CONFIG, "quantization_config": block}, "config.json")
    held = compare(read_headers(tmp_path), model)
    assert held.unexplained == 0
    assert [why for why, _ in held.reasons] == ["scales and zero points of quantised weights"]


def test_the_index_says_which_files(tmp_path: Path) -> None:
    names = list(llama())
    first = {name: spec for name, spec in llama().items() if name in names[:5]}
    second = {name: spec for name, spec in llama().items() if name not in first}
    parts = {"a-00001-of-00002.safetensors": first, "a-00002-of-00002.safetensors": second}
    placed = {name: file for file, part in parts.items() for name in part}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": placed}), encoding="utf-8")
    write(tmp_path / "a-00001-of-00002.safetensors", first)
    with pytest.raises(InputError, match=r"00002\.safetensors is missing; model\.safetensors\.index"):
        read_headers(tmp_path)
    write(tmp_path / "a-00002-of-00002.safetensors", second)
    write(tmp_path / "consolidated.safetensors", llama())
    assert {tensor.name for tensor in read_headers(tmp_path)} == set(names)
    index.write_text(json.dumps({"weight_map": {"x": "../../etc/passwd"}}), encoding="utf-8")
    with pytest.raises(InputError, match="is not the name of a file beside it"):
        read_headers(tmp_path)
