"""`infercost check`: budgets held, baselines rewritten in place, what CI reads, and what is refused."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import typer
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infercost import DeviceError, InputError
from infercost.cli import check as check_module
from infercost.cli.app import COMMANDS
from infercost.cli.budgets import Check, parse_budgets, unit_of, with_baselines
from infercost.cli.judging import judge
from infercost.cli.subcommand import WRITERS, document_of

Run = Callable[..., Any]
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "example"
KV = "kv --model llama-7b --seq 32k"
BYTES = 17_179_869_184
"""The ledger's 16 GiB: 2 (K and V) x 32 layers x 32,768 tokens x 4,096 values x 2 bytes."""


@pytest.fixture(autouse=True)
def nowhere_near_github(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_ACTIONS", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def budgets(tmp_path: Path) -> Callable[..., str]:
    """A budgets file of these checks."""

    def written(text: str = "", **checks: dict[str, Any]) -> str:
        path = tmp_path / "budgets.yaml"
        path.write_text(text or yaml.safe_dump({"checks": checks}, sort_keys=False), encoding="utf-8")
        return str(path)

    return written


def held(rule: str, limit: Any, expr: str = "logical_bytes", run: str = KV, **more: Any) -> dict[str, Any]:
    return {"run": run, "expr": expr, rule: limit, **more}


@pytest.mark.parametrize(
    ("check", "passes"),
    [
        (held("max", BYTES), True),
        (held("max", BYTES - 1), False),
        (held("min", BYTES), True),
        (held("min", BYTES + 1), False),
        (held("equals", BYTES), True),
        (held("equals", BYTES + 1), False),
        (held("baseline", BYTES), True),
        (held("baseline", BYTES - 1), False),
        (held("baseline", BYTES + 1), False),
        (held("baseline", 17_000_000_000, tolerance=0.02), True),
        (held("baseline", 17_000_000_000, tolerance="1%"), False),
        (held("max", "16 GiB"), True),
        (held("max", "17.1GB"), False),
        (held("max", "20e9"), True),
        (held("max", "1 ms", "totals.decode.floor_s", "ops --model llama-7b --seq 1k"), False),
        (held("max", "10ms", "totals.decode.floor_s", "ops --model llama-7b --seq 1k"), True),
        (held("equals", True, "fits", "fit --model llama-7b --seq 1k"), True),
        (held("equals", False, "fits", "fit --model llama-7b --seq 1k"), False),
        (held("equals", 1, "fits", "fit --model llama-7b --seq 1k"), False),
        (held("equals", "fp16", "inputs.kv"), True),
        (held("equals", "fp8", "inputs.kv"), False),
        (held("equals", 32, "groups[0].layers"), True),
        (held("equals", 128.0, "head_dim", "models show llama-7b", tolerance=0.5), None),
        (held("equals", 4096, "hidden", "models show llama-7b"), True),
        (held("equals", 6_738_415_616, "models.llama-7b.parameters", "models"), True),
        (held("max", "16 GiB", run="kv --model llama-7b --seq 1k,32k"), True),
        (held("max", "15 GiB", run="kv --model llama-7b --seq 32k,1k"), False),
        (held("equals", BYTES // 32, "points[1].logical_bytes", "kv --model llama-7b --seq 32k,1k"), True),
    ],
)
def test_rules(check: dict[str, Any], passes: bool | None, budgets: Callable[..., str], run: Run) -> None:
    result = run("check", budgets(one=check), "--json")
    document = json.loads(result.out)
    (found,) = document["checks"]
    assert result.code == {True: 0, False: 1, None: 2}[passes], result.err
    assert document["passed"] == found["passed"] == bool(passes)
    assert {"name", "expr", "value", "limit", "passed"} <= set(found)
    assert (found["why"] is None) == bool(passes)
    assert found["error"] == (passes is None)


def test_json_contract(budgets: Callable[..., str], run: Run) -> None:
    path = budgets(cache=held("max", 1, note="why it is so"), weights=held("max", "1e12"))
    result = run("check", path, "--json")
    document = json.loads(result.out)
    assert document["schema"] == "infercost.check/1"
    assert (document["passed"], document["failed"], document["errors"]) == (False, 1, 0)
    assert document["inputs"] == {
        "command": "check",
        "file": path,
        "only": ["cache", "weights"],
        "update": False,
    }
    assert "LLaMA" in document["sources"]["llama-7b"]
    first = document["checks"][0]
    assert (first["value"], first["limit"], first["line"], first["run"]) == (BYTES, 1, 2, f"infercost {KV}")
    assert first["note"] == "why it is so"
    assert result.err.startswith(
        "infercost: failed: cache: logical_bytes is 16.00 GiB (17,179,869,184 bytes)"
    )
    assert run("check", path, "-q").out == "1\n"
    rows = list(csv.DictReader(io.StringIO(run("check", path, "--csv").out)))
    assert [(row["name"], row["passed"]) for row in rows] == [("cache", "False"), ("weights", "True")]


def test_the_screen_says_what_and_why(budgets: Callable[..., str], run: Run) -> None:
    path = budgets(cache=held("max", "8 GiB", note="the users of one card"), fine=held("min", 0))
    lines = run("check", path).out.splitlines()
    assert lines[0] == f"{path}: 1 of 2 checks failed: cache"
    assert lines[3].split() == ["cache", "16.00", "GiB", "max", "8.00", "GiB", "+100", "%", "FAILED"]
    assert any(line.startswith(f"{path}:2: cache: logical_bytes is 16.00 GiB") for line in lines)
    assert "  the users of one card" in lines
    assert f"  $ infercost {KV}" in lines
    assert run("check", budgets(fine=held("min", 0))).out.startswith(f"{path}: 1 check passed\n")


def test_only(budgets: Callable[..., str], run: Run) -> None:
    path = budgets(good=held("min", 1), bad=held("max", 1))
    assert run("check", path, "--only", "good").code == 0
    assert run("check", path, "--only", "bad,good").code == 1
    refused = run("check", path, "--only", "goood")
    assert (refused.code, refused.out) == (2, "")
    assert "has no check 'goood'; did you mean good?" in refused.err


def test_a_slip_in_one_check_does_not_hide_the_others(budgets: Callable[..., str], run: Run) -> None:
    """Exit 2 for the error, exit 1 without it; both verdicts stand on the screen."""
    path = budgets(bad=held("max", 1), slip=held("max", 1, "logical_byts"), good=held("min", 1))
    result = run("check", path)
    assert result.code == 2
    assert result.out.startswith(f"{path}: 1 of 3 checks failed, 1 in error: bad, slip")
    assert "did you mean logical_bytes?" in result.err
    assert f"{path}:6: slip: expr: there is no 'logical_byts'" in result.err
    assert run("check", path, "--only", "bad,good").code == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("kv --seq 1", "kv needs --model"),
        ("kvv --seq 1", "'kvv' is no command that a check can run; did you mean kv?"),
        ("check budgets.yaml", "'check' is no command that a check can run"),
        ("kv --model llama-7b --sequence 1", "No such option: --sequence"),
        ("kv --model llama-7b --seq 1 | tee out", "unexpected extra argument"),
        ("kv --model llama-7b --seq 1 && touch out", "unexpected extra argument"),
        ("kv --model $HOME --seq 1", "unknown model '$HOME'"),
        ("kv --model - --seq 1", "standard input is empty"),
        ("kv --model llama-7b --seq 1 --csv", "two formats at once"),
        ("kv --model llama-7b --seq 1 --quiet", "--quiet prints the one number"),
        ("kv --help", "infercost kv --help has no JSON"),
        ("models import config.json", "infercost models import has no JSON"),
        ("kv --model llama-7b --seq 1 --output out", "--output writes a file"),
        ("kv --model llama-7b --seq 1 --output=out", "--output writes a file"),
        ("kv --model llama-7b --seq 1 -oout", "--output writes a file"),
        ("kv --model llama-7b --seq 1 -qo out", "--output writes a file"),
        ("models show llama-7b -o out", "--output writes a file"),
        ("models -o out show llama-7b", "--output writes a file"),
        ("probe --save", "--save writes a file"),
        ("probe --save-to out", "--save-to writes a file"),
        ("probe --results out", "--results writes a file"),
        ("calibrate --from a.csv --gpu l4 --write out", "--write writes a file"),
    ],
)
def test_what_a_check_cannot_run(
    line: str, said: str, budgets: Callable[..., str], run: Run, tmp_path: Path
) -> None:
    result = run("check", budgets(one=held("max", 1, run=line)), stdin="name: x\n")
    assert result.code == 2
    assert said in result.err
    assert "Traceback" not in result.err
    assert [path.name for path in tmp_path.iterdir()] == ["budgets.yaml"], "nothing is written"


def options_of(command: Any) -> list[Any]:
    inner = getattr(command, "commands", {}).values()
    return [*command.params, *(option for each in inner for option in options_of(each))]


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"check"}))
def test_every_option_that_writes_is_refused(name: str) -> None:
    """An option of any command whose help says so, those to come included."""
    import importlib

    command = typer.main.get_command(importlib.import_module(f"infercost.cli.{name}").app)
    for option in options_of(command):
        said = (getattr(option, "help", "") or "").lower()
        if re.match(r"(also )?(write|append|keep|save|store)\b", said):
            assert option.name in WRITERS, f"{name} {option.opts}: {said}"


def test_a_command_that_says_no_fails_its_check(budgets: Callable[..., str], run: Run) -> None:
    path = budgets(one=held("equals", True, "fits", "fit --model llama-3-70b --seq 1k --require"))
    result = run("check", path)
    assert result.code == 1
    assert "llama-3-70b does not fit" in result.err


def test_no_device_is_exit_3(budgets: Callable[..., str], run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import infercost.cli.check as command

    def absent(words: tuple[str, ...]) -> Any:
        raise DeviceError("no GPU")

    monkeypatch.setattr(command, "document_of", absent)
    result = run("check", budgets(one=held("max", 1, run="probe --quick")))
    assert result.code == 3
    assert "one: no GPU" in result.err


@pytest.mark.parametrize(("problem", "code"), [(KeyboardInterrupt, 130), (ZeroDivisionError, 1)])
def test_interrupted_or_broken_inside_a_command(
    problem: type[BaseException],
    code: int,
    budgets: Callable[..., str],
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The way out is that of the command itself, and the file is as it was."""
    import infercost.cli.kv as command

    def fail(*args: object) -> None:
        raise problem

    monkeypatch.setattr(command, "models", fail)
    path = budgets(one=held("baseline", 1))
    text = Path(path).read_text(encoding="utf-8")
    result = run("check", path, "--update")
    assert (result.code, result.out, result.err.count("\n")) == (code, "", 1)
    assert Path(path).read_text(encoding="utf-8") == text


def test_a_command_is_run_once(
    budgets: Callable[..., str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import infercost.cli.check as command

    asked = []

    def spy(words: tuple[str, ...]) -> Any:
        asked.append(words)
        return document_of(words)

    monkeypatch.setattr(command, "document_of", spy)
    words = ["infercost", *shlex.split(KV.replace("32k", "4096"))]
    path = budgets(
        a=held("min", 1, run=KV),
        b=held("min", 1, "bytes_per_token", run=KV),
        c={"run": [*words[:-1], 4096], "expr": "logical_bytes", "equals": BYTES // 8},
    )
    assert run("check", path).code == 0
    assert asked == [tuple(shlex.split(KV)), ("kv", "--model", "llama-7b", "--seq", "4096")]


def test_files_are_named_from_the_budgets_file(
    budgets: Callable[..., str],
    run: Run,
    tmp_path: Path,
    small_llama: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """2 layers x 2 x 64 values x 2 bytes; the folder one stands in is the same afterwards."""
    (tmp_path / "config.json").write_text(json.dumps(small_llama), encoding="utf-8")
    path = budgets(kv=held("equals", 512, "bytes_per_token", "kv --model config.json --seq 1"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert run("check", path, "--junit", "out.xml", "-o", "out.json").code == 0
    assert run("check", "../budgets.yaml").code == 0
    assert Path.cwd() == elsewhere
    assert sorted(each.name for each in elsewhere.iterdir()) == ["out.json", "out.xml"]


COMMENTED = """\
# Costs of the ünïcode model 😀
checks:
  cache:   # the first
    expr: logical_bytes
    baseline: 12     # {seen}
    run: kv --model llama-7b --seq 32k
  "new one": {{run: kv --model llama-7b --seq 1k, expr: bytes_per_token, baseline: }}
  later:
    run: ops --model llama-7b --seq 1k   # seconds
    expr: totals.decode.floor_s
    baseline:   # nothing yet
    tolerance: 1%
  limit: {{run: kv --model llama-7b --seq 1k, expr: logical_bytes, max: 1 GiB}}
  quoted:
    baseline:
      "1e-5"
    run: kv --model llama-7b --seq 1
    expr: logical_bytes
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_update_changes_the_figures_and_nothing_else(newline: str, run: Run, tmp_path: Path) -> None:
    text = COMMENTED.format(seen="as of spring").replace("\n", newline)
    path = tmp_path / "b.yaml"
    path.write_bytes(text.encode())
    before = run("check", str(path))
    assert before.code == 1
    assert "has no baseline yet; --update records it" in before.out
    updated = run("check", str(path), "--update")
    assert updated.code == 0, updated.err
    assert updated.out.startswith(f"{path}: 5 checks passed, 4 baselines updated")
    after = path.read_bytes().decode()
    floor = run("ops", "--model", "llama-7b", "--seq", "1k", "--json").json["totals"]["decode"]["floor_s"]
    wanted = text.replace("baseline: 12 ", f"baseline: {BYTES} ").replace("baseline: }", "baseline: 524288 }")
    wanted = wanted.replace("baseline:   #", f"baseline: {floor!r}   #").replace('"1e-5"', "524288")
    assert after == wanted
    again = run("check", str(path), "--update", "--json").json
    assert (again["passed"], again["updated"]) == (True, 0)
    assert path.read_bytes().decode() == after
    assert [each.name for each in tmp_path.iterdir()] == ["b.yaml"], "nothing half-written beside it"


def test_update_of_some(budgets: Callable[..., str], run: Run) -> None:
    path = budgets(a=held("baseline", 1), b=held("baseline", 2), c=held("max", 3))
    document = json.loads(run("check", path, "--update", "--only", "b", "--json").out)
    assert (document["checks"][0]["before"], document["checks"][0]["limit"]) == (2, BYTES)
    kept = yaml.safe_load(Path(path).read_text(encoding="utf-8"))["checks"]
    assert (kept["a"]["baseline"], kept["b"]["baseline"], kept["c"]["max"]) == (1, BYTES, 3)
    assert run("check", path, "--update").code == 1, "a limit that is no baseline still holds"
    assert "no check chosen" in run("check", path, "--update", "--only", "c").err


def test_update_writes_nothing_where_a_check_is_in_error(budgets: Callable[..., str], run: Run) -> None:
    path = budgets(a=held("baseline", 1), slip=held("max", 1, "nope"))
    text = Path(path).read_text(encoding="utf-8")
    assert run("check", path, "--update").code == 2
    assert Path(path).read_text(encoding="utf-8") == text


def test_a_baseline_is_one_number(budgets: Callable[..., str], run: Run) -> None:
    several = run("check", budgets(a=held("baseline", 1, run="kv --model llama-7b --seq 1k,2k")))
    assert several.code == 2
    assert "has 2 values, and a baseline is one" in several.err
    word = run("check", budgets(a=held("baseline", None, "inputs.model")), "--update")
    assert word.code == 2
    assert "expr inputs.model is llama-7b, not a number" in word.err


numbers = st.integers(-(10**18), 10**18) | st.floats(-1e29, 1e29, allow_subnormal=False)


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(numbers, numbers, st.sampled_from(["12", "", "~", "'3'", "1.5", "  7"]), st.booleans())
def test_any_number_is_written_and_read_back(a: float, b: float, old: str, flow: bool) -> None:
    """YAML 1.1 takes 1e-05 for a word; what is written reads back as the number that was meant."""
    body = (
        "{{run: kv, baseline: {0} , expr: x}}"
        if flow
        else "\n    run: kv\n    baseline: {0} # é\n    expr: x"
    )
    text = f"checks:\n  a: {body.format(old)}\n  b: {body.format(old)}\n"
    new = with_baselines(parse_budgets(text, Path("b.yaml")), {"a": a, "b": b})
    assert [check.limit for check in parse_budgets(new, Path("b.yaml")).checks] == [a, b]
    assert new.count("\n") == text.count("\n")
    assert yaml.safe_load(new)["checks"]["a"]["baseline"] == a


@given(numbers, numbers, st.floats(0, 1))
def test_laws_of_the_limits(value: float, limit: float, tolerance: float) -> None:
    def passes(rule: str, share: float = 0.0) -> bool:
        return judge(Check("n", 1, ("kv",), "x", rule, limit, share, ""), [value]).passed

    assert passes("max") == (value <= limit)
    assert passes("min") == (value >= limit)
    assert passes("baseline") == passes("equals")
    if passes("baseline"):
        assert passes("baseline", tolerance), "a wider tolerance never fails what a narrower passes"
    if isinstance(value, int) and isinstance(limit, int):
        assert passes("baseline") == (value == limit)
    for rule in ("max", "min", "baseline"):
        judged = judge(Check("n", 1, ("kv",), "x", rule, limit, 0.0, ""), [value])
        assert bool(judged.why) != judged.passed


@pytest.mark.parametrize("rule", ["baseline", "equals"])
@pytest.mark.parametrize(("off", "passes"), [(5e-10, True), (-5e-10, True), (1e-6, False), (-1e-6, False)])
def test_only_the_last_digits_of_a_float_may_differ(rule: str, off: float, passes: bool) -> None:
    """A sum's order, which platforms choose, is no regression; a millionth is one."""
    check = Check("n", 1, ("kv",), "x", rule, 0.125, 0.0, "")
    assert judge(check, [0.125 * (1 + off)]).passed is passes


@given(st.lists(numbers, min_size=1, max_size=5), numbers)
def test_of_several_values_the_worst_is_said(values: list[float], limit: float) -> None:
    most = judge(Check("n", 1, ("kv",), "x", "max", limit, 0.0, ""), values)
    assert most.passed == all(value <= limit for value in values)
    assert most.passed or most.value > limit


def test_units_of_keys() -> None:
    for expr in ("logical_bytes", "bytes_per_token", "groups[0].bytes", "ops.qkv.bytes_by_class.kv"):
        assert unit_of(expr) == "bytes"
    for expr in ("tpot_s.expected", "totals.decode.floor_s"):
        assert unit_of(expr) == "seconds"
    for expr in ("output_tokens_per_s", "bandwidth_bytes_per_s", "mfu", "ops[0].count", "usd"):
        assert unit_of(expr) == ""


GOOD = "run: kv --model llama-7b --seq 1, expr: logical_bytes"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a sheet is a mapping of keys to values, not nothing"),
        ("[]", "not a list"),
        ("a: 1", "unknown key 'a'"),
        ("cheks: {}", "did you mean checks?"),
        ("checks:", "expected a mapping, not nothing"),
        ("checks: {}", "no checks; a budgets file has 'checks'"),
        ("checks: [1]", "expected a mapping, not a list"),
        ("checks: {a: [1, 2]}", "checks.a: expected a mapping, not a list"),
        ("checks: {1: {}}", "keys are words, not the number 1"),
        ("checks: {yes: {}}", "keys are words, not true"),
        ("checks: {a: {}}", "checks.a: 'run' is missing"),
        ("checks: {a: {run: kv}}", "checks.a: 'expr' is missing"),
        (f"checks: {{a: {{{GOOD}}}}}", "give one limit of max, min, equals and baseline"),
        (f"checks: {{a: {{{GOOD}, max: 1, min: 0}}}}", "not max and min"),
        (f"checks: {{a: {{{GOOD}, maxx: 1}}}}", "unknown key 'maxx'; did you mean max?"),
        (f"checks: {{a: {{{GOOD}, max: 1}}, a: {{{GOOD}, max: 2}}}}", "the key 'a' stands twice"),
        (f"checks: {{a: {{{GOOD}, max: 5 apples}}}}", "must be a number, such as 20e9"),
        (f"checks: {{a: {{{GOOD}, max: 5 ms}}}}", "'5 ms' is a time, but logical_bytes is not in seconds"),
        (f"checks: {{a: {{{GOOD}, max: .nan}}}}", "a finite number"),
        (f"checks: {{a: {{{GOOD}, max: .inf}}}}", "a finite number"),
        (f"checks: {{a: {{{GOOD}, max: nan}}}}", "a finite number"),
        (f"checks: {{a: {{{GOOD}, max: true}}}}", "not true (a switch)"),
        (f"checks: {{a: {{{GOOD}, max: }}}}", "not nothing"),
        (f"checks: {{a: {{{GOOD}, equals: [1]}}}}", "not a list"),
        (f"checks: {{a: {{{GOOD}, baseline: word}}}}", "not the text 'word'"),
        (f"checks: {{a: {{{GOOD}, max: 1, tolerance: 0.1}}}}", "goes with a baseline"),
        (f"checks: {{a: {{{GOOD}, equals: word, tolerance: 0.1}}}}", "goes with a baseline"),
        (f"checks: {{a: {{{GOOD}, baseline: 1, tolerance: 5}}}}", "is a share from 0 to 1"),
        (f"checks: {{a: {{{GOOD}, baseline: 1, tolerance: x}}}}", "'x' is no share"),
        (f"checks: {{a: {{{GOOD}, max: 1, note: 5}}}}", "must be text, not the number 5"),
        ("checks: {a: {run: '', expr: x, max: 1}}", "is empty; give a command such as"),
        ("checks: {a: {run: infercost, expr: x, max: 1}}", "is empty; give a command such as"),
        ("checks: {a: {run: 'kv \"', expr: x, max: 1}}", "no closing quotation"),
        ("checks: {a: {run: [kv, [1]], expr: x, max: 1}}", "a list is none"),
        ("checks: {a: {run: [kv, true], expr: x, max: 1}}", "true (a switch) is none"),
        ('checks: {a: {run: [kv, "\\e[31m"], expr: x, max: 1}}', "control characters"),
        ("checks: {a: {run: kv, expr: x < 5, max: 1}}", "is a condition; give its key"),
        ("checks: {a: {run: kv, expr: '..', max: 1}}", "is not a key of the JSON"),
        ("checks: {'a\tb': {run: kv, expr: x, max: 1}}", "a name is up to 80 letters"),
        ("checks: {'::error': {run: kv, expr: x, max: 1}}", "a name is up to 80 letters"),
        (f"checks: {{<<: {{a: {{{GOOD}, max: 1}}}}}}", "merge keys (<<) are not allowed"),
        (f"checks: {{a: {{<<: {{{GOOD}}}, max: 1}}}}", "merge keys (<<) are not allowed"),
        ("checks: &a [*a]", "anchors and aliases"),
        ("checks: !!python/object/apply:os.system [id]", "tags"),
        ("? [a]\n: 1", "not valid YAML"),
        ("checks: {a: {run: kv", "not valid YAML"),
        ("checks: " + "[" * 100, "nested deeper than 24 levels"),
        ("checks: " + "[" * 5000, "not valid YAML: exceeded maximum nesting depth"),
        ("checks: {a: 1}\n---\nb: 2", "not valid YAML"),
        ("checks:\n" + "".join(f"  c{i}: {{{GOOD}, min: 1}}\n" for i in range(501)), "at most 500"),
        (f"checks: {{a: {{run: [kv{', x' * 200}], expr: x, max: 1}}}}", "at most 200 make a command"),
        ("#" * ((1 << 20) + 1), "larger than a sheet may be"),
    ],
)
def test_a_bad_file_is_one_line(text: str, said: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    result = run("check", str(path))
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"infercost: {path}")
    assert result.err.count("\n") == 1
    assert said in result.err


def test_a_file_that_cannot_be_read(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "cannot read budgets.yaml: No such file" in run("check").err
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    for name, said in (("b.yaml", "not UTF-8"), (str(tmp_path), "is a folder"), ("a\0b", "cannot read")):
        result = run("check", name)
        assert (result.code, said in result.err) == (2, True), result.err


def test_a_file_that_cannot_be_written(budgets: Callable[..., str], run: Run, tmp_path: Path) -> None:
    path = budgets(a=held("min", 1))
    for where in (str(tmp_path), str(tmp_path / "no" / "such.xml"), "a\0b"):
        result = run("check", path, "--junit", where)
        assert (result.code, result.err.startswith("infercost: cannot write")) == (2, True)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = ("run", "expr", "max", "min", "equals", "baseline", "tolerance", "note", "other")


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.sampled_from(KEYS), values, max_size=5), st.text(max_size=6) | st.just("a"))
def test_mutated_files(changed: dict[str, Any], name: str) -> None:
    """Any value at any key: checks, or one clear error."""
    data = {"checks": {name: {"run": KV, "expr": "logical_bytes", "max": 1} | changed}}
    with contextlib.suppress(InputError):
        read = parse_budgets(yaml.safe_dump(data, allow_unicode=True), Path("fuzz.yaml"))
        assert len(read.checks) == 1


def test_junit(budgets: Callable[..., str], run: Run, tmp_path: Path) -> None:
    report = tmp_path / "out.xml"
    note = 'less than <half> & "more"'
    path = budgets(good=held("min", 1), bad=held("max", 1, note=note), slip=held("max", 1, "nope"))
    assert run("check", path, "--junit", str(report)).code == 2
    (suite,) = ElementTree.fromstring(report.read_text(encoding="utf-8"))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    good, bad, slip = suite
    assert list(good) == []
    assert (bad.get("name"), bad.get("file"), bad.get("line")) == ("bad", path, "6")
    (failure,) = bad
    assert (failure.tag, failure.get("type")) == ("failure", "max")
    assert failure.get("message", "").startswith("logical_bytes is 16.00 GiB")
    assert (failure.text or "").splitlines()[1:] == [note, f"infercost {KV}"]
    assert slip[0].tag == "error"


def test_github_annotations(
    budgets: Callable[..., str], run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On standard error, so that JSON stays JSON; escaped as workflow commands want it."""
    path = budgets(good=held("min", 1), bad=held("max", 1, note="50% or: less, ::warning::"))
    assert "::error" not in run("check", path).err
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    result = run("check", path, "--json")
    assert json.loads(result.out)["failed"] == 1
    (line,) = (line for line in result.err.splitlines() if line.startswith("::"))
    assert line.startswith("::error file=budgets.yaml,line=6,title=infercost%3A bad::")
    assert line.endswith("(50%25 or: less, ::warning::)")
    assert "::error" not in run("check", path, "--no-github").err
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path / "elsewhere"))
    where = path.replace(":", "%3A").replace(",", "%2C")
    assert f"::error file={where}," in run("check", path).err


def test_the_example(run: Run, tmp_path: Path) -> None:
    """docs/ci.md: the model passes; with twice the KV heads the same budgets fail, with the reason."""
    path, pull = EXAMPLE / "budgets.yaml", EXAMPLE / "pull-request"
    assert path.read_bytes() == (pull / "budgets.yaml").read_bytes()
    old, new = (json.loads((p / "config.json").read_text(encoding="utf-8")) for p in (EXAMPLE, pull))
    assert {key for key in old if old[key] != new[key]} == {"num_key_value_heads"}
    assert run("check", str(path)).code == 0
    failed = run("check", str(pull / "budgets.yaml"), "--json")
    assert failed.code == 1
    first = json.loads(failed.out)["checks"][0]
    row = 2 * new["num_hidden_layers"] * new["num_key_value_heads"] * new["head_dim"] * 2
    assert (first["value"], first["limit"]) == (row, row // 2)
    assert "100 % above its baseline" in first["why"]
    assert first["note"]


def test_the_action_and_the_hook_call_what_there_is(run: Run) -> None:
    path = ROOT / ".github" / "actions" / "infercost-check" / "action.yml"
    if not path.exists():
        # A source distribution holds no files of the repository's own keeping.
        pytest.skip(f"{path} is not there: the action is not held to the command here")
    offered = run("check", "--help").out
    action = yaml.safe_load(path.read_text(encoding="utf-8"))
    step = action["runs"]["steps"][-1]
    assert "${{" not in step["run"], "text of a pull request is never read as shell"
    used = set(re.findall(r"--[a-z]+", step["run"].partition("bin/infercost")[2]))
    assert used == {"--github", "--only", "--junit"}
    assert all(option in offered for option in used)
    named = set(re.findall(r"inputs\.([a-z-]+)", json.dumps(action)))
    assert named == set(action["inputs"])
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert hook["entry"] == "infercost check"
    assert re.search(hook["files"], "models/config.json")
    assert re.search(hook["files"], "ci/budgets.yaml")


def test_updates_at_once_lose_nothing(budgets: Callable[..., str], tmp_path: Path) -> None:
    """Each of another check; all of them are in the file, which nothing is left beside."""
    names = [f"c{i}" for i in range(6)]
    path = budgets(
        **{name: held("baseline", 1, run=f"kv --model gpt2 --seq {i + 1}") for i, name in enumerate(names)}
    )
    command = [sys.executable, "-m", "infercost", "check", path, "--update", "--only"]
    running = [subprocess.Popen([*command, name], stdout=subprocess.DEVNULL) for name in names]
    assert [each.wait(timeout=120) for each in running] == [0] * len(names)
    assert all(each["baseline"] > 1 for each in yaml.safe_load(Path(path).read_text())["checks"].values())
    assert list(tmp_path.iterdir()) == [Path(path)]


def test_update_of_a_file_that_was_changed_meanwhile(
    budgets: Callable[..., str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What else was written there stays; a figure goes to no other question than was asked."""
    path = Path(budgets(a=held("baseline", 1), b=held("baseline", 1)))
    real = check_module._run

    def changing(old: str, new: str) -> None:
        def meanwhile(*args: Any) -> Any:
            found = real(*args)
            path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
            return found

        monkeypatch.setattr(check_module, "_run", meanwhile)

    changing("checks:", "# said\nchecks:\n  z: {run: kv --model gpt2 --seq 1, expr: logical_bytes, max: 1}")
    assert run("check", str(path), "--update", "--only", "b").code == 0
    after = path.read_text(encoding="utf-8")
    assert after.startswith("# said\n")
    assert [each.get("baseline") for each in yaml.safe_load(after)["checks"].values()] == [None, 1, BYTES]
    for old, new in (("llama-7b", "gpt2"), ("  a:", "  y:")):
        changing(old, new)
        before = path.read_text(encoding="utf-8")
        refused = run("check", str(path), "--update", "--only", "a")
        assert (refused.code, "a of" in refused.err, "was changed meanwhile" in refused.err) == (
            2,
            True,
            True,
        )
        assert path.read_text(encoding="utf-8") == before.replace(old, new, 1)
        path.write_text(before, encoding="utf-8")


def test_a_check_starts_no_processes(
    budgets: Callable[..., str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from infercost.cli import sweep_run

    monkeypatch.setattr(sweep_run, "_start", None)
    command = "sweep --model gpt2 --batch 1..300+1 --prompt 1..300+1 --gen 2 --top 1 --by ttft"
    expr = "points[0].ttft_s.expected"
    asked: list[int] = []
    real = sweep_run.results

    def counted(task: Any, work: Any, chunks: Any, jobs: int) -> Any:
        asked.append(jobs)
        return real(task, work, chunks[:1], jobs)

    monkeypatch.setattr("infercost.cli.sweep.results", counted)
    assert (
        run(
            "check", budgets(a=held("max", 1, expr, command), b=held("max", 1, expr, command + " --jobs 1"))
        ).code
        == 0
    )
    assert asked == [1, 1]
    refused = run("check", budgets(a=held("max", 1, expr, command + " --jobs 256")))
    assert (refused.code, "--jobs starts processes; a check runs in one" in refused.err) == (2, True)


def test_words_of_a_check_are_of_bounded_length(budgets: Callable[..., str], run: Run) -> None:
    words = ["kv", "--model", "gpt2", "--seq", "1", "--assert", "a < x" + " " * 900_000 + "y"]
    assert (
        "a word of more than 4,000 characters" in run("check", budgets(a=held("max", 1) | {"run": words})).err
    )
