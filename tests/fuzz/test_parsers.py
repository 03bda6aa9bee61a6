"""Every parser under hypothesis: damaged and foreign input gives an answer or an InputError.

INFERCOST_FUZZ is the number of inputs of each parser; the figure is printed at the end of `make fuzz`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from parsers import PARSERS, Parser, refuses

EXAMPLES = int(os.environ.get("INFERCOST_FUZZ", "60"))
PIECES = (
    *(b"\x00", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\x1b[31m", b"\r", b"\n", b"\r\n", b'"', b"'"),
    *(b",", b",,", b":", b"[", b"]", b"{", b"}", b"- ", b"&a ", b"*a", b"!!python/none ", b"<<: ", b"null"),
    *(b"-1", b"0", b"1e308", b"1e999", b"NaN", b"inf", b"9" * 30, b"9" * 5000, b"[" * 3000, b"\\ud800"),
    *(b"/dev/zero", b"../../x", b"hf:a/b", "\u202e".encode(), "\u0661".encode(), b"true", b"1_0", b"0x10"),
    *(b"\xff" * 8, b"\x00" * 8, b"\x7f" * 4),
)


class Edit(NamedTuple):
    """`cut` bytes from `at` (a share of the length) give way to `put`."""

    at: float
    cut: int
    put: bytes


edits = st.lists(
    st.builds(
        Edit,
        st.floats(0, 1, exclude_max=True),
        st.integers(0, 40),
        st.sampled_from(PIECES) | st.binary(max_size=12) | st.text(max_size=6).map(lambda t: t.encode()),
    ),
    max_size=6,
)


def edited(data: bytes, changes: list[Edit]) -> bytes:
    for edit in changes:
        at = int(edit.at * len(data))
        data = data[:at] + edit.put + data[at + edit.cut :]
    return data


@pytest.mark.parametrize("name", PARSERS)
def test_the_seeds_are_sound(name: str) -> None:
    for seed in PARSERS[name].seeds:
        PARSERS[name].parse(seed)


def skip_without_gguf(parser: Parser) -> None:
    if parser is PARSERS["GGUF"]:
        pytest.importorskip("gguf", reason="the gguf package is not installed")


@pytest.mark.parametrize("name", PARSERS)
def test_damaged_input(name: str) -> None:
    parser = PARSERS[name]
    skip_without_gguf(parser)

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(parser.seeds), edits)
    def damage(seed: bytes, changes: list[Edit]) -> None:
        refuses(parser, edited(seed, changes))

    damage()


@pytest.mark.parametrize("name", PARSERS)
def test_input_of_another_kind(name: str) -> None:
    """Noise, and what every other parser reads."""
    parser = PARSERS[name]
    skip_without_gguf(parser)
    for other in PARSERS.values():
        for seed in other.seeds:
            refuses(parser, seed)

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.binary(max_size=300) | st.text(max_size=100).map(lambda text: text.encode()))
    def noise(data: bytes) -> None:
        refuses(parser, data)

    noise()
