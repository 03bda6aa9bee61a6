"""What the documentation promises: schemas that hold, help with examples, names that complete, a site."""

from __future__ import annotations

import copy
import doctest
import importlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from infercost import InputError, engine_names, gpu_names, model_names
from infercost.cli.app import COMMANDS, make_app
from infercost.cli.budgets import parse_budgets
from infercost.hardware.calibration_sheet import calibration_from_text
from infercost.hardware.catalogue import gpu_aliases, gpu_from_text
from infercost.hardware.engine import engine_from_text
from infercost.models.formats import formats
from infercost.models.recipes import recipe_names
from infercost.models.sheet import model_from_text

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
Schemas = Callable[[str], Any]
READERS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "model": ("models/sheets", model_from_text),
    "gpu": ("hardware/sheets", gpu_from_text),
    "engine": ("hardware/engines", engine_from_text),
    "calibration": ("hardware/calibrations", calibration_from_text),
    "budgets": ("docs/example/pull-request", lambda text, origin: parse_budgets(text, Path(origin))),
}
"""Kinds of sheets: where those that ship are, and what reads one."""
SHEETS = [
    (kind, path) for kind, (folder, _) in READERS.items() for path in sorted((ROOT / folder).glob("*.yaml"))
]
ASKED = [
    "kv --model llama-7b --seq 1k",
    "kv --model gemma-3-27b --seq 1k,2k --engine vllm --kv-budget 5GiB",
    "weights --model deepseek-v3",
    "weights --params 7B --bits 4",
    "weights --formats",
    "ops --model llama-7b --seq 1k",
    "ops --model llama-7b --seq 1k --calibration none",
    "ops --model llama-7b --seq 1k --accounting textbook",
    "roofline --gpu a100,h100",
    "roofline --gpu t4 --model llama-7b --seq 1k",
    "request --model llama-7b --prompt 1k --gen 4",
    "request --model llama-7b --prompt 1k,2k --gen 1 --gpu apple-m3-max --calibration none",
    "fit --model llama-7b --seq 1k",
    "fit --model llama-7b --seq 1k,2k --gpu l4,h100",
    "serve --model llama-7b --prompt 512 --gen 16 --batch 1,2 --simulate",
    "serve --actual 12000 --price 2.50",
    "diagnose --model llama-7b --prompt 512 --gen 16 --vs fp8,tp=2",
    "quant --values 1.2,2.4,3.6",
    "quant --model llama-7b --seq 1k --weights bf16,gptq",
    "quant --same-memory 30GB --bits 4,8",
    "quant --scheme llm-int8 --outliers 0.1%",
    "quant --formats",
    "compress --sparsity 0.5,0.6",
    "compress --model llama-2-7b --keep-hidden 2560 --keep-heads 20 --keep-ffn 6912",
    "compress --distil --teacher llama-3-70b --student 8b --examples 100k --prompt 300 --gen 500",
    "speculate --walk 2,0,1,3",
    "speculate --model llama-7b --medusa 0.75,0.5 --tree 26 --batch 1,8",
    "speculate --model llama-7b --every 4 --exit-prob 0.1",
    "speculate --cascade llama-3-8b,llama-3-70b --accept 0.6",
    "explain",
    "explain kv",
    "explain pagedattention",
    "sweep --model llama-7b --prompt 1k,2k --batch 1..4*2",
    "report --model llama-7b --prompt 512 --gen 16",
    "check docs/example/budgets.yaml",
    "validate --kernels docs/example/l4-invented.csv",
    "validate --end-to-end docs/example/requests-invented.csv",
    "calibrate --from docs/example/l4-invented.csv --gpu l4",
    "models",
    "models show llama-7b",
    "models lint llama-7b",
    "models diff llama-7b gpt2",
    "gpus",
    "gpus show a100",
    "gpus lint",
]


def test_the_python_tour_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DOCS)
    failed, tried = doctest.testfile(str(DOCS / "api.md"), module_relative=False)
    assert tried > 10
    assert failed == 0


def test_sheets_in_the_docs_are_the_examples() -> None:
    """Each sheet that a page shows stands beside it as a file, and its own schema is the one it names."""
    page = (DOCS / "sheets.md").read_text(encoding="utf-8")
    for name in ("tiny.yaml", "my-gpu.yaml"):
        text = (DOCS / "example" / name).read_text(encoding="utf-8")
        assert f"```yaml\n{text}```" in page
        named = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
        assert (DOCS / "example" / named).is_file()


def test_files_that_extending_names_are_there() -> None:
    page = (DOCS / "extending.md").read_text(encoding="utf-8")
    for name in re.findall(r"`(?:python |pytest )?([a-z_]+(?:/[\w./]+)+)[^`]*`", page):
        assert "NAME" in name or (ROOT / name).exists(), name


def test_every_schema_and_page_is_listed() -> None:
    listed = (DOCS / "schemas.md").read_text(encoding="utf-8")
    for path in (DOCS / "schemas").glob("*.json"):
        assert f"(schemas/{path.name})" in listed
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    for path in DOCS.glob("*.md"):
        assert path.name in nav


def test_the_site_builds(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="mkdocs-material is not installed (extra `docs`)")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert result.returncode == 0, result.stdout + result.stderr
    for name in COMMANDS:
        assert (tmp_path / "commands" / name / "index.html").is_file()
    assert (tmp_path / "schemas" / "kv.json").is_file()


def test_schemas_are_current() -> None:
    tool = ROOT / "tests" / "tools" / "schemas.py"
    result = subprocess.run(
        [sys.executable, str(tool), "--check"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("kind", READERS)
def test_sheets_that_ship_are_valid(kind: str, schema: Schemas) -> None:
    validator = schema(f"{kind}-sheet")
    paths = [path for each, path in SHEETS if each == kind]
    assert paths
    for path in paths:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert not [f"{path.name}: {error.message}" for error in validator.iter_errors(data)]
        assert not validator.is_valid({**data, "zz": 1})


def places(data: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every path into a sheet."""
    for key, value in data.items() if isinstance(data, dict) else ():
        yield (*at, key)
        yield from places(value, (*at, key))


@settings(max_examples=200, deadline=None)
@given(sheet=st.sampled_from([s for s in SHEETS if s[1].stat().st_size < 4000]), draw=st.data())
def test_what_a_schema_refuses_the_reader_refuses(
    schema: Schemas, sheet: tuple[str, Path], draw: st.DataObject
) -> None:
    """A sheet with a key taken out, renamed or of another type: an editor never marks what would be read."""
    kind, path = sheet
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    *way, key = draw.draw(st.sampled_from(list(places(data))))
    inner = data
    for step in way:
        inner = inner[step]
    value = inner.pop(key)
    change = draw.draw(
        st.sampled_from(["drop", "rename", "text", "list", "map", "null", "number", "negative"])
    )
    if change != "drop":
        other = {"text": "zz", "list": ["zz"], "map": {"zz": 1}, "null": None, "number": 1.5, "negative": -1}
        inner[f"{key}zz" if change == "rename" else key] = other.get(change, value)
    text = yaml.dump(data, sort_keys=False)
    if not schema(f"{kind}-sheet").is_valid(yaml.safe_load(text)):
        with pytest.raises(InputError):
            READERS[kind][1](text, path.name)


def test_every_command_has_a_schema() -> None:
    held = {path.stem for path in (DOCS / "schemas").glob("*.json")}
    assert held == {*COMMANDS, *(f"{kind}-sheet" for kind in READERS)}
    # A probe needs torch: tests/probes holds its document to the same schema.
    assert {words.split()[0] for words in ASKED} | {"probe"} == set(COMMANDS)


@pytest.mark.parametrize("words", ASKED)
def test_documents_are_valid(
    words: str, ask: Callable[..., Any], schema: Schemas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    validator = schema(words.split()[0])
    document = ask(*words.split())
    assert not [error.message for error in validator.iter_errors(document)]
    for key in ("schema", "inputs", "conventions", "sources"):
        less = copy.copy(document)
        del less[key]
        assert not validator.is_valid(less)
    assert not validator.is_valid({**document, "schema": "infercost.other/1"})
    # Without its own keys it is no answer.
    header = ("schema", "inputs", "conventions", "sources", "inferred")
    assert not validator.is_valid({key: document[key] for key in header if key in document})


def pages() -> Iterator[tuple[str, Any]]:
    """Every command and every command inside one, as typer runs it."""

    def walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        yield name, command
        for inner, each in getattr(command, "commands", {}).items():
            yield from walk(f"{name} {inner}", each)

    for name in COMMANDS:
        yield from walk(name, typer.main.get_command(importlib.import_module(f"infercost.cli.{name}").app))


@pytest.mark.parametrize(("name", "command"), list(pages()), ids=[name for name, _ in pages()])
def test_help_is_a_sentence_then_examples(name: str, command: Any, run: Callable[..., Any]) -> None:
    shown = run(*name.split(), "--help").out
    before, _, options = shown.partition("\nOptions:\n")
    paragraphs = [" ".join(part.split()) for part in before.split("\n\n")]
    usage, sentence, *rest = [part for part in paragraphs if part]
    assert usage.startswith(f"Usage: infercost {name} ")
    assert sentence[0].isupper()
    assert sentence.endswith(".")
    assert rest, "an example"
    assert rest[0].startswith(f"infercost {name.split()[0]}")
    assert "--help" in options
    # No option without a word on it.
    for parameter in command.params:
        assert parameter.name == "help" or getattr(parameter, "help", ""), f"{name}: {parameter.name}"


@pytest.mark.parametrize(("name", "command"), list(pages()), ids=[name for name, _ in pages()])
def test_examples_in_help_are_well_formed(name: str, command: Any) -> None:
    """Every option of an example exists, and every value that can be taken apart is one."""
    root = typer.main.get_command(make_app())
    for line in (command.help or "").replace("\\\n", " ").splitlines():
        if not line.strip().startswith("infercost "):
            continue
        words = shlex.split(line)[1:]
        context = root.context_class(root, info_name="infercost")
        found, one, left = root.resolve_command(context, words)
        while hasattr(one, "commands") and left and left[0] in one.commands:
            one, left = one.commands[left[0]], left[1:]
        one.make_context(found, left, resilient_parsing=False)


def completed(*words: str) -> list[str]:
    """What Bash would offer for the last word."""
    env = {
        **os.environ,
        "_INFERCOST_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("infercost", *words)),
        "COMP_CWORD": str(len(words)),
    }
    script = [sys.executable, "-m", "infercost"]
    return subprocess.run(script, capture_output=True, text=True, check=True, env=env).stdout.split()


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("",), set(COMMANDS)),
        (("ser",), {"serve"}),
        (("kv", "--model", ""), set(model_names())),
        (("fit", "--gpu", ""), {*gpu_names(), *gpu_aliases()}),
        (("request", "--engine", ""), set(engine_names())),
        (("weights", "--weights", ""), set(recipe_names())),
        (("kv", "--kv", ""), set(formats())),
        (
            (
                "kv",
                "--kv-b",
            ),
            {"--kv-budget"},
        ),
        (("models", ""), {"list", "show", "import", "diff", "lint"}),
        (("explain", "paged"), {"pagedattention"}),
    ],
)
def test_names_complete(words: tuple[str, ...], wanted: set[str]) -> None:
    assert wanted <= set(completed(*words))


def every_command(name: str) -> Iterator[tuple[str, Any]]:
    """The command of a name, or each of those under it."""
    command: Any = typer.main.get_command(importlib.import_module(f"infercost.cli.{name}").app)
    if hasattr(command, "commands"):
        yield from ((f"{name} {sub}", each) for sub, each in command.commands.items())
    else:
        yield name, command


def test_every_gpu_and_model_completes_names() -> None:
    """`--gpu` and `--model` wherever they stand, and the sheets that `models` and `gpus` take."""
    asked = {"gpu": {*gpu_names(), *gpu_aliases()}, "model": set(model_names())}
    seen = []
    for where, command in (found for name in COMMANDS for found in every_command(name)):
        for param in command.params:
            kind = next((kind for kind in asked if f"--{kind}" in param.opts), None)
            kind = (
                {"gpus show": "gpu", "gpus lint": "gpu"}.get(where, kind) if param.opts[0][0] != "-" else kind
            )
            if kind is not None:
                ctx = command.make_context(where, [], resilient_parsing=True)
                offered = {item.value for item in param.shell_complete(ctx, "")}
                assert asked[kind] <= offered, (where, param.opts)
                seen.append(where)
    assert {"probe", "calibrate", "validate", "fit", "gpus lint", "explain"} <= set(seen)


@pytest.mark.parametrize(
    ("shell", "mark"), [("bash", "complete -o"), ("zsh", "#compdef"), ("fish", "complete --")]
)
def test_completion_can_be_installed(shell: str, mark: str, tmp_path: Path) -> None:
    env = {**os.environ, "HOME": str(tmp_path), "SHELL": f"/bin/{shell}", "TYPER_USE_RICH": "0"}
    env["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"
    base = [sys.executable, "-m", "infercost"]
    shown = subprocess.run(
        [*base, "--show-completion", shell], capture_output=True, text=True, check=True, env=env
    )
    assert mark in shown.stdout
    subprocess.run([*base, "--install-completion", shell], capture_output=True, check=True, env=env)
    written = [path.read_text(encoding="utf-8") for path in tmp_path.rglob("*") if path.is_file()]
    assert any("_INFERCOST_COMPLETE=complete" in text for text in written)
