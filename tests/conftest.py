"""What every test may use: the command line in this process, the shared facts where they are."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import math
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared"


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


def run_command(*args: str, stdin: str | bytes | None = None) -> Result:
    """`infercost ARGS` in this process: exit code, standard output, standard error."""
    from infercost.cli.app import main

    out, err = io.StringIO(), io.StringIO()
    given = stdin.encode() if isinstance(stdin, str) else stdin or b""
    old = sys.argv, sys.stdin
    sys.argv, sys.stdin = ["infercost", *args], io.TextIOWrapper(io.BytesIO(given), encoding="utf-8")
    code: Any = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as leaving:
        code = leaving.code or 0
    finally:
        sys.argv, sys.stdin = old
        gc.unfreeze()
        gc.enable()
    return Result(int(code), out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def run() -> Callable[..., Result]:
    return run_command


@pytest.fixture(scope="session")
def ask() -> Callable[..., Any]:
    """The JSON of `infercost ARGS`."""

    def asked(*args: str, stdin: str | None = None) -> Any:
        return run_command(*args, "--json", stdin=stdin).json

    return asked


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared facts; tests that hold our vendored figures to it skip without it."""
    if not SHARED.is_dir():  # it is lent to this project's makers, not part of it
        pytest.skip("../shared is not there: figures are not held to their source here")
    return SHARED


@pytest.fixture(scope="session")
def ledger(shared: Path) -> dict[str, Any]:
    """The entries of the seed ledger by their ids."""
    import yaml

    text = (shared / "seed" / "ledger.yaml").read_text(encoding="utf-8")
    return {entry["id"]: entry for entry in yaml.safe_load(text)["entries"]}


@pytest.fixture(scope="session")
def holds() -> Callable[..., None]:
    """Asserts that figures (one, a list, or by name) are those wanted: to a relative tolerance, or to so many
    digits; exactly where neither is given."""

    def by_name(figures: Any) -> dict[Any, Any]:
        if isinstance(figures, dict):
            return figures
        return dict(enumerate(figures)) if isinstance(figures, list) else {"value": figures}

    def held(got: Any, wanted: Any, tolerance: float = 0.0, digits: float = 0.0) -> None:
        got, wanted = by_name(got), by_name(wanted)
        assert set(got) == set(wanted)
        for key, value in wanted.items():
            if tolerance or digits:
                close = math.isclose(got[key], value, rel_tol=tolerance, abs_tol=digits)
                assert close, (key, got[key], value)
            else:
                assert got[key] == value, key

    return held


@pytest.fixture(scope="session")
def schema() -> Callable[[str], Any]:
    """The validator of docs/schemas/NAME.json."""
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")

    @cache
    def validator(name: str) -> Any:
        held = json.loads((ROOT / "docs" / "schemas" / f"{name}.json").read_text(encoding="utf-8"))
        jsonschema.Draft202012Validator.check_schema(held)
        return jsonschema.Draft202012Validator(held)

    return validator


@pytest.fixture
def small_llama() -> dict[str, Any]:
    """A config.json that says no more than it must."""
    return {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 100,
    }


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No terminal, colour or defaults from the machine that runs the tests."""
    for name in ("FORCE_COLOR", "NO_COLOR", "INFERCOST_MODEL", "INFERCOST_GPU", "INFERCOST_RIDGE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("_TYPER_FORCE_DISABLE_TERMINAL", "1")
    monkeypatch.setenv("TERMINAL_WIDTH", "100")
