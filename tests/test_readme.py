"""The README and the docs show what the commands print today."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOOL = ROOT / "tests" / "tools" / "readme.py"


def test_outputs_are_current() -> None:
    result = subprocess.run(
        [sys.executable, str(TOOL), "--check"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_links_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\((?!http|#)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize(
    "words",
    [
        "142.5",
        "153.0",
        "114.7",
        "2,188",
        "2,731",
        "only the 34B and the 70B",
        "an entry is quantised once",
        "5 % of the pre-training compute",
    ],
)
def test_the_textbook_page_says_how_the_two_differ(words: str) -> None:
    assert words in (ROOT / "docs" / "textbook.md").read_text(encoding="utf-8")


def test_as_many_sheets_as_the_readme_says() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    said = re.search(r"`infercost models` \((\d+) of them\) and `infercost gpus` \((\d+)\)", text)
    assert said is not None
    folders = (ROOT / "models" / "sheets", ROOT / "hardware" / "sheets")
    assert [int(number) for number in said.groups()] == [len(list(f.glob("*.yaml"))) for f in folders]


def test_the_two_lines_are_in_the_readme() -> None:
    """One that sets up and runs the main job, one that sets up and passes the tests; .ci/run uses it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("python3 -m venv")]
    assert len(lines) == 2
    assert lines[0].endswith("infercost kv --model llama-7b --seq 32k")
    assert lines[1].endswith(".venv/bin/pytest")
