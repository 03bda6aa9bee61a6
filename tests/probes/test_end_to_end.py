"""Measured requests into steps: what a row is the time of, what is left out, what cannot be."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from infercost import InputError
from infercost.cli.calibrations import shipped_clock
from infercost.costmodel.sharding import Parallel
from infercost.hardware.catalogue import load_gpu
from infercost.hardware.engine import EngineTimes, load_engine
from infercost.probes.end_to_end import Evaluator, impossible
from infercost.probes.measured_run import measured_run
from infercost.probes.request_rows import Row, rows

HEAD = (
    "engine,gpu,n_gpus,parallel,model,weight_format,kv_dtype,batch,prompt_len,gen_len,ctx_start,metric,value,"
    "scope,notes\n"
)
ALONE = EngineTimes("", 0.1, 0.1)


def read(tmp_path: Path, *lines: str) -> tuple[list[Row], Counter[str]]:
    path, excluded = tmp_path / "rows.csv", Counter[str]()
    path.write_text(HEAD + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    return list(rows(str(path), excluded)), excluded


@pytest.mark.parametrize(
    ("tail", "seconds", "steps"),
    [
        ("1,,512,,decode_tok_s,100,single_stream", 0.01, [("decode", 1, 256)]),
        ("4,512,,,prefill_tok_s,1000,static_batch", 2.048, [("prefill", 1, 512)]),
        ("2,512,,8192,prefill_tok_s,1000,static_batch", 1.024, [("prefill", 1, 8704)]),
        ("1,512,,,ttft_ms,30,single_stream", 0.03, [("prefill", 1, 512)]),
        ("8,128,101,,e2e_latency_ms,2500,static_batch", 2.5, [("prefill", 1, 128), ("decode", 100, 179)]),
        ("8,128,101,,output_tok_s_static,101,static_batch", 8.0, [("prefill", 1, 128), ("decode", 100, 179)]),
        ("64,1024,128,,tpot_ms,20,closed_loop", 0.02, [("decode", 1, 1088), ("prefill", 0.5, 1024)]),
    ],
)
def test_what_a_metric_is_the_time_of(
    tail: str, seconds: float, steps: list[tuple[str, float, int]], tmp_path: Path
) -> None:
    (row,), _ = read(tmp_path, f"vllm,h100-sxm,1,none,llama-3-8b,bf16,,{tail},")
    assert row.measured_s == pytest.approx(seconds)
    got = [(term.step.phase, term.times, term.step.segments[0].context) for term in row.terms]
    assert [each[:2] for each in got] == [each[:2] for each in steps]
    assert [each[2] for each in got] == pytest.approx([each[2] for each in steps], abs=2)


def test_a_closed_loop_carries_prefills(tmp_path: Path) -> None:
    line = "vllm,h100-sxm,1,none,llama-3-8b,bf16,,64,1024,128,,tpot_ms,20,closed_loop,"
    (row,), _ = read(tmp_path, line)
    parts = Evaluator(shipped_clock).parts(row)
    token, prompt = parts.terms
    alone = sum(float(part.expected_s) for part in token[1])  # type: ignore[arg-type]
    other = sum(float(part.expected_s) for part in prompt[1])  # type: ignore[arg-type]
    assert parts.seconds(ALONE) == pytest.approx(alone + 0.5 * other)
    assert parts.floor_s == pytest.approx(sum(part.floor_s for part in token[1]))
    assert 0 < parts.bound_s <= parts.floor_s


def test_layouts(tmp_path: Path) -> None:
    base = "1,16,16,,tpot_ms,20,single_stream"
    notes = "attn_dp=64.0; moe_tp=8.0; moe_ep=8.0; concurrency=256"
    found, _ = read(
        tmp_path,
        f"llama.cpp,rtx3090,2,layer_split,llama-3-8b,F16,,{base},",
        f"vllm,h100-sxm,4,tp,llama-3-8b,bf16,,{base},",
        f"trtllm,B200-SXM-180GB,64,tp,deepseek-ai/DeepSeek-R1,fp8,,4,16,16,,tpot_ms,20,closed_loop,{notes}",
    )
    assert [row.setting.parallel for row in found] == [Parallel(pp=2), Parallel(tp=4), Parallel(ep=8)]
    assert found[2].terms[0].step.segments[0].count == 32
    assert found[2].setting.recipe.name == "fp8-block"
    assert found[2].setting.run.kv.name == "fp8"
    assert [row.profile for row in found] == ["llama.cpp", "vllm", "tensorrt-llm"]


def test_prompts_pass_the_stages_in_pieces(tmp_path: Path) -> None:
    """4,096 tokens in eight pieces through two cards: nine ninths of a half, not two halves."""
    whole, split = (
        read(
            tmp_path,
            f"llama.cpp,rtx3090,{n},{how},llama-3-8b,F16,,1,4096,,,prefill_tok_s,1000,single_stream,",
        )
        for n, how in ((1, "none"), (2, "layer_split"))
    )
    evaluator = Evaluator(shipped_clock)
    one, two = (evaluator.parts(found[0][0]).floor_s for found in (whole, split))
    assert two / one == pytest.approx(9 / 16, rel=0.02)


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    found, excluded = read(
        tmp_path,
        "vllm,h100-sxm,1,none,no-such-model,bf16,,1,16,16,,tpot_ms,20,single_stream,",
        "vllm,no-such-gpu,1,none,llama-3-8b,bf16,,1,16,16,,tpot_ms,20,single_stream,",
        "vllm,h100-sxm,1,none,llama-3-8b,wide,,1,16,16,,tpot_ms,20,single_stream,",
        "vllm,h100-sxm,1,none,llama-3-8b,bf16,,1,16,16,,tpot_ms,nan,single_stream,",
        "vllm,h100-sxm,1,none,llama-3-8b,bf16,,1,16,16,,tpot_ms,0,single_stream,",
        "vllm,h100-sxm,1,none,llama-3-8b,bf16,,1,16,16,,ttft_ms,20,closed_loop,",
        "vllm,h100-sxm,1,none,llama-3-8b,bf16,,1,16,16,,tpot_ms,20,server,",
        "vllm,h100-sxm,3,disagg,llama-3-8b,bf16,,1,16,16,,tpot_ms,20,closed_loop,",
        "vllm,../../etc/passwd,1,none,/etc/passwd,bf16,,1,16,16,,tpot_ms,20,single_stream,",
    )
    assert found == []
    assert sum(excluded.values()) == 9
    with pytest.raises(InputError, match="no column"):
        list(rows(str(_file(tmp_path, "a,b\n1,2\n")), Counter()))
    with pytest.raises(InputError, match="is a folder"):
        list(rows(str(tmp_path), Counter()))


def test_impossible_rows_are_named(tmp_path: Path) -> None:
    found, _ = read(
        tmp_path,
        "vllm,h100-sxm,1,none,llama-3-8b,bf16,,1,16,16,,tpot_ms,1,single_stream,",
        "vllm,h100-sxm,1,none,llama-3-70b,bf16,,1,16,16,,tpot_ms,100,single_stream,",
        "vllm,h100-sxm,1,none,llama-3-8b,bf16,,1,16,16,,tpot_ms,8,single_stream,",
    )
    evaluator = Evaluator(shipped_clock)
    whys = [impossible(evaluator.parts(row)) for row in found]
    assert whys == ["faster than the bound", "more than the memory holds", ""]


def test_the_memory_is_that_of_all_devices(tmp_path: Path) -> None:
    """141 GB of weights: on 4 of 80 GB, not on one. 80 sequences of 8,193 tokens at 131,072 bytes are 86 GB
    beside 16 of weights: on 2, not on one."""
    weights = "vllm,h100-sxm,{},{},llama-3-70b,bf16,,1,16,16,,tpot_ms,100,single_stream,"
    cache = "vllm,h100-sxm,{},{},llama-3-8b,bf16,,80,8192,1,,tpot_ms,100,static_batch,"
    lines = [line.format(n, "tp" if n > 1 else "none") for line in (weights, cache) for n in (1, 2, 4)]
    found, _ = read(tmp_path, *lines)
    evaluator = Evaluator(shipped_clock)
    whys = [impossible(evaluator.parts(row)) for row in found]
    assert whys == ["more than the memory holds", "", "", "more than the memory holds", "", ""]


@pytest.mark.parametrize(
    ("gpu", "share", "why"),
    [
        ("a100-sxm", 0.99, ""),
        ("a100-sxm", 0.97, "faster than the bound"),
        ("rtx4090", 0.97, ""),
        ("rtx4090", 0.5, ""),
        ("rtx4090", 0.48, "faster than the bound"),
    ],
)
def test_a_geforce_is_twice_as_quick_where_it_adds_up_in_fp16(
    gpu: str, share: float, why: str, tmp_path: Path, ask: Any
) -> None:
    """330.3 against 165.2 TFLOP/s on an RTX 4090's sheet; 2 % are what a clock may be off by."""
    asked = ("request", "--model", "llama-3-8b", "--gpu", gpu, "--weights", "fp16", "--phase", "prefill")
    bound = ask(*asked, "--prompt", "4096")["ttft_s"]["bound"]
    row = f"llama.cpp,{gpu},1,none,llama-3-8b,F16,,1,4096,,,ttft_ms,{1e3 * share * bound},single_stream,"
    (found,), _ = read(tmp_path, row)
    assert impossible(Evaluator(shipped_clock).parts(found)) == why


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "file"
    path.write_text(text, encoding="utf-8")
    return path


def test_llama_bench_as_json_lines_and_csv(tmp_path: Path) -> None:
    tests = [
        {"n_prompt": 512, "n_gen": 0, "avg_ts": 5000.0},
        {"n_prompt": 0, "n_gen": 128, "n_depth": 4096, "avg_ts": 100.0},
    ]
    as_csv = "n_prompt,n_gen,n_depth,avg_ts\n512,0,0,5000\n0,128,4096,100\n"
    lines = "\n".join(json.dumps(one) for one in tests)
    for text in (json.dumps(tests), lines, as_csv):
        ran = measured_run(str(_file(tmp_path, text)))
        assert ran.tool == "llama-bench"
        read_, token = ran.seen
        assert read_.seconds == pytest.approx(0.1024)
        assert token.seconds == pytest.approx(0.01)
        assert token.terms[0].step.segments[0].context == pytest.approx(4096 + 64, abs=2)


SERVING: dict[str, Any] = {
    "completed": 10,
    "total_input_tokens": 10240,
    "total_output_tokens": 1280,
    "max_concurrency": 8,
    "mean_ttft_ms": 50.0,
    "mean_tpot_ms": 10.0,
}


def test_vllm_bench(tmp_path: Path) -> None:
    ran = measured_run(str(_file(tmp_path, json.dumps(SERVING))))
    first, token = ran.seen
    assert (first.prompt, first.gen, first.batch, first.terms) == (1024, 128, 8, ())
    assert [term.times for term in token.terms] == [1, 8 / 128]
    alone = measured_run(str(_file(tmp_path, json.dumps({**SERVING, "max_concurrency": None}))))
    assert alone.seen[0].terms[0].step.segments[0].new == 1024


def test_genai_perf(tmp_path: Path) -> None:
    data = {
        "time_to_first_token": {"unit": "ms", "avg": 30},
        "inter_token_latency": {"unit": "us", "avg": 6200},
        "request_latency": {"unit": "s", "avg": 1.2},
        "input_sequence_length": {"avg": 550},
        "output_sequence_length": {"avg": 200},
        "input_config": {"perf_analyzer": {"stimulus": {"concurrency": 1}}},
    }
    ran = measured_run(str(_file(tmp_path, json.dumps(data))))
    assert [one.seconds for one in ran.seen] == pytest.approx([0.03, 0.0062, 1.2])
    assert all(one.terms for one in ran.seen)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "[1]",
        "{}",
        "null",
        "[" * 100_000,
        '{"mean_ttft_ms": "x"}',
        json.dumps({**SERVING, "mean_tpot_ms": float("inf")}),
        json.dumps({**SERVING, "total_input_tokens": -1}),
        json.dumps({"time_to_first_token": {}}),
        json.dumps([{"avg_ts": 0, "n_gen": 1}]),
    ],
)
def test_other_files_are_one_line(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        measured_run(str(_file(tmp_path, text)))


def test_published_single_streams_are_near(tmp_path: Path) -> None:
    """Two rows that anyone can check (XiongjieDai's table, 2024-05): Llama 3 8B on an RTX 4090."""
    found, _ = read(
        tmp_path,
        "llama.cpp,RTX4090,1,none,llama-3-8b,Q4_K_M,f16,1,0,512,0,decode_tok_s,127.74,single_stream,",
        "llama.cpp,RTX4090,1,none,llama-3-8b,F16,f16,1,0,512,0,decode_tok_s,54.34,single_stream,",
    )
    times, evaluator = load_engine("llama.cpp").times, Evaluator(shipped_clock)
    assert times is not None
    for row in found:
        assert evaluator.parts(row).seconds(times) == pytest.approx(row.measured_s, rel=0.1)
    assert load_gpu("rtx4090") is found[0].setting.gpu
