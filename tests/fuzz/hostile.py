"""Hostile files, for every kind of file that a command reads: bombs, lies about sizes, escapes, odd text.

`write_all` puts them in a folder; `KINDS` are the command lines that read a file of each suffix.
"""

from __future__ import annotations

import os
import random
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

KINDS = {
    "yaml": (
        "kv --seq 1 --model",
        "weights --model",
        "models show",
        "models lint",
        "models import",
        "gpus show",
        "gpus lint",
        "ops --model llama-7b --seq 1 --gpu",
        "ops --model llama-7b --gpu h100 --seq 1 --calibration",
        "check",
    ),
    "json": (
        "kv --seq 1 --model",
        "models import",
        "roofline --gpu a100 --measured",
        "request --model llama-7b --gpu h100 --prompt 8 --gen 2 --measured",
    ),
    "csv": (
        "request --model llama-7b --gpu h100 --prompt 8 --gen 2 --measured",
        "quant --bits 4 --tensor",
        "speculate --rows",
        "serve --model llama-7b --gpu h100 --policy continuous --trace",
        "validate --kernels",
        "validate --end-to-end",
        "calibrate --gpu h100 --from",
    ),
    "npy": ("quant --bits 4 --tensor",),
    "gguf": ("kv --seq 1 --model", "models import"),
}

GEMM = b"gpu,framework,dtype,m,n,k,time_us\n"
END_TO_END = (
    b"engine,model,gpu,scope,metric,value,prompt_len,gen_len,batch,n_gpus,parallel,weight_format,"
    b"kv_dtype,notes\n"
)
ROWS = b"target,draft,method,gpu,batch,gamma,mean_accepted_tokens,speedup\n"
TRACE = b"arrival,prompt,output\n"
CONFIG = b'{"model_type":"llama","num_attention_heads":8,"vocab_size":9,"intermediate_size":8,'


def texts() -> Iterator[tuple[str, bytes]]:
    """Name and content; each is tried as YAML, JSON and CSV."""
    noise = random.Random(1)
    yield "empty", b""
    yield "nul", b"\0" * 1000
    yield "bom-alone", b"\xef\xbb\xbf"
    yield "bom-crlf", b"\xef\xbb\xbfname: x\r\nhidden: 8\r\n"
    yield "cr", b"name: x\rhidden: 8\r"
    yield "utf-16", "name: x\n".encode("utf-16")
    yield "latin-1", b"name: caf\xe9\n"
    yield "escapes-yaml", b'name: "\\e[31mred\\a\\u202e"\nsource: x\n'
    yield "escapes-raw", b"\x1b[31mred\x07: \x9b\x1b]0;title\x07\n"
    yield "escapes-json", b'{"model_type":"\\u001b[31mred\\u202e","\\u001b]0;x\\u0007":1}'
    yield (
        "surrogates-json",
        b'{"model_type":"\\ud800","architectures":["\\udfff"],"_name_or_path":"\\ud800x"}',
    )
    yield "surrogates-name", CONFIG + b'"hidden_size":8,"num_hidden_layers":1,"_name_or_path":"a/\\ud800"}'
    yield "surrogates-raw", b"\xed\xa0\x80: 1\n"
    yield "surrogates-yaml", b'name: "\\ud800"\nsource: "\\udfff"\n'
    yield "deep-lists", b"[" * 200_000
    yield "deep-objects", b'{"a":' * 200_000
    yield "deep-blocks", b"- " * 300_000
    yield "deep-flow", b"a: " + b"[" * 5000 + b"]" * 5000
    laughs = b"".join(b"%c: &%c [%s]\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 9)) for c in range(98, 110))
    yield "billion-laughs", b"a: &a [x,x,x]\n" + laughs
    yield "nan", CONFIG + b'"hidden_size":NaN,"num_hidden_layers":Infinity}'
    yield "long-integer", CONFIG + b'"hidden_size":' + b"9" * 100_000 + b"}"
    yield "large-numbers", CONFIG + b'"hidden_size":1e999,"num_hidden_layers":1e308}'
    yield "many-layers", CONFIG + b'"hidden_size":8,"num_hidden_layers":999999999}'
    yield "yaml-integer", b"hidden: " + b"9" * 5000 + b"\n"
    yield "yaml-base-60", b"hidden: 1:30:00\n"
    yield "yaml-dates", b"name: 2001-01-01\nsource: 2001-01-01T00:00:00Z\n"
    yield "yaml-bad-date", b"name: 2001-99-99\n"
    yield "yaml-object", b'!!python/object/apply:os.system ["touch pwned"]\n'
    yield "yaml-binary", b"a: !!binary |\n  R0lGODlhDAAMAIQAAP\n"
    yield "yaml-merge", b"<<: {a: 1}\nchecks: {<<: {}}\n"
    yield "yaml-keys", b"? [a, b]\n: 1\n? {c: d}\n: 2\n"
    yield "twice", b'{"a":1,"a":2}'
    yield "list", b"[1,2,3]"
    yield "text", b'"x"'
    yield "null", b"null"
    yield "long-key", b"k" * 900_000 + b": 1\n"
    yield "many-keys", b"".join(b"k%d: 1\n" % i for i in range(70_000))
    yield "many-json-keys", b"{" + b",".join(b'"k%d":1' % i for i in range(60_000)) + b"}"
    yield "noise", noise.randbytes(100_000)
    yield "open-quote", b'"' + b"a" * 900_000
    yield "commas", b"," * 900_000
    yield "lines", b"\n" * 900_000
    yield from csv_texts(noise)
    yield from json_texts()
    yield from budgets()


def csv_texts(noise: random.Random) -> Iterator[tuple[str, bytes]]:
    yield (
        "gemm-numbers",
        GEMM + b"h100,x,fp16,1e308,NaN,-1,1\nh100,x,fp16,8,8,8,inf\n"
        b"h100,cublas,fp16,1000000000000,1000000000000,1000000000000,1\n\x1b[31m,cublas,fp16,8,8,8,1\n",
    )
    yield "gemm-noise", GEMM + noise.randbytes(50_000)
    yield "gemm-nul", GEMM + b"\0,\0,\0\n" * 100
    yield "gemm-quote", GEMM + b'"h100,x\n' * 10
    yield "gemm-gpus", GEMM + b"".join(b"gpu%d,cublas,fp16,8,8,8,1\n" % i for i in range(20_000))
    yield "gemm-frameworks", GEMM + b"".join(b"h100,fw%d,fp16,8,8,8,1\n" % i for i in range(20_000))
    run = b"vllm,%s,h100,single_stream,%s,%s,%s,%s,1,1,tp,%s,fp16,\n"
    yield (
        "e2e-numbers",
        END_TO_END
        + run % (b"llama-3-8b", b"ttft_ms", b"1e308", b"1e308", b"NaN", b"fp16")
        + run % (b"llama-3-8b", b"ttft_ms", b"5", b"99999999999999999999", b"1", b"fp16")
        + run % (b"llama-3-8b", b"tpot_ms", b"5", b"8", b"inf", b"\x1b[31m")
        + b"vllm,llama-3-8b,h100,single_stream,tpot_ms,5,8,8,16777216,16777216,tp,fp16,\x07,\n"
        + b"vllm,llama-3-8b,h100,single_stream,tpot_ms,5,8,8,1,8,tp,fp16,fp16,moe_ep=%s\n" % (b"9" * 400),
    )
    named = (b"/dev/zero", b"/etc/passwd", b"-", b"hf:a/b", b"fifo.yaml", b"\x1b[31m", b"")
    yield (
        "e2e-files",
        END_TO_END + b"".join(run % (name, b"ttft_ms", b"1", b"1", b"1", b"fp16") for name in named),
    )
    yield "e2e-noise", END_TO_END + noise.randbytes(50_000)
    many = range(20_000)
    yield (
        "e2e-models",
        END_TO_END + b"".join(run % (b"m%d" % i, b"ttft_ms", b"1", b"1", b"1", b"fp16") for i in many),
    )
    yield (
        "e2e-reasons",
        END_TO_END
        + b"".join(run % (b"llama-3-8b", b"ttft_ms", b"1", b"1", b"1", b"dtype%d" % i) for i in many),
    )
    yield (
        "e2e-generations",
        END_TO_END
        + b"".join(
            run % (b"llama-3-8b", b"e2e_latency_ms", b"1", b"%d" % (1000 + i), b"%d" % (100_000 + i), b"fp16")
            for i in range(1000)
        ),
    )
    yield (
        "rows-numbers",
        ROWS + b"llama-7b,gpt2,draft,h100,1e308,NaN,inf,1\nllama-7b,gpt2,draft,h100,4096,64,1000,1000\n"
        b"/dev/zero,-,draft,\x1b[31m,1,1,1.5,1\n-,-,eagle,h100,1,1,1.5,1\n"
        b"llama-7b,gpt2,\x1b[31mdraft,h100,1,1,1.5,1\nllama-7b,\n",
    )
    yield "rows-cells", ROWS + b"a,b,c,d,e,f,g,h,i,j,k\n" * 15_000
    yield "rows-models", ROWS + b"".join(b"m%d,,eagle,h100,1,1,2,2\n" % i for i in range(19_000))
    yield "numbers-tall", b"1\n" * (1 << 23)
    yield "numbers-wide", b"1," * ((1 << 23) - 1) + b"1"
    yield "trace-numbers", TRACE + b"1e11,16777216,16777216\n-1e11,1,1\n" * 50
    yield "trace-many", TRACE + b"".join(b"%d,1000,1000\n" % (i % 7) for i in range(199_000))
    yield "trace-long", TRACE + b"0,1,16777216\n" * 190_000
    yield "trace-spread", TRACE + b"".join(b"%d,%d,%d\n" % (i * 1000, i + 1, i + 1) for i in range(190_000))
    yield "trace-nan", TRACE + b"nan,1,1\n"
    yield "trace-dates", TRACE + b"0001-01-01T00:00:00,1,1\n9999-12-31T23:59:59.999999+00:00,1,1\n"
    yield "trace-mixed", TRACE + b"2020-01-01,1,1\n5,1,1\n"


def json_texts() -> Iterator[tuple[str, bytes]]:
    yield (
        "vllm-numbers",
        b'{"mean_ttft_ms":1e999,"total_input_tokens":1e308,"completed":NaN,"max_concurrency":-1}',
    )
    yield (
        "vllm-large",
        b'{"mean_ttft_ms":1,"total_input_tokens":1e12,"completed":1,"max_concurrency":1e12,'
        b'"total_output_tokens":1e12,"num_prompts":1,"mean_tpot_ms":1,"mean_itl_ms":1,"duration":1e-300,'
        b'"output_throughput":1e12}',
    )
    yield (
        "llama-bench-large",
        b'[{"avg_ts":1,"n_prompt":999999999999,"n_gen":0,"n_depth":0,"model_type":"\\u001b[31m"}]',
    )
    yield "llama-bench-types", b'[{"avg_ts":{"a":1},"n_prompt":[]}]'
    tests = b",".join(b'{"avg_ts":50,"n_prompt":512,"n_gen":0,"n_depth":%d}' % i for i in range(5000))
    yield "llama-bench-many", b"[" + tests + b"]"
    yield "genai-types", b'{"time_to_first_token":{"avg":"x"},"request_count":{}}'
    point = b'{"id":"%s","matmul_flops":%s,"bytes":%s,"achieved_flops_per_s":%s,"verdict":"x"}'
    for name, cells in {
        "escapes": (b"\\u001b[31m", b"1000", b"1", b"1e9"),
        "surrogates": (b"\\ud800", b"1000", b"1", b"1e9"),
        "overflow": (b"a", b"1e308", b"1e-300", b"1e400"),
        "negative": (b"a", b"-1", b"1", b"-1"),
        "nan": (b"a", b"NaN", b"1", b"1e9"),
        "long-bytes": (b"a", b"1000", b"9" * 4000, b"1e9"),
        "long-flops": (b"a", b"9" * 4000, b"1", b"1e9"),
        "tiny": (b"a", b"1e-300", b"1e300", b"1e-300"),
    }.items():
        yield f"probe-{name}", b'{"results":[' + point % cells + b"]}"
    yield "probe-many", b'{"results":[' + b",".join([point % (b"a", b"1000", b"1", b"1e9")] * 200_000) + b"]}"


def budgets() -> Iterator[tuple[str, bytes]]:
    line = b'  c%d: {run: "kv --model llama-7b --seq %d", expr: bytes_per_token, baseline: 1}\n'
    yield "checks-many", b"checks:\n" + b"".join(line % (i, i + 1) for i in range(499))
    yield (
        "checks-that-write",
        b'checks: {a: {run: "check checks.yaml", expr: a, max: 1}, b: {run: "probe", expr: a, max: 1}, '
        b'c: {run: "kv --model - --seq 1 --output pwned", expr: a, max: 1}, '
        b'd: {run: "models import llama-7b -opwned", expr: a, max: 1}, '
        b'e: {run: "kv --help", expr: a, max: 1}, f: {run: "kv --install-completion", expr: a, max: 1}}\n',
    )
    yield (
        "checks-escapes",
        b'checks: {a: {run: ["kv","--model","\\e[31m"], expr: a, max: 1}, '
        b'b: {run: "kv --model llama-7b --seq 1", expr: bytes_per_token, max: 1, note: "::error::x%0A"}}\n',
    )
    big = b"kv --model llama-7b --seq " + b",".join(b"%d" % i for i in range(1, 600))
    yield "checks-large", b'checks: {a: {run: "%s", expr: bytes_per_token, max: 1}}\n' % big
    sweep = b"request --model deepseek-v3 --gpu h200 --prompt 512k --gen 512k --batch %d"
    yield (
        "checks-slow",
        b"checks:\n"
        + b"".join(b'  c%d: {run: "%s", expr: a, max: 1}\n' % (i, sweep % (i + 1)) for i in range(8)),
    )


def npy(shape: str, dtype: str = "'<f4'", data: bytes = b"", length: int | None = None) -> bytes:
    """A .npy file of version 1 with this header, true or not."""
    head = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    size = len(head) if length is None else length
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", size) + head + data


def arrays() -> Iterator[tuple[str, bytes]]:
    yield "lie", npy("(1000000000,)")
    yield "overflow", npy("(99999999999999999999,)")
    yield "objects", npy("(10,10)", "'|O'", b"x" * 800)
    yield "empty", npy("(0,)")
    yield "no-rows", npy("(0,5)")
    yield "scalar", npy("()", data=b"\0" * 4)
    yield "negative", npy("(-1,)")
    yield "nan", npy("(2,)", "'<f8'", struct.pack("<2d", float("nan"), 1))
    yield "dimensions", npy(f"({'1,' * 70}2)", data=b"\0" * 8)
    yield "record", npy("(2,)", "[('a','<f4')]", b"\0" * 8)
    yield "nested", npy("(" * 3000 + ")" * 3000)
    yield "complex", npy("(2,)", "'<c8'", b"\0" * 16)
    yield "date", npy("(2,)", "'<M8[s]'", b"\0" * 16)
    yield "float128", npy("(1,)", "'<f16'", b"\xff" * 16)
    yield "text", npy("(2,)", "'<U100000000'")
    yield "expression", npy("__import__('os').system('touch pwned')")
    yield "short", npy("(3,)", data=b"\0" * 4)
    yield "bool", npy("(True,)", data=b"\0" * 4)
    yield "head-lie", npy("(2,)", length=65535)
    yield "largest", npy("(16777216,)", "'|i1'", b"\1" * (1 << 24))
    yield "tall", npy("(16777216,1)", "'|u1'", b"\1" * (1 << 24))
    yield "matrix", npy("(4096,4096)", data=b"\x3f" * (1 << 26))


def string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def gguf(body: bytes, tensors: int = 0, keys: int = 1) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, keys) + body


def ggufs() -> Iterator[tuple[str, bytes]]:
    llama = string(b"general.architecture") + struct.pack("<I", 8) + string(b"llama")
    yield "counts", gguf(b"", 10**6, 65536)
    yield "length", gguf(struct.pack("<Q", 1 << 62))
    yield "escapes", gguf(string(b"general.architecture") + struct.pack("<I", 8) + string(b"\x1b[31m\xff"))
    yield "bare", gguf(llama)
    yield "array", gguf(string(b"a") + struct.pack("<IIQ", 9, 8, 1 << 26) + b"\0" * 1000)
    yield "arrays", gguf(string(b"a") + struct.pack("<IIQ", 9, 9, 5))
    yield "texts", gguf(llama + string(b"b") + struct.pack("<IIQ", 9, 8, 1 << 26) + bytes(8 << 26), 0, 2)
    keys = b"".join(string(b"k%d" % i) + struct.pack("<IB", 0, 1) for i in range(60_000))
    yield "keys", gguf(llama + keys, 0, 60_001)
    tensors = b"".join(string(b"t%d" % i) + struct.pack("<IQIQ", 1, 1 << 49, 0, 0) for i in range(900_000))
    yield "tensors", gguf(tensors, 900_000, 0)
    long = b"".join(string(b"k%d" % i) + struct.pack("<I", 8) + string(b"x" * 1_000_000) for i in range(1500))
    yield "long-texts", gguf(long, 0, 1500)
    lists = b"".join(
        string(b"k%d" % i) + struct.pack("<IIQ", 9, 0, 8192) + b"\1" * 8192 for i in range(30_000)
    )
    yield "kept-arrays", gguf(lists, 0, 30_000)
    odd = string(b"llama.block_count") + struct.pack("<If", 6, float("nan"))
    yield "nan", gguf(llama + odd + string(b"llama.embedding_length") + struct.pack("<IQ", 10, 1 << 63), 0, 3)
    yield "again", gguf(b"\0" * 5000, 0, 9999)


def odd_files(folder: Path, suffix: str, large: bool) -> Iterator[Path]:
    """What is no plain file: pipes, devices, links in a circle, folders, names that are escapes."""
    for name, make in {
        "fifo": os.mkfifo,
        "loop": lambda path: os.symlink(path, path),
        "zero": lambda path: os.symlink("/dev/zero", path),
        "memory": lambda path: os.symlink("/proc/self/mem", path),
        "dangling": lambda path: os.symlink("/nowhere", path),
        "folder": os.mkdir,
    }.items():
        path = folder / f"{name}.{suffix}"
        if not os.path.lexists(path):
            make(path)
        yield path
    named = folder / os.fsdecode(b"\x1b[31m\xff\xe2\x80\xae." + suffix.encode())
    named.write_bytes(b"\x1b[31m")
    yield named
    if large:
        sparse, wide, tall = (folder / f"{name}.{suffix}" for name in ("sparse", "wide", "tall"))
        with sparse.open("wb") as file:
            file.truncate(20 << 30)
        for path, cell in ((wide, b"1,"), (tall, b"1\n")):
            with path.open("wb") as file:
                for _ in range(300):
                    file.write(cell * (1 << 19))
        yield from (sparse, wide, tall)


def write_all(folder: Path, large: bool = False) -> Iterator[tuple[Path, str]]:
    """Every hostile file with its suffix. `large`: some of 300 MB, and sparse ones of 20 GiB, too."""
    for suffix in ("yaml", "json", "csv"):
        for name, data in texts():
            path = folder / f"{name}.{suffix}"
            path.write_bytes(data)
            yield path, suffix
    for suffix, made in (("npy", arrays()), ("gguf", ggufs())):
        for name, data in made:
            path = folder / f"{name}.{suffix}"
            path.write_bytes(data)
            yield path, suffix
    for suffix in KINDS:
        for path in odd_files(folder, suffix, large):
            yield path, suffix


if __name__ == "__main__":
    for _ in write_all(Path(sys.argv[1]), large=True):
        pass
