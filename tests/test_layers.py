"""The arrows: models, hardware -> costmodel -> probes -> cli, and what each layer may not touch."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ORDER = {"models": 0, "hardware": 0, "costmodel": 1, "probes": 2, "cli": 3}
PURE = {
    "__future__",
    "collections",
    "dataclasses",
    "functools",
    "heapq",
    "itertools",
    "math",
    "sys",
    "typing",
}
READERS = ("models.catalogue", "models.sheet", "hardware.catalogue", "sheets")
"""Modules that read files or parse sheets: not for the cost model."""


def files() -> list[Path]:
    return [path for folder in ORDER for path in sorted((ROOT / folder).rglob("*.py"))]


def imports(path: Path) -> list[str]:
    """Absolute names of everything `path` imports; our own start with `infercost.`."""
    package = ["infercost", *path.relative_to(ROOT).with_suffix("").parts]
    out = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            out += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            out += [f"{module}.{name.name}" for name in node.names]
    return out


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_nothing_imports_against_the_arrow(path: Path) -> None:
    mine = path.relative_to(ROOT).parts[0]
    for name in imports(path):
        parts = name.split(".")
        if parts[0] != "infercost" or len(parts) < 2 or parts[1] not in ORDER:
            continue
        theirs = parts[1]
        assert theirs == mine or ORDER[theirs] < ORDER[mine], f"{path} imports {name}"


@pytest.mark.parametrize("path", sorted((ROOT / "costmodel").rglob("*.py")), ids=lambda p: p.name)
def test_the_cost_model_is_pure(path: Path) -> None:
    """No I/O, no third party, no sheet parsing: only the standard library's pure modules and ours."""
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "infercost":
            assert not name.removeprefix("infercost.").startswith(READERS), f"{path} imports {name}"
        else:
            assert parts[0] in PURE, f"{path} imports {name}"
    text = path.read_text(encoding="utf-8")
    for call in ("open(", "print(", "eval(", "exec("):
        assert call not in text, f"{path} calls {call}"


def test_only_probes_many_steps_and_tensor_files_import_numpy() -> None:
    """The analytic commands start without it; the cost model takes its arrays without importing it."""
    sweeps = {"sweep_points.py", "sweep_filter.py", "sweep_files.py", "sweep_summary.py"}
    allowed = {ROOT / "cli" / name for name in ("request.py", "tensors.py", *sweeps)}
    for path in files():
        if path.relative_to(ROOT).parts[0] != "probes" and path not in allowed:
            assert not any(name.split(".")[0] in ("numpy", "torch") for name in imports(path)), path


def test_the_root_holds_what_it_may() -> None:
    """Every .py in the root ships as the package's own; no other belongs there."""
    assert {path.name for path in ROOT.glob("*.py")} == {"__init__.py", "__main__.py", "sheets.py"}
