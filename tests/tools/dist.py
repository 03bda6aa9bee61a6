"""The wheel and the source distribution as a user gets them: built, checked, installed on every Python found.

`python tests/tools/dist.py`: into dist/. Each of the two goes into a fresh environment of each Python from
3.11 on that is on PATH, with the pinned constraints, and must answer there, outside this folder.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
OLDEST, NEWEST_TRIED = 11, 20
ASKED = ("kv", "--model", "llama-7b", "--seq", "32k", "--quiet")
ANSWER = "17179869184"


def interpreters() -> list[str]:
    """A working `python3.N` of each version there is (a shim of one that is not active does not work)."""
    found = []
    for minor in range(OLDEST, NEWEST_TRIED + 1):
        path = shutil.which(f"python3.{minor}")
        for each in filter(None, (path, *map(str, pyenv(minor)))):
            tried = subprocess.run([each, "-c", "import venv, ensurepip"], capture_output=True, check=False)
            if tried.returncode == 0:
                found.append(each)
                break
    return found


def pyenv(minor: int) -> list[Path]:
    versions = Path.home() / ".pyenv" / "versions"
    return sorted(versions.glob(f"3.{minor}.*/bin/python3"))


def build() -> list[Path]:
    """Made from a copy: setuptools would ship what an old build/ holds."""
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        ignored = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info")
        shutil.copytree(ROOT, source, ignore=ignored)
        check([sys.executable, "-m", "build", "-q", "--no-isolation", "--outdir", str(DIST), str(source)])
    made = sorted(DIST.iterdir())
    check([sys.executable, "-m", "twine", "check", "--strict", *map(str, made)])
    return made


def answers(python: str, package: Path) -> None:
    """Raises where `package` cannot be installed, or gives another answer."""
    with tempfile.TemporaryDirectory() as folder:
        check([python, "-m", "venv", folder])
        pip = [f"{folder}/bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        check([*pip, "-c", str(ROOT / "constraints.txt"), str(package)])
        said = check([f"{folder}/bin/infercost", *ASKED], cwd=folder).strip()
        if said != ANSWER:
            raise SystemExit(f"{package.name} on {python} says {said[:200]!r}, not {ANSWER}")


def check(command: list[str], cwd: str | None = None) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)}\n{ended.stdout[-3000:]}{ended.stderr[-3000:]}")
    return ended.stdout


def main() -> None:
    made = build()
    print("built and checked: " + ", ".join(each.name for each in made), flush=True)
    for python in interpreters():
        version = check([python, "--version"]).strip()
        for package in made:
            answers(python, package)
            kind = re.sub(r".*(\.whl|\.tar\.gz)$", r"\1", package.name)
            print(f"{version}: {kind} installed and answers", flush=True)


if __name__ == "__main__":
    main()
