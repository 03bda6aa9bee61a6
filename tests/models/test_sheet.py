"""Model sheets: what a sheet may say, and every way of saying it wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from infercost.models.attention import Attention
from infercost.models.catalogue import load_model
from infercost.models.recurrent import StateSpace
from infercost.models.sheet import model_from_text
from infercost.models.sheet_text import sheet_text
from infercost.sheets import MAX_SHEET_BYTES, SheetError

GOOD = """\
name: tiny
source: made up for this test
hidden: 64
vocab: 100
layers: 4
layer:
  attention: {heads: 4, kv_heads: 2, head_dim: 16}
  dense: {width: 128}
"""


def refused(text: str) -> str:
    with pytest.raises(SheetError) as caught:
        model_from_text(text, "t.yaml")
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("t.yaml")
    return message


def test_a_good_sheet() -> None:
    model = model_from_text(GOOD, "t.yaml")
    assert len(model.layers) == 4
    attention = 64 * (64 + 32 + 32) + 64 * 64
    assert model.parameters == 2 * 100 * 64 + 64 + 4 * (attention + 3 * 64 * 128 + 2 * 64)


def test_patterns_repeat_and_are_cut() -> None:
    text = GOOD.replace("layers: 4", "layers: 7").replace(
        "layer:\n  attention: {heads: 4, kv_heads: 2, head_dim: 16}\n  dense: {width: 128}\n",
        "kinds:\n  m: {state_space: {inner: 128, state: 4, conv_kernel: 4, dt_rank: 4}}\n"
        "  a: {attention: {heads: 4, kv_heads: 4, head_dim: 16}, dense: {width: 32}}\n"
        "pattern: m*2 a\n",
    )
    layers = model_from_text(text, "t.yaml").layers
    assert [type(layer.blocks[0]) for layer in layers] == [
        *[StateSpace, StateSpace, Attention] * 2,
        StateSpace,
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("heads: 4,", "heeds: 4,", "did you mean heads"),
        ("heads: 4,", "heads: four,", "t.yaml:7: layer.attention.heads: must be a whole number"),
        ("heads: 4,", "heads: 4.5,", "must be a whole number, not the number 4.5"),
        ("heads: 4,", "heads: .nan,", "must be a whole number"),
        ("heads: 4,", "heads: true,", "must be a whole number"),
        ("heads: 4,", "heads: [4],", "must be a whole number, not a list"),
        ("heads: 4,", "heads: null,", "must be a whole number, not nothing"),
        ("heads: 4,", "heads: -4,", "heads must be between 1"),
        ("heads: 4,", "heads: 0,", "heads must be between 1"),
        ("heads: 4,", "heads: 99999999999999999999999,", "too large"),
        ("heads: 4,", f"heads: {'9' * 5000},", "cannot be read"),
        ("heads: 4,", "heads: 5,", "kv_heads must divide heads"),
        ("heads: 4,", "", "'heads' is missing"),
        ("hidden: 64", "hidden: 1e99", "must be a whole number"),
        ("hidden: 64", "hidden: 0", "hidden must be between 1"),
        ("layers: 4", "layers: 0", "must be between 1 and 4096"),
        ("layers: 4", "layers: 999999999", "must be between 1 and 4096"),
        ("source: made up for this test\n", "", "'source' is missing"),
        ("source: made up for this test", "source: ''", "'source' is empty"),
        ("source: made up for this test", 'source: "a\\e[31mred"', "control characters"),
        ("name: tiny", "name: [a]", "must be text"),
        ("name: tiny", "name: tiny\nnmae: x", "unknown key 'nmae'; did you mean name?"),
        ("name: tiny", "name: tiny\n1: x", "keys are words"),
        ("name: tiny", "name: tiny\ntitle: !!int ''", "tags .* are not allowed"),
        ("name: tiny", "name: tiny\nname: other", "t.yaml:2: the key 'name' stands twice"),
        ("hidden: 64", "hidden: 064", "reads as base 8 or 60"),
        ("hidden: 64", "hidden: 1:30", "reads as base 8 or 60"),
        ("name: tiny", 'name: "a\\nb"', "must be one line"),
        (
            "head_dim: 16}",
            "head_dim: 16, shared_from: 0}",
            "shares the cache of layer 0",
        ),
        ("head_dim: 16}", "head_dim: 16, shared_from: 9}", "shares the cache of layer 9"),
        ("head_dim: 16}", "head_dim: 16, shared_from: -1}", "layer 0 shares the cache of layer -1"),
        ("head_dim: 16}", "head_dim: 16, causal: 3}", "must be true or false"),
        (
            "dense: {width: 128}",
            "experts: {count: 70000, top_k: 2, width: 8}",
            "count must be at most 65,536",
        ),
        ("name: tiny", "name: &a tiny\ntitle: *a", "anchors and aliases"),
        ("name: tiny", "name: {a: *b", "not valid YAML|anchors"),
        ("name: tiny", "name: !!python/object/apply:os.system [ls]", "tags .* are not allowed"),
        ("name: tiny", "name: tiny\nweights: nope", "unknown weight format"),
        ("name: tiny", "name: tiny\ntied: maybe", "must be true or false"),
        ("name: tiny", "name: tiny\ndtype: fp12", "dtype is fp16, bf16 or fp32"),
        ("layer:\n", "layer:\n  conv: {x: 1}\n", "unknown key 'conv'"),
        ("layer:\n", "layers_: 3\nlayer:\n", "unknown key 'layers_'; did you mean layers"),
        ("layer:", "pattern: a b\nlayer:", "a 'pattern' needs 'kinds'"),
        (
            "  attention: {heads: 4, kv_heads: 2, head_dim: 16}\n  dense: {width: 128}\n",
            "  norms: 1\n",
            "at least one of",
        ),
        ("dense: {width: 128}", "experts: {count: 4, top_k: 5, width: 8}", "top_k 5 is more than count 4"),
        ("dense: {width: 128}", "cross_attention: {heads: 4, kv_heads: 4, head_dim: 4}", "no encoder"),
        ("dense: {width: 128}", "dense: 128", "expected a mapping, not the number 128"),
    ],
)
def test_bad_sheets(old: str, new: str, said: str) -> None:
    import re

    assert old in GOOD
    message = refused(GOOD.replace(old, new, 1))
    assert re.search(said, message), message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "just text",
        "\x00",
        "a: b: c",
        "{" * 5000,
        "[" * 100_000,
        "a:\n" + "".join(f"{' ' * i}b:\n" for i in range(1, 200)),
        "- " * 3000,
        "x: " + "a" * (MAX_SHEET_BYTES + 1),
        "".join(f"k{i}: {i}\n" for i in range(120_000)),
        "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: [*c,*c]",
    ],
    ids=range(12),
)
def test_hostile_text(text: str) -> None:
    refused(text)


def test_a_sheet_of_ten_megabytes_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_bytes(b"name: x\n" + b"#" * 10_000_000)
    with pytest.raises(Exception, match="larger than a sheet may be"):
        load_model(str(path))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00name")
    with pytest.raises(Exception, match="not UTF-8"):
        load_model(str(binary))
    with pytest.raises(Exception, match=r"holds neither a config.json nor a GGUF file"):
        load_model(str(tmp_path) + "/")
    with pytest.raises(Exception, match=r"cannot read .*No such file"):
        load_model(str(tmp_path / "absent.yaml"))


SHARING = """
name: pairs
source: made up for this test
hidden: 64
vocab: 100
layers: 8
kinds:
  own:
    attention: {heads: 4, kv_heads: 2, head_dim: 16, window: 512}
  shared:
    attention: {heads: 4, kv_heads: 2, head_dim: 16, window: 512, shared_from: -1}
pattern: own shared
"""


def test_a_shared_cache_may_be_named_by_how_far_before_it_stands() -> None:
    """Four pairs in two kinds, read and written back so."""
    model = model_from_text(SHARING, "t.yaml")
    sources = [getattr(layer.blocks[0], "shared_from", 0) for layer in model.layers]
    assert sources == [None, 0, None, 2, None, 4, None, 6]
    assert "shared_from: -1}\npattern:" in sheet_text(model)
    assert model_from_text(sheet_text(model), "t.yaml") == model


@pytest.mark.parametrize(
    ("old", "new", "keeps", "reads"),
    [
        (", window: 512, shared", ", shared", "of a window of 512", "of all tokens"),
        ("window: 512, shared", "window: 256, shared", "of a window of 512", "of a window of 256"),
        (
            "kv_heads: 2, head_dim: 16, window: 512, s",
            "kv_heads: 4, head_dim: 16, window: 512, s",
            "2 x",
            "4 x",
        ),
        ("head_dim: 16, window: 512, s", "head_dim: 32, window: 512, s", "2 x 16", "2 x 32"),
    ],
)
def test_a_shared_cache_holds_what_is_read(old: str, new: str, keeps: str, reads: str) -> None:
    """A layer that sees all tokens cannot read the rows of a window, nor one of other heads or widths."""
    assert old in SHARING
    message = refused(SHARING.replace(old, new))
    kept, _, read = message.partition(", where it reads ")
    assert "layer 1 shares the cache of layer 0, which keeps" in kept
    assert (keeps in kept, reads in read, len(message.splitlines())) == (True, True, 1)
