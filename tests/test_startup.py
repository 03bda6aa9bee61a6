"""The analytic commands start fast: what they may not import. Times are in tests/tools/startup.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = {
    "rich",
    "pandas",
    "numpy",
    "torch",
    "pydantic",
    "click",
    "matplotlib",
    "scipy",
    "transformers",
    "gguf",
}
PROBE = """
import sys
sys.argv = ["infercost", *{args!r}]
from infercost.cli.app import main
try:
    main()
except SystemExit as leaving:
    assert not leaving.code, leaving.code
print(" ".join(sorted(sys.modules)), file=sys.stderr)
"""


def modules(*args: str) -> set[str]:
    code = PROBE.format(args=list(args))
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(result.stderr.split())


@pytest.mark.parametrize(
    "args",
    [
        ("kv", "--model", "llama-7b", "--seq", "32k", "--json"),
        ("kv", "--model", "llama-7b", "--seq", "32k"),
        ("weights", "--model", "llama-7b", "--csv"),
        ("ops", "--model", "llama-7b", "--seq", "1k"),
        ("roofline", "--gpu", "a100"),
        ("quant", "--values", "1,2,3"),
        ("quant", "--model", "llama-7b", "--seq", "1k"),
        ("compress", "--sparsity", "0.6"),
        ("speculate", "--walk", "2,0,1,3"),
        ("speculate", "--model", "llama-7b", "--draft", "llama-68m", "--alpha", "0.7"),
        ("speculate", "--cascade", "llama-3-8b,llama-3-70b", "--accept", "0.6"),
        ("diagnose", "--model", "llama-7b", "--prompt", "512", "--gen", "16"),
        ("explain",),
        ("explain", "kv"),
        ("explain", "splitfuse"),
        ("serve", "--model", "llama-7b", "--prompt", "512", "--lengths", "uniform", "--simulate"),
        ("check", "docs/example/budgets.yaml", "--only", "kv-per-token,weights,fits"),
    ],
)
def test_heavy_modules_are_absent(args: tuple[str, ...]) -> None:
    loaded = modules(*args)
    assert not {name.split(".")[0] for name in loaded} & HEAVY


def test_kv_imports_no_other_command_and_no_operations() -> None:
    loaded = modules("kv", "--model", "llama-7b", "--seq", "32k", "--quiet")
    others = {"weights", "ops", "roofline", "models", "gpus", "braille"}
    assert not loaded & {f"infercost.cli.{name}" for name in others}
    assert not loaded & {f"infercost.costmodel.{name}" for name in ("op", "forward", "roofline", "step")}
    assert not any(name.startswith("infercost.hardware") for name in loaded)


def test_only_the_sheet_needed_is_read() -> None:
    code = """
import sys
from infercost.models import catalogue
read = []
real = catalogue.model_from_text
def spy(text, origin, trusted=False):
    read.append(origin)
    return real(text, origin, trusted)
catalogue.model_from_text = spy
catalogue.load_model("llama-7b")
print(read)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "['llama-7b.yaml']"
