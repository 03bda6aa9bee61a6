"""GGUF files made here with the package's own writer: sizes to the byte, shapes, and damage refused."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infercost import InputError
from infercost.costmodel.kv import cache_bill
from infercost.costmodel.weights import weight_bill
from infercost.models.attention import Attention, LatentAttention
from infercost.models.formats import find_format
from infercost.models.gguf import model_from_gguf, read_header
from infercost.models.recipes import default_recipe
from infercost.models.recurrent import ShortConvolution, StateSpace

gguf = pytest.importorskip("gguf", reason="the gguf package is not installed")
np = pytest.importorskip("numpy", reason="numpy is not installed")
T = gguf.GGMLQuantizationType
F16 = find_format("fp16")
Shapes = list[tuple[str, tuple[int, ...], Any]]


def write(path: Path, arch: str, keys: dict[str, Any], tensors: Shapes) -> Path:
    """A file with a tokenizer's worth of keys and zeros for tensors ([rows, cols] here)."""
    writer = gguf.GGUFWriter(str(path), arch)
    for key, value in keys.items():
        name = f"{arch}.{key}"
        if isinstance(value, list):
            writer.add_array(name, value)
        else:
            writer.add_uint32(name, value)
    writer.add_array("tokenizer.ggml.tokens", [f"token {i}" for i in range(300)])
    writer.add_array("tokenizer.ggml.scores", [float(i) for i in range(9000)])
    for name, shape, kind in tensors:
        if kind == T.F32:
            writer.add_tensor(name, np.zeros(shape, dtype=np.float32))
            continue
        block, size = gguf.GGML_QUANT_SIZES[kind]
        packed = (*shape[:-1], shape[-1] // block * size)
        writer.add_tensor(name, np.zeros(packed, dtype=np.uint8), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


H, V = 256, 320


def norm(name: str, width: int = H) -> tuple[str, tuple[int, ...], Any]:
    return (f"{name}.weight", (width,), T.F32)


def outer(kind: Any, tied: bool = False) -> Shapes:
    out: Shapes = [("token_embd.weight", (V, H), kind), norm("output_norm")]
    return out if tied else [*out, ("output.weight", (V, H), T.Q6_K)]


def attention(heads: int, kv: int, hd: int, kind: Any, bias: bool = False, qk_norm: bool = False) -> Shapes:
    out: Shapes = [
        norm("attn_norm"),
        ("attn_q.weight", (heads * hd, H), kind),
        ("attn_k.weight", (kv * hd, H), kind),
        ("attn_v.weight", (kv * hd, H), T.Q6_K),
        ("attn_output.weight", (H, heads * hd), kind),
    ]
    if bias:
        out += [(f"attn_{p}.bias", (n * hd,), T.F32) for p, n in (("q", heads), ("k", kv), ("v", kv))]
    if qk_norm:
        out += [norm("attn_q_norm", hd), norm("attn_k_norm", hd)]
    return out


def mlp(width: int, kind: Any) -> Shapes:
    return [
        norm("ffn_norm"),
        ("ffn_gate.weight", (width, H), kind),
        ("ffn_up.weight", (width, H), kind),
        ("ffn_down.weight", (H, width), kind),
    ]


def experts(count: int, width: int, kind: Any) -> Shapes:
    return [
        norm("ffn_norm"),
        ("ffn_gate_inp.weight", (count, H), T.F32),
        ("ffn_gate_exps.weight", (count, width, H), kind),
        ("ffn_up_exps.weight", (count, width, H), kind),
        ("ffn_down_exps.weight", (count, H, width), kind),
    ]


def layers(*each: Shapes) -> Shapes:
    return [(f"blk.{i}.{name}", shape, kind) for i, one in enumerate(each) for name, shape, kind in one]


BASE = {"embedding_length": H, "context_length": 4096}


def common(count: int, heads: Any, kv: Any, **more: Any) -> dict[str, Any]:
    return {
        **BASE,
        "block_count": count,
        "attention.head_count": heads,
        "attention.head_count_kv": kv,
        **more,
    }


FILES: dict[str, tuple[str, dict[str, Any], Shapes]] = {
    "llama": (
        "llama",
        common(2, 4, 2, feed_forward_length=512),
        outer(T.Q4_K) + layers(*[attention(4, 2, 64, T.Q4_K) + mlp(512, T.Q4_K)] * 2),
    ),
    "qwen2": (
        "qwen2",
        common(2, 4, 1, feed_forward_length=512),
        outer(T.Q8_0, tied=True) + layers(*[attention(4, 1, 64, T.Q8_0, bias=True) + mlp(512, T.Q8_0)] * 2),
    ),
    "qwen3": (
        "qwen3",
        common(
            2, 4, 2, feed_forward_length=512, **{"attention.key_length": 128, "attention.value_length": 128}
        ),
        outer(T.Q5_K) + layers(*[attention(4, 2, 128, T.Q5_K, qk_norm=True) + mlp(512, T.Q5_K)] * 2),
    ),
    "gemma3": (
        "gemma3",
        common(
            7, 4, 2, feed_forward_length=512, **{"attention.sliding_window": 16, "attention.key_length": 64}
        ),
        outer(T.IQ4_XS, tied=True)
        + layers(
            *[
                attention(4, 2, 64, T.IQ4_XS, qk_norm=True)
                + mlp(512, T.IQ4_XS)
                + [norm("post_attention_norm"), norm("post_ffw_norm")]
            ]
            * 7
        ),
    ),
    "qwen3moe": (
        "qwen3moe",
        common(2, 4, 2, expert_count=8, expert_used_count=2),
        outer(T.Q3_K) + layers(*[attention(4, 2, 64, T.Q3_K, qk_norm=True) + experts(8, 256, T.Q3_K)] * 2),
    ),
    "gpt-oss": (
        "gpt-oss",
        common(
            2,
            4,
            2,
            expert_count=4,
            expert_used_count=2,
            **{"attention.sliding_window": 8, "attention.key_length": 64, "attention.value_length": 64},
        ),
        outer(T.Q8_0)
        + layers(
            *[[*attention(4, 2, 64, T.Q8_0), ("attn_sinks.weight", (4,), T.F32), *experts(4, 256, T.MXFP4)]]
            * 2
        ),
    ),
    "deepseek2": (
        "deepseek2",
        common(
            1,
            4,
            1,
            expert_used_count=2,
            **{
                "attention.kv_lora_rank": 256,
                "attention.key_length": 288,
                "attention.value_length": 256,
                "attention.key_length_mla": 96,
                "attention.value_length_mla": 64,
                "rope.dimension_count": 32,
            },
        ),
        outer(T.Q4_0)
        + layers(
            [
                norm("attn_norm"),
                ("attn_q.weight", (4 * 96, H), T.Q4_0),
                ("attn_kv_a_mqa.weight", (288, H), T.Q4_0),
                norm("attn_kv_a_norm", 256),
                ("attn_kv_b.weight", (4 * (64 + 64), 256), T.Q4_0),
                ("attn_output.weight", (H, 4 * 64), T.Q4_0),
                *experts(4, 256, T.Q4_0),
            ]
        ),
    ),
    "lfm2": (
        "lfm2",
        common(3, 4, [0, 2, 0], feed_forward_length=512, **{"shortconv.l_cache": 3}),
        outer(T.Q6_K, tied=True)
        + layers(
            *[
                [
                    norm("attn_norm"),
                    ("shortconv.conv.weight", (H, 3), T.F32),
                    ("shortconv.in_proj.weight", (3 * H, H), T.Q6_K),
                    ("shortconv.out_proj.weight", (H, H), T.Q6_K),
                    *mlp(512, T.Q6_K),
                ]
                if i != 1
                else attention(4, 2, 64, T.Q6_K, qk_norm=True) + mlp(512, T.Q6_K)
                for i in range(3)
            ]
        ),
    ),
    "mamba": (
        "mamba",
        {
            **BASE,
            "block_count": 2,
            "ssm.conv_kernel": 4,
            "ssm.inner_size": 512,
            "ssm.state_size": 16,
            "ssm.time_step_rank": 16,
        },
        outer(T.Q2_K, tied=True)
        + layers(
            *[
                [
                    norm("attn_norm"),
                    ("ssm_in.weight", (1024, H), T.Q2_K),
                    ("ssm_conv1d.weight", (512, 4), T.F32),
                    ("ssm_conv1d.bias", (512,), T.F32),
                    ("ssm_x.weight", (48, 512), T.Q2_K),
                    ("ssm_dt.weight", (512, 16), T.F32),
                    ("ssm_dt.bias", (512,), T.F32),
                    ("ssm_a", (512, 16), T.F32),
                    ("ssm_d", (512,), T.F32),
                    ("ssm_out.weight", (H, 512), T.Q2_K),
                ]
            ]
            * 2
        ),
    ),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("gguf")
    return {name: write(folder / f"{name}.gguf", *file) for name, file in FILES.items()}


@pytest.mark.parametrize("name", FILES)
def test_sizes_to_the_byte(name: str, made: dict[str, Path]) -> None:
    """The file's own size follows from its header; the bill of its model is the tensors' bytes."""
    header = read_header(made[name])
    assert header.predicted_size == header.size == made[name].stat().st_size
    reader = gguf.GGUFReader(str(made[name]))
    assert {t.name: (t.bytes, t.type) for t in header.tensors} == {
        t.name: (int(t.n_bytes), t.tensor_type.name.lower()) for t in reader.tensors
    }
    model = model_from_gguf(made[name])
    assert model.parameters == sum(t.elements for t in header.tensors)
    assert model.inferred == () or "windows" in model.inferred[0]
    assert weight_bill(model, default_recipe(model)).weight_bytes == header.tensor_bytes


def test_kinds_and_types_are_many() -> None:
    assert len(FILES) >= 8
    used = {kind for _, _, tensors in FILES.values() for _, _, kind in tensors}
    assert len(used - {T.F32}) >= 6


def test_layouts(made: dict[str, Path]) -> None:
    """Array-valued head counts, key_length, window patterns, MLA, state space."""
    per_token = {
        name: cache_bill(model_from_gguf(path), 1, 1, F16).bytes_per_token for name, path in made.items()
    }
    assert per_token["qwen3"] == 2 * 2 * (128 + 128) * 2
    assert per_token["lfm2"] == 1 * 2 * (64 + 64) * 2, "two of three layers keep no rows"
    assert per_token["deepseek2"] == (256 + 32) * 2, "the latent row once"
    assert per_token["mamba"] == 0
    gemma = model_from_gguf(made["gemma3"])
    windows = [b.window for layer in gemma.layers for b in layer.blocks if isinstance(b, Attention)]
    assert windows == [16, 16, 16, 16, 16, None, 16]
    oss = model_from_gguf(made["gpt-oss"])
    assert [b.sinks for layer in oss.layers for b in layer.blocks if isinstance(b, Attention)] == [True, True]
    mla = model_from_gguf(made["deepseek2"]).layers[0].blocks[0]
    assert isinstance(mla, LatentAttention)
    assert (mla.nope_dim, mla.rope_dim, mla.v_head_dim) == (64, 32, 64)
    assert isinstance(model_from_gguf(made["lfm2"]).layers[0].blocks[0], ShortConvolution)
    assert isinstance(model_from_gguf(made["mamba"]).layers[0].blocks[0], StateSpace)


def test_command_line(made: dict[str, Path], run: Callable[..., Any]) -> None:
    path = str(made["llama"])
    shown = run("models", "show", path, "--json").json
    assert shown["checkpoint"]["file_bytes"] == shown["checkpoint"]["predicted_file_bytes"]
    assert run("kv", "--model", path, "--seq", "1k", "-q").out == f"{2 * 2 * 1024 * 2 * 64 * 2}\n"
    bill = run("weights", "--model", path, "--json").json
    assert bill["weight_bytes"] == shown["checkpoint"]["tensor_bytes"]
    assert run("ops", "--model", path, "--seq", "64").code == 0


def test_quantised_types_are_those_of_the_file(made: dict[str, Path]) -> None:
    bill = weight_bill(model_from_gguf(made["gpt-oss"]), default_recipe(model_from_gguf(made["gpt-oss"])))
    assert {c.name: c.format for c in bill.components}["experts"] == "mxfp4"


def test_a_wrong_shape_is_named(tmp_path: Path) -> None:
    arch, keys, tensors = FILES["llama"]
    path = write(tmp_path / "x.gguf", arch, {**keys, "attention.head_count": 3}, tensors)
    with pytest.raises(InputError, match="head"):
        model_from_gguf(path)
    path = write(tmp_path / "y.gguf", arch, {k: v for k, v in keys.items() if k != "block_count"}, tensors)
    with pytest.raises(InputError, match=r"'llama.block_count' is missing"):
        model_from_gguf(path)


@pytest.mark.parametrize("kept", [0, 3, 4, 8, 23, 24, 40, 100, 1000, 5000])
def test_truncated_files(kept: int, made: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(made["llama"].read_bytes()[:kept])
    with pytest.raises(InputError, match="not a sound GGUF file"):
        model_from_gguf(path)


def test_a_file_cut_in_its_data_says_so(
    made: dict[str, Path], tmp_path: Path, run: Callable[..., Any]
) -> None:
    path = tmp_path / "short.gguf"
    path.write_bytes(made["llama"].read_bytes()[:-1000])
    assert "it is truncated" in run("models", "show", str(path)).out


HUGE = 2**60


@pytest.mark.parametrize(
    "body",
    [
        struct.pack("<QQ", HUGE, 0),
        struct.pack("<QQ", 0, HUGE),
        struct.pack("<QQ", 0, 1) + struct.pack("<Q", HUGE),
        struct.pack("<QQ", 0, 1) + struct.pack("<Q1sIIQ", 1, b"a", 9, 8, HUGE),
        struct.pack("<QQ", 0, 1) + struct.pack("<Q1sIIQ", 1, b"a", 9, 8, 1 << 25),
        struct.pack("<QQ", 0, 1) + struct.pack("<Q1sIIQ", 1, b"a", 9, 0, HUGE),
        struct.pack("<QQ", 0, 1) + struct.pack("<Q1sIIQ", 1, b"a", 9, 9, 5),
        struct.pack("<QQ", 0, 1) + struct.pack("<Q1sI", 1, b"a", 77),
        struct.pack("<QQ", 1, 0) + struct.pack("<Q1sI", 1, b"a", 4_000_000_000),
        struct.pack("<QQ", 1, 0) + struct.pack("<Q1sIQIQ", 1, b"a", 1, HUGE, 0, 0),
        struct.pack("<QQ", 1, 0) + struct.pack("<Q1sIQIQ", 1, b"a", 1, 33, 12, 0),
        struct.pack("<QQ", 1, 0) + struct.pack("<Q1sIQIQ", 1, b"a", 1, 256, 250, 0),
        struct.pack("<QQ", 0, 0),
    ],
    ids=range(13),
)
def test_hostile_headers(body: bytes, tmp_path: Path) -> None:
    """Counts of 2^60, arrays of arrays, unknown types, tensors of exabytes: refused at once."""
    path = tmp_path / "hostile.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<I", 3) + body + b"\0" * 64)
    with pytest.raises(InputError):
        model_from_gguf(path)


@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_mutated_files(
    made: dict[str, Path], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Bytes of a good header overwritten: a sound model or one clear error."""
    raw = bytearray(made[data.draw(st.sampled_from(sorted(FILES)))].read_bytes()[:60_000])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, min(len(raw), 50_000) - 9))
        raw[at : at + 8] = data.draw(st.binary(min_size=8, max_size=8) | st.just(struct.pack("<Q", HUGE)))
    path = tmp_path_factory.getbasetemp() / "mutated.gguf"
    path.write_bytes(raw)
    try:
        model = model_from_gguf(path)
    except InputError as error:
        said = str(error)
    else:
        said = str(model.parameters)
    assert said
