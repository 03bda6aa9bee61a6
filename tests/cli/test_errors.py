"""Bad input gives one clear line and exit code 2, never a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
LLAMA = ("--model", "llama-7b")
MOE = ("--model", "mixtral-8x7b")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("kv",), "kv needs --model"),
        (("kv", *LLAMA), "kv needs --seq"),
        (("kv", "--model", "llama7b", "--seq", "1"), "did you mean llama-7b"),
        (("kv", "--model", "", "--seq", "1"), "needs --model"),
        (("kv", "--model", "llama-7b,", "--seq", "1"), "has an empty part"),
        (("kv", *LLAMA, "--seq", "0"), "--seq '0' must be between 1 and"),
        (("kv", *LLAMA, "--seq", "-5"), "--seq '-5' is not a token count"),
        (("kv", *LLAMA, "--seq", "1e99"), "--seq '1e99' is not a token count"),
        (("kv", *LLAMA, "--seq", "32kk"), "--seq '32kk' is not a token count; give a positive count such as"),
        (("kv", *LLAMA, "--seq", "nan"), "is not a token count"),
        (("kv", *LLAMA, "--seq", "0x10"), "is not a token count"),
        (("kv", *LLAMA, "--seq", "9" * 17), "must be between 1 and"),
        (("kv", *LLAMA, "--seq", "9" * 400), "is not a token count"),
        (("kv", *LLAMA, "--seq", "1.0001k"), "not a whole number of tokens"),
        (("kv", *LLAMA, "--seq", "١٢"), "is not a token count"),
        (("kv", *LLAMA, "--seq", "1", "--batch", "0"), "--batch '0'"),
        (("kv", *LLAMA, "--seq", "1", "--kv", "fp99"), "unknown number format 'fp99'"),
        (("kv", *LLAMA, "--seq", "1", "--kv-heads", "5"), "kv_heads must divide heads"),
        (("kv", *LLAMA, "--seq", "1", "--kv-heads", "0"), "--kv-heads must be at least 1"),
        (("kv", *LLAMA, "--seq", "1", "--layers", "-3"), "--layers must be at least 1"),
        (("kv", *LLAMA, "--seq", "1", "--layers", "99999"), "layers must be between 1 and 4096"),
        (("kv", *LLAMA, "--seq", "1", "--head-dim", "99999999999"), "head_dim must be between 1"),
        (("kv", *LLAMA, "--seq", "1", "--head-dim", "big"), "'big' is not a valid int"),
        (("kv", *LLAMA, "--seq", "1", "--encoder-seq", "5"), "llama-7b has no encoder"),
        (("kv", *LLAMA, "--seq", "1", "--alloc", "buddy"), "--alloc is one of paged, static, concat"),
        (("kv", *LLAMA, "--seq", "100", "--max-len", "50"), "--max-len 50 is shorter than the 100 tokens"),
        (("kv", *LLAMA, "--seq", "1", "--alloc", "static"), "a static allocator reserves a length"),
        (
            ("kv", *LLAMA, "--seq", "1", "--alloc", "static", "--block", "8"),
            "--block belongs to --alloc paged",
        ),
        (("kv", "--model", "gpt2", "--seq", "1", "--kv", "q4_k"), "are not whole blocks of 256"),
        (("kv", *LLAMA, "--seq", "1", "--window", "0"), "--window '0' must be between 1 and"),
        (("kv", "--model", "meta-llama/Llama-99-7b", "--seq", "1"), "is hf:meta-llama/Llama-99-7b"),
        (("weights", *LLAMA, "--weights", "foo"), "`infercost weights --formats` lists them"),
        (("weights", *LLAMA, "--weights", "4bit"), "of 4 bits are int4"),
        (("weights", "--params", "7e9", "--bits", "4", "--layers", "3"), "--layers without effect on"),
        (("roofline", "--batch", "8"), "--batch without effect on `roofline`: the GPU's roof alone"),
        (("roofline", "--weights", "fp8", "--seq", "1"), "--seq, --weights without effect on `roofline`"),
        (
            ("ops", *LLAMA, "--seq", "1", "--accounting", "textbook", "--kv", "fp8"),
            "--kv without effect on `ops",
        ),
        (
            ("ops", *LLAMA, "--seq", "1", "--accounting", "textbook", "--attention", "eager", "--skew", "1"),
            "--attention, --skew without effect on `ops --accounting textbook`",
        ),
        (("kv", *LLAMA, "--prompt", "5"), "--prompt and --gen come together"),
        (("kv", *LLAMA, "--seq", "5", "--prompt", "5", "--gen", "5"), "not both"),
        (("kv", "--model", "mamba2-2.7b", "--seq", "1", "--window", "8"), "no plain attention layer"),
        (("kv", *LLAMA, "--seq", "1", "--json", "--csv"), "two formats at once"),
        (("kv", *LLAMA, "--seq", "1", "--json", "--quiet"), "--quiet prints the one number"),
        (("kv", *LLAMA, "--seq", "1", "--format", "yaml"), "--format is one of table, json, csv, md"),
        (("kv", *LLAMA, "--sequence", "1"), "No such option: --sequence"),
        (("kv", *LLAMA, "--seq"), "'--seq' requires an argument"),
        (("kv", *LLAMA, "extra"), "unexpected extra argument"),
        (("kvv",), "did you mean kv?"),
        (("weights",), "weights needs --model"),
        (("weights", *LLAMA, "--weights", "q4_k_x"), "did you mean"),
        (("weights", "--params", "7e9"), "--params and --bits come together"),
        (("weights", "--params", "x", "--bits", "4"), "--params 'x' is not a number"),
        (("weights", "--params", "7e99", "--bits", "4"), "--params '7e99' is not a number"),
        (("weights", "--params", "7e9", "--bits", "0"), "--bits '0' is not a number"),
        (("weights", "--params", "7e9", "--bits", "4", *LLAMA), "is of no model"),
        (("weights", *LLAMA, "--skew", "-1"), "skew is a Zipf exponent"),
        (("kv", *LLAMA, "--seq", "5i"), "is not a token count"),
        (("weights", "--model", "gpt2", "--accounting", "textbook"), "holds Table 9.3"),
        (("ops", *LLAMA), "ops needs --seq"),
        (("ops", *LLAMA, "--seq", "1", "--gpu", "b1000"), "unknown GPU 'b1000'"),
        (("ops", *LLAMA, "--seq", "1", "--phase", "warmup"), "--phase is one of"),
        (("ops", *LLAMA, "--seq", "1", "--attention", "flesh"), "did you mean flash"),
        (("ops", *MOE, "--seq", "1", "--skew", "99"), "skew is a Zipf exponent"),
        (("ops", *MOE, "--seq", "1", "--skew", "nan"), "skew is a Zipf exponent"),
        (("ops", "--model", "llama-3-8b", "--seq", "1", "--accounting", "textbook"), "multi-head attention"),
        (("ops", *LLAMA, "--seq", "1", "--accounting", "textbook", "--quiet"), "no one number"),
        (("roofline", "--gpu", ""), "has an empty part"),
        (("roofline", "--gpu", "a100", "--dtype", "fp8"), "has no fp8 peak; it has fp32"),
        (("roofline", "--gpu", "a100", "--seq", "5"), "add --model"),
        (("roofline", "--gpu", "a100", "--ridge", "mine"), "--ridge is one of textbook, datasheet"),
        (("roofline", "--gpu", "a100", *LLAMA), "needs --seq"),
        (("models", "show", "nope"), "unknown model 'nope'"),
        (("models", "show"), "Missing argument"),
        (("models", "lint", "/no/such/sheet.yaml"), "No such file"),
        (("models", "prune"), "No such command 'prune'"),
        (("gpus", "show", "nope"), "unknown GPU 'nope'"),
        (("explain", "pagedatention"), "did you mean pagedattention"),
        (("explain", "\x1b[2J"), "there is no topic"),
        (("explain", "kv", "--model", "llama-7b,gpt2"), "explain takes one at a time"),
        (("explain", "kv", "--gpu", "a100,h100"), "explain takes one at a time"),
        (("explain", "kv", "--model", "nope"), "unknown model 'nope'"),
        (("explain", "kv", "--seq", "nan"), "is not a token count"),
        (("explain", "kv", "-q", "--json"), "--quiet prints the one number"),
        (("explain", "-q"), "no one number"),
        (("explain", "yarn", "--scale", "nan"), "is stretched 1 to 1,000,000 times, not nan"),
        (("explain", "ntk", "--rope-base", "1"), "is above 1"),
        (("explain", "gqa", "--model", "mamba2-2.7b"), "has no plain attention layer"),
        (("explain", "rope", "--model", "gpt2"), "rotates nothing"),
        (("explain", "tpot", "--gen", "1"), "make decode steps to explain"),
        (("explain", "splitfuse", "--seq", "1M"), "prompts of up to 262,144 tokens"),
        (("explain", "sheared-llama", "--model", "llama-3-8b"), "a part of Llama 2 7B's"),
        (("explain", "vllm", "--model", "deepseek-v3"), "does not fit"),
        (("explain", "expected", "--calibration", "none"), "nothing is expected"),
        (("explain", "energy", "--gpu", "apple-m1-max"), "names no power"),
        (("explain", "dollars", "--gpu", "a10g"), "`infercost request --price` takes yours"),
        (("speculate",), "needs how often a draft is right"),
        (("speculate", *LLAMA, "--alpha", "0.5"), "speculate needs --draft"),
        (("speculate", *LLAMA, "--draft", "nope", "--alpha", "0.5"), "unknown model 'nope'"),
        (("speculate", "--alpha", "nan"), "--alpha is between 0 and 1, not nan"),
        (("speculate", "--alpha", "0.5", "--gamma", "99"), "--gamma is between 1 and 64"),
        (("speculate", "--alpha", "0.5", "--medusa", "0.5"), "give one of them"),
        (("speculate", "--accepted", "2", "--alpha", "0.5"), "say the same thing"),
        (("speculate", "--accepted", "2"), "measured at one draft length"),
        (("speculate", "--accepted", "9", "--gamma", "3"), "--accepted is between 1 and 4"),
        (("speculate", "--alpha", "0.5", "--tree", "9"), "--tree needs --medusa"),
        (("speculate", "--alpha", "0.5", "--kv", "fp8"), "--kv needs --model"),
        (("speculate", "--alpha", "0.5", "--draft-cost", "inf"), "--draft-cost is between"),
        (("speculate", "--medusa", "0.9/0.2"), "at most once in all"),
        (("speculate", "--medusa", "0.5", "--gamma", "3"), "no --draft, no --gamma"),
        (("speculate", *LLAMA, "--draft", "mtp", "--draft-tp", "2", "--alpha", "0.5"), "is of a draft model"),
        (
            ("speculate", *LLAMA, "--draft", "mtp", "--alpha", "0.5", "--draft-cost", "1"),
            "is without --model",
        ),
        (("speculate", *LLAMA, "--draft", "mtp", "--alpha", "0.5", "--tp", "5"), "does not divide"),
        (
            ("speculate", *LLAMA, "--draft", "mtp", "--alpha", "0.5", "--host-us-per-layer", "-1"),
            "--host-us-per-layer is between",
        ),
        (
            ("speculate", "--model", "flan-t5-xl", "--draft", "mtp", "--alpha", "0.5"),
            "speculation is of decoders",
        ),
        (("speculate", "--walk", "2,5", "--gamma", "3"), "between 0 and the 3 tokens"),
        (("speculate", "--walk", "1.5"), "are whole"),
        (("speculate", "--walk", "1", *LLAMA), "--model goes without --walk"),
        (("speculate", "--scorer", "1"), "--scorer belongs to --cascade"),
        (("speculate", "--cascade", "1,10"), "--cascade needs --accept"),
        (("speculate", "--cascade", "1", "--accept", "1"), "2 to 16 models"),
        (("speculate", "--cascade", "nan,1", "--accept", "1"), "--cascade is between"),
        (("speculate", "--cascade", "1,10", "--accept", "0.5", "--tp", "2"), "--tp is of models"),
        (("speculate", "--cascade", "gpt2,llama-7b", "--accept", "1", "--tp", "1,1,1"), "one of each"),
        (("speculate", "--exit-prob", "0.1", *LLAMA), "--exit-prob needs --every"),
        (("speculate", "--exits", "16", *LLAMA), "a layer and a share"),
        (("speculate", "--exits", "32:1", *LLAMA), "the layers before the last are 1 to 31"),
        (("speculate", "--exits", "8:0.7,9:0.7", *LLAMA), "no more than 1 in all"),
        (("speculate", "--every", "32", *LLAMA), "between 1 and 31"),
        (("speculate", "--every", "4"), "speculate needs --model"),
        (("speculate", "--every", "4", "--model", "mamba2-2.7b"), "keeps a state"),
        (("speculate", "--rows", "/no/such.csv"), "No such file"),
        (("speculate", "--rows", "/dev/zero"), "/dev/zero is a device"),
        (("check", "/no/such.yaml"), "cannot read /no/such.yaml: No such file"),
        (("check", "/dev/zero"), "/dev/zero is a device"),
        (("check", "--update", "--only"), "'--only' requires an argument"),
        (("kv", *LLAMA, "--seq", "1..5"), "a range says how it goes on"),
        (("kv", *LLAMA, "--seq", "8..1*2"), "a range goes up"),
        (("kv", *LLAMA, "--seq", "1..8*1"), "multiplied by 2 or more"),
        (("kv", *LLAMA, "--seq", "1..8+0"), "--seq '0' must be between"),
        (("kv", *LLAMA, "--seq", "..*"), "is not a token count"),
        (("kv", *LLAMA, "--seq", "1..1M+1"), "more than 10,000 values"),
        (("sweep", *LLAMA), "sweep needs --prompt"),
        (("sweep", *LLAMA, "--prompt", "1", "--by="), "'' is none of ttft"),
        (("request", *LLAMA, "--prompt", "9", "--gen", "2", "-b", "2147483648"), "ask for a smaller batch"),
        (
            ("request", *LLAMA, "--prompt", "9", "--gen", "2", "-b", "1099511627776"),
            "ask for a smaller batch",
        ),
        (("sweep", "--prompt", "1"), "sweep needs --model"),
        (("sweep", *LLAMA, "--prompt", "1", "--attention", "flesh"), "did you mean flash"),
        (("sweep", *LLAMA, "--prompt", "1", "--weights", "nope"), "unknown weight format"),
        (("sweep", *LLAMA, "--prompt", "1", "--kv", "fp99"), "unknown number format"),
        (("sweep", *LLAMA, "--prompt", "1", "--tp", "3,5"), "no point of the grid can be: heads 32"),
        (("sweep", *LLAMA, "--prompt", "5", "--cached", "5,6"), "as many tokens cached"),
        (("sweep", *LLAMA, "--prompt", "1", "--ep", "2"), "no experts"),
        (("sweep", *LLAMA, "--prompt", "1", "--skew", "nan"), "Zipf exponent"),
        (("sweep", *LLAMA, "--prompt", "1", "--price", "nan"), "--price"),
        (("sweep", *LLAMA, "--prompt", "1", "--gen", "2M"), "at most 1,048,576 tokens out"),
        (("sweep", *LLAMA, "--prompt", "1000000M", "--batch", "1M"), "tokens: more than"),
        (("sweep", *LLAMA, "--prompt", "1..1M+2", "--batch", "1..1M+2"), "are more than 100,000,000"),
        (("sweep", *LLAMA, "--prompt", "1..2M+1"), "more than 1,000,000 values"),
        (("sweep", *LLAMA, "--prompt", "1", "--calibration", "/no/such.yaml"), "No such file"),
        (("sweep", *LLAMA, "--prompt", "1", "--pareto", "tpto"), "did you mean tpot"),
        (("sweep", *LLAMA, "--prompt", "1", "--by", "speed"), "is none of ttft"),
        (("sweep", *LLAMA, "--prompt", "1", "--top", "5"), "--top needs --by"),
        (("sweep", *LLAMA, "--prompt", "1", "--by", "mfu", "--top", "0"), "--top is between"),
        (("sweep", *LLAMA, "--prompt", "1", "--where", "tpot_s < 1"), "did you mean tpot_s.floor"),
        (("sweep", *LLAMA, "--prompt", "1", "--where", "mfu"), "--where 'mfu' is not 'key comparison value'"),
        (("sweep", *LLAMA, "--prompt", "1", "--where", "mfu > x"), "cannot compare"),
        (("sweep", *LLAMA, "--prompt", "1", "--where", "model > a"), "cannot compare"),
        (("sweep", *LLAMA, "--prompt", "1", "--tpot", "0"), "is not a time"),
        (("sweep", *LLAMA, "--prompt", "1", "--jobs", "0"), "--jobs is between"),
        (("sweep", *LLAMA, "--prompt", "1", "--shard", "1/2"), "--shard is for files"),
        (("sweep", *LLAMA, "--prompt", "1", "--shard", "3/2", "-o", "x.csv"), "a part of so many"),
        (("sweep", *LLAMA, "--prompt", "1", "-o", "x.csv", "--json"), "is csv by its suffix"),
        (("sweep", *LLAMA, "--prompt", "1", "-o", "/no/such/x.csv"), "cannot write"),
        (("sweep", *LLAMA, "--prompt", "1", "-o", "x.yaml"), "the suffix says the format"),
        (("sweep", *LLAMA, "--prompt", "1", "-o", "x.csv", "--assert", "nope > 1"), "there is no column"),
        (("sweep", *LLAMA, "--prompt", "1", "-f", "parquet"), "is for a file"),
        (("sweep", *LLAMA, "--prompt", "1", "-f", "jsonl", "-q"), "goes to standard output, alone"),
        (("sweep", "merge", "o.csv"), "Missing argument"),
        (("sweep", "merge", "o.xls", "a.csv"), "the suffix says the format"),
        (("sweep", "merge", "o.csv", "/no/such.csv"), "cannot read"),
    ],
)
def test_one_clear_line(args: tuple[str, ...], said: str, run: Run) -> None:
    result = run(*args)
    assert result.code == 2, (result.out, result.err)
    assert result.out == ""
    assert result.err.startswith("infercost: ")
    assert result.err.count("\n") == 1
    assert said in result.err
    assert "Traceback" not in result.err


def test_a_hostile_sheet_names_file_and_line(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "name: x\nsource: y\nhidden: 8\nvocab: 9\nlayers: 1\nlayer:\n  dense: {widht: 3}\n", encoding="utf-8"
    )
    result = run("kv", "--model", str(path), "--seq", "1")
    assert result.code == 2
    assert result.err == f"infercost: {path}:7: layer.dense: unknown key 'widht'; did you mean width?\n"


@pytest.mark.parametrize("where", ["name", "title", "notes", "source"])
def test_control_characters_never_reach_the_terminal(where: str, run: Run) -> None:
    """Not from a sheet, not from an argument quoted back in an error."""
    fields = {"name": "x", "title": "X", "notes": "n", "source": "s"}
    fields[where] = "a\\e[31m\\u202eb\\a"
    head = "".join(f'{key}: "{value}"\n' for key, value in fields.items())
    body = "hidden: 8\nvocab: 9\nlayers: 1\nlayer: {dense: {width: 3}}\n"
    for command in (
        ("kv", "--seq", "1", "--model", "-"),
        ("models", "show", "-"),
        ("weights", "--model", "-"),
    ):
        result = run(*command, stdin=head + body)
        assert result.code == 2
        assert "control characters" in result.err
        assert not any(ch in result.out + result.err for ch in "\x1b\x07\u202e")


def test_control_characters_in_arguments_are_shown_not_obeyed(run: Run) -> None:
    for args in (
        ("kv", "--model", "\x1b[31mred\u202e", "--seq", "1"),
        ("kv", *LLAMA, "--seq", "\x1b[2J"),
        ("\x1b[31m",),
    ):
        result = run(*args)
        assert result.code == 2
        assert "\x1b" not in result.err
        assert "\u202e" not in result.err


def test_standard_input(run: Run) -> None:
    assert run("kv", "--model", "-", "--seq", "1", stdin="").code == 2
    assert run("kv", "--model", "-", "--seq", "1", stdin=b"\xff\xfe").code == 2
    assert run("kv", "--model", "-", "--seq", "1", stdin=b"#" * 11_000_000).code == 2


def test_interrupted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import infercost.cli.kv as command

    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "models", interrupt)
    assert run("kv", *LLAMA, "--seq", "1").code == 130


def test_the_unexpected_is_one_line_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import infercost.cli.kv as command

    def fail(*args: object) -> None:
        raise ZeroDivisionError("no\nluck")

    monkeypatch.setattr(command, "models", fail)
    result = run("kv", *LLAMA, "--seq", "1")
    assert result.code == 1
    assert (
        result.err
        == "infercost: unexpected error: ZeroDivisionError: no luck (INFERCOST_TRACEBACK=1 shows more)\n"
    )


@pytest.mark.parametrize("value", ["", "0", "1"])
def test_a_traceback_is_asked_for(value: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERCOST_TRACEBACK", value)
    assert ("Traceback" in run("kv", "--model", "nope", "--seq", "1").err) == (value == "1")


def test_an_interrupt_that_an_import_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    """In Python before 3.12 an interrupt in `__set_name__` is the cause of a RuntimeError."""
    from infercost.__main__ import main
    from infercost.cli import app
    from infercost.cli.errors import report_error

    wrapped = RuntimeError("Error calling __set_name__")
    wrapped.__cause__ = KeyboardInterrupt()
    assert report_error(wrapped) == 130

    def interrupted() -> None:
        raise wrapped

    monkeypatch.setattr(app, "main", interrupted)
    with pytest.raises(SystemExit) as leaving:
        main()
    assert leaving.value.code == 130


def test_an_option_is_not_repeated_at_any_length(run: Run) -> None:
    for args in (("--kv=" + "a" * 9000,), ("--layers=" + "a" * 9000,), ("--" + "a" * 9000,)):
        result = run("kv", *LLAMA, "--seq", "1", *args)
        assert (result.code, len(result.err) < 3000) == (2, True)


def test_a_completion_that_no_shell_asked_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_INFERCOST_COMPLETE", "complete_bash")
    monkeypatch.delenv("COMP_WORDS", raising=False)
    result = run("kv", *LLAMA, "--seq", "1")
    assert (result.code, result.err.count("\n"), "COMP_WORDS" in result.err) == (2, 1, True)


# `2>&-` closes a descriptor before the program starts: only a POSIX shell does that.
@pytest.mark.skipif(sys.platform == "win32", reason="no descriptors of a shell")
def test_errors_go_nowhere_where_standard_error_is_closed() -> None:
    """Not into what a program reads."""
    budgets = Path(__file__).parents[2] / "docs" / "example" / "budgets.yaml"
    for args, code in (("kv --model nope --seq 1", 2), (f"check {budgets} --json --github", None)):
        script = f"GITHUB_ACTIONS=true {sys.executable} -m infercost {args} 2>&-"
        found = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
        if code is None:
            assert json.loads(found.stdout)["schema"] == "infercost.check/1"
        else:
            assert (found.returncode, found.stdout, found.stderr) == (code, "", "")
