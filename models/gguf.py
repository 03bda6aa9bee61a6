"""A GGUF file's header into a `Model`, its tensors' exact bytes, and the size the file must have.

Only the header is read, never tensor data. Block sizes, type numbers and keys come from the `gguf`
package; its reader maps the whole file and trusts every count in it, so the walk over the header is
done here, where each length is held to the bytes that are there before anything is built.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from .. import InputError
from ..sheets import opened
from .dimensions import rounded_up
from .gguf_model import model_from_header
from .spec import Model

MAGIC = 0x46554747
MAX_KEYS = 65_536
MAX_TENSORS = 1_000_000
MAX_TEXT = 1 << 20
MAX_ARRAY = 1 << 26
MAX_TEXTS = 1 << 22
"""Texts of all arrays (tokens, merges): each is stepped over by itself, at a microsecond or so."""
MAX_HELD = 1 << 26
"""Bytes read, not stepped over, of the whole header; values take up to 8 times as much in memory."""
KEPT_ARRAY = 8192
"""Longest array of numbers that is kept; longer ones (tokens, merges, scores) are stepped over."""

_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING, _ARRAY = 8, 9


class GgufTensor(NamedTuple):
    """`shape` in GGUF order: the row length first."""

    name: str
    shape: tuple[int, ...]
    type: str
    bytes: int

    @property
    def elements(self) -> int:
        out = 1
        for size in self.shape:
            out *= size
        return out


class GgufHeader(NamedTuple):
    """What a file says of itself; `size` is what it has, `predicted_size` what its header implies."""

    metadata: dict[str, Any]
    tensors: tuple[GgufTensor, ...]
    data_offset: int
    alignment: int
    size: int

    @property
    def tensor_bytes(self) -> int:
        return sum(tensor.bytes for tensor in self.tensors)

    @property
    def predicted_size(self) -> int:
        """Header, padding, and every tensor padded to the alignment: exact to the byte."""
        return self.data_offset + sum(rounded_up(tensor.bytes, self.alignment) for tensor in self.tensors)


class _Walk:
    """Reads forward through the header; every length is checked against what is left of the file."""

    def __init__(self, file: BinaryIO, size: int, origin: str) -> None:
        self.file, self.size, self.origin = file, size, origin
        self.bytes_left, self.texts_left = MAX_HELD, MAX_TEXTS

    def error(self, problem: str) -> InputError:
        return InputError(f"{self.origin}: not a sound GGUF file: {problem} (byte {self.file.tell():,})")

    def take(self, count: int) -> bytes:
        if count > self.size - self.file.tell():
            raise self.error(f"{count:,} bytes are wanted and the file ends")
        self.bytes_left -= count
        if self.bytes_left < 0:
            raise self.error(f"more than {MAX_HELD:,} bytes of names and values")
        data = self.file.read(count)
        if len(data) != count:
            raise self.error("the file ends")
        return data

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self) -> str:
        length = self.number("<Q")
        if length > MAX_TEXT:
            raise self.error(f"a text of {length:,} bytes")
        return self.take(length).decode("utf-8", errors="replace")

    def skip_text(self) -> None:
        length = self.number("<Q")
        if length > self.size - self.file.tell():
            raise self.error(f"a text of {length:,} bytes")
        self.file.seek(length, 1)

    def value(self, kind: int) -> Any:
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self.array()
        raise self.error(f"a value of unknown type {kind}")

    def array(self) -> Any:
        kind, length = self.number("<I"), self.number("<Q")
        if length > MAX_ARRAY:
            raise self.error(f"an array of {length:,} values")
        if kind == _STRING:
            self.texts_left -= length
            if self.texts_left < 0:
                raise self.error(f"arrays of more than {MAX_TEXTS:,} texts")
            for _ in range(length):
                self.skip_text()
            return None
        if kind not in _SCALARS:
            raise self.error(f"an array of unknown type {kind}")
        data_bytes = length * struct.calcsize(_SCALARS[kind])
        if length > KEPT_ARRAY:
            if data_bytes > self.size - self.file.tell():
                raise self.error(f"an array of {length:,} values")
            self.file.seek(data_bytes, 1)
            return None
        form = f"<{length}{_SCALARS[kind][1]}"
        return list(struct.unpack(form, self.take(data_bytes)))


def read_header(path: Path) -> GgufHeader:
    """The header of `path`. Raises InputError for anything unsound, in bounded time and memory."""
    try:
        import gguf
    except ImportError:
        raise InputError("GGUF files need the gguf package; pip install 'infercost[gguf]'") from None
    with opened(path) as file:
        return _header(_Walk(file, os.fstat(file.fileno()).st_size, str(path)), gguf)


def _header(walk: _Walk, gguf: Any) -> GgufHeader:
    if walk.number("<I") != MAGIC:
        raise walk.error("it does not begin with GGUF")
    version = walk.number("<I")
    if version not in (2, 3):
        raise walk.error(f"version {version} is not known; 2 and 3 are (big-endian files are not read)")
    tensor_count, key_count = walk.number("<Q"), walk.number("<Q")
    if tensor_count > MAX_TENSORS or key_count > MAX_KEYS:
        raise walk.error(f"{tensor_count:,} tensors and {key_count:,} keys")
    metadata: dict[str, Any] = {}
    for _ in range(key_count):
        key = walk.text()
        metadata[key] = walk.value(walk.number("<I"))
    tensors = tuple(_tensor(walk, gguf) for _ in range(tensor_count))
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20:
        raise walk.error(f"an alignment of {alignment}")
    offset = rounded_up(walk.file.tell(), alignment)
    return GgufHeader(metadata, tensors, offset, alignment, walk.size)


def _tensor(walk: _Walk, gguf: Any) -> GgufTensor:
    name, dimensions = walk.text(), walk.number("<I")
    if dimensions > 4:
        raise walk.error(f"a tensor of {dimensions} dimensions")
    shape = tuple(walk.number("<Q") for _ in range(dimensions))
    number = walk.number("<I")
    walk.number("<Q")  # where its data begins
    try:
        kind = gguf.GGMLQuantizationType(number)
    except ValueError:
        raise walk.error(f"tensor '{name}' has the unknown type {number}") from None
    elements = 1
    for side in shape:
        elements *= side
    if elements > 1 << 50:
        raise walk.error(f"tensor '{name}' of {elements:,} values")
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    if shape and shape[0] % block:
        raise walk.error(f"tensor '{name}' has rows of {shape[0]}, not whole blocks of {block}")
    return GgufTensor(name, shape, kind.name.lower(), elements // block * block_bytes)


def model_from_gguf(path: Path) -> Model:
    """The model in a GGUF file, with the types its tensors are stored in."""
    header = read_header(path)
    return model_from_header(header.metadata, header.tensors, str(path), path.stem)
