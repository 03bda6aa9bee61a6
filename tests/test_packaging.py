"""What ships: every package, every sheet, in the wheel and in the source distribution."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SHEETS = sorted(
    p.relative_to(ROOT).as_posix() for f in ("models", "hardware") for p in (ROOT / f).rglob("*.yaml")
)


def test_every_package_is_listed() -> None:
    listed = set(CONFIG["tool"]["setuptools"]["packages"])
    folders = {
        p.parent
        for name in ("cli", "costmodel", "hardware", "models", "probes")
        for p in (ROOT / name).rglob("__init__.py")
    }
    found = {"infercost", *(f"infercost.{f.relative_to(ROOT).as_posix().replace('/', '.')}" for f in folders)}
    sheets = {f"infercost.{Path(s).parent.as_posix().replace('/', '.')}" for s in SHEETS}
    assert listed == found | sheets
    assert set(CONFIG["tool"]["setuptools"]["package-data"]) == {"infercost"} | sheets


def test_wheel_and_sdist_hold_every_sheet(tmp_path: Path) -> None:
    pytest.importorskip("build", reason="the build package is not installed")
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info")
    shutil.copytree(ROOT, source, ignore=ignored)
    command = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        str(tmp_path / "dist"),
        str(source),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"infercost/{sheet}" for sheet in SHEETS} <= names
    assert {"infercost/py.typed", "infercost/__main__.py", "infercost/cli/output/as_json.py"} <= names
    assert not any(name.startswith(("infercost/tests", "tests/")) for name in names)
    (sdist,) = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    extra = {"CHANGELOG.md", "LICENSE", "README.md", "constraints.txt", "Makefile", "tests/conftest.py"}
    assert set(SHEETS) | extra <= held


def test_version_is_where_it_is_read() -> None:
    import infercost

    assert CONFIG["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "infercost.__version__"}
    assert infercost.__version__.count(".") == 2
    assert infercost.__version__ in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
