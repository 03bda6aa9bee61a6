"""`infercost quant`: the ledger's entries, tensors from files, formats compared, what cannot be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Ask = Callable[..., Any]
Run = Callable[..., Any]
BOOK = ("quant", "--values", "1.2,2.4,3.6;11.2,12.4,13.6", "--bits", "8")
TRUNCATED = (*BOOK, "--asym", "--zero-point", "truncate")
BITS = {
    "GPTQ/AWQ g128 sym(16b scale)": ("int4-g128", 4.125),
    "GPTQ/AWQ g128 asym(16b scale+4b zero)": ("int4-g128-asym", 4.15625),
    "g64 asym": ("int4-g64-asym", 4.3125),
    "g32 asym": ("int4-g32-asym", 4.625),
    "NF4 g64 fp32 absmax": ("nf4", 4.5),
    "NF4 g64 double quant": ("nf4-dq", 4.12695),
    "FP8 per tensor": ("fp8", 8.0),
    "FP8 128x128 block fp32": ("fp8-block", 8.00195),
    "MXFP4 (32, e8m0)": ("mxfp4", 4.25),
    "NVFP4 (16, e4m3)": ("nvfp4", 4.5),
    "INT8 per row H=4096 fp32": ("int8-row", 8.00781),
    "Q2_K": ("q2_k", 2.625),
    "Q3_K": ("q3_k", 3.4375),
    "Q4_0": ("q4_0", 4.5),
    "Q4_1": ("q4_1", 5.0),
    "Q4_K": ("q4_k", 4.5),
    "Q5_0": ("q5_0", 5.5),
    "Q5_1": ("q5_1", 6.0),
    "Q5_K": ("q5_k", 5.5),
    "Q6_K": ("q6_k", 6.5625),
    "Q8_0": ("q8_0", 8.5),
    "IQ1_S": ("iq1_s", 1.5625),
    "IQ1_M": ("iq1_m", 1.75),
    "IQ2_XXS": ("iq2_xxs", 2.0625),
    "IQ2_XS": ("iq2_xs", 2.3125),
    "IQ2_S": ("iq2_s", 2.5625),
    "IQ3_XXS": ("iq3_xxs", 3.0625),
    "IQ3_S": ("iq3_s", 3.4375),
    "IQ4_XS": ("iq4_xs", 4.25),
    "IQ4_NL": ("iq4_nl", 4.5),
    "TQ1_0": ("tq1_0", 1.6875),
    "TQ2_0": ("tq2_0", 2.0625),
}


def errors(ask: Ask) -> dict[str, float]:
    """As the ledger prints them, to 4 and 6 decimals; `test_the_errors_exactly` has all digits."""
    truncated, rounded = ask(*TRUNCATED), ask(*BOOK)
    return {
        "book_Z152": round(truncated["max_abs_error"], 4),
        "round_Z153": round(rounded["max_abs_error"], 4),
        "sse_152": round(truncated["sse"], 6),
        "sse_153": round(rounded["sse"], 6),
    }


def formats(ask: Ask) -> dict[str, float]:
    listed = {entry["name"]: entry["bits_per_weight"] for entry in ask("quant", "--formats")["formats"]}
    return {name: listed[fmt] for name, (fmt, _) in BITS.items()}


def drops(ask: Ask) -> dict[str, float]:
    quoted = ask("quant", "--model", "llama-7b,llama-13b", "--seq", "1", "--weights", "bnb-int8,bnb-nf4")
    change = {(each["model"], each["format"]): -each["change"] for each in quoted["quality"]}
    return {
        "drop4_7B": change["llama-7b", "bnb-nf4"],
        "drop4_13B": change["llama-13b", "bnb-nf4"],
        "drop8_13B": change["llama-13b", "bnb-int8"],
    }


def rule(ask: Ask) -> dict[str, float]:
    four, eight = ask("quant", "--same-memory", "30GB", "--bits", "4,8")["rivals"]
    return {"b60": four["parameters"] / 2, "b30": eight["parameters"]}


def extra(ask: Ask) -> float:
    args = ("--model", "llama-7b", "--seq", "1k", "--weights", "int8-row", "--scheme", "w8a8")
    line = ask("quant", *args)["points"][-1]
    assert line["extra"]["bytes"] == 0
    return float(line["extra"]["matmul_flops"])


ENTRIES: dict[str, tuple[Any, float, Callable[[Ask], Any]]] = {
    "q.S": (0.048627, 0.001, lambda ask: ask(*BOOK)["scale"]),
    "q.Z": (152.6774, 0.0005, lambda ask: ask(*BOOK)["zero_point_exact"]),
    "q.Xq": ([-127, -103, -78, 78, 103, 127], 0, lambda ask: ask(*TRUNCATED)["codes"]),
    "q.deq": (
        [1.2157, 2.3827, 3.5984, 11.1843, 12.4, 13.5671],
        0.0001,
        lambda ask: ask(*TRUNCATED)["dequantised"],
    ),
    "q.err": (
        {"book_Z152": 0.0329, "round_Z153": 0.0173, "sse_152": 0.001877, "sse_153": 0.001038},
        0.001,
        errors,
    ),
    "q.sym": (0.106667, 0.001, lambda ask: ask(*BOOK, "--sym")["scale"]),
    "q.waste": (0.5441, 0.05, lambda ask: ask(*BOOK, "--sym")["wasted_share"]),
    "llmint8": (
        1.001,
        0.01,
        lambda ask: ask("quant", "--scheme", "llm-int8", "--outliers", "0.1%")["mixed_bytes_per_weight"],
    ),
    "smooth": (0, 0, extra),
    "q.bits": ({name: bits for name, (_, bits) in BITS.items()}, 0.0005, formats),
    "awq": (4.12, 0.0005, lambda ask: ask("quant", "--scheme", "awq")["mixed_bits_per_weight"]),
    "t93.scores": ({"drop4_7B": 1.74, "drop4_13B": 3.6, "drop8_13B": 1.8}, 0.0005, drops),
    "rule.60v30": ({"b60": 30000000000.0, "b30": 30000000000.0}, 0.0005, rule),
}
OTHERS = ("t93.scores", "rule.60v30")
"""Entries whose command is not quant but that it answers, too."""


@pytest.mark.parametrize("name", ENTRIES)
def test_ledger(name: str, ask: Ask, holds: Callable[..., None]) -> None:
    wanted, tolerance, answer = ENTRIES[name]
    holds(answer(ask), wanted, tolerance)


def test_every_entry_of_quant_is_here(ledger: dict[str, Any]) -> None:
    asked = {name for name, entry in ledger.items() if entry["command"].split()[1:2] == ["quant"]}
    assert set(ENTRIES) - set(OTHERS) == asked
    for name, (value, tolerance, _) in ENTRIES.items():
        assert (ledger[name]["value"], ledger[name]["tolerance"]) == (value, tolerance), name


def test_the_errors_exactly(ask: Ask) -> None:
    """By hand, in fractions: S = 12.4 / 255, every value at the code nearest to it."""
    from fractions import Fraction

    x = [Fraction(each) for each in ("1.2", "2.4", "3.6", "11.2", "12.4", "13.6")]
    step = Fraction("12.4") / 255
    for args, zero, codes in (
        (TRUNCATED, 152, [-127, -103, -78, 78, 103, 127]),
        (BOOK, 153, [-128, -104, -79, 77, 102, 127]),
    ):
        lost = [abs(step * (q + zero) - value) for q, value in zip(codes, x, strict=True)]
        got = ask(*args)
        assert (got["codes"], got["zero_point"]) == (codes, zero)
        assert got["max_abs_error"] == pytest.approx(float(max(lost)), rel=1e-9)
        assert got["sse"] == pytest.approx(float(sum(each**2 for each in lost)), rel=1e-9)
    symmetric = ask(*BOOK, "--sym")
    assert symmetric["max_abs_error"] == pytest.approx(0.0533, abs=5e-5)
    assert symmetric["sse"] == pytest.approx(0.0078, abs=5e-5)
    restricted = ask(*BOOK, "--sym", "--range", "restricted")
    assert restricted["scale"] == pytest.approx(13.6 / 127, rel=1e-12)
    assert restricted["max_abs_error"] == pytest.approx(0.0441, abs=5e-5)


def test_the_schemes_stand_beside_one_another(ask: Ask, run: Run) -> None:
    one = ask(*BOOK)
    kinds = {(each["symmetric"], each["zero_point_rule"], each["range"]): each for each in one["schemes"]}
    for args, key in (
        ((), (False, "round", "full")),
        (("--zero-point", "truncate"), (False, "truncate", "full")),
        (("--sym",), (True, None, "full")),
        (("--sym", "--range", "restricted"), (True, None, "restricted")),
    ):
        assert kinds[key]["sse"] == ask(*BOOK, *args)["sse"]
    assert run(*BOOK, "-q").out.strip() == repr(one["max_abs_error"])
    assert run(*BOOK).out.startswith("S = 0.0486275, Z = 153 (exact 152.6774): largest error 0.01725")


def test_rows_are_channels(ask: Ask) -> None:
    got = ask(*BOOK, "--per", "channel")
    assert (got["tiles"], got["scale"]) == (2, None)
    assert got["scale_max"] == pytest.approx(2.4 / 255, rel=1e-12)
    assert [each["per"] for each in got["granularities"]] == ["tensor", "channel"]
    group = ask("quant", "--values", "1,2,3,4,5", "--group", "2", "--bits", "4", "--sym")
    assert (group["tiles"], group["inputs"]["per"]) == (3, "group")
    # 5 codes of 4 bits fill 3 bytes, 3 scales of 16 bits 6.
    assert group["stored_bits"] == 9 * 8 / 5


def test_tensors_from_files(tmp_path: Path, ask: Ask) -> None:
    np = pytest.importorskip("numpy")
    held = np.random.default_rng(3).normal(0, 1, (8, 300)).astype(np.float32)
    np.save(tmp_path / "w.npy", held)
    np.savetxt(tmp_path / "w.csv", held, delimiter=",", fmt="%.17g")
    args = ("--bits", "4", "--sym", "--per", "group")
    binary, text = (ask("quant", "--tensor", str(tmp_path / f"w.{kind}"), *args) for kind in ("npy", "csv"))
    assert (binary["tiles"], binary["inputs"]["rows"], binary["inputs"]["columns"]) == (24, 8, 300)
    assert binary["codes"] == text["codes"]
    # More than what is kept whole goes as an array: the same figures, no codes.
    np.save(tmp_path / "many.npy", np.tile(held, (2, 1)))
    many = ask("quant", "--tensor", str(tmp_path / "many.npy"), *args)
    assert many["codes"] is None
    assert many["sse"] == pytest.approx(2 * binary["sse"], rel=1e-9)
    assert many["stored_bits"] == pytest.approx(binary["stored_bits"])
    # Three dimensions: the first is the channel; a scalar is one value.
    np.save(tmp_path / "cube.npy", held[:, :299].reshape(8, 13, 23))
    assert ask("quant", "--tensor", str(tmp_path / "cube.npy"), "--per", "channel")["tiles"] == 8
    np.save(tmp_path / "one.npy", np.int8(3))
    assert ask("quant", "--tensor", str(tmp_path / "one.npy"))["dequantised"] == [3.0]


def test_a_product_with_outliers(tmp_path: Path, ask: Ask, run: Run) -> None:
    np = pytest.importorskip("numpy")
    random = np.random.default_rng(5)
    x, w = random.normal(0, 1, (32, 64)), random.normal(0, 0.02, (16, 64))
    x[:, [7, 40]] *= 80
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "w.npy", w)
    args = ("quant", "--tensor", str(tmp_path / "w.npy"), "--activations", str(tmp_path / "x.npy"))
    got = ask(*args)
    assert (got["outlier_columns"], got["outlier_share"]) == (2, 2 / 64)
    assert got["smoothing_error"] < 1e-14
    error = {way["name"]: way["relative_error"] for way in got["products"]}
    assert error["llm-int8"] < error["smoothquant"] < error["int8 weights and activations"]
    # Nothing is an outlier beyond the largest value; everything is one below the smallest.
    assert ask(*args, "--threshold", "1e6")["outlier_columns"] == 0
    none = {way["name"]: way["relative_error"] for way in ask(*args, "--threshold", "1e-9")["products"]}
    assert none["llm-int8"] == 0
    assert run(*args).out.startswith("llm-int8 loses least with activations in 8 bit")
    assert run("quant", "--values", "1,2", "--activations", str(tmp_path / "x.npy")).code == 2
    assert run(*args, "--alpha", "2").code == 2
    assert run(*args, "--threshold", "nan").code == 2
    assert "without effect on `quant --tensor --activations`" in run(*args, "--sym").err


def test_formats_on_a_model(ask: Ask) -> None:
    """Against the commands that answer each column by itself."""
    args = ("--model", "llama-3-8b", "--gpu", "h100", "--seq", "8k", "--batch", "4")
    got = ask("quant", *args, "--weights", "bf16,gptq", "--kv", "bf16,fp8")
    assert [(p["inputs"]["weights"], p["inputs"]["kv"]) for p in got["points"]] == [
        (weights, kv) for kv in ("bf16", "fp8") for weights in ("bf16", "gptq")
    ]
    for point in got["points"]:
        own = ("--weights", point["inputs"]["weights"])
        cache = ("--kv", point["inputs"]["kv"])
        weights = ask("weights", "--model", "llama-3-8b", *own)["weight_bytes"]
        kept = ask("kv", "--model", "llama-3-8b", "--seq", "8k", "--batch", "4", *cache)["logical_bytes"]
        assert (point["weight_bytes"], point["kv_bytes"]) == (weights, kept)
        totals = ask("ops", *args, "--phase", "decode", *own, *cache)["totals"]["decode"]
        assert point["tpot_s"]["floor"] == pytest.approx(totals["floor_s"], rel=1e-9)
        assert point["tpot_s"]["expected"] == pytest.approx(totals["expected_s"], rel=1e-9)
        fits = ask("fit", *args, *own, *cache, "--share", "1")
        assert point["memory_bytes"] == fits["total_bytes"]
    first, second = got["points"][:2]
    assert (first["speedup"], second["speedup"] > 1) == (1, True)
    assert ask("quant", *args, "--weights", "gptq", "--calibration", "none")["tpot_s"]["expected"] is None


def test_a_quantised_cache_made_anew_is_a_prefill(ask: Ask, run: Run) -> None:
    """kvq.error: an entry's own error is fixed; recomputing costs about 2·P·T FLOPs."""
    args = ("quant", "--model", "llama-7b", "--seq", "512", "--weights", "fp16", "--kv", "int8-g64")
    got = ask(*args)
    parameters, tokens = 6_738_415_616, 512
    table_and_head = 2 * 32000 * 4096
    nominal = 2 * (parameters - table_and_head) * tokens
    assert got["kv_recompute"]["matmul_flops"] == pytest.approx(nominal, rel=0.02)
    assert "does not grow" in run(*args).out
    prompt = ask("ops", *args[1:], "--phase", "prefill")["totals"]["prefill"]
    assert got["kv_recompute"]["floor_s"] == pytest.approx(prompt["floor_s"], rel=1e-9)
    assert prompt["floor_s"] > 1.01 * prompt["bound_s"]
    # kvq.size
    whole = ask("quant", "--model", "llama-7b", "--seq", "32k", "--weights", "fp16", "--kv", "int8-g64")
    assert whole["kv_bytes"] / 2**30 == pytest.approx(8.25, rel=0.01)


def test_schemes_on_a_model(ask: Ask, run: Run) -> None:
    """LLM.int8() moves more than its format alone, adapters add FLOPs, the rest adds nothing."""
    args = ("quant", "--model", "llama-7b", "--gpu", "a100", "--seq", "2k")
    got = {point["inputs"]["format"]: point for point in ask(*args)["points"]}
    assert set(got) == {"fp16", "fp8-row", "bnb-nf4", "llm-int8", "smoothquant", "gptq", "awq", "lora-2bit"}
    extra = {name: point["extra"] for name, point in got.items()}
    # 3 bytes a value of the inputs of qkv, o, gate and up, and down; then what the outliers' products move.
    values = 32 * (4096 + 4096 + 4096 + 11008)
    assert 3 * values < extra["llm-int8"]["bytes"] < 8 * values
    for name in ("fp16", "smoothquant", "gptq", "awq"):
        assert extra[name] == {"matmul_flops": 0, "bytes": 0}
    assert got["awq"]["mixed_bits_per_weight"] == 4.12
    assert got["lora-2bit"]["weight_bytes"] < got["gptq"]["weight_bytes"] < got["smoothquant"]["weight_bytes"]
    assert got["smoothquant"]["prefill_s"]["floor"] < got["gptq"]["prefill_s"]["floor"]
    wide = ask(*args, "--scheme", "llm-int8", "--outliers", "5%")["points"][1]
    assert wide["weight_bytes"] > got["llm-int8"]["weight_bytes"]
    assert wide["mixed_bits_per_weight"] == pytest.approx(8.4)
    more = ask(*args, "--scheme", "lora-2bit", "--rank", "128")["points"][1]
    added = [each["extra"]["matmul_flops"] for each in (got["lora-2bit"], more)]
    assert added[1] == 2 * added[0]
    shown = run(*args).out
    assert "has no fp8" in shown
    assert "arXiv 2306.00978, Table 4" in shown
    # What is not the published model has no published figures.
    assert ask(*args, "--layers", "4")["quality"] == []


@pytest.mark.parametrize(
    "model", ["gpt-oss-20b", "deepseek-v3", "mamba-130m", "whisper-large-v3", "zamba2-2.7b"]
)
def test_every_kind_of_model(model: str, ask: Ask, run: Run) -> None:
    points = ask("quant", "--model", model, "--gpu", "h200", "--seq", "1k", "--batch", "2")["points"]
    assert len({point["inputs"]["format"] for point in points}) == len(points) > 6
    for point in points:
        assert 0 < point["tpot_s"]["bound"] <= point["tpot_s"]["floor"] <= point["tpot_s"]["expected"]
    assert run("quant", "--model", model, "--gpu", "h200", "--seq", "1k").err == ""


def test_the_same_memory(ask: Ask, run: Run) -> None:
    got = ask("quant", "--same-memory", "30GB")
    assert [each["bits"] for each in got["rivals"]] == [2, 3, 4, 8, 16]
    assert len({each["steps"][0]["floor_s"] for each in got["rivals"]}) == 1
    four = got["rivals"][2]
    assert four["bytes_with_scales"] == pytest.approx(31.2e9, rel=1e-3)
    assert int(four["turning_tokens"]) == 38
    said = run("quant", "--same-memory", "30GB", "--bits", "4,8").out
    assert "60.0 B parameters at 4 bit or 30.0 B at 8 bit: equally fast up to 38 tokens" in said
    assert run("quant", "--same-memory", "30GB", "--bits", "8", "-q").out == "30000000000.0\n"
    assert ask("quant", "--same-memory", "24GiB", "--gpu", "h100")["weight_bytes"] == 24 << 30


def test_schemes_alone(ask: Ask, run: Run) -> None:
    every = ask("quant", "--scheme", "all")["schemes"]
    assert [each["scheme"] for each in every] == ["llm-int8", "smoothquant", "gptq", "awq", "lora-2bit"]
    assert {each["scheme"] for each in every if each["extra_flops_per_weight_and_token"] == 0} == {
        *("smoothquant", "gptq", "awq")
    }
    assert run("quant", "--scheme", "w8a8").out.startswith("smoothquant: 8 bits")
    assert run("quant", "--scheme", "awq", "-q").out == "4.15625\n"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "needs something to quantise"),
        (("--values", ""), "has an empty part"),
        (("--values", "1,,2"), "has an empty part"),
        (("--values", "1,nan"), "'nan' is not a finite number"),
        (("--values", "1,inf"), "'inf' is not a finite number"),
        (("--values", "1,1e101"), "not a finite number up to 1e+100"),
        (("--values", "1,2;3"), "row 2 has 1 values, the first 2"),
        (("--values", "1", "--bits", "1"), "2 to 16"),
        (("--values", "1", "--bits", "17"), "2 to 16"),
        (("--values", "1", "--bits", "4,8"), "not a number of bits"),
        (("--values", "1", "--per", "row"), "--per is one of tensor, channel, group"),
        (("--values", "1", "--group", "0"), "--group '0' must be between"),
        (("--values", "1", "--group", "2", "--per", "tensor"), "--group belongs to --per group"),
        (("--values", "1", "--zero-point", "floor"), "--zero-point is one of"),
        (("--values", "1", "--range", "full"), "--range belongs to --symmetric"),
        (("--values", "1", "--sym", "--zero-point", "round"), "does not go with --zero-point"),
        (("--values", "1", "--sym", "--asym"), "does not go with --asymmetric"),
        (
            ("--values", "1", "--seq", "5"),
            "on `quant --values`: --seq belongs to --model",
        ),
        (("--values", "1", "--tensor", "x.npy"), "two questions"),
        (("--values", "1", "--alpha", "0.5"), "give --activations"),
        (("--tensor", "no.npy"), "no such file"),
        (("--tensor", "no.txt"), "not a .npy or a .csv file"),
        (("--tensor", "."), "not a .npy or a .csv file"),
        (("--model", "llama-7b"), "quant needs --seq"),
        (("--model", "llama-7b", "--seq", "1k", "--bits", "4"), "--bits without effect on `quant --model`"),
        (("--model", "llama-7b", "--seq", "1k", "--weights", "fp3"), "unknown weight format"),
        (("--model", "llama-7b", "--seq", "1k", "--scheme", "awk"), "there are llm-int8, smoothquant"),
        (("--model", "llama-7b", "--seq", "1k", "--rank", "0"), "rank of an adapter is between 1 and 4,096"),
        (("--model", "llama-7b", "--seq", "1k", "--outliers", "110%"), "--outliers '110%' is no share"),
        (("--model", "llama-7b", "--seq", "1k", "--outliers", "nan"), "--outliers 'nan' is no share"),
        (("--model", "llama-7b", "--seq", ",".join(["1k"] * 30)), "more than 200 lines"),
        (("--scheme", "awq", "--kv", "fp8"), "--kv without effect on `quant --scheme`"),
        (("--same-memory", "much"), "--same-memory 'much' is no size"),
        (("--same-memory", "0.5"), "is no size"),
        (("--same-memory", "30GB", "--bits", "5"), "weights are kept in 2, 3, 4, 8, 16"),
        (("--same-memory", "30GB", "--scheme", "awq"), "--scheme without effect on `quant --same-memory`"),
        (("--formats", "--bits", "4"), "--bits without effect on `quant --formats`"),
        (("--formats", "-q"), "no one number"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(args: tuple[str, ...], said: str, run: Run) -> None:
    got = run("quant", *args)
    assert got.code == 2, got.out
    assert said in got.err
    assert got.err.count("\n") == 1


def test_files_that_are_no_tensors(tmp_path: Path, run: Run) -> None:
    """Objects, damaged headers, promises of more than there is, text that is no number: one line each."""
    np = pytest.importorskip("numpy")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "complex.npy", np.array([1j]))
    np.save(tmp_path / "empty.npy", np.zeros((0, 3)))
    np.save(tmp_path / "nan.npy", np.array([1.0, np.nan]))
    np.save(tmp_path / "large.npy", np.array([1e200]))
    np.save(tmp_path / "text.npy", np.array(["a"]))
    head = b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999,), }"
    (tmp_path / "promise.npy").write_bytes(head.ljust(400))
    (tmp_path / "noise.npy").write_bytes(b"\x93NUMPY\xff\xff\xff")
    (tmp_path / "code.npy").write_bytes(b"\x93NUMPY\x01\x00\x76\x00" + b"__import__('os').abort()".ljust(118))
    (tmp_path / "none.npy").write_bytes(b"")
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)))
    (tmp_path / "words.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    (tmp_path / "ragged.csv").write_text("1,2\n\n3\n", encoding="utf-8")
    (tmp_path / "blank.csv").write_text("\n\n", encoding="utf-8")
    (tmp_path / "folder.npy").mkdir()
    for path in sorted(tmp_path.iterdir()):
        got = run("quant", "--tensor", str(path))
        assert got.code == 2, path
        assert got.err.count("\n") == 1, got.err
        assert "unexpected" not in got.err, got.err
