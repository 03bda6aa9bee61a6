"""A safetensors checkpoint's headers: its real bytes and dtypes, held against the configuration.

Each file begins with the length of a JSON header that names every tensor; nothing behind it is read.
Format: huggingface/safetensors, "Format" in its README.
"""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path
from typing import Any, NamedTuple

from .. import InputError
from ..sheets import MAX_JSON_BYTES, decode, opened, parse_json, read_file
from .spec import Model

MAX_FILES = 2000
MAX_TENSORS = 1_000_000
DTYPE_BITS = {
    **dict.fromkeys(("F64", "I64", "U64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "I8", "U8", "BOOL"), 8),
    **dict.fromkeys(("F4", "F6_E2M3", "F6_E3M2"), 0),
}
"""Bits a value by dtype; 0: packed, its size is that of the data alone."""


class StoredTensor(NamedTuple):
    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int

    @property
    def elements(self) -> int:
        out = 1
        for side in self.shape:
            out *= side
        return out


class Group(NamedTuple):
    """Tensors of one part of the model and one dtype."""

    name: str
    dtype: str
    tensors: int
    elements: int
    bytes: int


def read_headers(path: Path) -> tuple[StoredTensor, ...]:
    """Every tensor of a .safetensors file, or of the files in a folder that its index names (all such
    files where there is no index; model.safetensors alone where it is there).

    Raises InputError for a header that is not sound, tensors that do not cover the file's data, and a
    file that the index names and the folder lacks.
    """
    if os.path.isdir(path):
        files = _files(path)
        if not files:
            raise InputError(f"{path} holds no .safetensors file")
        if len(files) > MAX_FILES:
            raise InputError(
                f"{path} holds {len(files):,} .safetensors files; at most {MAX_FILES:,} are read"
            )
    else:
        files = [path]
    out: dict[str, StoredTensor] = {}
    for file in files:
        for tensor in _read_file(file):
            if tensor.name in out:
                raise InputError(f"{file}: tensor '{tensor.name}' stands in two files")
            out[tensor.name] = tensor
        if len(out) > MAX_TENSORS:
            raise InputError(f"{path}: more than {MAX_TENSORS:,} tensors")
    return tuple(out.values())


def _files(folder: Path) -> list[Path]:
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if not os.path.isfile(index):
        return [single] if os.path.isfile(single) else sorted(folder.glob("*.safetensors"))
    data = parse_json(read_file(index, MAX_JSON_BYTES, "an index"), str(index))
    placed = data.get("weight_map") if isinstance(data, dict) else None
    if not isinstance(placed, dict) or not all(isinstance(name, str) for name in placed.values()):
        raise InputError(f"{index}: 'weight_map' is not a map of tensors to files")
    names = sorted(set(placed.values()))
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise InputError(f"{index}: '{name[:80]}' is not the name of a file beside it")
        if not os.path.isfile(folder / name):
            raise InputError(f"{folder / name} is missing; {index.name} names it")
    return [folder / name for name in names]


def _read_file(path: Path) -> list[StoredTensor]:
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        if len(start) < 8:
            raise InputError(f"{path}: not a safetensors file: shorter than its header's length")
        (length,) = struct.unpack("<Q", start)
        if length > min(MAX_JSON_BYTES, size - 8):
            raise InputError(
                f"{path}: not a sound safetensors file: a header of {length:,} bytes in {size:,}"
            )
        raw = file.read(length)
    data = parse_json(decode(raw, str(path), MAX_JSON_BYTES, "a header"), f"{path}: the header")
    if not isinstance(data, dict):
        raise InputError(f"{path}: the header is not an object")
    behind = size - 8 - length
    data.pop("__metadata__", None)
    tensors = [_tensor(path, name, entry, behind) for name, entry in data.items()]
    held = sum(tensor.bytes for tensor in tensors)
    if held != behind:
        raise InputError(
            f"{path}: the header names {held:,} bytes of tensors and {behind:,} follow it; "
            "the file is truncated or damaged"
        )
    return tensors


def _tensor(path: Path, name: str, entry: Any, data_bytes: int) -> StoredTensor:
    def bad(problem: str) -> InputError:
        shown = name if name.isprintable() else repr(name)
        return InputError(f"{path}: tensor '{shown[:100]}': {problem}")

    if not isinstance(entry, dict):
        raise bad("its entry is not an object")
    dtype, shape, span = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if dtype not in DTYPE_BITS:
        raise bad(f"unknown dtype {str(dtype)[:40]!r}")
    if not isinstance(shape, list) or len(shape) > 8 or not all(_size(side) for side in shape):
        raise bad("its shape is not a list of sizes")
    if not isinstance(span, list) or len(span) != 2 or not all(_size(side) for side in span):
        raise bad("its data_offsets are not two offsets")
    begin, end = span
    if not begin <= end <= data_bytes:
        raise bad(f"its data at {begin:,} to {end:,} is not in the file")
    tensor = StoredTensor(name, dtype, tuple(shape), end - begin)
    bits = DTYPE_BITS[dtype]
    if bits and tensor.elements * bits != tensor.bytes * 8:
        raise bad(f"{tensor.elements:,} values of {dtype} do not take {tensor.bytes:,} bytes")
    return tensor


def _size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 50


# Parts of a checkpoint by the names their tensors have; the first that fits.
_PARTS = (
    (
        "scales",
        r"(scale|scale_inv|absmax|zeros|scales|_scales|g_idx|quant_map|quant_state.*|weight_shape|"
        r"zero_point|weight_scale_2)$",
    ),
    ("towers", r"(^|\.)(vision|visual|audio|image|mm_|multi_modal|multimodal|embed_vision)"),
    ("rotation tables", r"(inv_freq|rotary)"),
    ("router", r"(mlp|moe|ffn|block_sparse_moe|feed_forward)\.(gate|router)(\.|$)"),
    ("shared_experts", r"shared_expert|shared_mlp"),
    ("experts", r"experts"),
    ("norms", r"norm|ln_|\.ln"),
    ("head", r"^(lm_head|output|embed_out)\."),
    ("embedding", r"(embed|wte|wpe|word_embeddings)"),
    ("recurrent", r"(mamba|ssm|linear_attn|conv|rg_lru|recurrent)"),
    ("attention", r"(attn|attention)"),
    ("mlp", r"(mlp|ffn|feed_forward|fc1|fc2|dense_h|wi|wo)"),
)


def part_of(name: str, layers: int) -> str:
    """Part of the model a tensor's name says it belongs to."""
    layer = re.search(r"(?:layers|h|blocks)\.(\d{1,6})\.", name)
    aside = re.search(r"(^|\.)(encoder|vision|visual|audio|image|mm_|multi_modal|multimodal)", name)
    if layer and not aside and int(layer[1]) >= layers:
        return "prediction layers"
    return next((part for part, pattern in _PARTS if re.search(pattern, name)), "other")


def groups(tensors: tuple[StoredTensor, ...], layers: int) -> tuple[Group, ...]:
    """Bytes and values by part and dtype."""
    sums: dict[tuple[str, str], list[int]] = {}
    for tensor in tensors:
        line = sums.setdefault((part_of(tensor.name, layers), tensor.dtype), [0, 0, 0])
        line[0] += 1
        line[1] += tensor.elements
        line[2] += tensor.bytes
    return tuple(Group(part, dtype, *line) for (part, dtype), line in sorted(sums.items()))


class Comparison(NamedTuple):
    """A checkpoint beside what its configuration implies; `reasons` add up to the difference."""

    groups: tuple[Group, ...]
    file_parameters: int
    model_parameters: int
    file_bytes: int
    reasons: tuple[tuple[str, int], ...]

    @property
    def unexplained(self) -> int:
        return self.file_parameters - self.model_parameters - sum(count for _, count in self.reasons)


def compare(tensors: tuple[StoredTensor, ...], model: Model) -> Comparison:
    """Values the file holds against the model's parameters, the difference explained.

    Prediction layers (MTP) are in the file and not in the model; a tied head may be stored twice;
    tables of rotations, correction biases and scales of quantised weights are no parameters. Packed
    weights are counted as what they unpack to.
    """
    held = groups(tensors, len(model.layers))
    by_part: dict[str, int] = {}
    for tensor in tensors:
        part = part_of(tensor.name, len(model.layers))
        by_part[part] = by_part.get(part, 0) + tensor.elements * _values(tensor, part, model)
    total = sum(by_part.values())
    reasons: list[tuple[str, int]] = []
    for part, why in (
        ("prediction layers", "layers beyond num_hidden_layers (multi-token prediction)"),
        ("scales", "scales and zero points of quantised weights"),
        ("rotation tables", "tables of rotations (buffers)"),
    ):
        if by_part.get(part):
            reasons.append((why, by_part[part]))
    biases = (t for t in tensors if t.name.endswith("e_score_correction_bias"))
    corrections = sum(t.elements for t in biases if part_of(t.name, len(model.layers)) != "prediction layers")
    if corrections:
        reasons.append(("router correction biases (buffers)", corrections))
    if model.tied and any(t.name.endswith("lm_head.weight") for t in tensors):
        reasons.append(("the tied head, stored a second time", model.vocab * model.hidden))
    stored_towers = by_part.get("towers", 0)
    counted = sum(tower.parameters for tower in model.towers)
    if stored_towers != counted:
        reasons.append(("towers the configuration's reader counts otherwise", stored_towers - counted))
    return Comparison(held, total, model.parameters, sum(t.bytes for t in tensors), tuple(reasons))


def _values(tensor: StoredTensor, part: str, model: Model) -> int:
    """Weights that one stored value holds: packed formats keep 2 in a byte, or 32 / bits in an I32."""
    integers = re.match(r"int([2348])", model.weights)
    if integers and tensor.dtype == "I32" and tensor.name.endswith(("qweight", "weight_packed")):
        return 32 // int(integers[1])
    if part == "scales" or tensor.dtype not in ("U8", "I8"):
        return 1
    if model.weights.startswith("mxfp4-experts"):
        return 2 if part == "experts" else 1
    return 2 if model.weights.startswith(("mxfp4", "nvfp4", "bnb-nf4")) else 1
