"""The arrows: models, hardware -> costmodel -> probes -> cli, and what each layer may not touch."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from infercost.models.kinds import KINDS

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
LENT = {
    "hardware": {
        "calibration": "Calibration Group Key",
        "engine": "Engine EngineMemory EngineTimes Machine",
        "spec": "Gpu MIB",
    },
    "models": {
        "block": "Block",
        "cache": "CacheSpec seen_rows",
        "dimensions": "ceil_div least rounded_up",
        "formats": "Format Scale ceil_div find_format",
        "kinds": "KINDS",
        "recipes": "Recipe default_recipe find_recipe sixteen_bit",
        "sparsity": "pattern",
        "spec": "Encoder Layer Model grouped",
        "tensor": "Tensor vector",
    },
}
for kind in KINDS.values():
    module = kind.__module__.rpartition(".")[2]
    LENT["models"][module] = f"{LENT['models'].get(module, '')} {kind.__name__}"
"""All that the cost model takes of the layers below: what a sheet was read into, and nothing that reads. Each
kind of block is one of them."""
NAMES = {
    f"infercost.{layer}.{module}.{name}"
    for layer, modules in LENT.items()
    for module, names in modules.items()
    for name in names.split()
}
IN_MEMORY = [
    ROOT / layer / f"{module}.py"
    for layer, modules in LENT.items()
    for module in modules
    if module != "engine"  # which holds its reader, too; `load_engine` is none of the names
]


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
        if name.startswith("infercost."):
            own = name == "infercost.InputError" or name.startswith("infercost.costmodel.")
            assert own or name in NAMES, f"{path} imports {name}"
        else:
            assert name.split(".")[0] in PURE, f"{path} imports {name}"
    calls_nothing_that_reads(path)


def calls_nothing_that_reads(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for call in ("open(", "read_text(", "print(", "eval(", "exec(", "__import__("):
        assert call not in text, f"{path} calls {call}"


def test_the_cost_model_is_lent_no_more_than_it_takes() -> None:
    taken = {name for path in (ROOT / "costmodel").rglob("*.py") for name in imports(path)}
    assert taken >= NAMES


@pytest.mark.parametrize("path", IN_MEMORY, ids=lambda p: p.name)
def test_what_it_is_lent_reads_nothing_either(path: Path) -> None:
    """`nearest` finds the name that was meant; beside it none of these has to do with a sheet's text."""
    for name in imports(path):
        assert not name.startswith(("infercost.sheets", "yaml")) or name == "infercost.sheets.nearest", name
        assert "catalogue" not in name, name
    calls_nothing_that_reads(path)


def test_only_probes_many_steps_and_tensor_files_import_numpy() -> None:
    """The analytic commands start without it; the cost model takes its arrays without importing it."""
    sweeps = {"sweep_points.py", "sweep_filter.py", "sweep_files.py", "sweep_summary.py"}
    allowed = {ROOT / "cli" / name for name in ("steps.py", "tensors.py", *sweeps)}
    for path in files():
        if path.relative_to(ROOT).parts[0] != "probes" and path not in allowed:
            assert not any(name.split(".")[0] in ("numpy", "torch") for name in imports(path)), path


WINDOWS = {
    "attention": "a block of the model",
    "block": "a block of the model",
    "group": "what a table says of a cache",
    "self": "a class's own",
    "work": "a kernel",
}
"""Whose `window` may be read: what these names are, of which none is a cache."""


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_only_a_cache_knows_how_much_of_it_there_is(path: Path) -> None:
    """A window, a row or the encoder's positions in another module is a formula that the next kind of cache
    makes wrong there. (`block.caches()[0].rows` is the block of a kernel, which appends and reads them.)"""
    if path == ROOT / "models" / "cache.py":
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            of = ast.unparse(node.value)
            where = f"{path.name}:{node.lineno}: {of}.{node.attr}"
            if node.attr == "window":
                assert of in WINDOWS, where
            assert node.attr not in ("rows", "counts") or not of.endswith("cache"), where
        elif isinstance(node, ast.Compare) and not isinstance(node.ops[0], (ast.In, ast.NotIn)):
            kinds = [each for each in (node.left, *node.comparators) if isinstance(each, ast.Constant)]
            assert not any(each.value in ("cross_attention", "encoder") for each in kinds), path


def test_the_root_holds_what_it_may() -> None:
    """Every .py in the root ships as the package's own; no other belongs there."""
    assert {path.name for path in ROOT.glob("*.py")} == {"__init__.py", "__main__.py", "sheets.py"}
