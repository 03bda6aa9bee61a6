"""Every parser of what comes from outside, each with a sound input: what the fuzzers start from.

A parser takes bytes. It may return, or raise an InputError; anything else is a bug.
"""

from __future__ import annotations

import io
import json
import struct
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from infercost import InputError
from infercost.cli.assertions import parse_assertions
from infercost.cli.budgets import parse_budgets
from infercost.cli.output.as_text import render
from infercost.cli.output.report import Report, Table
from infercost.cli.roofline import measured_points
from infercost.cli.tensors import read as read_tensor
from infercost.cli.trace import read_trace
from infercost.hardware import catalogue as hardware
from infercost.hardware import engine
from infercost.hardware.calibration_sheet import FOLDER as CALIBRATIONS
from infercost.hardware.calibration_sheet import calibration_from_text
from infercost.models import catalogue as models
from infercost.models.huggingface import model_from_config, read_config
from infercost.models.safetensors import read_headers
from infercost.models.sheet import model_from_text
from infercost.probes.measured import batches
from infercost.probes.measured_run import measured_run
from infercost.probes.request_rows import rows
from infercost.probes.speculation_rows import read_rows
from infercost.sheets import decode

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "example"
FOLDER = tempfile.TemporaryDirectory(prefix="infercost-fuzz-")


class Parser(NamedTuple):
    parse: Callable[[bytes], Any]
    seeds: tuple[bytes, ...]


def of_text(parse: Callable[[str, str], Any]) -> Callable[[bytes], Any]:
    return lambda data: parse(decode(data, "fuzz"), "fuzz")


def of_file(parse: Callable[[str], Any], name: str) -> Callable[[bytes], Any]:
    path = Path(FOLDER.name) / name

    def parsed(data: bytes) -> Any:
        path.write_bytes(data)
        return parse(str(path))

    return parsed


def refuses(parser: Parser, data: bytes) -> None:
    """Raises what is neither an answer nor an InputError of one plain line."""
    try:
        parser.parse(data)
    except InputError as error:
        shown = render(Report({}, [str(error)], [Table(("error",), "<", [(str(error),)])]))
        assert shown.replace("\n", "").isprintable()


def sheet(folder: Path, *names: str) -> tuple[bytes, ...]:
    return tuple((folder / f"{name}.yaml").read_bytes() for name in names)


def config(text: str, origin: str) -> Any:
    return model_from_config(read_config(text, origin), origin, "fuzz")


def gguf_header() -> bytes:
    def text(value: bytes) -> bytes:
        return struct.pack("<Q", len(value)) + value

    counts = {"block_count": 1, "embedding_length": 64, "feed_forward_length": 128, "context_length": 99}
    counts |= {"attention.head_count": 4, "attention.head_count_kv": 4, "vocab_size": 32}
    keys = [text(b"general.architecture") + struct.pack("<I", 8) + text(b"llama")]
    keys += [text(b"llama." + name.encode()) + struct.pack("<II", 4, n) for name, n in counts.items()]
    keys += [text(b"tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + text(b"a") + text(b"b")]
    square, up = (64, 64), (64, 128)
    shapes = {"token_embd": (64, 32), "output": (64, 32), "output_norm": (64,), "blk.0.ffn_down": up[::-1]}
    shapes |= {f"blk.0.attn_{part}": square for part in ("q", "k", "v", "output")}
    shapes |= {f"blk.0.ffn_{part}": up for part in ("gate", "up")}
    shapes |= {f"blk.0.{part}_norm": (64,) for part in ("attn", "ffn")}
    tensors = b""
    for name, shape in shapes.items():
        tensors += text(name.encode() + b".weight") + struct.pack("<I", len(shape))
        tensors += struct.pack(f"<{len(shape)}QIQ", *shape, 0, 0)
    return b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(keys)) + b"".join(keys) + tensors


def safetensors_header() -> bytes:
    entries = {
        "model.embed_tokens.weight": {"dtype": "F16", "shape": [4, 2], "data_offsets": [0, 16]},
        "lm_head.weight": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [16, 20]},
    }
    head = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
    return struct.pack("<Q", len(head)) + head + bytes(20)


def gguf(path: str) -> Any:
    from infercost.models.gguf import model_from_gguf

    return model_from_gguf(Path(path))


def npy() -> bytes:
    import numpy as np

    out = io.BytesIO()
    np.save(out, np.arange(6, dtype=np.float32).reshape(2, 3))
    return out.getvalue()


KERNELS = (
    b"gpu,framework,dtype,m,n,k,time_us\nh100_sxm,cublas,fp16,4096,4096,4096,300\nA100,x,fp8,1,8,8,2\n",
    b"gpu,framework,op,bytes,world,time_us\nh100_sxm,nccl,all_reduce,1048576,8,40\n",
)
END_TO_END = (
    b"engine,model,gpu,scope,metric,value,prompt_len,gen_len,batch,n_gpus,parallel,weight_format,"
    b"kv_dtype,notes\n"
    b"vllm,llama-3-8b,h100,single_stream,ttft_ms,20,512,128,1,1,none,fp8,fp8,\n"
    b"llama.cpp,meta-llama/Llama-2-7b,A100,closed_loop,decode_tok_s,90,512,64,8,2,layer_split,Q4_K_M,,\n"
    b"trtllm,mixtral-8x7b,h100-sxm-80gb,static_batch,e2e_latency_ms,900,512,64,8,4,tp,fp8,,moe_ep=2\n"
)
RUNS = (
    (EXAMPLE / "llama-bench.json").read_bytes(),
    b"model_type,n_prompt,n_gen,n_depth,avg_ts\nllama,512,0,0,5000.5\nllama,0,128,0,120\n",
    b'{"mean_ttft_ms":20.5,"mean_tpot_ms":9.1,"median_ttft_ms":20,"completed":10,"total_input_tokens":5120,'
    b'"total_output_tokens":1280,"max_concurrency":4,"output_throughput":300.5,"duration":4.2}',
    b'{"time_to_first_token":{"avg":20,"unit":"ms"},"inter_token_latency":{"avg":9},"request_count":{"avg":5},'
    b'"input_sequence_length":{"avg":512},"output_sequence_length":{"avg":64}}',
)
TRACE = b"arrival,prompt,output\n0,512,128\n2024-05-10T00:00:00Z,100,5\n"
ROWS = (
    b"target,draft,method,gpu,batch,gamma,mean_accepted_tokens,speedup\n"
    b"llama-2-7b,llama-68m,draft,A100,1,4,2.5,1.8\nllama-2-7b,,medusa,A100,1,,3.2,2.1\n"
)
PROBED = (
    b'{"schema":"infercost.probe/1","classes":{"gemm":0.8},"results":[{"id":"gemm-1","matmul_flops":1e9,'
    b'"bytes":1e6,"achieved_flops_per_s":1e12,"verdict":"PASS"}]}'
)

PARSERS = {
    "model sheet": Parser(of_text(model_from_text), sheet(models.SHEETS, "gemma-3-27b", "deepseek-v3")),
    "GPU sheet": Parser(of_text(hardware.gpu_from_text), sheet(hardware.SHEETS, "a100-80g-sxm")),
    "calibration": Parser(of_text(calibration_from_text), sheet(CALIBRATIONS, "h20")),
    "engine profile": Parser(of_text(engine.engine_from_text), sheet(engine.FOLDER, "vllm")),
    "config.json": Parser(of_text(config), ((EXAMPLE / "config.json").read_bytes(),)),
    "GGUF": Parser(of_file(gguf, "fuzz.gguf"), (gguf_header(),)),
    "safetensors": Parser(
        of_file(lambda path: read_headers(Path(path)), "fuzz.safetensors"), (safetensors_header(),)
    ),
    "kernel times": Parser(of_file(lambda path: list(batches(path, Counter())), "kernels.csv"), KERNELS),
    "end to end": Parser(of_file(lambda path: list(rows(path, Counter())), "requests.csv"), (END_TO_END,)),
    "measured run": Parser(of_file(measured_run, "run.json"), RUNS),
    "trace": Parser(of_file(read_trace, "trace.csv"), (TRACE,)),
    "array": Parser(of_file(partial(read_tensor, option="fuzz"), "array.npy"), (npy(),)),
    "numbers": Parser(of_file(partial(read_tensor, option="fuzz"), "array.csv"), (b"1,2.5\n-3,4e2\n",)),
    "speculation rows": Parser(of_file(read_rows, "rows.csv"), (ROWS,)),
    "budgets": Parser(
        of_text(lambda text, origin: parse_budgets(text, Path(origin))),
        ((EXAMPLE / "budgets.yaml").read_bytes(),),
    ),
    "probe document": Parser(of_file(measured_points, "probe.json"), (PROBED,)),
    "condition": Parser(
        lambda data: parse_assertions([data.decode(errors="replace")]), (b"ops[0].bytes <= 20e9",)
    ),
}
